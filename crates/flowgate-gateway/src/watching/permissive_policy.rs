//! Derives the permissive policy, under which the conversations of a client in watch mode run. It is the client's own
//! policy without the statements that stop a call, ask a person, or limit what a step is shown; the statements about
//! labels stay. `config` calls [`load`].
//!
//! Statements are removed from the text of the policy, before it is parsed, by Python's rules for lines: a statement
//! begins at the outermost indentation, outside brackets and quotes. [`load`] verifies the result: if a requirement, a
//! clearance of the model, or a rule that stops or asks is left, that is an error of the configuration.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::policy::{Action, Dialect, InvalidPolicy, Policy};
use flowgate::statement_hits::{HitCounter, StatementHitKind};
use flowgate::trace::Tool;

/// The first words of the statements that are removed. They require, stop, ask or log something, or grant an exemption
/// from the requirement of another statement. `role` says what an argument is for, which matters only for such
/// exemptions and for the text of a question.
const LEFT_OUT: [&str; 9] =
    ["require", "payload", "consent", "endorse", "unsafe", "role", "raise", "ask", "log"];

/// The statement that permits every call. Without any requirement, a call could carry only the bottom label.
const PERMITS_EVERYTHING: &str = "\nrequire top if:\n    (call: ToolCall)\n";

/// Returns the permissive policy for a client with the policy `policy`. `source` is the text of the policy's own file,
/// and `read` returns the text of an imported file, by its path.
///
/// # Errors
/// The message for the operator if the result does not compile, or would still stop something.
pub(crate) fn load(
    policy: &Policy,
    source: &str,
    mut read: impl FnMut(&str) -> Result<String, String>,
) -> Result<Arc<Policy>, String> {
    // Without any requirement, a call could carry only the bottom label, so one is added that permits every label. A
    // policy without a lattice has only one label, and needs none.
    let has_labels = policy.space().top() != Label::BOTTOM;
    let mut load_with = |replacement: &str| {
        let mut text = without_enforcement(source, replacement);
        if has_labels {
            text.push_str(PERMITS_EVERYTHING);
        }
        let read_permissive = |path: &str| read(path).map(|text| without_enforcement(&text, replacement));
        Policy::load(&text, Dialect::Flowgate, read_permissive)
    };
    let permissive = match load_with("") {
        Ok(permissive) => Arc::new(permissive),
        // The message has the place in the operator's file, so the policy is loaded again with an empty line for each
        // removed one. The permissive policy itself has no such lines: stored conversations depend on its text (the
        // fingerprint of the configuration covers it).
        Err(invalid) => return Err(unwatchable(&load_with("\n").err().unwrap_or(invalid))),
    };
    // The removal of statements by their first words may have missed one.
    let still_stops = stops_something(&permissive, policy);
    match still_stops {
        false => Ok(permissive),
        true => Err("the policy cannot be watched: a requirement or a rule is written in a form that watch mode does not \
            recognise; begin each statement at the start of a line, or set mode = \"enforce\""
            .to_owned()),
    }
}

/// Returns the message for the operator about a permissive policy that does not compile. `invalid` has an empty line
/// for each removed line, so that its places are those of the policy's files.
fn unwatchable(invalid: &InvalidPolicy) -> String {
    let what = invalid.diagnostics.first().map_or_else(String::new, |error| {
        let place = invalid.source.locate(error.span.start);
        let removal = "after watch mode left out the statements that stop or ask";
        format!(": {} at {place}, {removal}", error.message)
    });
    format!(
        "the policy cannot be watched{what}; write each statement on lines of its own, or set mode = \"enforce\""
    )
}

