//! Prints the output of commands through [`Console`]: results go to the standard output; errors, warnings, notes and
//! diagnostics to the standard error. Text that cannot be written, for example because the reader closed the pipe, is
//! dropped, so that a command still ends with its own exit code. Also formats numbers of things ([`plural`]) and
//! positions in policies ([`statement_line`]).

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::Path;

use flowgate::policy::{Diagnostic, Policy, PolicySource, Severity, Span};

use crate::display_mode::{Color, ProgressMode};
use crate::escaping;

/// The destinations of a command's output, and whether it has colours.
pub(crate) struct Console {
    /// The standard output, for results.
    out: Box<dyn Write>,
    /// The standard error, for everything else.
    err: Box<dyn Write>,
    /// Whether `out` has colours.
    color: bool,
    /// Whether `err` has colours.
    err_color: bool,
    /// When to show progress.
    progress: ProgressMode,
}

impl Console {
    /// Creates a console on the standard streams. With [`Color::Auto`], a stream has colours if it is a terminal and
    /// `NO_COLOR` is not set.
    pub(crate) fn standard(color: Color, progress: ProgressMode) -> Self {
        let has_color = |is_terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none(),
        };
        let (color, err_color) = (has_color(stdout().is_terminal()), has_color(stderr().is_terminal()));
        Self { out: Box::new(stdout()), err: Box::new(stderr()), color, err_color, progress }
    }

    /// Returns when commands show their progress, as `--progress` says.
    pub(crate) fn progress(&self) -> ProgressMode {
        self.progress
    }

    /// Prints one line of the result, [escaped](escaping::escape_output). A closed pipe is not an error.
    pub(crate) fn line(&mut self, line: &str) {
        let _ = writeln!(self.out, "{}", escaping::escape_output(line, self.color));
    }

    /// Prints a prompt on the standard output, [escaped](escaping::escape_output) and without a line break. A closed
    /// pipe is not an error.
    #[cfg(feature = "run")]
    pub(crate) fn prompt(&mut self, prompt: &str) {
        let _ = write!(self.out, "{}", escaping::escape_output(prompt, self.color));
        let _ = self.out.flush();
    }

    /// Prints a prompt on the standard error, [escaped](escaping::escape_output) and without a line break: the standard
    /// output may be a file. A closed pipe is not an error.
    #[cfg(feature = "run")]
    pub(crate) fn prompt_beside_result(&mut self, prompt: &str) {
        let _ = write!(self.err, "{}", escaping::escape_output(prompt, self.err_color));
        let _ = self.err.flush();
    }

    /// Prints bytes of the result as they are, not escaped and without a line break. A closed pipe is not an error.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
    }

    /// Prints an error, [escaped](escaping::escape_output) like all messages. A message that cannot be written is
    /// dropped.
    pub(crate) fn error(&mut self, message: &str) {
        let word = paint(self.err_color, "1;31", "error");
        let _ = writeln!(self.err, "{word}: {}", escaping::escape_output(message, self.err_color));
    }

    /// Prints a warning. A message that cannot be written is dropped.
    pub(crate) fn warning(&mut self, message: &str) {
        let word = paint(self.err_color, "1;33", "warning");
        let _ = writeln!(self.err, "{word}: {}", escaping::escape_output(message, self.err_color));
    }

    /// Prints a note: a message that the user should know, and that reports no problem. A message that cannot be
    /// written is dropped.
    pub(crate) fn note(&mut self, message: &str) {
        let word = paint(self.err_color, "1;36", "note");
        let _ = writeln!(self.err, "{word}: {}", escaping::escape_output(message, self.err_color));
    }

    /// Returns whether the standard error has colours.
    #[cfg(feature = "run")]
    pub(crate) fn err_color(&self) -> bool {
        self.err_color
    }

    /// Returns `text` in a colour or weight of the terminal, if the result has colours. `code` is the number of the
    /// colour, such as `31` or `1;31`.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        paint(self.color, code, text)
    }

    /// Prints a table with a header as a part of the result. The first two columns are aligned to the left. All further
    /// columns are aligned to the right, since they usually have numbers.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        // Each column is as wide as its longest cell or its title, in characters.
        let widths: Vec<usize> = header
            .iter()
            .enumerate()
            .map(|(column, title)| {
                let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
                cells.max().unwrap_or(0).max(title.chars().count())
            })
            .collect();
        let pad = |cells: Vec<&str>| {
            let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            padded.collect::<Vec<_>>().join("  ")
        };
        let head = pad(header.to_vec());
        let head = self.paint("1", head.trim_end());
        self.line(&head);
        for row in rows {
            let line = pad(row.iter().map(String::as_str).collect());
            self.line(line.trim_end());
        }
    }

    /// Prints the diagnostics of a policy on the standard error, each with the line that it is about. `policy` is the
    /// name of the policy's file; `files` has the text of the policy and the texts that it imports. A diagnostic that
    /// cannot be written is dropped.
    pub(crate) fn diagnostics(&mut self, policy: &str, files: &PolicySource, diagnostics: &[Diagnostic]) {
        use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};
        for diagnostic in diagnostics {
            let (file, text, span) = files.excerpt_file(&diagnostic.span);
            let name = policy_file_name(policy, file);
            let (kind, color) = match diagnostic.severity {
                Severity::Warning => (ReportKind::Warning, ariadne::Color::Yellow),
                // A severity that this program does not know is printed as an error.
                _ => (ReportKind::Error, ariadne::Color::Red),
            };
            // The spans of diagnostics are in bytes.
            let config = Config::default().with_color(self.err_color).with_index_type(IndexType::Byte);
            let span = (name.as_str(), span);
            // The word at the marked place, if the compiler has no help.
            let help = diagnostic.help.clone().unwrap_or_else(|| "here".to_owned());
            let report = Report::build(kind, span.clone())
                .with_config(config)
                .with_code(diagnostic.code)
                .with_message(&diagnostic.message)
                .with_label(Label::new(span).with_message(help).with_color(color))
                .finish();
            let mut drawn = Vec::new();
            if report.write((name.as_str(), Source::from(text)), &mut drawn).is_ok() {
                let _ = self.err.write_all(&drawn);
            }
        }
    }
}

