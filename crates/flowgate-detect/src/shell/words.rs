//! Reads the words of shell scripts: quotes, escapes, variables and substitutions.

use std::rc::Rc;

use super::parser::{Parser, parse};
use super::syntax::{Part, SyntaxWord, VariableForm, is_name};

/// Where a word ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordEnd {
    /// At an unquoted space or operator.
    Blank,
    /// At the `}` of `${x:-word}`. In double quotes, apostrophes do not quote.
    Brace { in_quotes: bool },
    /// At the end of the text: the body of a here-document, or an arithmetic expression.
    EndOfText,
}

impl Parser<'_> {
    /// Reads a word. `None` at an operator or the end.
    pub(super) fn word(&mut self) -> Option<SyntaxWord> {
        let word = self.word_until(WordEnd::Blank);
        (!word.span.is_empty()).then_some(word)
    }

    /// Reads the whole text as the body of a here-document.
    pub(super) fn document_word(&mut self) -> SyntaxWord {
        self.word_until(WordEnd::EndOfText)
    }

    fn word_until(&mut self, end: WordEnd) -> SyntaxWord {
        let start = self.at;
        let mut parts = Parts(Vec::new());
        let mut quoted = end == WordEnd::EndOfText;
        let quotes = |c: char| match end {
            WordEnd::Blank => true,
            WordEnd::Brace { in_quotes } => c == '"' || !in_quotes,
            WordEnd::EndOfText => false,
        };
        // The open parentheses of a pattern such as `@(a|b)`.
        let mut pattern = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                '"' if quotes(c) => {
                    self.at += 1;
                    quoted = !quoted;
                    // An empty text in quotes is a word too.
                    parts.push_text("", true);
                }
                '\\' => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') | None => {}
                        // In double quotes, a backslash escapes only these four characters. Before any other, it is
                        // itself a part of the word.
                        Some(c) if quoted && !matches!(c, '"' | '\\' | '$' | '`') => {
                            parts.push_text("\\", true);
                            parts.push(c, true);
                        }
                        Some(c) => parts.push(c, true),
                    }
                }
                '\'' if !quoted && quotes(c) => {
                    let body = self.rest().get(1..).unwrap_or_default();
                    let close = body.find('\'');
                    let length = close.unwrap_or(body.len());
                    parts.push_text(body.get(..length).unwrap_or_default(), true);
                    if close.is_none() {
                        self.note_syntax_error();
                    }
                    self.at = (self.at + length + 2).min(self.end);
                }
                '$' => self.dollar(quoted, end, &mut parts),
                '`' => self.backquotes(quoted, &mut parts),
                '<' | '>'
                    if !quoted
                        && end == WordEnd::Blank
                        && (self.starts_with("<(") || self.starts_with(">(")) =>
                {
                    self.substitution(quoted, &mut parts);
                }
                '(' if !quoted && end == WordEnd::Blank && (pattern > 0 || parts.may_be_pattern()) => {
                    pattern += 1;
                    self.at += 1;
                    parts.push(c, false);
                }
                ')' if !quoted && pattern > 0 => {
                    pattern -= 1;
                    self.at += 1;
                    parts.push(c, false);
                }
                '(' if !quoted && end == WordEnd::Blank && parts.is_assignment() => {
                    self.at += 1;
                    match self.nested(Self::array) {
                        Some(words) => parts.0.push(Part::Array(words)),
                        None => break,
                    }
                }
                '}' if !quoted && matches!(end, WordEnd::Brace { .. }) => break,
                _ if !quoted
                    && pattern == 0
                    && end == WordEnd::Blank
                    && (c.is_ascii_whitespace() || matches!(c, '|' | '&' | ';' | '(' | ')' | '<' | '>')) =>
                {
                    break;
                }
                _ => {
                    self.at += c.len_utf8();
                    parts.push(c, quoted);
                }
            }
        }
        if pattern > 0 || quoted && end != WordEnd::EndOfText {
            self.note_syntax_error();
        }
        // Most words have one part, and a vector has room for four.
        parts.0.shrink_to_fit();
        SyntaxWord { parts: parts.0, span: start..self.at }
    }

    /// Reads an expansion that begins with `$`.
    fn dollar(&mut self, quoted: bool, end: WordEnd, parts: &mut Parts) {
        let start = self.at;
        if self.starts_with("$((")
            && let Some(expression) = self.arithmetic(start + 3)
        {
            let raw = self.spelled_from(start);
            let form = VariableForm::Computed(Rc::new(expression));
            parts.0.push(Part::Variable { raw, name: String::new(), quoted, form });
        } else if self.starts_with("$(") {
            self.substitution(quoted, parts);
        } else if self.starts_with("${") {
            self.braced_variable(quoted, parts);
        } else if self.starts_with("$'") && !quoted && end == WordEnd::Blank {
            self.at += 2;
            self.escaped_text(parts);
        } else if self.starts_with("$\"") && !quoted {
            // A text that is translated.
            self.at += 1;
        } else {
            self.at += 1;
            let rest = self.rest();
            let name =
                rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
            let length = match rest.bytes().next() {
                Some(c) if c.is_ascii_digit() => 1,
                Some(c) if b"@*#?-$!".contains(&c) => 1,
                _ => name,
            };
            if length == 0 {
                parts.push('$', quoted);
                return;
            }
            let name = rest.get(..length).unwrap_or_default().to_owned();
            self.at += length;
            let raw = self.spelled_from(start);
            parts.0.push(Part::Variable { raw, name, quoted, form: VariableForm::Plain });
        }
    }

    fn spelled_from(&self, start: usize) -> String {
        self.text.get(start..self.at).unwrap_or_default().to_owned()
    }

    /// Reads `$(…)`, `<(…)` or `>(…)`.
    fn substitution(&mut self, quoted: bool, parts: &mut Parts) {
        let start = self.at;
        self.at += 2;
        match self.nested(Self::substituted_list) {
            Some(list) => {
                parts.0.push(Part::Substitution { raw: self.spelled_from(start), list, rewritten: None });
            }
            // Too deep: the commands are read as if they stood outside.
            None => {
                self.at = start;
                if let Some(c) = self.next() {
                    parts.push(c, quoted);
                }
                self.at += usize::from(quoted);
            }
        }
    }

    /// Reads `` `…` ``. A backquote inside is written with a backslash.
    fn backquotes(&mut self, quoted: bool, parts: &mut Parts) {
        let start = self.at;
        let body = self.rest().get(1..).unwrap_or_default();
        let mut is_escaped = false;
        let close = body.bytes().position(|byte| {
            let is_end = byte == b'`' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        if close.is_none() {
            self.note_syntax_error();
        }
        let length = close.unwrap_or(body.len());
        let body = body.get(..length).unwrap_or_default();
        let is_rewritten = body.contains("\\`") || quoted && body.contains("\\\"");
        let list = self.nested(|parser| {
            if is_rewritten {
                let script = parse(&body.replace("\\`", "`").replace("\\\"", "\"").replace("\\\\", "\\"));
                parser.note_problems_of(&script);
                script.list
            } else {
                parser.list_within(start + 1..start + 1 + length)
            }
        });
        self.at = (start + length + 2).min(self.end);
        parts.0.push(Part::Substitution {
            raw: self.spelled_from(start),
            list: list.unwrap_or_default(),
            rewritten: is_rewritten.then_some(start..self.at),
        });
    }

    /// Reads `${…}`.
    fn braced_variable(&mut self, quoted: bool, parts: &mut Parts) {
        let start = self.at;
        self.at += 2;
        let rest = self.rest();
        let is_prefixed =
            rest.starts_with(['!', '#']) && !rest.get(1..).is_some_and(|rest| rest.starts_with('}'));
        self.at += usize::from(is_prefixed);
        let rest = self.rest();
        let length =
            rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let length =
            if length == 0 && rest.starts_with(['@', '*', '#', '?', '-', '$', '!']) { 1 } else { length };
        let name = rest.get(..length).unwrap_or_default().to_owned();
        self.at += length;
        for all in ["[@]", "[*]", "[0]"] {
            if self.starts_with(all) {
                self.at += all.len();
            }
        }
        let is_plain = self.starts_with("}");
        let default = [":-", ":=", "-", "="].into_iter().find(|operator| self.starts_with(operator));
        self.at += default.map_or(0, str::len);
        let argument = self.nested(|parser| parser.word_until(WordEnd::Brace { in_quotes: quoted }));
        let Some(argument) = argument else {
            parts.push_text("${", quoted);
            return;
        };
        if self.starts_with("}") {
            self.at += 1;
        } else {
            self.note_syntax_error();
        }
        let form = match default {
            _ if is_prefixed => VariableForm::Computed(Rc::new(argument)),
            None if is_plain => VariableForm::Plain,
            Some(_) => VariableForm::Default(Rc::new(argument)),
            None => VariableForm::Computed(Rc::new(argument)),
        };
        parts.0.push(Part::Variable { raw: self.spelled_from(start), name, quoted, form });
    }

    /// Reads an arithmetic expression whose two opening parentheses end before `start`. `None`, with nothing read, if
    /// its closing ones are not together, so that the parentheses are those of commands; also where nothing more can
    /// be nested.
    pub(super) fn arithmetic(&mut self, start: usize) -> Option<SyntaxWord> {
        if self.is_full() {
            return None;
        }
        let text = self.text.get(start..self.end)?;
        let mut depth = 2_usize;
        let at = text.bytes().position(|byte| {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            depth == 1
        })?;
        if !text.get(at..)?.starts_with("))") {
            return None;
        }
        let end = start + at;
        let word = self.nested(|parser| parser.within(start..end, Self::document_word))?;
        self.at = end + 2;
        Some(word)
    }

    /// Reads the rest of `$'…'`, whose escapes stand for characters.
    fn escaped_text(&mut self, parts: &mut Parts) {
        parts.push_text("", true);
        loop {
            match self.next() {
                None => return self.note_syntax_error(),
                Some('\'') => return,
                Some('\\') => {
                    let Some(escape) = self.next() else { return self.note_syntax_error() };
                    let c = match escape {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'a' => '\u{7}',
                        'b' => '\u{8}',
                        'e' | 'E' => '\u{1b}',
                        'f' => '\u{c}',
                        'v' => '\u{b}',
                        'x' => self.character(16, 2, 0),
                        'u' => self.character(16, 4, 0),
                        'U' => self.character(16, 8, 0),
                        '0'..='7' => self.character(8, 2, escape.to_digit(8).unwrap_or_default()),
                        other => other,
                    };
                    parts.push(c, true);
                }
                Some(c) => parts.push(c, true),
            }
        }
    }

    /// Reads up to so many digits of the number of a character.
    fn character(&mut self, radix: u32, digits: usize, first: u32) -> char {
        let mut number = first;
        for _ in 0..digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            self.at += 1;
            number = number.saturating_mul(radix).saturating_add(digit);
        }
        char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// The parts of a word that is being read.
struct Parts(Vec<Part>);

impl Parts {
    fn push_text(&mut self, more: &str, is_quoted: bool) {
        match self.0.last_mut() {
            Some(Part::Text { text, quoted }) if *quoted == is_quoted => text.push_str(more),
            _ => self.0.push(Part::Text { text: more.to_owned(), quoted: is_quoted }),
        }
    }

    fn push(&mut self, c: char, quoted: bool) {
        self.push_text(c.encode_utf8(&mut [0; 4]), quoted);
    }

    /// Returns whether an opening parenthesis continues a pattern such as `@(a|b)`. A word that is only `!` negates.
    fn may_be_pattern(&self) -> bool {
        match self.0.as_slice() {
            [] => false,
            [Part::Text { text, quoted: false }] if text == "!" => false,
            [.., Part::Text { text, quoted: false }] => text.ends_with(['@', '!', '*', '?', '+']),
            _ => false,
        }
    }

    /// Returns whether an opening parenthesis begins the values of an array.
    fn is_assignment(&self) -> bool {
        match self.0.as_slice() {
            [Part::Text { text, quoted: false }] => {
                text.strip_suffix('=').is_some_and(|name| is_name(name.strip_suffix('+').unwrap_or(name)))
            }
            _ => false,
        }
    }
}
