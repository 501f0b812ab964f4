//! Reads words: quotes, backslashes, variables, substitutions, arithmetic and patterns, as bash does.
//!
//! The [`parser`](super::parser) calls it for each word, and it calls the parser for each substitution. What bash reads
//! in more than one way, depending on its version or options, is a syntax error here.

use std::ops::Range;

use super::limits::{ReadBudget, ReadError};
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
    /// Returns the bytes of the whole text that correspond to a range of the script, or that contain the whole script
    /// if positions in it correspond to none.
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
    /// Whether the delimiter is quoted, so that the content is literal.
    pub(super) literal: bool,
    /// Whether the tabs at the beginning of each line are removed.
    pub(super) strips_tabs: bool,
    /// The number of its content in [`TextFacts::documents`].
    pub(super) number: usize,
}

/// Reads one script.
pub(super) struct ScriptReader<'t, 'r> {
    pub(super) text: &'t str,
    /// The offset of the next byte.
    pub(super) at: usize,
    pub(super) location: ScriptLocation,
    pub(super) budget: &'r mut ReadBudget,
    pub(super) facts: &'r mut TextFacts,
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
    /// Returns the byte at an offset.
    pub(super) fn byte_at(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// Returns the next byte.
    pub(super) fn byte(&self) -> Option<u8> {
        self.byte_at(self.at)
    }

    /// Returns the offset after the joined lines (a backslash and a line break) at an offset.
    pub(super) fn after_joins(&self, mut at: usize) -> usize {
        while self.byte_at(at) == Some(b'\\') && self.byte_at(at + 1) == Some(b'\n') {
            at += 2;
        }
        at
    }

    /// Skips joined lines.
    pub(super) fn skip_joins(&mut self) {
        self.at = self.after_joins(self.at);
    }

    /// Returns the offset after `expected`, which may contain joined lines, or `None` if another text is next.
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

    /// Adds the next character to a word.
    fn take_char(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ReadError> {
        let next = self.text.get(self.at..).and_then(|rest| rest.chars().next()).ok_or(ReadError::Syntax)?;
        self.at += next.len_utf8();
        word.push(next, quoted);
        Ok(())
    }

    /// Reads a word. Returns `None` if an operator, a blank or the end is next. Fails if a quote or a substitution is
    /// open at the end, or if a limit is exceeded.
    pub(super) fn word(&mut self) -> Result<Option<Word>, ReadError> {
        self.skip_joins();
        let start = self.at;
        let mut word = WordBuilder::default();
        let mut saw_equals = false;
        loop {
            self.skip_joins();
            let Some(byte) = self.byte() else { break };
            let next = self.after_joins(self.at + 1);
            let opens = self.byte_at(next) == Some(b'(');
            match byte {
                b'<' | b'>' if opens => {
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
                    if opens && (self.reads_patterns || self.facts.has_extended_patterns) =>
                {
                    self.at = next + 1;
                    word.compute("*", false, Vec::new());
                    self.extended_pattern(&mut word)?;
                }
                b'=' if !saw_equals => {
                    saw_equals = true;
                    self.at += 1;
                    let is_array = opens && word.may_be_assigned();
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
        self.budget.spend(self.at - start + 1)?;
        if self.at == start {
            return Ok(None);
        }
        let spelled = self.text.get(start..self.at).unwrap_or_default();
        // The content of a here-document would begin inside the word.
        if !self.pending.is_empty() && spelled.contains('\n') {
            return Err(ReadError::Syntax);
        }
        // The subscript of an array may contain blanks, where bash does not end the word.
        let first = word.parts.first().filter(|part| part.kind == PartKind::Literal && !part.quoted);
        if let Some((name, _)) = first.and_then(|part| part.text.split_once('['))
            && is_name(name)
        {
            self.facts.arithmetic.get_or_insert(self.location.locate(&(start..self.at)));
            if !spelled.contains(']') {
                return Err(ReadError::Syntax);
            }
        }
        let word = Word { parts: word.parts, span: self.location.locate(&(start..self.at)) };
        Ok(Some(word))
    }

    /// Reads up to the closing single quote. Returns the text before it. Fails if there is none.
    fn until_single_quote(&mut self) -> Result<&str, ReadError> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        let length = rest.find('\'').ok_or(ReadError::Syntax)?;
        self.at = start + length + 1;
        Ok(self.text.get(start..start + length).unwrap_or_default())
    }

    /// Reads the text after a single quote where shells disagree whether the quote protects it. Fails unless it has
    /// the same meaning in both cases.
    fn ambiguous_single_quotes(&mut self) -> Result<(), ReadError> {
        let body = self.until_single_quote()?;
        if body.contains(['$', '`', '\\', '"', '{', '}', '(', ')', '[', ']']) {
            return Err(ReadError::Syntax);
        }
        Ok(())
    }

    /// Reads a text in which only `$`, backquotes and some backslashes are special: up to the closing double quote, or
    /// with `in_quotes` false, the whole content of a here-document. Fails if the quote or a substitution is open at
    /// the end.
    pub(super) fn double_quoted(&mut self, word: &mut WordBuilder, in_quotes: bool) -> Result<(), ReadError> {
        loop {
            self.skip_joins();
            match self.byte() {
                None if in_quotes => return Err(ReadError::Syntax),
                None => return Ok(()),
                Some(b'"') if in_quotes => {
                    self.at += 1;
                    return Ok(());
                }
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

    /// Reads what begins with a dollar sign. Fails if it is open at the end.
    fn dollar(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ReadError> {
        let start = self.at;
        let next = self.after_joins(self.at + 1);
        match self.byte_at(next) {
            Some(b'(') => {
                let second = self.after_joins(next + 1);
                if self.byte_at(second) == Some(b'(') {
                    self.at = second + 1;
                    let scripts = self.arithmetic(b')', start)?;
                    word.compute("$((…))", quoted, scripts);
                } else {
                    self.at = next + 1;
                    let script = self.substitution()?;
                    word.compute("$(…)", quoted, vec![script]);
                }
            }
            Some(b'[') => {
                self.at = next + 1;
                let scripts = self.arithmetic(b']', start)?;
                word.compute("$((…))", quoted, scripts);
            }
            Some(b'{') => {
                self.at = next + 1;
                self.parameter(word, quoted, start)?;
            }
            Some(b'\'') if !quoted => {
                self.at = next + 1;
                self.ansi_quoted(word)?;
            }
            Some(b'"') if !quoted => {
                self.at = next + 1;
                word.push_text("", true);
                self.double_quoted(word, true)?;
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                self.at = next;
                let name = self.name();
                word.parts.push(WordPart {
                    text: format!("${name}"),
                    kind: PartKind::Variable(name),
                    quoted,
                    scripts: Vec::new(),
                });
            }
            Some(byte @ (b'@' | b'*')) => {
                self.at = next + 1;
                let kind = if byte == b'@' { PartKind::Several } else { PartKind::Computed };
                word.parts.push(WordPart {
                    text: format!("${}", char::from(byte)),
                    kind,
                    quoted,
                    scripts: Vec::new(),
                });
            }
            Some(byte) if byte.is_ascii_digit() || b"#?-$!".contains(&byte) => {
                self.at = next + 1;
                word.compute(&format!("${}", char::from(byte)), quoted, Vec::new());
            }
            _ => self.take_char(word, quoted)?,
        }
        Ok(())
    }

    /// Reads the name of a variable, which may contain joined lines.
    fn name(&mut self) -> String {
        let mut name = String::new();
        loop {
            let at = self.after_joins(self.at);
            match self.byte_at(at) {
                Some(byte) if byte.is_ascii_alphanumeric() || byte == b'_' => {
                    name.push(char::from(byte));
                    self.at = at + 1;
                }
                _ => return name,
            }
        }
    }

    /// Reads `${…}` after its opening bracket; `start` is the offset of the dollar sign. Fails if it is open at the
    /// end, or has a meaning that depends on the version of the shell.
    fn parameter(&mut self, word: &mut WordBuilder, quoted: bool, start: usize) -> Result<(), ReadError> {
        self.budget.enter()?;
        self.skip_joins();
        // `${ command; }` runs a command in recent shells.
        if matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'|') | None) {
            return Err(ReadError::Syntax);
        }
        let name = self.name();
        self.skip_joins();
        if self.byte() == Some(b'}') && is_name(&name) {
            self.at += 1;
            self.budget.leave();
            let (text, kind) = (format!("${{{name}}}"), PartKind::Variable(name));
            word.parts.push(WordPart { text, kind, quoted, scripts: Vec::new() });
            return Ok(());
        }
        let mut inner = WordBuilder::default();
        let body = self.at;
        // A special parameter may be a character that is otherwise a quote or a bracket.
        if name.is_empty() && matches!(self.byte(), Some(b'!' | b'#' | b'$' | b'@' | b'*' | b'?' | b'-')) {
            self.at += 1;
        }
        loop {
            self.skip_joins();
            let next = self.after_joins(self.at + 1);
            match self.byte().ok_or(ReadError::Syntax)? {
                b'}' => break,
                b'\\' => {
                    self.at += 1;
                    self.take_char(&mut inner, true)?;
                }
                b'\'' => {
                    self.at += 1;
                    if quoted {
                        self.ambiguous_single_quotes()?;
                    } else {
                        let literal = self.until_single_quote()?.to_owned();
                        inner.push_text(&literal, true);
                    }
                }
                b'"' => {
                    self.at += 1;
                    self.double_quoted(&mut inner, true)?;
                }
                b'$' => self.dollar(&mut inner, quoted)?,
                b'`' => self.backquoted(&mut inner, quoted)?,
                b'<' | b'>' if !quoted && self.byte_at(next) == Some(b'(') => {
                    self.at = next + 1;
                    let script = self.substitution()?;
                    inner.compute("<(…)", false, vec![script]);
                }
                _ => self.take_char(&mut inner, quoted)?,
            }
        }
        let spelled = self.text.get(body..self.at).unwrap_or_default();
        self.budget.spend(spelled.len())?;
        self.at += 1;
        self.budget.leave();
        let span = self.location.locate(&(start..self.at));
        if spelled.contains("@P") {
            self.facts.prompt_expansions.push(span.clone());
        }
        self.facts.assigns_in_expansion |= spelled.contains('=');
        if spelled.starts_with(['!', ':', '[']) || spelled.contains('[') {
            self.facts.arithmetic.get_or_insert(span);
        }
        let several = spelled.starts_with('@') || spelled.contains("[@]") || spelled.starts_with('!');
        // The word of `${x:-word}` can be `"$@"`.
        let several = several || inner.parts.iter().any(|part| part.kind == PartKind::Several);
        let inner = Word { parts: inner.parts, span: 0..0 };
        self.facts.has_quoted_substitution |= inner.has_quoted_substitution();
        let scripts = inner.parts.into_iter().flat_map(|part| part.scripts).collect();
        let kind = if several { PartKind::Several } else { PartKind::Computed };
        word.parts.push(WordPart { text: format!("${{{name}…}}"), kind, quoted, scripts });
        Ok(())
    }

    /// Reads arithmetic after its opening brackets, up to `))` or `]`; `start` is the offset of its beginning. Returns
    /// the scripts in it. Fails if it is open at the end, or if the brackets can also be those of a subshell.
    pub(super) fn arithmetic(&mut self, close: u8, start: usize) -> Result<Vec<Script>, ReadError> {
        self.budget.enter()?;
        let open = if close == b')' { b'(' } else { b'[' };
        let mut depth = 0_usize;
        let mut inner = WordBuilder::default();
        loop {
            self.skip_joins();
            match self.byte().ok_or(ReadError::Syntax)? {
                b'\\' => {
                    self.at += 1;
                    self.take_char(&mut inner, true)?;
                }
                b'$' => self.dollar(&mut inner, true)?,
                b'`' => self.backquoted(&mut inner, true)?,
                b'"' => {
                    self.at += 1;
                    self.double_quoted(&mut inner, true)?;
                }
                b'\'' => {
                    self.at += 1;
                    self.ambiguous_single_quotes()?;
                }
                byte if byte == close && depth == 0 => {
                    self.at += 1;
                    if close == b')' {
                        self.skip_joins();
                        if self.byte() != Some(b')') {
                            return Err(ReadError::Syntax);
                        }
                        self.at += 1;
                    }
                    break;
                }
                byte => {
                    depth = depth + usize::from(byte == open) - usize::from(byte == close);
                    self.take_char(&mut inner, true)?;
                }
            }
        }
        self.budget.spend(self.at - start)?;
        self.budget.leave();
        let span = self.location.locate(&(start..self.at));
        self.facts.arithmetic.get_or_insert(span);
        if !self.pending.is_empty()
            && self.text.get(start..self.at).is_some_and(|spelled| spelled.contains('\n'))
        {
            return Err(ReadError::Syntax);
        }
        Ok(inner.parts.into_iter().flat_map(|part| part.scripts).collect())
    }

    /// Reads `` `…` ``. Backslashes before `$`, `` ` `` and `\` are removed before the script in it is parsed. Fails if
    /// it is open at the end, or if its script is not valid.
    fn backquoted(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ReadError> {
        let start = self.at + 1;
        let mut script = String::new();
        let mut removed = false;
        self.at = start;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let length = rest.find(['`', '\\']).ok_or(ReadError::Syntax)?;
            script.push_str(rest.get(..length).unwrap_or_default());
            self.at += length + 1;
            if rest.as_bytes().get(length) == Some(&b'`') {
                break;
            }
            match self.byte() {
                // In double quotes, shells disagree about this.
                Some(b'"') if quoted => return Err(ReadError::Syntax),
                Some(byte @ (b'$' | b'`' | b'\\')) => {
                    script.push(char::from(byte));
                    removed = true;
                    self.at += 1;
                }
                _ => script.push('\\'),
            }
        }
        self.budget.spend(script.len() + 1)?;
        self.budget.enter()?;
        let span = self.location.locate(&(start..self.at.saturating_sub(1)));
        let location = if removed { ScriptLocation::Within(span) } else { ScriptLocation::From(span.start) };
        let location = match &self.location {
            ScriptLocation::Within(_) => self.location.clone(),
            ScriptLocation::From(_) => location,
        };
        let mut reader = ScriptReader {
            text: &script,
            at: 0,
            location,
            budget: &mut *self.budget,
            facts: &mut *self.facts,
            pending: Vec::new(),
            substitutions: 0,
            reads_patterns: false,
        };
        let parsed = reader.strict_script()?;
        self.budget.leave();
        word.compute("`…`", quoted, vec![parsed]);
        Ok(())
    }

    /// Reads `$'…'` after its opening quote. Fails if it is open at the end, or is no valid text.
    fn ansi_quoted(&mut self, word: &mut WordBuilder) -> Result<(), ReadError> {
        let mut decoded: Vec<u8> = Vec::new();
        // A zero byte ends the text.
        let mut ended = false;
        loop {
            let byte = self.byte().ok_or(ReadError::Syntax)?;
            self.at += 1;
            let value = match byte {
                b'\'' => break,
                b'\\' => {
                    let escape = self.byte().ok_or(ReadError::Syntax)?;
                    self.at += 1;
                    match escape {
                        b'a' => 7,
                        b'b' => 8,
                        b'e' | b'E' => 27,
                        b'f' => 12,
                        b'n' => 10,
                        b'r' => 13,
                        b't' => 9,
                        b'v' => 11,
                        b'\\' | b'\'' | b'"' | b'?' => u32::from(escape),
                        b'0'..=b'7' => {
                            self.at -= 1;
                            self.digits(8, 3) & 0xff
                        }
                        b'x' if self.byte() == Some(b'{') => return Err(ReadError::Syntax),
                        b'x' if self.byte().is_some_and(|b| b.is_ascii_hexdigit()) => self.digits(16, 2),
                        b'u' | b'U' if self.byte().is_some_and(|b| b.is_ascii_hexdigit()) => {
                            let c = char::from_u32(self.digits(16, if escape == b'u' { 4 } else { 8 }));
                            // What shells do without such a character depends on the locale.
                            let c = c.filter(char::is_ascii).ok_or(ReadError::Syntax)?;
                            u32::from(c)
                        }
                        b'c' => return Err(ReadError::Syntax),
                        other => {
                            if !ended {
                                decoded.push(b'\\');
                            }
                            u32::from(other)
                        }
                    }
                }
                other => u32::from(other),
            };
            ended |= value == 0;
            if !ended {
                decoded.push(u8::try_from(value).map_err(|_| ReadError::Syntax)?);
            }
        }
        let text = String::from_utf8(decoded).map_err(|_| ReadError::Syntax)?;
        word.push_text(&text, true);
        Ok(())
    }

    /// Reads a number of at most `most` digits, and returns it.
    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0_u32;
        for _ in 0..most {
            match self.byte().and_then(|byte| char::from(byte).to_digit(radix)) {
                Some(digit) => value = value.wrapping_mul(radix).wrapping_add(digit),
                None => break,
            }
            self.at += 1;
        }
        value
    }

    /// Reads the rest of a pattern such as `@(a|b)` after its opening bracket. Fails if it is open at the end.
    fn extended_pattern(&mut self, word: &mut WordBuilder) -> Result<(), ReadError> {
        let mut depth = 0_usize;
        loop {
            self.skip_joins();
            match self.byte().ok_or(ReadError::Syntax)? {
                b')' if depth == 0 => {
                    self.at += 1;
                    return Ok(());
                }
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
                b'\n' | b'<' | b'>' => return Err(ReadError::Syntax),
                byte => {
                    depth = depth + usize::from(byte == b'(') - usize::from(byte == b')');
                    self.take_char(word, false)?;
                }
            }
        }
    }

    /// Reads the elements of an array after the opening bracket. Returns the scripts in them. Fails if the array is
    /// open at the end, or contains an operator.
    fn array_elements(&mut self) -> Result<Vec<Script>, ReadError> {
        self.budget.enter()?;
        let mut scripts = Vec::new();
        loop {
            self.skip_blanks()?;
            match self.byte().ok_or(ReadError::Syntax)? {
                b')' => {
                    self.at += 1;
                    self.budget.leave();
                    return Ok(scripts);
                }
                b'\n' => self.newline()?,
                // The subscript of an element may contain blanks.
                b'[' => return Err(ReadError::Syntax),
                _ => {
                    let word = self.word()?.ok_or(ReadError::Syntax)?;
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
    /// Adds a literal character.
    fn push(&mut self, c: char, quoted: bool) {
        self.push_text(c.encode_utf8(&mut [0; 4]), quoted);
    }

    /// Adds a literal text. An empty one in quotes counts as well: `""` is a word.
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

    /// Adds a part that the shell computes.
    fn compute(&mut self, text: &str, quoted: bool, scripts: Vec<Script>) {
        self.parts.push(WordPart { text: text.to_owned(), kind: PartKind::Computed, quoted, scripts });
    }

    /// Returns whether the word so far is what an assignment may have before `=`: a name, with or without a subscript
    /// and a plus sign.
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
