//! Divides a tool script into tokens as JavaScript does. The [`reader`](super::reader) requests one token after the
//! other, since only the reader knows where the text of a template continues.

use super::ScriptUnreadReason;

/// The marks of the language, longest first, so that none is read as two. Marks that the reader never expects, such as
/// `/=`, are in the list only for this reason. Regular expressions are not tokens here: a `/` is a division.
const MARKS: [&str; 53] = [
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=", "<=",
    ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>",
    "**", "{", "}", "(", ")", "[", "]", ";", ",", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "=", ".",
];

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or a reserved word.
    Name(&'a str),
    Number(f64),
    Text(String),
    /// One of [`MARKS`].
    Mark(&'static str),
    /// The beginning of a template, whose pieces [`Lexer::template_piece`] reads.
    Template,
    /// The end of the program.
    End,
}

/// A piece of the text of a template.
pub(super) struct TemplatePiece {
    /// The text, with its escapes decoded unless the template is raw.
    pub(super) text: String,
    /// Whether the template ends after it; otherwise an expression follows.
    pub(super) is_last: bool,
}

/// The lexer of a program. It reads tokens from its position on.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// The byte at which the next token, or the space before it, begins.
    pub(super) at: usize,
}

type Result<T> = std::result::Result<T, ScriptUnreadReason>;

impl<'a> Lexer<'a> {
    /// Creates a lexer at the beginning of a program.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the text from the position on.
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns the next character without taking it; `None` at the end of the program.
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character; `None` at the end of the program.
    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Skips spaces and comments. Returns whether there was a line break. Fails if a comment is not closed.
    pub(super) fn skip_space(&mut self) -> Result<bool> {
        let mut has_break = false;
        loop {
            let rest = self.rest();
            if let Some(comment) = rest.strip_prefix("//") {
                self.at += 2 + comment.find(is_line_break).unwrap_or(comment.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/").ok_or(ScriptUnreadReason::Syntax)?;
                has_break |= comment.get(..end).unwrap_or_default().contains(is_line_break);
                // `/*` and `*/` have two bytes each.
                self.at += end + 4;
            } else {
                match self.peek() {
                    Some(' ' | '\t') => self.at += 1,
                    Some(c) if is_line_break(c) => {
                        has_break = true;
                        self.at += c.len_utf8();
                    }
                    _ => return Ok(has_break),
                }
            }
        }
    }

    /// Reads the token that begins at the position. The caller has skipped the space before it. Fails if no token
    /// begins there, or if it is a number or a text that is not read.
    pub(super) fn token(&mut self) -> Result<Token<'a>> {
        let rest = self.rest();
        match self.peek() {
            None => Ok(Token::End),
            Some(quote @ ('"' | '\'')) => {
                self.at += 1;
                self.quoted(quote).map(Token::Text)
            }
            Some('`') => {
                self.at += 1;
                Ok(Token::Template)
            }
            Some('0'..='9') => self.number(),
            Some(c) if is_name_part(c) => {
                let length = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
                self.at += length;
                Ok(Token::Name(rest.get(..length).unwrap_or_default()))
            }
            Some(_) => {
                let mark = MARKS
                    .into_iter()
                    .find(|mark| rest.starts_with(mark))
                    .ok_or(ScriptUnreadReason::Syntax)?;
                self.at += mark.len();
                Ok(Token::Mark(mark))
            }
        }
    }