/// Returns the name of the file and the number of the line to show for the statement at `span` of a policy. `name` is
/// the policy's own file; the statement can also be in a file that the policy imports.
pub(crate) fn statement_line(name: &str, policy: &Policy, span: &Span) -> (String, usize) {
    let position = policy.locate(span);
    (policy_file_name(name, position.file), position.line)
}

/// Returns the path to show for a file of a policy. `policy` is the path of the policy itself; `imported` is the path
/// of a file that it imports, relative to the policy's folder, or `None` for the policy itself.
pub(crate) fn policy_file_name(policy: &str, imported: Option<&str>) -> String {
    let folder = Path::new(policy).parent().unwrap_or(Path::new(""));
    imported.map_or_else(|| policy.to_owned(), |file| folder.join(file).display().to_string())
}

/// Formats a number of things: `1 call`, `2 calls`, `0 calls`, `2 matches`, `2 replies`. The number can also be a word:
/// `no calls`.
pub(crate) fn plural(count: impl std::fmt::Display, word: &str) -> String {
    let count = count.to_string();
    let ends_with_any = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    // The word without its final `y`, which becomes `ies` unless a vowel precedes it.
    let stem = word.strip_suffix('y').filter(|_| !ends_with_any(&["ay", "ey", "oy", "uy"]));
    match stem {
        _ if count == "1" => format!("1 {word}"),
        Some(stem) => format!("{count} {stem}ies"),
        None if ends_with_any(&["s", "x", "ch", "sh"]) => format!("{count} {word}es"),
        None => format!("{count} {word}s"),
    }
}

/// Returns `text` in a colour or weight of the terminal if `color` is set.
fn paint(color: bool, code: &str, text: &str) -> String {
    if color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_something_is_singular() {
        let check = |word: &str, expected: [&str; 3]| {
            assert_eq!([0, 1, 2].map(|count| plural(count, word)), expected);
        };
        check("event", ["0 events", "1 event", "2 events"]);
        check("match", ["0 matches", "1 match", "2 matches"]);
        check("reply", ["0 replies", "1 reply", "2 replies"]);
        check("key", ["0 keys", "1 key", "2 keys"]);
    }

    /// Every counter in a message of the command line goes through [`plural`].
    #[test]
    fn no_message_has_a_fixed_plural() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let (mut wrong, mut files) = (Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let source = std::fs::read_to_string(&path).unwrap();
                let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                files += 1;
                for (number, line) in source.lines().enumerate() {
                    if has_fixed_plural(line) {
                        wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                    }
                }
            }
        }
        assert!(files > 30, "{files} files");
        assert!(wrong.is_empty(), "use `plural`:\n{}", wrong.join("\n"));
        for (line, expected) in [
            (r#"format!("{count} lines")"#, true),
            (r#"format!("found     {} lines", log)"#, true),
            (r#"format!("{} line, {count} of them")"#, false),
            (r#"/// `{count} lines`"#, false),
            (r#"format!("{limit} bytes")"#, false),
        ] {
            assert_eq!(has_fixed_plural(line), expected, "{line}");
        }
    }

    /// Words that end in `s` and count nothing: verbs, limits that are never one, and sums.
    const NO_PLURALS: [&str; 15] = [
        "bytes",
        "carries",
        "continues",
        "declares",
        "does",
        "fills",
        "gives",
        "goes",
        "needs",
        "runs",
        "seconds",
        "starts",
        "tokens",
        "transcripts",
        "wants",
    ];

    /// Returns whether a format string has a placeholder before a plural.
    fn has_fixed_plural(line: &str) -> bool {
        if line.trim_start().starts_with("//") || !line.contains('"') {
            return false;
        }
        let behind = line.split('}').skip(1).filter_map(|after| after.strip_prefix(' '));
        let mut words = behind.filter_map(|after| after.split(|c: char| !c.is_alphabetic()).next());
        words.any(|word| {
            word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") && !NO_PLURALS.contains(&word)
        })
    }
}
