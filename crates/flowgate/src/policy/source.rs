//! Defines [`PolicySource`], the text of a policy: its own file, and the files that it imports with `import "PATH"`. A
//! [`Policy`](super::Policy) and an [`InvalidPolicy`](super::InvalidPolicy) contain it, so that programs can show the
//! locations of statements and diagnostics.
//!
//! All files are stored in one text, the policy's own file first, so that a span identifies a location in any of them.
//! [`Loader`] reads and parses the files for `Policy::load`, whose caller provides the function that reads a file,
//! given its path relative to the folder of the policy's own file. Each file is parsed on its own, so that an unclosed
//! quote or bracket ends with its file. A file that several files import is read once.

use std::fmt;
use std::ops::Range;

use super::diagnostic::{Diagnostic, Span};
use super::dialect::Dialect;
use super::parser::{self, MAX_SOURCE};
use super::syntax::{PolicyFile, Statement, StatementKind};

/// The maximum number of files of a policy.
const MAX_FILES: usize = 64;

/// The text of a policy with the files that it imports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySource {
    text: String,
    files: Vec<SourceFile>,
}

/// One file of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceFile {
    /// The path, relative to the folder of the policy's own file; empty for that file itself.
    path: String,
    /// The bytes of the file in the text of all files.
    range: Range<usize>,
}

/// A location in the text of a policy. It prints as `12:5`, or as `shared/contacts.flow:12:5` in an imported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLocation<'s> {
    /// The path of the imported file, relative to the folder of the policy's own file; `None` in the policy's own file.
    pub file: Option<&'s str>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl SourceLocation<'_> {
    /// Returns the line for use in a sentence: `line 12`, or `line 12 of shared/contacts.flow`.
    pub fn line_name(&self) -> String {
        match self.file {
            None => format!("line {}", self.line),
            Some(file) => format!("line {} of {file}", self.line),
        }
    }
}

impl fmt::Display for SourceLocation<'_> {
    /// Writes `FILE:LINE:COLUMN`, or `LINE:COLUMN` for the policy's own file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl PolicySource {
    /// Returns the text of all files, the policy's own file first.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the paths of the imported files, relative to the folder of the policy's own file.
    pub fn imported(&self) -> impl Iterator<Item = &str> {
        self.files.iter().skip(1).map(|file| file.path.as_str())
    }

    /// Returns each file as its path and its text: first the policy's own file, whose path is `None`, then the imported
    /// ones.
    pub fn files(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        self.files.iter().map(|file| {
            let path = Some(file.path.as_str()).filter(|path| !path.is_empty());
            (path, self.text.get(file.range.clone()).unwrap_or_default())
        })
    }

    /// Returns the location of the byte `at` of the text of all files.
    pub fn locate(&self, at: usize) -> SourceLocation<'_> {
        let (file, text, offset) = self.file_at(at);
        let before = text.get(..at.saturating_sub(offset)).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).map_or(0, |line| line.chars().count());
        SourceLocation { file, line: before.matches('\n').count() + 1, column: column + 1 }
    }

    /// Returns the path of the file that a span is in (`None` for the policy's own file), the text of that file, and
    /// the span relative to this text.
    pub fn excerpt_file(&self, span: &Span) -> (Option<&str>, &str, Span) {
        let (file, text, offset) = self.file_at(span.start);
        let shifted = |at: usize| at.saturating_sub(offset).min(text.len());
        (file, text, shifted(span.start)..shifted(span.end))
    }

    /// Returns the file that contains the byte `at` of the text of all files: its path (`None` for the policy's own
    /// file), its text, and the byte at which it starts.
    fn file_at(&self, at: usize) -> (Option<&str>, &str, usize) {
        // The index of the first file that starts after `at`; the file before it contains `at`.
        let after = self.files.partition_point(|file| file.range.start <= at);
        let Some(file) = after.checked_sub(1).and_then(|index| self.files.get(index)) else {
            return (None, &self.text, 0);
        };
        let path = Some(file.path.as_str()).filter(|path| !path.is_empty());
        (path, self.text.get(file.range.clone()).unwrap_or_default(), file.range.start)
    }

    /// Appends a file to the text of all files, records it under its path, and returns the range of bytes that it has
    /// there.
    fn append(&mut self, path: &str, text: &str) -> Range<usize> {
        // A line break separates two files, so that the end of one is not the start of the next.
        if !self.files.is_empty() {
            self.text.push('\n');
        }
        let start = self.text.len();
        self.text.push_str(text);
        let range = start..self.text.len();
        self.files.push(SourceFile { path: path.to_owned(), range: range.clone() });
        range
    }

    /// Returns the text of the policy's own file.
    pub(super) fn own_text(&self) -> &str {
        self.files.first().and_then(|file| self.text.get(file.range.clone())).unwrap_or_default()
    }

    /// Returns the text of an imported file from memory, so that the policy can be parsed again without access to its
    /// files.
    ///
    /// # Errors
    /// If the policy has imported no file of this path.
    pub(super) fn read(&self, path: &str) -> Result<String, String> {
        // The first file is the policy's own.
        let file = self.files.iter().skip(1).find(|file| file.path == path);
        let text = file.and_then(|file| self.text.get(file.range.clone()));
        text.map(str::to_owned).ok_or_else(|| {
            "the policy has no file of this path; correct the path in the `import` statement".to_owned()
        })
    }

    /// Parses the files again, and returns the syntax tree without diagnostics, since the policy is known to be valid.
    pub(super) fn syntax(&self, dialect: Dialect) -> PolicyFile {
        Loader::load(self.own_text(), dialect, |path| self.read(path)).1
    }
}

