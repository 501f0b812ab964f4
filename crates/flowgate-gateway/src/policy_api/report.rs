//! Formats the diagnostics of a policy as text that a client of the policy API can print. `policy_api` puts the text
//! into its answer.
//!
//! For each diagnostic, the text has the line of the policy, a line with a caret under the position, and the message.
//! Clients search for the first two of these lines together, so their form and their equal indentation must not change.

use std::fmt::Write;

use flowgate::policy::{Diagnostic, Severity};

/// The most diagnostics that are shown; the others are counted.
const MAX_DIAGNOSTICS: usize = 50;
/// The most characters of a line that are shown before the position of a diagnostic. At most twice as many characters
/// of the line are shown in all.
const AROUND: usize = 120;

/// Returns the text about the first [`MAX_DIAGNOSTICS`] diagnostics of the policy `source`, in their order. It
/// begins with the number of errors. Then it has, for each diagnostic, the line of the policy with its number, a
/// caret under the position, and the message.
pub(super) fn report(source: &str, diagnostics: &[Diagnostic]) -> String {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count();
    let mut report = format!("the policy has {errors} error{}", if errors == 1 { "" } else { "s" });
    let lines: Vec<&str> = source.split('\n').collect();
    // The width of the greatest line number, so that all numbers are aligned.
    let width = lines.len().to_string().len();
    for diagnostic in diagnostics.iter().take(MAX_DIAGNOSTICS) {
        // Line and column count from 1.
        let (line, column) = diagnostic.position(source);
        let (shown, caret) = excerpt(lines.get(line - 1).unwrap_or(&""), column - 1);
        let severity = match diagnostic.severity {
            Severity::Warning => "warning",
            // Every other severity counts as an error.
            _ => "error",
        };
        // Writing to a string cannot fail.
        let _ = write!(
            report,
            "\n\n  {line:>width$} | {shown}\n  {:>width$} | {caret}^\n{severity} at line {line}, column {column}: {} [{}]",
            "", diagnostic.message, diagnostic.code
        );
        if let Some(help) = &diagnostic.help {
            let _ = write!(report, "\nhelp: {help}");
        }
    }
    if let Some(more) = diagnostics.len().checked_sub(MAX_DIAGNOSTICS).filter(|more| *more > 0) {
        let _ = write!(report, "\n\nand {more} more");
    }
    report
}

/// Returns the part of a line to show, and the indentation of the caret that points to `column` (counted from 0). The
/// part begins at most [`AROUND`] characters before the column, and has at most twice as many characters; `…` marks
/// each end at which characters are left out.
fn excerpt(line: &str, column: usize) -> (String, String) {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let skipped = column.saturating_sub(AROUND);
    let mut shown: String = if skipped == 0 { String::new() } else { "…".to_owned() };
    let mut caret = " ".repeat(shown.chars().count());
    let mut characters = line.chars().skip(skipped);
    for (index, character) in characters.by_ref().take(2 * AROUND).enumerate() {
        // Control characters other than a tab could change the terminal of the reader.
        let character = if character.is_control() && character != '\t' { '\u{fffd}' } else { character };
        // A tab before the caret is repeated on its line, so that both lines are indented alike.
        if skipped + index < column {
            caret.push(if character == '\t' { '\t' } else { ' ' });
        }
        shown.push(character);
    }
    if characters.next().is_some() {
        shown.push('…');
    }
    (shown, caret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_under_the_column() {
        let check = |source: &str, start: usize, expected: &[&str]| {
            let diagnostic = Diagnostic::error("code", start..start + 1, "message").help("advice");
            let report = report(source, &[diagnostic]);
            let lines: Vec<&str> = report.lines().skip(2).collect();
            assert_eq!(lines, expected, "{source:?}");
        };
        check(
            "a := 1\nabc :=\n    12 + X",
            23,
            &[
                "  3 |     12 + X",
                "    |          ^",
                "error at line 3, column 10: message [code]",
                "help: advice",
            ],
        );
        check(
            "\té = x\r\n",
            4,
            &["  1 | \té = x", "    | \t  ^", "error at line 1, column 4: message [code]", "help: advice"],
        );
        check(
            "ab",
            2,
            &["  1 | ab", "    |   ^", "error at line 1, column 3: message [code]", "help: advice"],
        );
        check("", 0, &["  1 | ", "    | ^", "error at line 1, column 1: message [code]", "help: advice"]);
        check("", 9, &["  1 | ", "    | ^", "error at line 1, column 1: message [code]", "help: advice"]);
        let nine = format!("{}x", "\n".repeat(9));
        check(
            &nine,
            9,
            &["  10 | x", "     | ^", "error at line 10, column 1: message [code]", "help: advice"],
        );
    }

    #[test]
    fn a_report_is_short_however_long_the_policy() {
        let source = "x".repeat(1 << 20);
        let diagnostics: Vec<Diagnostic> =
            (0..1000).map(|index| Diagnostic::error("code", index * 1000..index * 1000 + 1, "m")).collect();
        let report = report(&source, &diagnostics);
        assert!(report.len() < 40_000, "{}", report.len());
        assert!(report.starts_with("the policy has 1000 errors") && report.ends_with("and 950 more"));
        let lines: Vec<&str> = report.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[1].contains('^')) {
            let column = pair[1].chars().position(|character| character == '^').unwrap();
            assert_eq!(pair[0].chars().nth(column), Some('x'), "{pair:?}");
        }
    }
}
