//! Parses scripts: lists, pipelines, compound commands, functions and redirections, by recursive descent.
//!
//! The parser accepts some texts that bash rejects, but never reads a text differently from bash: where the meaning is
//! not certain, it fails. The scanner calls [`parse`] for each script and reports each failure, so that a part of a
//! script is never skipped without a finding.

use super::lexer::{PendingDocument, ScriptLocation, ScriptReader, TextFacts, is_name};
use super::limits::{MAX_ERRORS, ReadLimits, ShellReadError};
use super::syntax::{
    Assignment, Command, CommandForm, PartKind, Pipeline, Redirect, Script, ShellStatement, Word, WordPart,
};
use std::ops::Range;

/// The redirections, longer ones first.
const REDIRECTIONS: &[&str] = &["&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">"];
/// The words that end a list of commands, where a command is expected.
const LIST_ENDS: &[&str] = &["then", "else", "elif", "fi", "do", "done", "esac", "}"];

/// A part of a text that could not be parsed, with the reason.
pub(super) type ParseFailure = (ShellReadError, Range<usize>);

/// Parses a script. Returns its statements and the parts that could not be parsed. After an invalid statement, parsing
/// continues on the line after the beginning of that statement. `location` is the place of the script in the whole
/// text, `limits` bounds the work, and `facts` receives further findings, such as the contents of here-documents.
pub(super) fn parse(
    text: &str,
    location: ScriptLocation,
    limits: &mut ReadLimits,
    facts: &mut TextFacts,
) -> (Script, Vec<ParseFailure>) {
    let mut reader = ScriptReader {
        text,
        at: 0,
        location,
        limits,
        facts,
        pending: Vec::new(),
        substitutions: 0,
        reads_patterns: false,
    };
    let mut script = Script::default();
    let mut failures = Vec::new();
    // Shells drop zero bytes or end at them.
    if text.contains('\0') {
        failures.push((ShellReadError::Syntax, reader.location.locate(&(0..text.len()))));
    }
    loop {
        let depth = reader.limits.depth();
        // `false`: nothing encloses the script, so no bracket or keyword may end it.
        match reader.statements(&mut script, false) {
            Ok(()) if reader.at >= text.len() => break,
            // Not reached: without an enclosing construct, `statements` succeeds only at the end of the text. If it
            // succeeded earlier, the rest would be reported as a failure.
            Ok(()) => failures.push((ShellReadError::Syntax, reader.rest_span(reader.at))),
            Err((error, from)) => {
                // It is unknown where the statement ends, so all from its beginning on counts as not read.
                failures.push((error.clone(), reader.rest_span(from)));
                if error == ShellReadError::Limit {
                    break;
                }
                reader.at = from;
            }
        }
        if failures.len() >= MAX_ERRORS {
            break;
        }
        // The state is reset, since the failed statement may have left constructs open.
        reader.limits.return_to(depth);
        reader.pending.clear();
        reader.substitutions = 0;
        reader.reads_patterns = false;
        match text.get(reader.at..).and_then(|rest| rest.find('\n')) {
            Some(length) => reader.at += length + 1,
            None => break,
        }
    }
    (script, failures)
}

/// A failure with the offset of the statement that contains it.
type StatementError = (ShellReadError, usize);

impl ScriptReader<'_, '_> {
    /// Returns the bytes of the whole text from an offset to the end of the script.
    fn rest_span(&self, from: usize) -> Range<usize> {
        self.location.locate(&(from.min(self.text.len())..self.text.len()))
    }

    /// Parses the whole text as one script, for text in backquotes. Unlike [`parse`], fails at the first part that is
    /// not valid.
    pub(super) fn strict_script(&mut self) -> Result<Script, ShellReadError> {
        let mut script = Script::default();
        // `false`: nothing in the text encloses the script, so no bracket or keyword may end it.
        self.statements(&mut script, false).map_err(|(error, _)| error)?;
        // Never true, as in `parse`.
        if self.at < self.text.len() { Err(ShellReadError::Syntax) } else { Ok(script) }
    }

    /// Parses the script of a substitution such as `$(…)` after its opening bracket, and reads the closing bracket.
    /// Fails if the script cannot be read, the bracket is missing, or a here-document would continue after it.
    pub(super) fn substitution(&mut self) -> Result<Script, ShellReadError> {
        self.limits.enter()?;
        // The here-documents that wait for the end of the line outside must not be read inside the substitution.
        let pending = std::mem::take(&mut self.pending);
        // Inside the substitution, words are read as in a command, not as patterns.
        let reads_patterns = std::mem::replace(&mut self.reads_patterns, false);
        self.substitutions += 1;
        let script = self.list()?;
        self.substitutions = self.substitutions.saturating_sub(1);
        self.reads_patterns = reads_patterns;
        self.skip_blanks()?;
        // A here-document that begins before the bracket would have its content after it.
        if self.byte() != Some(b')') || !self.pending.is_empty() {
            return Err(ShellReadError::Syntax);
        }
        self.at += 1;
        self.pending = pending;
        self.limits.leave();
        Ok(script)
    }

    /// Skips blanks, line joins and a comment, up to the end of the line. Fails if a limit is exceeded.
    pub(super) fn skip_blanks(&mut self) -> Result<(), ShellReadError> {
        let start = self.at;
        loop {
            self.skip_joins();
            match self.byte() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'#') => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                _ => break,
            }
        }
        self.limits.spend(self.at - start)
    }

    /// Skips blanks, comments and line breaks, and reads the contents of here-documents after a line break. Fails like
    /// [`newline`](Self::newline).
    pub(super) fn skip_lines(&mut self) -> Result<(), ShellReadError> {
        loop {
            self.skip_blanks()?;
            if self.byte() != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// Returns the offset after the keyword that is next, or `None` if another word is next. `fi` is not next in
    /// `file`.
    pub(super) fn after_keyword(&self, keyword: &str) -> Option<usize> {
        let end = self.after_text(keyword)?;
        let delimited = match self.byte_at(self.after_joins(end)) {
            None => true,
            // `<(` and `>(` continue the word.
            Some(b'<' | b'>') => self.byte_at(self.after_joins(end + 1)) != Some(b'('),
            Some(byte) => matches!(byte, b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b'(' | b')'),
        };
        delimited.then_some(end)
    }

    /// Skips a keyword if it is next, and returns whether it was.
    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        let end = self.after_keyword(keyword);
        self.at = end.unwrap_or(self.at);
        end.is_some()
    }

    /// Skips an operator if it is next, and returns whether it was.
    pub(super) fn take_operator(&mut self, operator: &str) -> bool {
        let end = self.after_text(operator);
        self.at = end.unwrap_or(self.at);
        end.is_some()
    }

    /// Skips blanks and line breaks, and the keyword that must follow.
    pub(super) fn expect_keyword(&mut self, keyword: &str) -> Result<(), ShellReadError> {
        self.skip_lines()?;
        if self.take_keyword(keyword) { Ok(()) } else { Err(ShellReadError::Syntax) }
    }

    /// Returns whether a list of commands ends here: at the end of the script, at `)`, at `;;` or `;&`, or at a keyword
    /// such as `done`.
    fn at_list_end(&self) -> bool {
        matches!(self.byte(), None | Some(b')'))
            || self.after_text(";;").is_some()
            || self.after_text(";&").is_some()
            || LIST_ENDS.iter().any(|word| self.after_keyword(word).is_some())
    }

    /// Parses the statements inside a construct, up to the bracket or keyword that ends it, which is not read.
    pub(super) fn list(&mut self) -> Result<Script, ShellReadError> {
        let mut script = Script::default();
        self.limits.enter()?;
        // `true`: a bracket or a keyword ends the list.
        self.statements(&mut script, true).map_err(|(error, _)| error)?;
        self.limits.leave();
        Ok(script)
    }

    /// Parses statements up to the end of the list, and adds them to the script. If `nested` is false, keywords and
    /// brackets that end a list are errors. The second part of an error is the offset at which the faulty statement
    /// begins.
    fn statements(&mut self, script: &mut Script, nested: bool) -> Result<(), StatementError> {
        loop {
            let start = self.at;
            self.skip_lines().map_err(|error| (error, start))?;
            let start = self.at;
            if self.byte().is_none() {
                return Ok(());
            }
            if self.at_list_end() {
                return if nested { Ok(()) } else { Err((ShellReadError::Syntax, start)) };
            }
            script.statements.push(self.statement().map_err(|error| (error, start))?);
        }
    }

    /// Parses a statement: pipelines that are joined by `&&` and `||`, and the `;` or `&` that ends them. A line break
    /// is not read. With `&`, the statement runs in the background. Fails if a pipeline cannot be read, or if another
    /// mark follows it.
    fn statement(&mut self) -> Result<ShellStatement, ShellReadError> {
        let mut pipelines = vec![self.pipeline()?];
        let mut background = false;
        loop {
            self.skip_blanks()?;
            if self.take_operator("&&") || self.take_operator("||") {
                self.skip_lines()?;
                pipelines.push(self.pipeline()?);
                continue;
            }
            match self.byte() {
                // A mark that ends the whole list, such as `)` or the `;;` of a `case`, is left for the caller.
                None | Some(b'\n' | b')') => {}
                Some(b';') if self.at_list_end() => {}
                Some(b';') => self.at += 1,
                Some(b'&') => {
                    self.at += 1;
                    background = true;
                }
                Some(_) => return Err(ShellReadError::Syntax),
            }
            return Ok(ShellStatement { pipelines, background });
        }
    }

    /// Parses a pipeline: commands that are joined by `|` or `|&`, after any number of `!` and `time`. Fails if a
    /// command is missing or cannot be read.
    fn pipeline(&mut self) -> Result<Pipeline, ShellReadError> {
        loop {
            self.skip_blanks()?;
            if self.take_keyword("time") {
                self.skip_blanks()?;
                // `time`, `time -p`, `time --` and `time -p --` precede a pipeline.
                self.take_keyword("-p");
                self.skip_blanks()?;
                self.take_keyword("--");
            } else if !self.take_keyword("!") {
                break;
            }
        }
        let mut commands = Vec::new();
        loop {
            commands.push(self.command()?);
            self.skip_blanks()?;
            if self.after_text("||").is_some() || !(self.take_operator("|&") || self.take_operator("|")) {
                return Ok(Pipeline { commands });
            }
            self.skip_lines()?;
            // bash 5.2 has `!` and `time` at the beginning of a pipeline only.
            if self.after_keyword("!").is_some() || self.after_keyword("time").is_some() {
                return Err(ShellReadError::Syntax);
            }
        }
    }

    /// Parses a command with its redirections: a compound command, the definition of a function, or a simple command.
    /// Fails if there is no command, or if a part of it cannot be read.
    pub(super) fn command(&mut self) -> Result<Command, ShellReadError> {
        self.skip_blanks()?;
        self.limits.spend(1)?;
        let start = self.at;
        let form = match self.compound()? {
            Some(form) => form,
            None => return self.simple(start),
        };
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks()?;
            // A number without a redirection after it is not a descriptor, so the reader returns to its beginning.
            let before = self.at;
            let descriptor = self.descriptor()?;
            match self.redirect(descriptor)? {
                Some(redirect) => redirects.push(redirect),
                None => {
                    self.at = before;
                    break;
                }
            }
        }
        Ok(Command { form, redirects, span: self.location.locate(&(start..self.at)) })
    }

    /// Reads the text that may be the descriptor of a redirection: a number, or a variable in braces. Returns `None`
    /// and reads nothing if another text is next. The caller checks that an operator follows, and otherwise goes back.
    /// Never fails.
    fn descriptor(&mut self) -> Result<Option<String>, ShellReadError> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'{' | b'}');
        let start = self.at;
        while self.byte().is_some_and(is_part) {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if text.is_empty() || !is_descriptor(text) {
            self.at = start;
            return Ok(None);
        }
        Ok(Some(text.to_owned()))
    }

    /// Parses a simple command: assignments, words and redirections in any order, except that assignments precede the
    /// words. If `(` follows a single word, parses the definition of a function, `name()`, instead. `start` is the
    /// offset at which the command begins. Fails if there is neither an assignment nor a word nor a redirection, or if
    /// one of them cannot be read.
    fn simple(&mut self, start: usize) -> Result<Command, ShellReadError> {
        let mut assignments = Vec::new();
        let mut words: Vec<Word> = Vec::new();
        let mut redirects = Vec::new();
        let mut end = start;
        loop {
            self.skip_blanks()?;
            // A number without a redirection after it is a word, so the reader returns to its beginning.
            let before = self.at;
            let descriptor = self.descriptor()?;
            if let Some(redirect) = self.redirect(descriptor)? {
                redirects.push(redirect);
                end = self.at;
                continue;
            }
            self.at = before;
            // Only a single word before the bracket is the name of a function.
            if self.byte() == Some(b'(') {
                let is_only_word = words.len() == 1 && assignments.is_empty() && redirects.is_empty();
                let Some(name) = words.pop().filter(|_| is_only_word) else {
                    return Err(ShellReadError::Syntax);
                };
                self.at += 1;
                self.skip_blanks()?;
                if !self.take_operator(")") {
                    return Err(ShellReadError::Syntax);
                }
                let form = self.function(&name)?;
                let span = self.location.locate(&(start..self.at));
                return Ok(Command { form, redirects, span });
            }
            let Some(word) = self.word()? else { break };
            end = self.at;
            if words.is_empty() {
                match into_assignment(word) {
                    Ok(assignment) => assignments.push(assignment),
                    Err(word) => words.push(word),
                }
            } else {
                // `shopt -s extglob`, also as an option of a shell: later words can be patterns such as `@(a|b)`.
                self.facts.has_extended_patterns |=
                    word.parts.iter().any(|part| part.text.contains("extglob"));
                words.push(word);
            }
        }
        if words.is_empty() && assignments.is_empty() && redirects.is_empty() {
            return Err(ShellReadError::Syntax);
        }
        let span = self.location.locate(&(start..end));
        Ok(Command { form: CommandForm::Simple { assignments, words }, redirects, span })
    }

    /// Parses a redirection after its `descriptor`, if it has one. Returns `None` if no operator of a redirection is
    /// next. The content of a here-document is read later, at the end of the line. Fails if the target is missing, or
    /// if the delimiter of a here-document is not a literal text on one line.
    fn redirect(&mut self, descriptor: Option<String>) -> Result<Option<Redirect>, ShellReadError> {
        let at = self.after_joins(self.at);
        let second = self.byte_at(self.after_joins(at + 1));
        // `<(` and `>(` begin a word.
        if matches!(self.byte_at(at), Some(b'<' | b'>')) && second == Some(b'(') {
            return Ok(None);
        }
        let Some(operator) =
            REDIRECTIONS.iter().copied().find(|operator| self.after_text(operator).is_some())
        else {
            return Ok(None);
        };
        self.take_operator(operator);
        self.skip_blanks()?;
        let word = self.word()?.ok_or(ShellReadError::Syntax)?;
        if !matches!(operator, "<<" | "<<-") {
            return Ok(Some(Redirect { operator, descriptor, target: word, document: None }));
        }
        let mut delimiter = String::new();
        for part in &word.parts {
            // The delimiter is a text: substitutions in it are not run, and are too rare to be worth a rule.
            if part.kind != PartKind::Literal || !part.scripts.is_empty() {
                return Err(ShellReadError::Syntax);
            }
            delimiter.push_str(&part.text);
        }
        if delimiter.contains('\n') {
            return Err(ShellReadError::Syntax);
        }
        // An empty word takes the place of the content until that is read.
        let number = self.facts.documents.len();
        self.facts.documents.push(Word::default());
        self.pending.push(PendingDocument {
            delimiter,
            literal: word.parts.iter().any(|part| part.quoted),
            strips_tabs: operator == "<<-",
            number,
        });
        Ok(Some(Redirect { operator, descriptor, target: word, document: Some(number) }))
    }
}

