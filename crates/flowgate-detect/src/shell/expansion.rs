//! Determines what is known of a word of a shell script after its expansion: its text, or only that the shell computes
//! it.
//!
//! The value of a variable is known if a literal assignment precedes the word in code that runs once and in order, and
//! nothing between can have changed it. Everything else that a shell computes is unknown. The scanner owns the
//! variables.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::limits::{MAX_VALUE, MAX_VARIABLES};
use super::syntax::{Assignment, PartKind, Word};

/// A word after its expansion, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct Argument<'s> {
    /// The text without quotes. A part that the shell computes is spelled as in the script, or replaced by a
    /// placeholder.
    pub(super) text: String,
    /// The bytes of the whole text that spell it.
    pub(super) span: Range<usize>,
    /// Whether `text` is what the command receives.
    pub(super) known: bool,
    /// Whether the command can receive any number of words here, also words that look like options.
    pub(super) splits: bool,
    /// The parsed word, unless a program adds the argument.
    pub(super) word: Option<&'s Word>,
}

impl Argument<'_> {
    /// Returns the text if it is known.
    pub(super) fn known_text(&self) -> Option<&str> {
        self.known.then_some(self.text.as_str())
    }

    /// Creates an argument that a program such as `xargs` adds to a command. Nothing is known of it.
    pub(super) fn added(span: &Range<usize>) -> Self {
        Self { text: "…".to_owned(), span: span.clone(), known: false, splits: true, word: None }
    }
}

/// The variables and functions that are known at a position of a script.
#[derive(Debug, Clone, Default)]
pub(super) struct ShellVariables {
    /// The known values, by the names of the variables.
    values: BTreeMap<String, String>,
    /// The functions that are certainly defined.
    pub(super) functions: BTreeSet<String>,
    /// Whether no value is known any more, for example after an assignment to `IFS`.
    disabled: bool,
}

impl ShellVariables {
    /// Forgets all values, and ignores all later assignments. The scanner calls this method where a script may change
    /// variables in a way that is not followed.
    pub(super) fn disable(&mut self) {
        self.values.clear();
        self.disabled = true;
    }

    /// Forgets all values and functions. The scanner calls this method at the beginning and at the end of code that may
    /// not run in order.
    pub(super) fn forget(&mut self) {
        self.values.clear();
        self.functions.clear();
    }

    /// Disables these variables if a nested script has disabled its copy, `inner`. The values in the copy are ignored.
    pub(super) fn disable_if_disabled_in(&mut self, inner: &Self) {
        self.disabled |= inner.disabled;
        if inner.disabled {
            self.values.clear();
        }
    }

    /// Records an assignment: remembers the value if it is known, short and plain, and otherwise forgets the variable.
    /// `certain` says whether the assignment runs in order and exactly once; only then is its value remembered.
    pub(super) fn assign(&mut self, assignment: &Assignment, certain: bool) {
        let value = self.expand(&assignment.value);
        // Values that would be split, expanded as patterns, or evaluated are not followed.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,".contains(&byte);
        let followed = certain
            && assignment.plain
            && !self.disabled
            && value.known
            && value.text.len() <= MAX_VALUE
            && value.text.bytes().all(is_plain)
            && !is_special(&assignment.name)
            && (self.values.len() < MAX_VARIABLES || self.values.contains_key(&assignment.name));
        if followed {
            self.values.insert(assignment.name.clone(), value.text);
        } else {
            self.values.remove(&assignment.name);
        }
        // The shell then splits words at other characters, so no unquoted value is known any more.
        if assignment.name == "IFS" {
            self.disable();
        }
    }

    /// Returns what is known of a word after its expansion: its text, whether the command receives exactly this text
    /// (`known`), and whether it may receive several words or none in its place (`splits`).
    pub(super) fn expand<'s>(&self, word: &'s Word) -> Argument<'s> {
        let mut text = String::new();
        // The text with `q` for each part that is quoted or comes from a variable, so that only characters that the
        // shell expands remain.
        let mut outline = String::new();
        let (mut known, mut splits) = (true, false);
        for part in &word.parts {
            match &part.kind {
                PartKind::Literal => {
                    text.push_str(&part.text);
                    outline.push_str(if part.quoted { "q" } else { &part.text });
                }
                PartKind::Variable(name) => match self.values.get(name) {
                    // An unquoted variable whose value is empty yields no word, so it is not followed.
                    Some(value) if part.quoted || !value.is_empty() => {
                        text.push_str(value);
                        outline.push('q');
                    }
                    _ => {
                        text.push_str(&part.text);
                        outline.push('q');
                        known = false;
                        splits |= !part.quoted;
                    }
                },
                PartKind::Computed | PartKind::Several => {
                    text.push_str(&part.text);
                    outline.push('q');
                    known = false;
                    splits |= !part.quoted || part.kind == PartKind::Several;
                }
            }
        }
        if has_brace_expansion(&outline) {
            known = false;
            splits = true;
        }
        known &= !is_pattern(&outline);
        Argument { text, span: word.span.clone(), known, splits, word: Some(word) }
    }
}

/// Returns whether the shell may set a variable itself, by its name or the beginning of its name. The value of such a
/// variable is not followed, since an assignment does not determine it.
fn is_special(name: &str) -> bool {
    ["BASH", "COMP", "EPOCH", "HIST", "OPT", "LC_"].iter().any(|prefix| name.starts_with(prefix))
        || matches!(
            name,
            "_" | "RANDOM"
                | "SRANDOM"
                | "SECONDS"
                | "LINENO"
                | "PWD"
                | "OLDPWD"
                | "REPLY"
                | "UID"
                | "EUID"
                | "PPID"
                | "GROUPS"
                | "FUNCNAME"
                | "DIRSTACK"
                | "PIPESTATUS"
                | "MAPFILE"
                | "COPROC"
                | "SHELLOPTS"
                | "LINES"
                | "COLUMNS"
                | "IFS"
        )
}

/// Returns whether a word may contain a brace expansion, such as `{a,b}` or `{1..3}`: whether a comma or two dots are
/// between its first `{` and its last `}`. The outline of a word is its text with `q` for each part that is quoted or
/// comes from a variable.
fn has_brace_expansion(outline: &str) -> bool {
    let Some((_, rest)) = outline.split_once('{') else { return false };
    rest.rsplit_once('}').is_some_and(|(inside, _)| inside.contains(',') || inside.contains(".."))
}

/// Returns whether a word, by its outline (see [`has_brace_expansion`]), is a pattern for the names of files.
fn is_pattern(outline: &str) -> bool {
    outline.contains(['*', '?']) || outline.split_once('[').is_some_and(|(_, rest)| rest.contains(']'))
}
