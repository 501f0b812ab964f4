//! Defines the parts of a parsed script. [`parser`](super::parser) creates them, and [`scanner`](super::scanner) visits
//! them.

use std::ops::Range;

/// A list of statements: a whole script, or the body of a construct.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) statements: Vec<ShellStatement>,
}

/// Pipelines joined by `&&` and `||`.
#[derive(Debug)]
pub(super) struct ShellStatement {
    pub(super) pipelines: Vec<Pipeline>,
    /// Whether `&` ends it; then it runs in a process of its own.
    pub(super) background: bool,
}

/// Commands joined by `|`.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<Command>,
}

/// A command with its redirections.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) form: CommandForm,
    pub(super) redirects: Vec<Redirect>,
    /// The bytes of the whole text that spell the command.
    pub(super) span: Range<usize>,
}

/// The form of a command.
#[derive(Debug)]
pub(super) enum CommandForm {
    /// Assignments and words.
    Simple { assignments: Vec<Assignment>, words: Vec<Word> },
    /// A construct that contains scripts.
    Compound { kind: CompoundKind, words: Vec<Word>, bodies: Vec<Script> },
    /// The definition of a function. `name` is `None` if it is computed.
    Function { name: Option<String>, body: Box<Command> },
}

/// What a compound command does with its scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompoundKind {
    /// `( … )`: the script runs in a process of its own.
    Subshell,
    /// `{ … }`: the script runs once.
    Group,
    /// `if` and `case`: each script runs at most once.
    Choice,
    /// `for`, `select`, `while` and `until`: each script runs any number of times.
    Loop,
    /// `(( … ))` and `[[ … ]]`: an expression.
    Test,
}

/// An assignment before a command, or alone.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) name: String,
    /// Whether it replaces the whole value: neither `+=`, nor an element of an array, nor an array.
    pub(super) plain: bool,
    pub(super) value: Word,
}

/// A redirection.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) operator: &'static str,
    /// The descriptor before the operator, if there is one: a number, or a variable in braces.
    pub(super) descriptor: Option<String>,
    /// The file, the text of a here-string, or the delimiter of a here-document.
    pub(super) target: Word,
    /// For a here-document, the number of its content in the contents of all here-documents.
    pub(super) document: Option<usize>,
}

impl Redirect {
    /// Returns whether the redirection replaces the standard input.
    pub(super) fn feeds_input(&self) -> bool {
        self.operator.starts_with('<') && self.descriptor.as_deref().is_none_or(|number| number == "0")
    }
}

/// A word.
#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) parts: Vec<WordPart>,
    /// The bytes of the whole text that spell the word.
    pub(super) span: Range<usize>,
}

impl Word {
    /// Returns the scripts in its substitutions.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.parts.iter().flat_map(|part| &part.scripts)
    }

    /// Returns whether the literal text contains a substitution that quotes protect. Arithmetic runs it if the text is
    /// the value of a variable: `x='a[$(…)]'; echo $((x))`.
    pub(super) fn has_quoted_substitution(&self) -> bool {
        if self.parts.iter().all(|part| !part.quoted) {
            return false;
        }
        let literals = self.parts.iter().filter(|part| part.kind == PartKind::Literal);
        let text: String = literals.map(|part| part.text.as_str()).collect();
        text.contains("$(") || text.contains('`')
    }

    /// Returns the text if no part of it is quoted or computed: only such a word can be a keyword or the name of a
    /// variable.
    pub(super) fn plain_text(&self) -> Option<String> {
        let is_plain = |part: &WordPart| part.kind == PartKind::Literal && !part.quoted;
        let all_plain = self.parts.iter().all(is_plain);
        all_plain.then(|| self.parts.iter().map(|part| part.text.as_str()).collect())
    }
}

/// A part of a word.
#[derive(Debug)]
pub(super) struct WordPart {
    /// The text without quotes. A substitution has a placeholder: `$(…)`.
    pub(super) text: String,
    pub(super) kind: PartKind,
    /// Whether quotes or a backslash protect the part from splitting and patterns.
    pub(super) quoted: bool,
    /// The scripts in the part.
    pub(super) scripts: Vec<Script>,
}

/// What the shell does with a part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartKind {
    /// The part is a literal text.
    Literal,
    /// The part is the value of this variable.
    Variable(String),
    /// The shell computes the part as one word, or as several words if it is not quoted.
    Computed,
    /// The shell computes any number of words from the part, even in quotes: `"$@"`.
    Several,
}