/// Returns whether a text before a redirection is its descriptor: `2` or `{name}`.
fn is_descriptor(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        || text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(is_name)
}

/// Converts a word such as `x=1` or `x[0]+=1` into an assignment. It is `plain` if it replaces the whole value: neither
/// `+=`, nor an element of an array, nor an array. If the word is not an assignment, the error is the unchanged word.
fn into_assignment(mut word: Word) -> Result<Assignment, Word> {
    let first = word.parts.first().filter(|part| !part.quoted && part.kind == PartKind::Literal);
    let Some(first) = first else { return Err(word) };
    // The name may have a subscript, whose quotes and substitutions are parts of their own.
    if let Some((name, _)) = first.text.split_once('[').filter(|(name, _)| is_name(name)) {
        let name = name.to_owned();
        // The word with `0` for each part that is quoted or computed, so that a `]` or `=` in it belongs to the syntax
        // of the assignment.
        let outline: String = word
            .parts
            .iter()
            .map(|part| if part.kind == PartKind::Literal && !part.quoted { part.text.as_str() } else { "0" })
            .collect();
        let after = outline.split_once(']').map_or("", |(_, after)| after);
        if !after.starts_with('=') && !after.starts_with("+=") {
            return Err(word);
        }
        return Ok(Assignment { name, plain: false, value: word });
    }
    let Some((name, value)) = first.text.split_once('=') else { return Err(word) };
    let plain_name = name.strip_suffix('+').unwrap_or(name);
    if !is_name(plain_name) {
        return Err(word);
    }
    let plain = plain_name.len() == name.len()
        && word.parts.iter().all(|part| part.kind != PartKind::Several || part.quoted);
    let (name, value) = (plain_name.to_owned(), value.to_owned());
    // The value is the word without the name and `=`.
    let kept = WordPart { text: value, kind: PartKind::Literal, quoted: false, scripts: Vec::new() };
    if let Some(slot) = word.parts.first_mut() {
        *slot = kept;
    }
    Ok(Assignment { name, plain, value: word })
}
