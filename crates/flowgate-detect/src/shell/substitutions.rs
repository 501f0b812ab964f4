//! Reads the parts of words that begin with a dollar sign or a backquote: variables, substitutions, arithmetic, `$'…'`.
//! The [`lexer`](super::lexer) calls [`ScriptReader::dollar`] and [`ScriptReader::backquoted`] inside each word.

use super::lexer::{ScriptLocation, ScriptReader, WordBuilder, is_name};
use super::limits::ShellReadError;
use super::syntax::{PartKind, Script, Word, WordPart};

impl ScriptReader<'_, '_> {
    /// Reads a variable or a substitution that begins with a dollar sign, such as `$x`, `${x}` or `$(…)`, and adds it
    /// to the word. `quoted` says whether the dollar sign is in double quotes. Fails if a bracket or a quote is not
    /// closed, if shells could read the text differently, or if a limit is exceeded.
    pub(super) fn dollar(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ShellReadError> {
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
            // `$[…]` is an older form of `$((…))`.
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
                // An empty text in quotes is a word as well.
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
            // A dollar sign before anything else is a literal character.
            _ => self.take_char(word, quoted)?,
        }
        Ok(())
    }

    /// Reads the name of a variable, which may contain line joins; empty if none is next.
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

    /// Reads `${…}` after its opening bracket and adds it to the word; `start` is the offset of the dollar sign, and
    /// `quoted` says whether it is in double quotes. Fails if the bracket is not closed, if the meaning depends on the
    /// version of the shell, or if a limit is exceeded.
    fn parameter(
        &mut self,
        word: &mut WordBuilder,
        quoted: bool,
        start: usize,
    ) -> Result<(), ShellReadError> {
        self.limits.enter()?;
        self.skip_joins();
        // `${ command; }` runs a command in recent shells.
        if matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'|') | None) {
            return Err(ShellReadError::Syntax);
        }
        let name = self.name();
        self.skip_joins();
        // `${name}` is a variable.
        if self.byte() == Some(b'}') && is_name(&name) {
            self.at += 1;
            self.limits.leave();
            let (text, kind) = (format!("${{{name}}}"), PartKind::Variable(name));
            word.parts.push(WordPart { text, kind, quoted, scripts: Vec::new() });
            return Ok(());
        }
        let body = self.at;
        // A special parameter may be a character that otherwise begins a substitution.
        if name.is_empty() && matches!(self.byte(), Some(b'!' | b'#' | b'$' | b'@' | b'*' | b'?' | b'-')) {
            self.at += 1;
        }
        let inner = self.rest_of_parameter(quoted)?;
        let spelled = self.text.get(body..self.at).unwrap_or_default();
        self.limits.spend(spelled.len())?;
        self.at += 1;
        self.limits.leave();
        let span = self.location.locate(&(start..self.at));
        // These tests can hold although the construct is absent, since the characters can also be part of a word.
        // `${x@P}` runs the value of `x` as a prompt, `${x:=y}` assigns, and an index or an offset is arithmetic.
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

    /// Reads what follows the name in `${…}`, up to the closing bracket, as a word, for the scripts in it. `quoted`
    /// says whether the whole `${…}` is in double quotes.
    fn rest_of_parameter(&mut self, quoted: bool) -> Result<WordBuilder, ShellReadError> {
        let mut inner = WordBuilder::default();
        loop {
            self.skip_joins();
            let next = self.after_joins(self.at + 1);
            match self.byte().ok_or(ShellReadError::Syntax)? {
                b'}' => return Ok(inner),
                b'\\' => {
                    self.at += 1;
                    // A backslash protects the next character as quotes do.
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
    }

    /// Reads arithmetic after its opening brackets: up to `))` if `close` is `)`, and up to `]` if it is `]`. `start`
    /// is the offset of its beginning. Returns the scripts of the substitutions in it. Fails if the brackets are not
    /// closed or may enclose a subshell instead, if shells could read a quote in it differently, or if a limit is
    /// exceeded.
    pub(super) fn arithmetic(&mut self, close: u8, start: usize) -> Result<Vec<Script>, ShellReadError> {
        self.limits.enter()?;
        let open = if close == b')' { b'(' } else { b'[' };
        // The number of brackets that are open inside the arithmetic.
        let mut depth = 0_usize;
        // Arithmetic is expanded as in double quotes, so its parts are read as quoted (`true`).
        let mut inner = WordBuilder::default();
        loop {
            self.skip_joins();
            match self.byte().ok_or(ShellReadError::Syntax)? {
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
                            return Err(ShellReadError::Syntax);
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
        self.limits.spend(self.at - start)?;
        self.limits.leave();
        let span = self.location.locate(&(start..self.at));
        self.facts.arithmetic.get_or_insert(span);
        // `pending` are the here-documents whose content begins after the next line break: a line break inside the
        // arithmetic would begin it there.
        if !self.pending.is_empty()
            && self.text.get(start..self.at).is_some_and(|spelled| spelled.contains('\n'))
        {
            return Err(ShellReadError::Syntax);
        }
        Ok(inner.parts.into_iter().flat_map(|part| part.scripts).collect())
    }

    /// Reads `` `…` `` and adds it to the word. `quoted` says whether it is in double quotes. Backslashes before `$`,
    /// `` ` `` and `\` are removed before the script in it is parsed. Fails if there is no closing backquote, if the
    /// script is not valid, if shells could read it differently, or if a limit is exceeded.
    pub(super) fn backquoted(&mut self, word: &mut WordBuilder, quoted: bool) -> Result<(), ShellReadError> {
        let start = self.at + 1;
        let mut script = String::new();
        // Whether a backslash was removed.
        let mut removed = false;
        self.at = start;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let length = rest.find(['`', '\\']).ok_or(ShellReadError::Syntax)?;
            script.push_str(rest.get(..length).unwrap_or_default());
            self.at += length + 1;
            let is_end = rest.as_bytes().get(length) == Some(&b'`');
            if is_end {
                break;
            }
            // What follows the backslash.
            match self.byte() {
                // In double quotes, shells disagree about the meaning of `\"` between backquotes.
                Some(b'"') if quoted => return Err(ShellReadError::Syntax),
                Some(byte @ (b'$' | b'`' | b'\\')) => {
                    script.push(char::from(byte));
                    removed = true;
                    self.at += 1;
                }
                _ => script.push('\\'),
            }
        }
        self.limits.spend(script.len() + 1)?;
        self.limits.enter()?;
        let span = self.location.locate(&(start..self.at.saturating_sub(1)));
        let location = match &self.location {
            // Positions in the script around this one do not correspond to the text, so neither do those in this one.
            ScriptLocation::Within(_) => self.location.clone(),
            // The removed backslashes shift the positions.
            ScriptLocation::From(_) if removed => ScriptLocation::Within(span),
            ScriptLocation::From(_) => ScriptLocation::From(span.start),
        };
        let mut reader = ScriptReader {
            text: &script,
            at: 0,
            location,
            limits: &mut *self.limits,
            facts: &mut *self.facts,
            pending: Vec::new(),
            substitutions: 0,
            reads_patterns: false,
        };
        let parsed = reader.strict_script()?;
        self.limits.leave();
        word.compute("`…`", quoted, vec![parsed]);
        Ok(())
    }

    /// Reads `$'…'` after its opening quote, and adds its text with the escapes such as `\n` or `\x41` decoded. Fails
    /// if the quote is not closed, if the text is not valid UTF-8, or at an escape that shells read differently.
    fn ansi_quoted(&mut self, word: &mut WordBuilder) -> Result<(), ShellReadError> {
        let mut decoded: Vec<u8> = Vec::new();
        // Whether an escape has given a zero byte, which ends the text. What follows it is read, but not added.
        let mut ended = false;
        loop {
            let byte = self.byte().ok_or(ShellReadError::Syntax)?;
            self.at += 1;
            let value = match byte {
                b'\'' => break,
                b'\\' => {
                    let escape = self.byte().ok_or(ShellReadError::Syntax)?;
                    self.at += 1;
                    // The codes of ASCII's control characters.
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
                        // At most three octal digits. Shells keep eight bits of the number.
                        b'0'..=b'7' => {
                            self.at -= 1;
                            self.digits(8, 3) & 0xff
                        }
                        b'x' if self.byte() == Some(b'{') => return Err(ShellReadError::Syntax),
                        b'x' if self.byte().is_some_and(|b| b.is_ascii_hexdigit()) => self.digits(16, 2),
                        b'u' | b'U' if self.byte().is_some_and(|b| b.is_ascii_hexdigit()) => {
                            let c = char::from_u32(self.digits(16, if escape == b'u' { 4 } else { 8 }));
                            // For other characters, the behaviour of shells depends on the locale.
                            let c = c.filter(char::is_ascii).ok_or(ShellReadError::Syntax)?;
                            u32::from(c)
                        }
                        // Shells differ in the meaning of `\c`.
                        b'c' => return Err(ShellReadError::Syntax),
                        // Any other backslash is literal, and the character after it too.
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
                decoded.push(u8::try_from(value).map_err(|_| ShellReadError::Syntax)?);
            }
        }
        let text = String::from_utf8(decoded).map_err(|_| ShellReadError::Syntax)?;
        word.push_text(&text, true);
        Ok(())
    }

    /// Reads at most `most` digits of the base `radix`, and returns the number that they spell; 0 if no digit is next.
    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0_u32;
        for _ in 0..most {
            match self.byte().and_then(|byte| char::from(byte).to_digit(radix)) {
                // Callers read at most eight hexadecimal digits, so the value does not wrap.
                Some(digit) => value = value.wrapping_mul(radix).wrapping_add(digit),
                None => break,
            }
            self.at += 1;
        }
        value
    }
}
