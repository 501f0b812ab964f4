//! Reads words: quotes, backslashes, variables, substitutions, arithmetic and patterns, as bash does.
//!
//! The [`parser`](super::parser) calls [`ScriptReader::word`] for each word, which calls the parser for each
//! substitution. A text that bash reads in different ways, depending on its version or options, is a syntax error here.

use std::ops::Range;

use super::limits::{ReadLimits, ShellReadError};
use super::syntax::{PartKind, Script, Word, WordPart};

/// The location of a script in the whole text.
#[derive(Debug, Clone)]
pub(super) enum ScriptLocation {
    /// From this byte on.
    From(usize),
    /// Somewhere within these bytes: quotes were removed, so positions in the script do not correspond to the text.
    Within(Range<usize>),
}

impl ScriptLocation {
    /// Returns the bytes of the whole text that correspond to a range of the script. If positions in the script
    /// correspond to no positions in the text, these are all bytes that contain the script.
    pub(super) fn locate(&self, range: &Range<usize>) -> Range<usize> {
        match self {
            Self::From(offset) => range.start + offset..range.end + offset,
            Self::Within(all) => all.clone(),
        }
    }
}

/// What is known about a text and all scripts in it, collected while they are parsed.
#[derive(Debug, Default)]
pub(super) struct TextFacts {
    /// The contents of the here-documents, by the number that a redirection has.
    pub(super) documents: Vec<Word>,
    /// The bytes of a construct that evaluates variables as arithmetic, which runs substitutions in their values.
    pub(super) arithmetic: Option<Range<usize>>,
    /// Whether a quoted text in an expansion contains a substitution, which arithmetic runs if the text becomes the
    /// value of a variable: `${x:='a[$(…)]'}`.
    pub(super) has_quoted_substitution: bool,
    /// Whether an expansion changes a variable, as `${x:=y}` does.
    pub(super) assigns_in_expansion: bool,
    /// Whether a function is defined.
    pub(super) defines_function: bool,
    /// Whether the text turns on patterns such as `!(x)`.
    pub(super) has_extended_patterns: bool,
    /// The expansions that run a value as a script: `${x@P}`.
    pub(super) prompt_expansions: Vec<Range<usize>>,
}

/// A here-document whose content follows the current line.
#[derive(Debug)]
pub(super) struct PendingDocument {
    pub(super) delimiter: String,
    /// Whether the delimiter is quoted; then the content is literal.
    pub(super) literal: bool,
    /// Whether the tabs at the beginning of each line are removed.
    pub(super) strips_tabs: bool,
    /// The number of its content in [`TextFacts::documents`].
    pub(super) number: usize,
}

/// Reads one script.
pub(super) struct ScriptReader<'t, 'r> {
    /// The text of the script.
    pub(super) text: &'t str,
    /// The offset of the next byte.
    pub(super) at: usize,
    pub(super) location: ScriptLocation,
    /// What may still be read of the whole text.
    pub(super) limits: &'r mut ReadLimits,
    /// Receives what is known about the whole text.
    pub(super) facts: &'r mut TextFacts,
    /// The here-documents whose contents begin after the current line.
    pub(super) pending: Vec<PendingDocument>,
    /// The number of `$(` and `<(` around the position.
    pub(super) substitutions: usize,
    /// Whether words may be patterns such as `@(a|b)`: in `case` and `[[`.
    pub(super) reads_patterns: bool,
}

/// Returns whether a byte ends an unquoted word.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>')
}

