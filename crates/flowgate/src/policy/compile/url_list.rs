//! Compiles calls of `is_url_on` and `is_url_on_domain` that take the permitted hosts from trusted text: from the
//! answers of a tool, as in `is_url_on(url, tool:NAME)`, or from messages, as in `is_url_on(url, Message)`. Only
//! `endorse` and `consent` statements may contain such calls. The compiler of calls passes each call of a built-in
//! function to [`listed_url`](Compiler::listed_url).
//!
//! Also checks the domains that a policy itself lists for `is_url_on_domain`, in any statement. Each must be
//! registrable, that is, belong to one owner: below `co.uk`, for example, anybody can register a name.

use super::super::plan::{CompiledExpr, ListSource, ListedForm};
use super::super::syntax::{Expr, ExprKind};
use super::body::Scope;
use super::{CompileResult, Compiler};
use crate::url_host::registrable_domain;

impl Compiler<'_> {
    /// Compiles a call of `is_url_on` or `is_url_on_domain` that takes the hosts from trusted text: from the answers
    /// of a tool (`is_url_on(url, tool:NAME)`) or from messages (`is_url_on(url, Message)`). `function` is the name of
    /// the called function. Returns `None` if the caller must compile the call like any other call:
    ///
    /// * it calls another function, or has a number of arguments other than two;
    /// * the policy itself lists the hosts;
    /// * `tool:NAME` is outside of `endorse` and `consent`; the compilation of patterns then rejects it.
    ///
    /// # Errors
    /// If a domain that the policy lists is not registrable, or if the call takes the hosts from `Message` outside of
    /// `endorse` and `consent`.
    pub(super) fn listed_url(
        &mut self,
        function: &str,
        arguments: &[Expr],
        scope: &mut Scope,
    ) -> CompileResult<Option<CompiledExpr>> {
        let form = match function {
            "is_url_on" => ListedForm::Host,
            "is_url_on_domain" => ListedForm::RegistrableDomain,
            _ => return Ok(None),
        };
        let [value, list] = arguments else { return Ok(None) };
        if form == ListedForm::RegistrableDomain {
            self.check_domains(list)?;
        }
        let is_message = matches!(&*list.kind, ExprKind::Name(name) if name == "Message");
        // `tests_lists` is true while the conditions of `endorse` and `consent` are compiled.
        if !self.tests_lists {
            if is_message {
                let help = "list the hosts: `is_url_on(VALUE, [\"example.org\"])`";
                return self.fail(
                    "message",
                    &list.span,
                    "only a condition of `endorse` or `consent` can test for the hosts that messages name",
                    help,
                );
            }
            return Ok(None);
        }
        let source = match self.tool_or_group(list, scope)? {
            Some(tool) => Some(self.answers(&tool, list, scope)?),
            None => is_message.then_some(ListSource::Messages),
        };
        let Some(source) = source else { return Ok(None) };
        let value = self.expression(value, scope)?;
        Ok(Some(CompiledExpr::Listed(Box::new(value), source, form)))
    }

    /// Fails if a domain that the policy lists is not a registrable one: if it is a public suffix, below which anyone
    /// can register a name, or a host below a registrable domain.
    fn check_domains(&mut self, list: &Expr) -> CompileResult<()> {
        let items = match &*list.kind {
            ExprKind::List(items) => items.iter().collect(),
            _ => vec![list],
        };
        for item in items {
            // Only a domain that the policy spells out is checked. A computed one needs no check: if it is not
            // registrable, it matches no URL.
            let ExprKind::Str(domain) = &*item.kind else { continue };
            let help = match registrable_domain(&domain.to_ascii_lowercase()) {
                Some(found) if found.eq_ignore_ascii_case(domain) => continue,
                Some(found) => format!("write `{found}`, or test the host with `is_url_on`"),
                None => "write a name that one owner has registered, such as `example.org`".to_owned(),
            };
            return self.fail("domain", &item.span, format!("`{domain}` is not a registrable domain"), help);
        }
        Ok(())
    }
}
