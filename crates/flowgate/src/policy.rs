//! Parses, checks and compiles policies: from source text to a [`Policy`], which the monitor and the analysis evaluate.
//!
//! `source` reads the text and the imported files, the `lexer` converts text to tokens, the `parser` tokens to a
//! `syntax` tree, and `compile` the tree to a `plan`. The plan contains the source locations of statements, so that a
//! verdict can show which statement it follows from. Errors and warnings are values of [`Diagnostic`]; `compat`,
//! `roles` and `captures` add warnings about valid policies.
//!
//! The other submodules define what plans consist of: patterns for tools (`pattern`) and for texts (`regex`,
//! `pattern_bits`), roles of arguments (`argument_role`, `role_guess`), grants (`grant_scope`), sums (`exact_amount`)
//! and dialects (`dialect`). `event_path` determines which part of an event an expression denotes, for the checks of
//! names in `occurrence` and `tool_schemas`.

mod argument_role;
mod captures;
mod compat;
mod compile;
pub mod diagnostic;
pub(crate) mod dialect;
pub(crate) mod event_path;
pub(crate) mod exact_amount;
mod grant_scope;
mod lexer;
mod parser;
pub(crate) mod pattern;
pub(crate) mod pattern_bits;
pub(crate) mod plan;
pub(crate) mod regex;
mod role_guess;
pub(crate) mod roles;
mod source;
pub(crate) mod syntax;

use std::fmt;

pub use argument_role::ArgumentRole;
pub use diagnostic::{Diagnostic, Severity, Span};
pub use dialect::Dialect;
pub(crate) use grant_scope::GrantClause;
pub use grant_scope::GrantScope;
pub use parser::MAX_SOURCE;
pub use role_guess::{cautious_role, name_words, suggested_role};
pub use source::{PolicySource, SourceLocation};
pub use syntax::Action;

use crate::label::Space;
use crate::trace::Tool;
use pattern::ToolPattern;
use plan::Plan;

/// Returns the functions that policies can call: name, minimum and maximum number of arguments, and description.
pub fn functions() -> impl Iterator<Item = (&'static str, (usize, usize), &'static str)> {
    crate::builtin::function_reference()
}

/// A policy that has errors.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidPolicy {
    /// The text that the diagnostics refer to.
    pub source: PolicySource,
    /// All diagnostics, in order of location. At least one is an error.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for InvalidPolicy {
    /// Writes each diagnostic on a line of its own, after its location.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {diagnostic}", self.source.locate(diagnostic.span.start))?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidPolicy {}

/// Approximate size of one character range in a compiled pattern, in bytes.
const RANGE: usize = 56;

/// An enforceable policy.
pub struct Policy {
    source: PolicySource,
    pub(crate) plan: Plan,
    warnings: Vec<Diagnostic>,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("source", &self.source()).finish_non_exhaustive()
    }
}

impl Policy {
    /// Parses and compiles a policy in Flowgate's dialect that is given as one text. An import of a file is an error.
    ///
    /// ```
    /// use flowgate::policy::Policy;
    ///
    /// let policy = Policy::parse("lattice integrity: trusted < untrusted\n")?;
    /// assert!(!policy.is_rules_only());
    /// # Ok::<(), Vec<flowgate::policy::Diagnostic>>(())
    /// ```
    ///
    /// # Errors
    /// All diagnostics, in order of location, if any of them is an error.
    pub fn parse(source: &str) -> Result<Self, Vec<Diagnostic>> {
        Self::parse_as(source, Dialect::Flowgate)
    }

    /// Parses and compiles a policy that is given as one text, in a dialect. An import of a file is an error.
    ///
    /// # Errors
    /// All diagnostics, in order of location, if any of them is an error.
    pub fn parse_as(source: &str, dialect: Dialect) -> Result<Self, Vec<Diagnostic>> {
        let refuse = |_: &str| {
            Err("a policy that is given as one text cannot import files; write the imported statements into it".to_owned())
        };
        Self::load(source, dialect, refuse).map_err(|invalid| invalid.diagnostics)
    }