/// Returns whether a text is the name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl ScriptReader<'_, '_> {
    /// Returns the byte at the offset `at` of the script; `None` after its end.
    pub(super) fn byte_at(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// Returns the next byte, without reading it; `None` at the end of the script.
    pub(super) fn byte(&self) -> Option<u8> {
        self.byte_at(self.at)
    }

    /// Returns the offset at which the text continues after the line joins at the offset `at`. A line join is a
    /// backslash before a line break: the shell removes both.
    pub(super) fn after_joins(&self, mut at: usize) -> usize {
        while self.byte_at(at) == Some(b'\\') && self.byte_at(at + 1) == Some(b'\n') {
            at += 2;
        }
        at
    }

    /// Skips the line joins at the position.
    pub(super) fn skip_joins(&mut self) {
        self.at = self.after_joins(self.at);
    }

    /// Returns the offset after the text `expected`, or `None` if another text is next. Line joins before and between
    /// its characters are ignored.
    pub(super) fn after_text(&self, expected: &str) -> Option<usize> {
        let mut at = self.at;
        for byte in expected.bytes() {
            at = self.after_joins(at);
            if self.byte_at(at) != Some(byte) {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    /// Reads the next character and adds it to a word. `quoted` says whether quotes or a backslash protect it from
    /// expansion. Fails at the end of the script.
    pub(super) fn take_char(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ShellReadError> {
        let next =
            self.text.get(self.at..).and_then(|rest| rest.chars().next()).ok_or(ShellReadError::Syntax)?;
        self.at += next.len_utf8();
        word.push(next, quoted);
        Ok(())
    }

    /// Reads a word. Returns `None` if an operator, a blank or the end is next. Fails if a quote, a bracket or a
    /// substitution is not closed, if shells could read the word differently, or if a limit is exceeded.
    pub(super) fn word(&mut self) -> Result<Option<Word>, ShellReadError> {
        self.skip_joins();
        let start = self.at;
        let mut word = WordBuilder::default();
        // Below, `true` and `false` say whether quotes or a backslash protect a part of the word from expansion.
        let mut saw_equals = false;
        loop {
            self.skip_joins();
            let Some(byte) = self.byte() else { break };
            let next = self.after_joins(self.at + 1);
            let precedes_bracket = self.byte_at(next) == Some(b'(');
            match byte {
                b'<' | b'>' if precedes_bracket => {
                    self.at = next + 1;
                    let script = self.substitution()?;
                    word.compute("<(…)", false, vec![script]);
                }
                _ if ends_word(byte) => break,
                b'\'' => {
                    self.at += 1;
                    let body = self.until_single_quote()?;
                    word.push_text(body, true);
                }
                b'"' => {
                    self.at += 1;
                    // Without this, `""` would be no part of the word.
                    word.push_text("", true);
                    self.double_quoted(&mut word, true)?;
                }
                b'\\' => {
                    self.at += 1;
                    // A backslash at the end of the text is itself a part of the word.
                    if self.byte().is_none() {
                        word.push('\\', true);
                    } else {
                        self.take_char(&mut word, true)?;
                    }
                }
                b'$' => self.dollar(&mut word, false)?,
                b'`' => self.backquoted(&mut word, false)?,
                b'?' | b'*' | b'+' | b'@' | b'!'
                    if precedes_bracket && (self.reads_patterns || self.facts.has_extended_patterns) =>
                {
                    self.at = next + 1;
                    word.compute("*", false, Vec::new());
                    self.extended_pattern(&mut word)?;
                }
                b'=' if !saw_equals => {
                    saw_equals = true;
                    self.at += 1;
                    let is_array = precedes_bracket && word.may_be_assigned();
                    word.push('=', false);
                    if is_array {
                        self.at = next + 1;
                        let scripts = self.array_elements()?;
                        word.parts.push(WordPart {
                            text: "(…)".to_owned(),
                            kind: PartKind::Several,
                            quoted: false,
                            scripts,
                        });
                    }
                }
                _ => self.take_char(&mut word, false)?,
            }
        }
        self.limits.spend(self.at - start + 1)?;
        if self.at == start {
            return Ok(None);
        }
        self.check_word(&word, start)?;
        let word = Word { parts: word.parts, span: self.location.locate(&(start..self.at)) };
        Ok(Some(word))
    }

    /// Fails if bash may end a word elsewhere than at the position. The word begins at the offset `start`. Records a
    /// subscript of an array in the word, which the shell evaluates as arithmetic.
    fn check_word(&mut self, word: &WordBuilder, start: usize) -> Result<(), ShellReadError> {
        let spelled = self.text.get(start..self.at).unwrap_or_default();
        // The content of a here-document (one of `pending`) would begin inside the word.
        if !self.pending.is_empty() && spelled.contains('\n') {
            return Err(ShellReadError::Syntax);
        }
        // The subscript of an array may contain blanks, where bash does not end the word.
        let first = word.parts.first().filter(|part| part.kind == PartKind::Literal && !part.quoted);
        if let Some((name, _)) = first.and_then(|part| part.text.split_once('['))
            && is_name(name)
        {
            self.facts.arithmetic.get_or_insert(self.location.locate(&(start..self.at)));
            if !spelled.contains(']') {
                return Err(ShellReadError::Syntax);
            }
        }
        Ok(())
    }

    /// Reads up to the closing single quote. Returns the text before it. Fails if there is none.
    pub(super) fn until_single_quote(&mut self) -> Result<&str, ShellReadError> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        let length = rest.find('\'').ok_or(ShellReadError::Syntax)?;
        self.at = start + length + 1;
        Ok(self.text.get(start..start + length).unwrap_or_default())
    }

    /// Reads the text after a single quote, up to the closing one, where shells disagree whether the quotes are
    /// literal: in `"${x:-'…'}"` and in arithmetic. Fails if the text has a character that, if the quotes are literal,
    /// begins an expansion or a quotation, or opens or closes a bracket. Otherwise the text runs no script, whether the
    /// quotes are literal or not. The text itself is not kept, because the value of the whole expansion counts as
    /// computed.
    pub(super) fn ambiguous_single_quotes(&mut self) -> Result<(), ShellReadError> {
        let body = self.until_single_quote()?;
        if body.contains(['$', '`', '\\', '"', '{', '}', '(', ')', '[', ']']) {
            return Err(ShellReadError::Syntax);
        }
        Ok(())
    }

    /// Reads a text in which only `$`, backquotes and some backslashes are special: up to the closing double quote, or
    /// with `in_quotes` false, the whole content of a here-document. Fails if the quote is not closed, or if an
    /// expansion in the text cannot be read.
    pub(super) fn double_quoted(
        &mut self,
        word: &mut WordBuilder,
        in_quotes: bool,
    ) -> Result<(), ShellReadError> {
        loop {
            self.skip_joins();
            match self.byte() {
                None if in_quotes => return Err(ShellReadError::Syntax),
                None => return Ok(()),
                Some(b'"') if in_quotes => {
                    self.at += 1;
                    return Ok(());
                }
                // A backslash is removed only before one of these characters.
                Some(b'\\') => {
                    let escaped = match self.byte_at(self.at + 1) {
                        Some(b'"') => in_quotes,
                        other => matches!(other, Some(b'$' | b'`' | b'\\')),
                    };
                    if escaped {
                        self.at += 1;
                    }
                    self.take_char(word, true)?;
                }
                Some(b'$') => self.dollar(word, true)?,
                Some(b'`') => self.backquoted(word, true)?,
                Some(_) => self.take_char(word, true)?,
            }
        }
    }

    /// Reads the rest of a pattern such as `@(a|b)` after its opening bracket, and adds its parts to the word, except
    /// text in single quotes. Fails if the bracket is not closed, or if the pattern has a newline, `<` or `>` outside
    /// quotes.
    fn extended_pattern(&mut self, word: &mut WordBuilder) -> Result<(), ShellReadError> {
        let mut depth = 0_usize;
        loop {
            self.skip_joins();
            match self.byte().ok_or(ShellReadError::Syntax)? {
                b')' if depth == 0 => {
                    self.at += 1;
                    return Ok(());
                }
                // Text in single quotes is dropped. It contains no command substitutions, and its exact value is not
                // needed: a word with a pattern counts as one that the shell computes.
                b'\'' => {
                    self.at += 1;
                    self.until_single_quote()?;
                }
                b'"' => {
                    self.at += 1;
                    self.double_quoted(word, true)?;
                }
                b'\\' => {
                    self.at += 1;
                    self.take_char(word, true)?;
                }
                b'$' => self.dollar(word, false)?,
                b'`' => self.backquoted(word, false)?,
                // Newlines and process substitutions in a pattern are too rare to be worth a rule.
                b'\n' | b'<' | b'>' => return Err(ShellReadError::Syntax),
                byte => {
                    depth = depth + usize::from(byte == b'(') - usize::from(byte == b')');
                    self.take_char(word, false)?;
                }
            }
        }
    }

    /// Reads the elements of an array after the opening bracket. Returns the scripts in them. Fails if the array is not
    /// closed, contains an operator or an element with a subscript (`[2]=x`), or exceeds a limit.
    fn array_elements(&mut self) -> Result<Vec<Script>, ShellReadError> {
        self.limits.enter()?;
        let mut scripts = Vec::new();
        loop {
            self.skip_blanks()?;
            match self.byte().ok_or(ShellReadError::Syntax)? {
                b')' => {
                    self.at += 1;
                    self.limits.leave();
                    return Ok(scripts);
                }
                b'\n' => self.newline()?,
                // The subscript of an element may contain blanks.
                b'[' => return Err(ShellReadError::Syntax),
                _ => {
                    let word = self.word()?.ok_or(ShellReadError::Syntax)?;
                    scripts.extend(word.parts.into_iter().flat_map(|part| part.scripts));
                }
            }
        }
    }
}

/// Collects the parts of a word.
#[derive(Debug, Default)]
pub(super) struct WordBuilder {
    pub(super) parts: Vec<WordPart>,
}

impl WordBuilder {
    /// Adds a literal character. `quoted` says whether quotes or a backslash protect it from expansion.
    pub(super) fn push(&mut self, c: char, quoted: bool) {
        self.push_text(c.encode_utf8(&mut [0; 4]), quoted);
    }

    /// Adds a literal text. An empty one in quotes counts as well: `""` is a word. `quoted` says whether quotes or a
    /// backslash protect it from expansion.
    pub(super) fn push_text(&mut self, text: &str, quoted: bool) {
        match self.parts.last_mut() {
            Some(last) if last.kind == PartKind::Literal && last.quoted == quoted => last.text.push_str(text),
            _ => self.parts.push(WordPart {
                text: text.to_owned(),
                kind: PartKind::Literal,
                quoted,
                scripts: Vec::new(),
            }),
        }
    }

    /// Adds a part that the shell computes. `text` is its placeholder, such as `$(…)`, and `scripts` are the scripts
    /// in it. `quoted` says whether double quotes enclose it, so that its value is not split.
    pub(super) fn compute(&mut self, text: &str, quoted: bool, scripts: Vec<Script>) {
        self.parts.push(WordPart { text: text.to_owned(), kind: PartKind::Computed, quoted, scripts });
    }

    /// Returns whether the word so far can be the left side of an assignment: a name, with or without a subscript and a
    /// plus sign. The text after an opening bracket is not examined.
    fn may_be_assigned(&self) -> bool {
        let Some(first) = self.parts.first().filter(|part| part.kind == PartKind::Literal && !part.quoted)
        else {
            return false;
        };
        match first.text.split_once('[') {
            Some((name, _)) => is_name(name),
            None => self.parts.len() == 1 && is_name(first.text.strip_suffix('+').unwrap_or(&first.text)),
        }
    }
}