/// Reads the files of a policy, in the order of their imports.
pub(super) struct Loader<R> {
    source: PolicySource,
    dialect: Dialect,
    read: R,
    statements: Vec<Statement>,
    diagnostics: Vec<Diagnostic>,
}

impl<R: FnMut(&str) -> Result<String, String>> Loader<R> {
    /// Reads and parses the policy's own file, whose text is `own`, and the files that it imports, by `read`. Returns
    /// the text of all files, their statements (an imported file's statements first), and the diagnostics.
    pub(super) fn load(own: &str, dialect: Dialect, read: R) -> (PolicySource, PolicyFile, Vec<Diagnostic>) {
        let source = PolicySource::default();
        let mut loader = Self { source, dialect, read, statements: Vec::new(), diagnostics: Vec::new() };
        // The empty path denotes the policy's own file.
        loader.add("", own);
        let Self { source, statements, diagnostics, .. } = loader;
        (source, PolicyFile { statements }, diagnostics)
    }

    /// Parses a file, and adds the statements of the files that it imports, followed by its own. Leaves out imports of
    /// files, and `lattice` statements that repeat one of another file. The file is recorded before its imports are
    /// read, so that a cycle of imports ends.
    fn add(&mut self, path: &str, text: &str) {
        let range = self.source.append(path, text);
        let (file, diagnostics) = parser::parse_range(&self.source.text, range, self.dialect);
        self.diagnostics.extend(diagnostics);
        for statement in &file.statements {
            if let StatementKind::ImportFile { path: written } = &statement.kind {
                self.import(path, written, &statement.span);
            }
        }
        for statement in file.statements {
            let is_import = matches!(statement.kind, StatementKind::ImportFile { .. });
            if !is_import && !self.is_repeated_lattice(&statement) {
                self.statements.push(statement);
            }
        }
    }

    /// Reads and adds the file that the file `from` imports with the path `written`, unless it was added before.
    /// Reports a path that is not valid or cannot be read, and too many files or bytes. `span` is the location of the
    /// import.
    fn import(&mut self, from: &str, written: &str, span: &Span) {
        let path = match resolve(from, written) {
            Ok(path) => path,
            Err(problem) => {
                let help = "write a path relative to the file that imports it, such as `import \"shared/contacts.flow\"`";
                return self.report(span, format!("`{written}` cannot be imported: {problem}"), help);
            }
        };
        if self.source.files.iter().any(|file| file.path == path) {
            return;
        }
        if self.source.files.len() >= MAX_FILES {
            let message = format!("the policy has more than {MAX_FILES} files");
            return self.report(span, message, "put the statements of several files into one");
        }
        match (self.read)(&path) {
            Err(problem) => {
                let message = format!("`{path}` cannot be imported: {problem}");
                let diagnostic = Diagnostic::error("import", span.clone(), message);
                // The reason may end with advice after `; `.
                let has_advice = problem.contains("; ");
                self.diagnostics.push(match has_advice {
                    true => diagnostic,
                    false => diagnostic.help("check the path, which is relative to the file that imports it"),
                });
            }
            Ok(text) if self.source.text.len() + text.len() >= MAX_SOURCE => {
                let message = format!("with `{path}`, the policy is longer than {MAX_SOURCE} bytes");
                let diagnostic = Diagnostic::error("too-long", span.clone(), message);
                self.diagnostics
                    .push(diagnostic.help("use several policies, each for some clients or servers"));
            }
            Ok(text) => self.add(&path, &text),
        }
    }

    /// Reports that the `import` statement at `span` cannot be followed; `help` says what to write instead.
    fn report(&mut self, span: &Span, message: String, help: &str) {
        self.diagnostics.push(Diagnostic::error("import", span.clone(), message).help(help));
    }

    /// Returns whether a `lattice` statement repeats one of another file exactly. Such a repetition is permitted, so
    /// that each file can be checked alone; in the same file it remains an error.
    fn is_repeated_lattice(&self, statement: &Statement) -> bool {
        let StatementKind::Lattice { name, purpose, order } = &statement.kind else { return false };
        // The byte at which a file starts identifies it.
        let file = |statement: &Statement| {
            let (.., file_start) = self.source.file_at(statement.span.start);
            file_start
        };
        self.statements.iter().any(|known| {
            let StatementKind::Lattice { name: known_name, purpose: known_purpose, order: known_order } =
                &known.kind
            else {
                return false;
            };
            let text = |name: &Option<super::syntax::Name>| name.as_ref().map(|name| name.text.clone());
            file(known) != file(statement)
                && known_name.text == name.text
                && text(known_purpose) == text(purpose)
                && known_order.names() == order.names()
        })
    }
}