    /// Parses and compiles a policy that may import other files with `import "PATH"`. `read` returns the text of an
    /// imported file, given its path relative to the folder of the policy's own file, or the reason why it cannot be
    /// read. The reason may end with advice after `; `; otherwise the diagnostic advises to check the path.
    ///
    /// # Errors
    /// All diagnostics, in order of location, if any of them is an error.
    pub fn load(
        source: &str,
        dialect: Dialect,
        read: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, InvalidPolicy> {
        let (source, file, mut diagnostics) = source::Loader::load(source, dialect, read);
        let (plan, compile_diagnostics) = compile::compile(&file, dialect);
        diagnostics.extend(compile_diagnostics);
        let has_error =
            |diagnostics: &[Diagnostic]| diagnostics.iter().any(|d| d.severity == Severity::Error);
        // These checks only warn, about policies in Flowgate's dialect that a reader can misunderstand.
        if dialect == Dialect::Flowgate && !has_error(&diagnostics) {
            diagnostics.extend(compat::warnings(&file, source.text()));
            diagnostics.extend(roles::misspelled_roles(&file.statements));
            diagnostics.extend(captures::warnings(&plan, &source));
        }
        diagnostics.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.span.end));
        diagnostics.dedup();
        if has_error(&diagnostics) {
            return Err(InvalidPolicy { source, diagnostics });
        }
        Ok(Self { source, plan, warnings: diagnostics })
    }

    /// Returns the policy with another text in place of its own file's text. Imported files are not read again, so the
    /// text can import only files that are part of this policy.
    ///
    /// # Errors
    /// The diagnostics, if the result is not valid.
    pub fn with_own_text(&self, text: &str) -> Result<Self, InvalidPolicy> {
        Self::load(text, self.plan.dialect, |path| self.source.read(path))
    }

    /// Returns the policy with statements appended to the policy's own file. Imported files are not read again.
    ///
    /// # Errors
    /// The diagnostics, if the result is not valid.
    pub fn with_statements(&self, statements: &str) -> Result<Self, InvalidPolicy> {
        let mut own = self.source.own_text().to_owned();
        own.push('\n');
        own.push_str(statements);
        own.push('\n');
        self.with_own_text(&own)
    }

    /// Returns the text of the policy and of all files that it imports.
    pub fn source(&self) -> &str {
        self.source.text()
    }

    /// Returns the files of the policy.
    pub fn files(&self) -> &PolicySource {
        &self.source
    }

    /// Returns the approximate size in bytes, for a caller that caches policies: the source text and the compiled
    /// patterns, which may be far larger.
    pub fn size(&self) -> usize {
        self.source().len() + self.plan.patterns_weight.saturating_mul(RANGE)
    }

    /// Returns the syntax tree of the source text.
    pub(crate) fn syntax(&self) -> syntax::PolicyFile {
        self.source.syntax(self.plan.dialect)
    }

    /// Returns the warnings about the policy: diagnostics that do not prevent its use.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Returns the dimensions that the policy declares.
    pub fn space(&self) -> &Space {
        &self.plan.space
    }

    /// Returns the tools that are named exactly by a pattern of the policy, in the order of first mention, without the
    /// tools that are part of Flowgate, such as `look`. Patterns that can match several tools are omitted.
    pub fn named_tools(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = Vec::new();
        for tool in self.plan.patterns.iter().filter_map(ToolPattern::tool) {
            if !tools.contains(&tool) && tool.server.as_deref() != Some(Tool::FLOWGATE_SERVER) {
                tools.push(tool);
            }
        }
        tools
    }

    /// Returns one example tool for each pattern of the policy, without duplicates: the tool that the pattern names,
    /// or one with `example` for each `*`. Omits regular expressions, of which no example is derived, and the tools
    /// that are part of Flowgate.
    pub fn example_tools(&self) -> Vec<Tool> {
        let mut examples: Vec<Tool> = Vec::new();
        for tool in self.plan.patterns.iter().filter_map(ToolPattern::example) {
            if !examples.contains(&tool) && tool.server.as_deref() != Some(Tool::FLOWGATE_SERVER) {
                examples.push(tool);
            }
        }
        examples
    }

    /// Returns the names of the predicates that the policy declares with `extern`.
    pub fn externs(&self) -> impl Iterator<Item = &str> {
        self.plan.externs.iter().map(|declared| &*declared.name)
    }

    /// Returns the names of the parameters that the policy reads: each NAME of `input.NAME`, sorted.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.plan.parameters.iter().map(String::as_str)
    }

    /// Returns whether the policy declares no lattice: then labels restrict nothing, and only its rules apply.
    pub fn is_rules_only(&self) -> bool {
        self.plan.space.dimensions().is_empty()
    }

    /// Returns whether the policy has a `default` statement, which declares the label of regions that no statement
    /// labels. Without one, they are labelled top.
    pub fn has_default_label(&self) -> bool {
        self.plan.default.is_some()
    }

    /// Returns the text of the policy at `span`, which is one line, without the comment at its end, to show it to a
    /// person. A comment is recognized by two spaces and `#`. So a comment after a single space remains, and a quoted
    /// text that contains two spaces and `#` is cut off.
    pub fn excerpt(&self, span: &Span) -> &str {
        let line = self.source().get(span.clone()).unwrap_or("");
        line.split("  #").next().unwrap_or(line).trim_end()
    }

    /// Returns the standing consents of the policy: for each, the number of its line (from 1) and the text of this
    /// line, the first of the statement.
    pub fn consents(&self) -> impl Iterator<Item = (usize, &str)> {
        self.plan.consents.iter().map(|consent| (self.line(&consent.span), self.excerpt(&consent.span)))
    }

    /// Returns the locations of the `endorse` statements about an argument of a tool, or about a field of the argument.
    /// Whether they endorse a value depends on their conditions. Omits statements about the items of a list, in which a
    /// variable ranges over the items (`(x: str) in call.arguments.to`).
    pub fn endorsements<'p>(&'p self, tool: &'p Tool, argument: &'p str) -> impl Iterator<Item = &'p Span> {
        let plan = &self.plan;
        let is_for = move |endorsement: &&plan::Endorsement| {
            let mut patterns = endorsement.query.tools.iter().filter_map(|id| plan.patterns.get(id.0));
            // The path of a target is `arguments`, then the name of the argument.
            let name = endorsement.target.steps.get(1);
            patterns.all(|pattern| pattern.matches(tool))
                && matches!(name, Some(plan::TargetStep::Key(key)) if **key == *argument)
        };
        plan.endorsements.iter().filter(is_for).map(|endorsement| &endorsement.span)
    }

    /// Returns the role of an argument of a tool: the one that the policy declares (of several, the one with the
    /// greatest effect), or else the one that its name suggests; `None` if there is neither.
    pub fn argument_role(&self, tool: &Tool, argument: &str) -> Option<ArgumentRole> {
        let declared = self.plan.roles.iter().filter(|role| {
            let mut patterns = role.tools.iter().filter_map(|id| self.plan.patterns.get(id.0));
            role.argument == argument && patterns.all(|pattern| pattern.matches(tool))
        });
        // `ArgumentRole` orders the roles by their effects, the greatest effect first.
        declared.map(|role| role.role).min().or_else(|| suggested_role(argument))
    }

    /// Returns where `span` begins: its file, if it is imported, and the line and column.
    pub fn locate(&self, span: &Span) -> SourceLocation<'_> {
        self.source.locate(span.start)
    }

    /// Returns the line, from 1, on which `span` begins in [the text of all files](Self::source), which identifies a
    /// statement. [`locate`](Self::locate) returns the location to show to a person.
    pub fn line(&self, span: &Span) -> usize {
        self.source().get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endorsements_are_found_by_tool_and_argument() {
        let policy = Policy::parse(
            "lattice integrity: trusted < untrusted\nendorse call.arguments.day as trusted if:\n    \
             (call: ToolCall) is tool:book_*\n    is_date(call.arguments.day)\n",
        )
        .unwrap();
        for (tool, argument, lines) in [
            (Tool::local("book_hotel"), "day", vec![2]),
            (Tool::local("book_hotel"), "hotel", vec![]),
            (Tool::local("pay"), "day", vec![]),
        ] {
            let found: Vec<usize> =
                policy.endorsements(&tool, argument).map(|span| policy.line(span)).collect();
            assert_eq!(found, lines, "{tool} {argument}");
        }
    }

    #[test]
    fn rules_that_join_many_events_are_named() {
        let warnings = |source: &str| {
            let policy = Policy::parse(source).unwrap();
            policy
                .warnings()
                .iter()
                .map(|warning| (warning.code, policy.line(&warning.span)))
                .collect::<Vec<_>>()
        };
        let pair = "raise \"x\" if:\n    (a: ToolCall) -> (b: ToolCall)\n";
        assert_eq!(warnings(pair), []);
        assert_eq!(warnings(&format!("{pair}    b -> (c: Message)\n")), [("superlinear", 1)]);
    }
}
