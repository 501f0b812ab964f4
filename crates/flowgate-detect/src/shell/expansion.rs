//! Makes the words of commands: expands variables with the constants that the script assigns to them.
//!
//! The order in which a script runs is not known, so a variable has every constant that was assigned to it before, in
//! the order of the text, and a command has a variant for each of them. A value that the script computes is unknown;
//! the variable then stands in the word as it is spelled.

use std::collections::BTreeMap;
use std::ops::Range;

use super::parser::plain_text;
use super::syntax::{Part, Redirect, SyntaxWord, VariableForm};

/// Values of one variable that are followed. With more, it has unknown values too.
const MAX_VALUES: usize = 16;

/// Maximum length of a value that is followed, in bytes.
const MAX_VALUE_BYTES: usize = 4096;

/// Variants of one command. With more, some of its variables stand as they are spelled.
const MAX_VARIANTS: usize = 16;

/// Words that one `{a,b}` can become.
const MAX_BRACE_WORDS: usize = 64;

/// A word of a command, expanded.
#[derive(Debug, Default, Clone)]
pub(super) struct Word {
    /// The text, with unknown variables and substitutions as they are spelled.
    pub(super) text: String,
    /// The text without substitutions, whose commands are scanned where they stand.
    pub(super) code: String,
    /// The bytes that spell the word.
    pub(super) span: Range<usize>,
    /// The word of the syntax that it comes from, by its position in the command; redirections come after the words.
    pub(super) source: usize,
    /// Whether it contains a variable or a substitution that the shell would expand.
    pub(super) dynamic: bool,
    /// Whether the script itself computes the text: by a substitution, by joining parts, or in a variable.
    pub(super) computed: bool,
}

/// A command: its words and redirections.
#[derive(Debug, Default, Clone)]
pub(super) struct ShellCommand {
    pub(super) words: Vec<Word>,
    /// Operators such as `>` with the following word; for a here-document, its body.
    pub(super) redirects: Vec<(&'static str, Word)>,
}

impl ShellCommand {
    /// Returns the bytes from the first to the last word, also of the redirections but for here-documents.
    pub(super) fn span(&self) -> Range<usize> {
        let redirects = self.redirects.iter().filter(|(operator, _)| !matches!(*operator, "<<" | "<<-"));
        let words = || self.words.iter().chain(redirects.clone().map(|(_, word)| word));
        let start = words().map(|word| word.span.start).min().unwrap_or(0);
        start..words().map(|word| word.span.end).max().unwrap_or(0)
    }
}

/// What is known about a variable.
#[derive(Debug, Default, Clone)]
struct Variable {
    values: Vec<String>,
    /// Whether it can have a value that is not among them.
    is_open: bool,
}

/// The variables of a script.
#[derive(Debug)]
pub(super) struct Variables {
    known: BTreeMap<String, Variable>,
    /// The bytes that expansions may still produce, so that the time is bounded.
    pub(super) budget: usize,
}

impl Variables {
    /// Creates the variables that shells set, for a script of this length in bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let set = |value: &str| Variable { values: vec![value.to_owned()], is_open: false };
        let known = [("IFS", " "), ("SHELL", "bash"), ("BASH", "bash")];
        let known = known.into_iter().map(|(name, value)| (name.to_owned(), set(value))).collect();
        Self { known, budget: bytes.saturating_mul(32).saturating_add(2 << 20) }
    }

    /// Returns a number that changes with the values of the variable.
    pub(super) fn state_of(&self, name: &str) -> usize {
        self.known
            .get(name)
            .map_or(0, |variable| 1 + 2 * variable.values.len() + usize::from(variable.is_open))
    }

