//! The syntax of a shell script: lists of pipelines, whose stages are commands or groups of pipelines.
//!
//! [`parser`](super::parser) reads it from a text, and [`expansion`](super::expansion) makes the words of commands from
//! it.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

/// Pipelines that run one after the other, however they are joined.
pub(super) type CommandList = Rc<Vec<Pipeline>>;

/// A script, and what in it is not understood.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) list: CommandList,
    /// The place of the first construct that is not closed or that is not expected.
    pub(super) syntax_error: Option<usize>,
    /// The place of the first construct that nests too deeply to be read.
    pub(super) too_deep: Option<usize>,
}

/// Stages joined by `|`.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) stages: Vec<Stage>,
    /// The bytes of the stages.
    pub(super) span: Range<usize>,
}

/// A stage of a pipeline.
#[derive(Debug)]
pub(super) enum Stage {
    Command(SimpleCommand),
    /// On the heap, since most stages are commands, which are smaller.
    Group(Box<Group>),
    /// The definition of a function, with its name.
    Function(String, CommandList),
}

/// Words and redirections.
#[derive(Debug, Default)]
pub(super) struct SimpleCommand {
    pub(super) words: Vec<SyntaxWord>,
    pub(super) redirects: Vec<Redirect>,
}

/// `( … )`, `{ … }`, a loop or a condition: what it runs, without regard to the condition.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) list: CommandList,
    /// Whether it runs in a process of its own, with a directory of its own.
    pub(super) is_subshell: bool,
    /// The variable of a `for` loop with its values; without values, those are the arguments of the script.
    pub(super) binding: Option<(String, Option<Vec<SyntaxWord>>)>,
    /// The redirections, and the words of `case` and `for`, which can contain substitutions.
    pub(super) head: SimpleCommand,
}

/// An operator such as `>` with the word after it.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) operator: &'static str,
    pub(super) target: SyntaxWord,
    /// The body of a here-document; empty until the parser has come to its lines.
    pub(super) document: Option<Rc<OnceCell<SyntaxWord>>>,
}

impl Redirect {
    /// Returns the here-document, or the word after the operator.
    pub(super) fn word(&self) -> &SyntaxWord {
        self.document.as_ref().and_then(|document| document.get()).unwrap_or(&self.target)
    }
}

/// A word as it is written.
#[derive(Debug, Default, Clone)]
pub(super) struct SyntaxWord {
    pub(super) parts: Vec<Part>,
    /// The bytes that spell the word.
    pub(super) span: Range<usize>,
}

/// A part of a word.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Text without its quotes.
    Text { text: String, quoted: bool },
    /// A variable or an arithmetic expression. `raw` is its spelling.
    Variable { raw: String, name: String, quoted: bool, form: VariableForm },
    /// The commands inside `$(…)`, `` `…` ``, `<(…)` or `>(…)`. `raw` is its spelling.
    /// `rewritten` are its bytes in the script if places in the commands are not those of the script.
    Substitution { raw: String, list: CommandList, rewritten: Option<Range<usize>> },
    /// The words between the brackets of `a=(…)`.
    Array(Vec<SyntaxWord>),
}

/// What an expansion makes of the value of its variable.
#[derive(Debug, Clone)]
pub(super) enum VariableForm {
    /// `$x`, `${x}` or `${x[@]}`: the value.
    Plain,
    /// `${x:-word}` or `${x:=word}`: the value, or the word.
    Default(Rc<SyntaxWord>),
    /// Something computed, such as `${x%word}`, `${!x}` or `$((…))`.
    Computed(Rc<SyntaxWord>),
}

impl SyntaxWord {
    /// Calls `visit` for every list of commands in the word's substitutions, also in those of `${x:-$(…)}`, with the
    /// bytes of the substitution if places in the commands are not those of the script.
    pub(super) fn visit_lists(&self, visit: &mut dyn FnMut(&CommandList, Option<&Range<usize>>)) {
        for part in &self.parts {
            match part {
                Part::Text { .. } | Part::Variable { form: VariableForm::Plain, .. } => {}
                Part::Substitution { list, rewritten, .. } => visit(list, rewritten.as_ref()),
                Part::Variable {
                    form: VariableForm::Default(word) | VariableForm::Computed(word), ..
                } => {
                    word.visit_lists(visit);
                }
                Part::Array(words) => words.iter().for_each(|word| word.visit_lists(visit)),
            }
        }
    }

    /// Calls `visit` with the name of every variable whose value is a part of the word.
    pub(super) fn visit_variables<'w>(&'w self, visit: &mut dyn FnMut(&'w str)) {
        for part in &self.parts {
            match part {
                Part::Text { .. } | Part::Substitution { .. } => {}
                Part::Variable { name, form, .. } => {
                    visit(name);
                    if let VariableForm::Default(word) = form {
                        word.visit_variables(visit);
                    }
                }
                Part::Array(words) => words.iter().for_each(|word| word.visit_variables(visit)),
            }
        }
    }

    /// Splits an assignment into the name, whether the value is appended, and the value. `None` for another word.
    pub(super) fn split_assignment(&self) -> Option<(&str, bool, Self)> {
        let (Part::Text { text, quoted: false }, rest) = self.parts.split_first()? else { return None };
        let (target, value) = text.split_once('=')?;
        let (target, is_appended) = match target.strip_suffix('+') {
            Some(target) => (target, true),
            None => (target, false),
        };
        // An element of an array counts as the array.
        let (name, is_element) = match target.split_once('[') {
            Some((name, index)) if index.ends_with(']') => (name, true),
            _ => (target, false),
        };
        if !is_name(name) {
            return None;
        }
        let first = Part::Text { text: value.to_owned(), quoted: false };
        let parts = [first].into_iter().chain(rest.iter().cloned()).collect();
        Some((name, is_appended || is_element, Self { parts, span: self.span.clone() }))
    }
}

/// Returns whether a text can be the name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