    /// Reads a decimal number such as `10` or `0.5`. Fails for any other form of number, such as `1e3`, `0x1` or `010`.
    fn number(&mut self) -> Result<Token<'a>> {
        let rest = self.rest();
        let length = rest.find(|c| !is_name_part(c) && c != '.').unwrap_or(rest.len());
        let written = rest.get(..length).unwrap_or_default();
        let (whole, fraction) = written.split_once('.').unwrap_or((written, "0"));
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let has_plain_form =
            is_digits(whole) && is_digits(fraction) && (whole == "0" || !whole.starts_with('0'));
        if !has_plain_form {
            return Err(ScriptUnreadReason::Syntax);
        }
        self.at += length;
        written.parse().map(Token::Number).map_err(|_| ScriptUnreadReason::Syntax)
    }

    /// Reads the rest of a text that ends with `quote`. Fails at a line break that is not escaped.
    fn quoted(&mut self, quote: char) -> Result<String> {
        let mut text = String::new();
        loop {
            match self.take().ok_or(ScriptUnreadReason::Syntax)? {
                c if c == quote => return Ok(text),
                '\\' => text.extend(self.escape()?),
                '\n' | '\r' => return Err(ScriptUnreadReason::Syntax),
                c => text.push(c),
            }
        }
    }

    /// Reads the text of a template up to its next expression or its end. With `raw`, escapes are not decoded. Fails if
    /// the template does not end, or at an escape that is not read.
    pub(super) fn template_piece(&mut self, raw: bool) -> Result<TemplatePiece> {
        let mut text = String::new();
        loop {
            match self.take().ok_or(ScriptUnreadReason::Syntax)? {
                '`' => return Ok(TemplatePiece { text, is_last: true }),
                '$' if self.peek() == Some('{') => {
                    self.at += 1;
                    return Ok(TemplatePiece { text, is_last: false });
                }
                // An escaped backquote does not end a raw template, either.
                '\\' if raw => {
                    text.push('\\');
                    match self.take().ok_or(ScriptUnreadReason::Syntax)? {
                        // JavaScript would replace it by `\n`; it is too rare to be worth a rule.
                        '\r' => return Err(ScriptUnreadReason::Syntax),
                        c => text.push(c),
                    }
                }
                '\\' => text.extend(self.escape()?),
                // In a template, every line break is one `\n`.
                '\r' => {
                    if self.peek() == Some('\n') {
                        self.at += 1;
                    }
                    text.push('\n');
                }
                c => text.push(c),
            }
        }
    }

    /// Reads an escape after its backslash, and returns the character that it means. `None` for an escaped line break,
    /// which is not a part of the text. Fails at an escape that JavaScript rejects, and at a few rare ones.
    fn escape(&mut self) -> Result<Option<char>> {
        Ok(Some(match self.take().ok_or(ScriptUnreadReason::Syntax)? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => '\0',
            'x' => char::from_u32(self.hexadecimal(2)?).ok_or(ScriptUnreadReason::Syntax)?,
            'u' => return self.unicode_escape().map(Some),
            '\n' => return Ok(None),
            // `\1` is an error. Other characters have no meaning of their own.
            c if c == ' ' || c.is_ascii_graphic() && !c.is_ascii_digit() => c,
            _ => return Err(ScriptUnreadReason::Syntax),
        }))
    }

    /// Reads the code of an escape `\u`: four hexadecimal digits, two such escapes for a pair of surrogates, or one to
    /// six digits in braces. Returns the character. Fails if the code is not that of a character.
    fn unicode_escape(&mut self) -> Result<char> {
        if self.peek() == Some('{') {
            self.at += 1;
            let rest = self.rest();
            let length =
                rest.find('}').filter(|length| (1..=6).contains(length)).ok_or(ScriptUnreadReason::Syntax)?;
            let code = self.hexadecimal(length)?;
            self.at += 1;
            return char::from_u32(code).ok_or(ScriptUnreadReason::Syntax);
        }
        let first = self.hexadecimal(4)?;
        // The first half of a pair (a surrogate) must be followed by the second half, as an escape of its own.
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or(ScriptUnreadReason::Syntax);
        }
        if !self.rest().starts_with("\\u") {
            return Err(ScriptUnreadReason::Syntax);
        }
        self.at += 2;
        let second = self.hexadecimal(4)?;
        let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400).ok_or(ScriptUnreadReason::Syntax)?;
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low).ok_or(ScriptUnreadReason::Syntax)
    }

    /// Reads a number of `length` hexadecimal digits. Fails if fewer digits follow.
    fn hexadecimal(&mut self, length: usize) -> Result<u32> {
        let is_digits = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = self.rest().get(..length).filter(is_digits).ok_or(ScriptUnreadReason::Syntax)?;
        self.at += length;
        u32::from_str_radix(digits, 16).map_err(|_| ScriptUnreadReason::Syntax)
    }
}

/// Returns whether a character ends a line in JavaScript.
fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

/// Returns whether a character can be in a name. Names with other characters are not read.
fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}