    /// Returns whether the script assigns to the variable.
    pub(super) fn is_assigned(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Adds a value.
    pub(super) fn assign(&mut self, name: &str, value: Option<String>, is_appended: bool) {
        self.known.entry(name.to_owned()).or_default().add(value, is_appended);
    }
}

impl Variable {
    fn add(&mut self, value: Option<String>, is_appended: bool) {
        let Some(value) = value else {
            self.is_open = true;
            return;
        };
        let values = if is_appended && !self.values.is_empty() {
            self.values.iter().map(|old| format!("{old}{value}")).collect()
        } else {
            vec![value]
        };
        for value in values {
            if value.len() > MAX_VALUE_BYTES || self.values.len() >= MAX_VALUES {
                self.is_open = true;
            } else if !self.values.contains(&value) {
                self.values.push(value);
            }
        }
    }
}

impl Variables {
    /// Sets `$1`, `$2` and so on to the arguments of a function, and returns what they were.
    pub(super) fn enter_function(&mut self, arguments: &[Word]) -> PositionalParameters {
        let mut before = PositionalParameters(Vec::new());
        let all = arguments.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let numbered = arguments.iter().enumerate().map(|(i, word)| ((i + 1).to_string(), word.text.clone()));
        for (name, value) in numbered.take(9).chain([("@".to_owned(), all.clone()), ("*".to_owned(), all)]) {
            let variable = Variable { values: vec![value], is_open: false };
            let old = self.known.insert(name.clone(), variable);
            before.0.push((name, old));
        }
        before
    }

    pub(super) fn leave_function(&mut self, before: PositionalParameters) {
        for (name, old) in before.0 {
            match old {
                Some(old) => self.known.insert(name, old),
                None => self.known.remove(&name),
            };
        }
    }

    /// Returns which values the variables of a command have together in each of its variants, of which there is at least
    /// one.
    pub(super) fn variants(&self, words: &[SyntaxWord], redirects: &[Redirect]) -> Vec<Choice> {
        self.choices(words.iter().chain(redirects.iter().map(Redirect::word)))
    }

    /// Returns the values that a word can have as the value of a variable; `None` for one that is unknown.
    pub(super) fn values(&mut self, word: &SyntaxWord) -> Vec<Option<String>> {
        let choices = self.choices([word].into_iter());
        let mut values = Vec::new();
        for choice in &choices {
            let text = self.expand_whole(word, choice, 0);
            values.push((!text.has_unknown).then_some(text.word.text));
        }
        values
    }

    /// Returns the values that the words of a `for` loop give its variable; `None` for one that is unknown.
    pub(super) fn loop_values(&mut self, words: &[SyntaxWord]) -> Vec<Option<String>> {
        let mut values = Vec::new();
        for word in words {
            for choice in self.choices([word].into_iter()) {
                let mut split = Vec::new();
                self.expand_word(word, &choice, 0, &mut split);
                values.extend(split.into_iter().map(|word| (!word.has_unknown).then_some(word.word.text)));
            }
        }
        values
    }

    /// Returns which values the variables of some words have together.
    fn choices<'w>(&self, words: impl Iterator<Item = &'w SyntaxWord>) -> Vec<Choice> {
        let mut options: BTreeMap<&str, Vec<Option<usize>>> = BTreeMap::new();
        let mut total = 1;
        for word in words {
            word.visit_variables(&mut |name| {
                let Some(variable) = self.known.get(name).filter(|_| !options.contains_key(name)) else {
                    return;
                };
                let mut known: Vec<_> = (0..variable.values.len()).map(Some).collect();
                if variable.is_open {
                    known.push(None);
                }
                // An empty value is often only the first one.
                if known.len() > 1 {
                    let is_empty = |i: usize| variable.values.get(i).is_some_and(String::is_empty);
                    known.retain(|i| !i.is_some_and(is_empty));
                }
                if total * known.len() <= MAX_VARIANTS {
                    total *= known.len().max(1);
                    options.insert(name, known);
                }
            });
        }
        let mut choices = vec![Choice::new()];
        for (name, known) in options {
            choices = choices
                .into_iter()
                .flat_map(|choice| {
                    known.iter().map(move |value| {
                        let mut choice = choice.clone();
                        choice.extend(value.map(|value| (name.to_owned(), value)));
                        choice
                    })
                })
                .collect();
        }
        choices
    }