/// Returns the path of an imported file relative to the folder of the policy's own file. `written` is the path in the
/// `import` statement, which is relative to the folder of the importing file `from`. A path that leaves the folder of
/// the policy begins with `..`; the caller that reads the files decides whether it is allowed.
///
/// # Errors
/// The reason why the path cannot be imported: it is empty, absolute or a folder, or contains a colon (it can then be a
/// URL, or a path on a Windows drive), a backslash or a control character.
fn resolve(from: &str, written: &str) -> Result<String, &'static str> {
    if written.is_empty() {
        return Err("the path is empty");
    }
    if written.starts_with('/') {
        return Err("the path is absolute");
    }
    if written.contains(':') {
        return Err("the path contains a colon, as a URL or a path on a Windows drive does");
    }
    if written.contains(|c: char| c == '\\' || c.is_control()) {
        return Err("the path contains a backslash or a control character");
    }
    // Resolves `.` and `..`. A `..` that leaves the folder of the policy's own file remains.
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(written.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.last().is_none_or(|last| *last == "..") {
        return Err("the path names a folder");
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_importing_file() {
        for (from, written, expected) in [
            ("", "a.flow", Ok("a.flow")),
            ("", "./x/../a.flow", Ok("a.flow")),
            ("lists/b.flow", "a.flow", Ok("lists/a.flow")),
            ("lists/b.flow", "../a.flow", Ok("a.flow")),
            ("", "../a.flow", Ok("../a.flow")),
            ("../x/b.flow", "../../a.flow", Ok("../../a.flow")),
            ("", "/etc/passwd", Err("the path is absolute")),
            ("", "C:/a.flow", Err("the path contains a colon, as a URL or a path on a Windows drive does")),
            ("", "a\\b.flow", Err("the path contains a backslash or a control character")),
            ("", "", Err("the path is empty")),
            ("a/b.flow", "..", Err("the path names a folder")),
            ("", "..", Err("the path names a folder")),
        ] {
            assert_eq!(
                resolve(from, written).as_deref(),
                expected.as_ref().map(|path| *path),
                "{from} {written}"
            );
        }
    }

    fn load(files: &[(&str, &str)]) -> (PolicySource, PolicyFile, Vec<Diagnostic>) {
        let find = |path: &str| {
            let file = files.iter().find(|(name, _)| *name == path);
            file.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "there is no such file".to_owned())
        };
        Loader::load(&find("").unwrap(), Dialect::Flowgate, find)
    }

    #[test]
    fn a_span_is_located_in_its_file() {
        let (source, file, diagnostics) = load(&[
            ("", "import \"lib/a.flow\"\nx := 1"),
            ("lib/a.flow", "import \"b.flow\"\nimport \"../lib/b.flow\"\ny := 'a\nz := 2\n"),
            ("lib/b.flow", "\n\nw := 3\nimport \"a.flow\"\n"),
        ]);
        let located: Vec<String> =
            file.statements.iter().map(|statement| source.locate(statement.span.start).to_string()).collect();
        assert_eq!(located, ["lib/b.flow:3:1", "lib/a.flow:4:1", "2:1"]);
        let found: Vec<String> = diagnostics
            .iter()
            .map(|found| format!("{} {}", source.locate(found.span.start), found.message))
            .collect();
        assert_eq!(found[0], "lib/a.flow:3:6 the text has no closing quote");
        assert_eq!(source.imported().collect::<Vec<_>>(), ["lib/a.flow", "lib/b.flow"]);
        let (path, text, span) = source.excerpt_file(&file.statements[1].span);
        assert_eq!((path, text.get(span)), (Some("lib/a.flow"), Some("z := 2")));
        assert_eq!(source.syntax(Dialect::Flowgate), file);
    }

    #[test]
    fn imports_that_fail_are_reported_where_they_are_written() {
        let many: Vec<(String, String)> =
            (0..70).map(|n| (format!("{n}"), format!("import \"{}\"\n", n + 1))).collect();
        let mut chain: Vec<(&str, &str)> =
            many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        chain.push(("", "import \"0\"\n"));
        let long = " ".repeat(MAX_SOURCE);
        for (files, expected) in [
            (
                vec![("", "\nimport \"no.flow\"\n")],
                "2:1 import `no.flow` cannot be imported: there is no such file",
            ),
            (vec![("", "import \"/no\"")], "1:1 import `/no` cannot be imported: the path is absolute"),
            (chain, "62:1:1 import the policy has more than 64 files"),
            (
                vec![("", "import \"a\""), ("a", long.as_str())],
                "1:1 too-long with `a`, the policy is longer than 1048576 bytes",
            ),
        ] {
            let (source, _, diagnostics) = load(&files);
            let found = &diagnostics[0];
            assert_eq!(
                format!("{} {} {}", source.locate(found.span.start), found.code, found.message),
                expected
            );
            assert_eq!(diagnostics.len(), 1);
        }
    }
}
