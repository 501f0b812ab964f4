//! Defines [`Diagnostic`], an error or a warning about a policy: the problem, its location and help. The parser and the
//! compiler report diagnostics as data; the command line renders them, an editor underlines them, tests compare them.
//! Also suggests the name that a misspelled one resembles ([`nearest`]).

use std::fmt;
use std::ops::Range;

/// A range of bytes of the policy's source.
pub type Span = Range<usize>;

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// The policy can be used, but possibly not as intended.
    Warning,
    /// The policy cannot be used.
    Error,
}

/// The codes of all diagnostics, which never change their meaning.
pub const CODES: &[&str] = &[
    "ambiguous",
    "arguments",
    "call",
    "capture-and-fields",
    "compat-contains-only",
    "compat-count",
    "compat-forall",
    "compat-precedence",
    "compat-text",
    "compat-truth",
    "compat-tuple",
    "consent-integrity",
    "consent-limit",
    "cycle",
    "default-label",
    "domain",
    "duplicate-name",
    "each",
    "endorse-secrecy",
    "endorse-sensitive",
    "endorse-untyped",
    "import",
    "indentation",
    "independence",
    "label",
    "label-flow",
    "matcher",
    "message",
    "no-condition",
    "no-conditions",
    "no-domain",
    "no-event",
    "no-integrity",
    "no-lattice",
    "not-a-lattice",
    "number",
    "one-event",
    "open-capture",
    "pattern",
    "payload-sensitive",
    "region",
    "reserved",
    "role-condition",
    "superlinear",
    "syntax",
    "too-deep",
    "too-large",
    "too-long",
    "too-many",
    "tool",
    "unavailable",
    "unknown-field",
    "unknown-name",
    "unknown-role",
    "unknown-type",
];

/// One finding about a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// A stable identifier of the kind of problem, such as `unknown-name`.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The source that the message refers to.
    pub span: Span,
    /// The problem: lower case, one line.
    pub message: String,
    /// How to correct it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates an error.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, span, message: one_line(message.into()), help: None }
    }

    /// Creates a warning.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// Returns the diagnostic with help added.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(one_line(help.into()));
        self
    }

    /// Renders the diagnostic as text: its line, an underline, the message and the help. `source` is the text that the
    /// span refers to. Of a span over several lines, the first line is shown and underlined.
    ///
    /// ```text
    ///    2 |     (call: ToolCal)
    ///      |      ^^^^^^^^^^^^^
    /// error: unknown type `ToolCal` [unknown-type]
    /// help: did you mean `ToolCall`?
    /// ```
    pub fn render(&self, source: &str) -> String {
        // The number of the line, and the column of its first marked character. Both count from 1.
        let (number, column) = self.position(source);
        // A policy can come from an untrusted source, so its control characters must not reach a terminal.
        let shown = |c: char| if is_unprintable(c) && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
        let line: String = source.lines().nth(number - 1).unwrap_or_default().chars().map(shown).collect();
        let spanned = source.get(self.span.clone()).and_then(|text| text.lines().next()).unwrap_or_default();
        let rest_of_line = line.chars().count().saturating_sub(column - 1).max(1);
        let marks = "^".repeat(spanned.trim_end().chars().count().clamp(1, rest_of_line));
        // Tabs remain tabs, so that the underline is aligned.
        let before: String =
            line.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let word = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let help = self.help.as_ref().map(|help| format!("help: {help}\n")).unwrap_or_default();
        format!(
            "{number:4} | {line}\n     | {before}{marks}\n{word}: {} [{}]\n{help}",
            self.message, self.code
        )
    }

    /// Returns the line and column at which the span begins in `source`. Both count from 1, the column in characters.
    /// If the span is not within `source`, returns the end of `source`.
    pub fn position(&self, source: &str) -> (usize, usize) {
        let before = source.get(..self.span.start).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).map_or(0, |line| line.chars().count());
        (before.matches('\n').count() + 1, column + 1)
    }
}

impl fmt::Display for Diagnostic {
    /// Writes the message, the code and the help on one line, without the location.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)?;
        match &self.help {
            Some(help) => write!(f, "; help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// Returns a text on one line: characters that break a line, move a terminal's cursor or change the reading direction
/// are escaped. Messages need this because they quote names of the policy, which may come from an untrusted source.
pub(crate) fn one_line(text: String) -> String {
    if !text.contains(is_unprintable) {
        return text;
    }
    let escaped = |c: char| {
        if is_unprintable(c) { c.escape_unicode().to_string() } else { c.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// Returns whether a character is a control character, a line separator or a mark that changes the reading direction.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Maximum length of a name that [`nearest`] compares, in characters.
const MAX_LENGTH: usize = 40;
/// Maximum number of known names that one unknown name is compared with.
const MAX_COMPARED: usize = 2_000;

/// Returns the known name nearest to `name`, if one is near enough to be a typing error: at most a third of its
/// characters, and at least one, may differ. The distance counts insertions, deletions, substitutions and
/// transpositions of neighbours, and ignores case. Of several nearest names, the first is returned. `None` for a name
/// longer than `MAX_LENGTH`, whose comparison would be slow. For the same reason, at most `MAX_COMPARED` known names of
/// a similar length are compared.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > MAX_LENGTH {
        return None;
    }
    let limit = (length / 3).max(1);
    let lower = name.to_lowercase();
    // A typing error changes the length little, so only names of a similar length are compared. The limit on their
    // number avoids a quadratic time for a generated policy with many names.
    let known =
        known.into_iter().filter(|other| other.chars().count().abs_diff(length) <= limit).take(MAX_COMPARED);
    let near = known.map(|other| (strsim::osa_distance(&lower, &other.to_lowercase()), other));
    near.filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_near() {
        let known = ["trusted", "untrusted", "public"];
        for (name, expected) in
            [("trustde", Some("trusted")), ("Public", Some("public")), ("secret", None), ("", None)]
        {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }

    #[test]
    fn messages_are_one_line_whatever_names_they_quote() {
        let diagnostic = Diagnostic::error("x", 0..3, "no group `a\nb`").help("write `\u{1b}[2J\u{202e}`");
        assert_eq!(
            diagnostic.render("a\u{1b}\tb"),
            "   1 | a\u{fffd}\tb\n     | ^^\nerror: no group `a\\u{a}b` [x]\nhelp: write `\\u{1b}[2J\\u{202e}`\n"
        );
    }

    #[test]
    fn positions_count_lines_and_characters() {
        let diagnostic = Diagnostic::error("x", 5..7, "m");
        assert_eq!(diagnostic.position("ab\ncdé"), (2, 3));
        assert_eq!(Diagnostic::error("x", 3..4, "m").position("ab\ncd"), (2, 1));
    }
}