    /// Expands a command with one choice of values.
    pub(super) fn expand_command(
        &mut self,
        written: &[SyntaxWord],
        redirects: &[Redirect],
        choice: &Choice,
    ) -> ShellCommand {
        let mut words = Vec::new();
        for (source, word) in written.iter().enumerate() {
            if word.split_assignment().is_some() {
                words.push(self.expand_whole(word, choice, source));
            } else {
                self.expand_word(word, choice, source, &mut words);
            }
        }
        let expand = |(i, redirect): (usize, &Redirect)| {
            let word = self.expand_whole(redirect.word(), choice, written.len() + i);
            (redirect.operator, word.finish())
        };
        let redirects = redirects.iter().enumerate().map(expand).collect();
        ShellCommand { words: words.into_iter().map(OpenWord::finish).collect(), redirects }
    }

    /// Expands a word where the shell does not split it.
    fn expand_whole(&mut self, word: &SyntaxWord, choice: &Choice, source: usize) -> OpenWord {
        let mut open = OpenWord::new(word, source);
        self.expand_parts(&word.parts, choice, &mut open, None);
        self.spend(open.word.text.len());
        open
    }

    /// Expands a word into those that the shell makes of it.
    fn expand_word(&mut self, word: &SyntaxWord, choice: &Choice, source: usize, words: &mut Vec<OpenWord>) {
        if let [Part::Text { text, quoted: false }] = word.parts.as_slice() {
            for text in brace_words(text) {
                let mut open = OpenWord::new(word, source);
                self.spend(text.len());
                open.is_glob = is_pattern(&text);
                open.push(&text);
                words.push(open);
            }
            return;
        }
        let mut open = OpenWord::new(word, source);
        let first = words.len();
        self.expand_parts(&word.parts, choice, &mut open, Some(words));
        if open.has_content {
            words.push(open);
        }
        let bytes = words.iter().skip(first).map(|open| open.word.text.len()).sum();
        self.spend(bytes);
    }

    /// Takes bytes from the budget.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes + 16);
    }

    /// Appends parts to a word. With `words`, the values of variables outside quotes are split at white space, and the
    /// words that end there are pushed.
    fn expand_parts(
        &mut self,
        parts: &[Part],
        choice: &Choice,
        open: &mut OpenWord,
        mut words: Option<&mut Vec<OpenWord>>,
    ) {
        for part in parts {
            match part {
                Part::Text { text, quoted } => {
                    open.is_glob |= !quoted && is_pattern(text);
                    open.has_content |= *quoted;
                    open.push(text);
                }
                Part::Substitution { raw, .. } => {
                    open.push_unknown(raw, true);
                    open.word.code.truncate(open.word.code.len().saturating_sub(raw.len()));
                }
                Part::Array(values) => {
                    for (i, value) in values.iter().enumerate() {
                        if i > 0 {
                            open.push(" ");
                        }
                        self.expand_parts(&value.parts, choice, open, None);
                    }
                }
                Part::Variable { raw, name, quoted, form } => {
                    open.word.dynamic = true;
                    open.expansions += 1;
                    let is_list = matches!(name.as_str(), "@" | "*") || raw.contains("[@]");
                    let value = self.value(name, choice).filter(|_| self.budget > 0);
                    match (value, form) {
                        (_, VariableForm::Computed(_)) => {
                            open.push_unknown(raw, name.is_empty() || raw.starts_with("${!"))
                        }
                        (Some(value), VariableForm::Plain) => {
                            let value = value.to_owned();
                            self.spend(value.len());
                            open.push_value(&value, *quoted && !is_list, words.as_deref_mut());
                        }
                        (Some(value), VariableForm::Default(_)) if !value.is_empty() => {
                            let value = value.to_owned();
                            self.spend(value.len());
                            open.push_value(&value, *quoted && !is_list, words.as_deref_mut());
                        }
                        (_, VariableForm::Default(word)) => {
                            let mut default = OpenWord::new(word, 0);
                            self.expand_parts(&word.parts, choice, &mut default, None);
                            open.has_unknown |= default.has_unknown;
                            open.word.computed |= default.word.computed;
                            open.push_value(&default.word.text, *quoted, words.as_deref_mut());
                        }
                        (None, VariableForm::Plain) => open.push_unknown(raw, self.is_assigned(name)),
                    }
                }
            }
        }
    }

    fn value(&self, name: &str, choice: &Choice) -> Option<&str> {
        self.known.get(name)?.values.get(*choice.get(name)?).map(String::as_str)
    }
}