/// Returns whether the policy `permissive` still requires something of a call, limits what the model may be shown, or
/// has a rule that stops something or asks a person. `policy` is the client's own policy, which names the tools to check.
fn stops_something(permissive: &Arc<Policy>, policy: &Policy) -> bool {
    // One requirement may be left: the one that permits every call. The last line checks that it is this one.
    let counter = HitCounter::new(permissive);
    // A rule with the action `log` stops nothing.
    let is_rule =
        |kind: StatementHitKind| matches!(kind, StatementHitKind::Rule(action) if action != Action::Log);
    let count = |is_counted: &dyn Fn(StatementHitKind) -> bool| {
        counter.hits().iter().filter(|statement| is_counted(statement.kind)).count()
    };
    if count(&is_rule) > 0 || count(&|kind| kind == StatementHitKind::Require) > 1 {
        return true;
    }
    let monitor = Monitor::new(Arc::clone(permissive));
    let mut tools = policy.named_tools();
    // An example of the tools that the policy does not name.
    tools.push(Tool::local("flowgate-unnamed-tool"));
    monitor.strictest_requirement(&tools) != permissive.space().top() || monitor.clearance("model").is_some()
}

/// Returns the text of a policy without the statements that begin with a word of [`LEFT_OUT`]. `replacement` is written
/// in place of each of their lines.
fn without_enforcement(source: &str, replacement: &str) -> String {
    // A statement begins in a line with the least indentation.
    let outermost = source.lines().filter(|line| !line.trim().is_empty()).map(indentation).min().unwrap_or(0);
    // Whether the statement of the present line stays in the policy.
    let mut stays = true;
    let (mut remaining, mut scanner) = (String::new(), Scanner::default());
    for line in source.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let is_blank = trimmed.is_empty() || trimmed.starts_with('#');
        if !is_blank && !scanner.is_open() && indentation(line) == outermost {
            stays = !is_left_out(trimmed);
        }
        // Blank lines and comments remain, unless they are inside brackets or quotes of a removed statement.
        if stays || is_blank && !scanner.is_open() {
            remaining.push_str(line);
        } else {
            remaining.push_str(replacement);
        }
        scanner.read(line);
    }
    remaining
}

/// Returns whether the statement that begins with this line is removed: its first word is in [`LEFT_OUT`]. A constant
/// or a predicate may have such a name; its definition (`ask := 1`, `ask(x) := x`) stays, if the `:=` is in this line.
fn is_left_out(line: &str) -> bool {
    let end = line.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let is_definition = rest.starts_with(":=") || rest.starts_with('(') && rest.contains(":=");
    LEFT_OUT.contains(&word) && !is_definition
}

/// Returns the number of spaces and tabs at the beginning of a line.
fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Tracks which brackets and quotes of a policy are open at the end of a line.
#[derive(Debug, Default)]
struct Scanner {
    /// The number of open brackets.
    depth: usize,
    /// The quotation marks that end the open string, if one is open. Between two lines, only a string in triple quotes
    /// can be open.
    quote: Option<&'static str>,
}

impl Scanner {
    /// Returns whether the next line continues a bracket or a string.
    fn is_open(&self) -> bool {
        self.depth > 0 || self.quote.is_some()
    }

