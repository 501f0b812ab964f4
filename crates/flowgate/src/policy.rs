//! Policies: from source text to something that can be enforced.
//!
//! `lexer` to `parser` to `syntax` to `compile` to `plan`: each stage is one module with a type of its own,
//! and every place in the source survives to the plan, so that a verdict can show the statement behind it.

mod compat;
mod compile;
pub mod diagnostic;
mod lexer;
mod parser;
pub(crate) mod pattern;
pub(crate) mod plan;
pub(crate) mod regex;
pub(crate) mod syntax;

use std::fmt;

pub use diagnostic::{Diagnostic, Severity, Span};
pub use parser::MAX_SOURCE;
pub use syntax::Action;

use crate::label::Space;
use crate::trace::Tool;
use pattern::ToolPattern;
use plan::Plan;

/// How a policy is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Dialect {
    /// As the documentation of this language says.
    #[default]
    Flowgate,
    /// As the Invariant analyzer (invariant-ai 0.3.5) read it, defects included where policies may rely on them.
    Compat,
}

/// The functions that policies can call: name, least and most arguments, and what each gives.
pub fn functions() -> impl Iterator<Item = (&'static str, (usize, usize), &'static str)> {
    crate::builtin::reference()
}

/// About how many bytes a range of characters takes in a compiled pattern.
const RANGE: usize = 56;

/// A policy that can be enforced.
pub struct Policy {
    source: String,
    pub(crate) plan: Plan,
    warnings: Vec<Diagnostic>,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Policy {
    /// Reads a policy.
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
    /// All diagnostics, in order of place, if any of them is an error.
    pub fn parse(source: &str) -> Result<Self, Vec<Diagnostic>> {
        Self::parse_as(source, Dialect::Flowgate)
    }

    /// Reads a policy in a dialect.
    ///
    /// # Errors
    /// As [`Policy::parse`].
    pub fn parse_as(source: &str, dialect: Dialect) -> Result<Self, Vec<Diagnostic>> {
        let (file, mut diagnostics) = parser::parse(source, dialect);
        let (plan, more) = compile::compile(&file, dialect);
        diagnostics.extend(more);
        let has_error =
            |diagnostics: &[Diagnostic]| diagnostics.iter().any(|d| d.severity == Severity::Error);
        if dialect == Dialect::Flowgate && !has_error(&diagnostics) {
            diagnostics.extend(compat::warnings(&file, source));
            diagnostics.extend(crate::occurrence::misspelled_roles(&file.statements));
        }
        diagnostics.sort_by_key(|diagnostic| (diagnostic.span.start, diagnostic.span.end));
        diagnostics.dedup();
        if has_error(&diagnostics) {
            return Err(diagnostics);
        }
        Ok(Self { source: source.to_owned(), plan, warnings: diagnostics })
    }

    /// The text it was read from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// About how many bytes it takes, for who keeps many: its text, and its compiled patterns, which may be far larger.
    pub fn size(&self) -> usize {
        self.source.len() + self.plan.patterns_weight.saturating_mul(RANGE)
    }

    /// What it was read from, as a tree.
    pub(crate) fn syntax(&self) -> syntax::File {
        parser::parse(&self.source, self.plan.dialect).0
    }

    /// What is odd about it, though it can be used.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The dimensions that it declares.
    pub fn space(&self) -> &Space {
        &self.plan.space
    }

    /// The tools that it speaks of by one name each, in the order of their first mention. Patterns that speak of many are left out.
    pub fn named_tools(&self) -> Vec<Tool> {
        let mut named: Vec<Tool> = Vec::new();
        for tool in self.plan.patterns.iter().filter_map(ToolPattern::tool) {
            if !named.contains(&tool) && tool.server.as_deref() != Some(Tool::OWN) {
                named.push(tool);
            }
        }
        named
    }

    /// Tools of which it speaks: for each pattern one, if one is easily found.
    pub fn example_tools(&self) -> Vec<Tool> {
        let mut examples: Vec<Tool> = Vec::new();
        for tool in self.plan.patterns.iter().filter_map(ToolPattern::example) {
            if !examples.contains(&tool) && tool.server.as_deref() != Some(Tool::OWN) {
                examples.push(tool);
            }
        }
        examples
    }

    /// The predicates that it declares `extern`, for others to answer.
    pub fn externs(&self) -> impl Iterator<Item = &str> {
        self.plan.externs.iter().map(|declared| &*declared.name)
    }

    /// Whether it declares no lattice: then labels gate nothing, and its rules are all there is.
    pub fn is_rules_only(&self) -> bool {
        self.plan.space.dimensions().is_empty()
    }

    /// Whether unlabelled regions carry something lower than top, as RTBAS has it.
    pub fn has_permissive_default(&self) -> bool {
        self.plan.default.is_some()
    }

    /// The first line of the statement at `span`, without a comment behind it.
    pub fn excerpt(&self, span: &Span) -> &str {
        let line = self.source.get(span.clone()).unwrap_or("");
        line.split("  #").next().unwrap_or(line).trim_end()
    }

    /// What it consents to: the lines, from 1, and the statements as they begin there.
    pub fn consents(&self) -> impl Iterator<Item = (usize, &str)> {
        self.plan.consents.iter().map(|consent| (self.line(&consent.span), self.excerpt(&consent.span)))
    }

    /// The line, from 1, on which `span` begins.
    pub fn line(&self, span: &Span) -> usize {
        self.source.get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