/// The number of the value of each variable that has a known one.
pub(super) type Choice = BTreeMap<String, usize>;

/// The arguments of the calling function.
pub(super) struct PositionalParameters(Vec<(String, Option<Variable>)>);

/// A word that is being expanded.
#[derive(Default)]
struct OpenWord {
    word: Word,
    /// Whether it is a word even if it is empty.
    has_content: bool,
    has_unknown: bool,
    /// Whether a part after the last `/` is unknown.
    has_unknown_name: bool,
    is_glob: bool,
    /// Expansions after the last `/`.
    expansions: usize,
}

impl OpenWord {
    fn new(word: &SyntaxWord, source: usize) -> Self {
        Self { word: Word { span: word.span.clone(), source, ..Word::default() }, ..Self::default() }
    }

    fn push(&mut self, text: &str) {
        self.has_content |= !text.is_empty();
        if text.contains('/') {
            // A program is known by its name, whatever its directory.
            self.has_unknown_name = false;
            self.word.computed = false;
            self.expansions = 0;
            self.is_glob = text.rsplit('/').next().is_some_and(is_pattern) && self.is_glob;
        }
        self.word.text.push_str(text);
        self.word.code.push_str(text);
    }

    fn push_unknown(&mut self, raw: &str, is_computed: bool) {
        self.has_content = true;
        self.word.text.push_str(raw);
        self.word.code.push_str(raw);
        self.word.dynamic = true;
        self.word.computed |= is_computed;
        self.has_unknown = true;
        self.has_unknown_name = true;
    }

    /// Appends the value of a variable; outside quotes, as the words that it is split into.
    fn push_value(&mut self, value: &str, quoted: bool, words: Option<&mut Vec<Self>>) {
        let Some(words) = words.filter(|_| !quoted) else {
            self.has_content |= quoted;
            return self.push(value);
        };
        let blank = |c: char| c.is_ascii_whitespace();
        let mut pieces = value.split(blank);
        self.push(pieces.next().unwrap_or_default());
        for piece in pieces {
            let word = Word { span: self.word.span.clone(), source: self.word.source, ..Word::default() };
            let next = Self { word, ..Self::default() };
            let word = std::mem::replace(self, next);
            if word.has_content {
                words.push(Self { word: Word { dynamic: true, ..word.word }, ..word });
            }
            self.word.dynamic = true;
            self.push(piece);
        }
    }

    fn finish(mut self) -> Word {
        self.word.computed |= self.is_glob || self.has_unknown_name && self.expansions > 1;
        self.word
    }
}

/// Returns whether a text is a pattern of files; `[` alone is a program.
fn is_pattern(text: &str) -> bool {
    text.len() > 1 && text.contains(['*', '?', '['])
}

/// Returns the words that `{a,b}` in an unquoted text becomes; only the text if it has none.
fn brace_words(text: &str) -> Vec<String> {
    let unchanged = || vec![text.to_owned()];
    let Some((before, rest)) = text.split_once('{') else { return unchanged() };
    let Some((list, after)) = rest.split_once('}') else { return unchanged() };
    if !list.contains(',') || list.contains('{') || after.contains('{') {
        return unchanged();
    }
    list.split(',').take(MAX_BRACE_WORDS).map(|item| format!("{before}{item}{after}")).collect()
}

/// Returns the text of a word in which nothing is expanded. `None` for another word.
pub(super) fn constant_text(word: &SyntaxWord) -> Option<String> {
    word.parts.iter().all(|part| matches!(part, Part::Text { .. })).then(|| plain_text(word))
}