    /// Continues with the next line of the policy, which ends with its line break: opens and closes the brackets and
    /// strings in it. Comments are skipped.
    fn read(&mut self, line: &str) {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            // Within a string, only its end matters.
            if let Some(quote) = self.quote {
                if let Some(after) = rest.strip_prefix(quote) {
                    (self.quote, rest) = (None, after);
                    continue;
                }
                // The character after a backslash does not end the string.
                let skipped = if first == '\\' {
                    rest.chars().take(2).map(char::len_utf8).sum()
                } else {
                    first.len_utf8()
                };
                rest = rest.get(skipped..).unwrap_or_default();
                continue;
            }
            // Triple quotation marks come first, since they begin with single ones.
            let opened = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote));
            if let Some(quote) = opened {
                (self.quote, rest) = (Some(quote), rest.get(quote.len()..).unwrap_or_default());
                continue;
            }
            match first {
                '#' => break,
                '(' | '[' | '{' => self.depth += 1,
                ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        // Only a string in triple quotes continues in the next line.
        self.quote = self.quote.filter(|quote| quote.len() == 3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_stop_something_are_left_out() {
        let check =
            |source: &str, expected: &str| assert_eq!(without_enforcement(source, ""), expected, "{source}");
        let label = "label message as trusted if:\n    (m: Message)\n";
        check(label, label);
        check(
            &format!("{label}require trusted if:\n    (call: ToolCall)\n\n{label}"),
            &format!("{label}\n{label}"),
        );
        check(&format!("raise \"no\" if:\n    (m: Message)\n    \"x\" in m.content\n{label}"), label);
        check(
            &format!(
                "require readers(\n    call.arguments.to\n) for\\\n    call.arguments.body if:\n    (call: ToolCall)\n{label}"
            ),
            label,
        );
        // Brackets and quotes of several lines do not begin a statement, and neither do comments.
        check("x := [\n\"a\",\nrequire,\n]\n", "x := [\n\"a\",\nrequire,\n]\n");
        check("x := \"\"\"\nrequire trusted\n\"\"\"\n", "x := \"\"\"\nrequire trusted\n\"\"\"\n");
        check("# require trusted\n", "# require trusted\n");
        check("x := \"it's\" # don't\nask \"a\" if:\n    (m: Message)\n", "x := \"it's\" # don't\n");
        // Constants and predicates called like statements.
        check("log := [\"a\"]\nask(x: str) := x == \"a\"\n", "log := [\"a\"]\nask(x: str) := x == \"a\"\n");
        // A policy that is indented as a whole.
        check("  require top if:\n    (c: ToolCall)\n  x := 1\n", "  x := 1\n");
        // A replacement keeps the numbers of the lines, also of lines inside brackets and of comments.
        let source =
            "require readers(\n    call.arguments.to\n    # to\n) if:\n    (call: ToolCall)\n# x\nx := 1\n";
        assert_eq!(without_enforcement(source, "\n"), "\n\n\n\n\n# x\nx := 1\n");
    }

    #[test]
    fn the_result_stops_nothing() {
        let check = |source: &str, expected: Result<(), &str>| {
            let policy = Policy::parse(source).unwrap();
            let found = load(&policy, source, |path| Err(path.to_owned()));
            match (found, expected) {
                (Ok(_), Ok(())) => {}
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => panic!("{source}: {found:?} instead of {expected:?}"),
            }
        };
        let lattice = "lattice integrity: trusted < untrusted\n";
        check(lattice, Ok(()));
        check("raise \"no\" if:\n    (m: Message)\n    \"x\" in m.content\n", Ok(()));
        check(
            &format!(
                "{lattice}require trusted else deny if:\n    (call: ToolCall) is tool:send\nrequire trusted if:\n    (call: ToolCall) is tool:flowgate/model\n"
            ),
            Ok(()),
        );
        // Statements that were left over, next to the one that permits every call.
        let check_left = |left: &str, stops: bool| {
            let source = format!("{lattice}{left}{PERMITS_EVERYTHING}");
            let policy = Arc::new(Policy::parse(&source).unwrap());
            assert_eq!(stops_something(&policy, &policy), stops, "{left}");
        };
        check_left("", false);
        check_left("require trusted if:\n    (call: ToolCall)\n", true);
        check_left("require trusted for call.arguments.to if:\n    (call: ToolCall) is tool:send\n", true);
        check_left("require trusted if:\n    (call: ToolCall) is tool:flowgate/model\n", true);
        check_left("log \"seen\" if:\n    (call: ToolCall)\n", false);
        for event in ["call: ToolCall", "out: ToolOutput", "tool: Tool", "m: Message"] {
            check_left(&format!("raise \"no\" if:\n    ({event})\n"), true);
        }
        check_left("raise \"no\" if:\n    (m: Message)\n    m.role == \"user\"\n", true);
        check_left("ask \"sure?\" if:\n    (call: ToolCall) is tool:send\n", true);
    }
}
