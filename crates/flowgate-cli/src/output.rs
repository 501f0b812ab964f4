//! What is printed, and where: results on the standard output, everything else on the standard error.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::Path;

use flowgate::policy::{Diagnostic, Dialect, Policy, Severity};

use crate::args::Color;
use crate::input::{InputError, policy_source};

/// Where results and remarks go.
pub(crate) struct Output {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    color: bool,
    err_color: bool,
}

impl Output {
    /// The standard streams.
    pub(crate) fn standard(color: Color) -> Self {
        let wanted = |is_terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none(),
        };
        let (color, err_color) = (wanted(stdout().is_terminal()), wanted(stderr().is_terminal()));
        Self { out: Box::new(stdout()), err: Box::new(stderr()), color, err_color }
    }

    /// Prints one line of the result. That nobody reads it any more is no error.
    pub(crate) fn line(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
    }

    /// Prints text as it is.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
    }

    /// Prints an error.
    pub(crate) fn error(&mut self, message: &str) {
        let word = paint(self.err_color, "1;31", "error");
        let _ = writeln!(self.err, "{word}: {message}");
    }

    /// Prints a warning.
    pub(crate) fn warning(&mut self, message: &str) {
        let word = paint(self.err_color, "1;33", "warning");
        let _ = writeln!(self.err, "{word}: {message}");
    }

    /// Prints a remark.
    pub(crate) fn note(&mut self, message: &str) {
        let word = paint(self.err_color, "1;36", "note");
        let _ = writeln!(self.err, "{word}: {message}");
    }

    /// Whether the standard error has colours.
    #[cfg(feature = "run")]
    pub(crate) fn err_color(&self) -> bool {
        self.err_color
    }

    /// `text` in a colour of the terminal, if there are colours.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        paint(self.color, code, text)
    }

    /// Prints a table with a header.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
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

    /// Draws the diagnostics of a policy.
    pub(crate) fn diagnostics(&mut self, name: &str, source: &str, diagnostics: &[Diagnostic]) {
        use ariadne::{Config, IndexType, Label, Report, ReportKind, Source};
        for diagnostic in diagnostics {
            let (kind, color) = match diagnostic.severity {
                Severity::Error => (ReportKind::Error, ariadne::Color::Red),
                Severity::Warning => (ReportKind::Warning, ariadne::Color::Yellow),
            };
            let config = Config::default().with_color(self.err_color).with_index_type(IndexType::Byte);
            let span = (name, diagnostic.span.clone());
            let help = diagnostic.help.clone().unwrap_or_else(|| "here".to_owned());
            let report = Report::build(kind, span.clone())
                .with_config(config)
                .with_code(diagnostic.code)
                .with_message(&diagnostic.message)
                .with_label(Label::new(span).with_message(help).with_color(color))
                .finish();
            let mut drawn = Vec::new();
            if report.write((name, Source::from(source)), &mut drawn).is_ok() {
                let _ = self.err.write_all(&drawn);
            }
        }
    }
}

/// A number of things: `1 call`, `2 calls`, `0 calls`.
pub(crate) fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

fn paint(color: bool, code: &str, text: &str) -> String {
    if color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Reads a policy, and draws what is wrong with it.
pub(crate) fn load_policy(path: &Path, output: &mut Output) -> Result<Policy, InputError> {
    load_policy_as(path, Dialect::Flowgate, output)
}

/// Reads a policy in a dialect, and prints what is wrong or odd about it.
pub(crate) fn load_policy_as(
    path: &Path,
    dialect: Dialect,
    output: &mut Output,
) -> Result<Policy, InputError> {
    let source = policy_source(path)?;
    let name = path.display().to_string();
    match Policy::parse_as(&source, dialect) {
        Ok(policy) => {
            output.diagnostics(&name, &source, policy.warnings());
            if policy.is_rules_only() {
                output.note(&format!(
                    "{name} declares no lattice, so labels gate nothing: only its rules are enforced"
                ));
            }
            if policy.has_permissive_default() {
                output.note(&format!(
                    "{name} gives unlabelled regions a default label; without `default` they would be top"
                ));
            }
            Ok(policy)
        }
        Err(diagnostics) => {
            output.diagnostics(&name, &source, &diagnostics);
            let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
            Err(InputError(format!("{name} has {}", plural(errors, "error"))))
        }
    }
}
