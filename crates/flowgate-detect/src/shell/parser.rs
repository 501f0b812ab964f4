//! Parses shell scripts into lists of pipelines, in one pass from left to right.
//!
//! It never fails: an unclosed construct ends with the text, an unexpected one is skipped, and both are noted, so that
//! the caller can report that the script was not understood. Nothing is read twice, except that `((` is searched for
//! its end, at most once for each level of nesting; the levels are limited.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use super::syntax::{
    CommandList, Part, Pipeline, Redirect, Script, SimpleCommand, Stage, SyntaxWord, is_name,
};

/// Groups and substitutions nest to this depth; a deeper one is read as if it had no brackets.
const MAX_NESTING: usize = 32;

/// The operators, longer ones first, so that `&&` is not read as `&`.
const OPERATORS: &[&str] = &[
    "&>>", "<<<", "<<-", ";;&", "&&", "||", "|&", "&>", "<<", ">>", ">&", "<&", ">|", "<>", ";;", ";&", "|",
    "&", ";", "(", ")", "<", ">", "\n",
];

/// Parses a script.
pub(super) fn parse(text: &str) -> Script {
    let mut parser = Parser::new(text);
    let list = parser.list(ListEnd::EndOfText);
    parser.read_documents();
    Script { list, syntax_error: parser.syntax_error, too_deep: parser.too_deep }
}

/// What ends a list of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListEnd {
    EndOfText,
    Parenthesis,
    /// A word such as `done`.
    Word(&'static str),
    /// `;;`, which is left for the caller, or `esac`, likewise.
    CaseItem,
}

/// A here-document whose lines come after the current one.
struct PendingDocument {
    end: String,
    is_quoted: bool,
    strips_tabs: bool,
    document: Rc<OnceCell<SyntaxWord>>,
}

/// Reads words, commands and lists from a text.
pub(super) struct Parser<'t> {
    pub(super) text: &'t str,
    /// The offset of the next character.
    pub(super) at: usize,
    /// The offset at which the text counts as ended: the end of a part that is read on its own.
    pub(super) end: usize,
    nesting: usize,
    documents: Vec<PendingDocument>,
    syntax_error: Option<usize>,
    too_deep: Option<usize>,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let (at, end) = (0, text.len());
        Self { text, at, end, nesting: 0, documents: Vec::new(), syntax_error: None, too_deep: None }
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..self.end).unwrap_or_default()
    }

    pub(super) fn starts_with(&self, prefix: &str) -> bool {
        self.rest().starts_with(prefix)
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Notes that the text here is not what the grammar expects.
    pub(super) fn note_syntax_error(&mut self) {
        self.syntax_error.get_or_insert(self.at);
    }

    /// Returns whether nothing more can be nested.
    pub(super) fn is_full(&self) -> bool {
        self.nesting >= MAX_NESTING
    }

    /// Runs `read` one level deeper. `None`, and a note, if that is too deep.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.is_full() {
            self.too_deep.get_or_insert(self.at);
            return None;
        }
        self.nesting += 1;
        let value = read(self);
        self.nesting -= 1;
        Some(value)
    }

    /// Runs `read` on a range of the text as if the text ended with it, and continues after the range.
    pub(super) fn within<T>(&mut self, range: Range<usize>, read: impl FnOnce(&mut Self) -> T) -> T {
        let end = std::mem::replace(&mut self.end, range.end);
        self.at = range.start;
        let value = read(self);
        self.at = range.end;
        self.end = end;
        value
    }

    /// Reads the commands of a substitution up to its closing parenthesis.
    pub(super) fn substituted_list(&mut self) -> CommandList {
        self.list(ListEnd::Parenthesis)
    }

    /// Reads the commands of a range of the text.
    pub(super) fn list_within(&mut self, range: Range<usize>) -> CommandList {
        let pending = std::mem::take(&mut self.documents);
        let list = self.within(range, |parser| {
            let list = parser.list(ListEnd::EndOfText);
            parser.read_documents();
            list
        });
        self.documents = pending;
        list
    }

    /// Takes over the notes about a script that was read from a text of its own.
    pub(super) fn note_problems_of(&mut self, script: &Script) {
        if script.syntax_error.is_some() {
            self.note_syntax_error();
        }
        if script.too_deep.is_some() {
            self.too_deep.get_or_insert(self.at);
        }
    }

    /// Skips spaces, joined lines and comments.
    pub(super) fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("\\\n") {
                self.at += 2;
            } else if rest.starts_with("\\\r\n") {
                self.at += 3;
            } else if rest.starts_with('#') {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    pub(super) fn skip_blank_and_lines(&mut self) {
        loop {
            self.skip_blank();
            if !self.starts_with("\n") {
                return;
            }
            self.at += 1;
            self.read_documents();
        }
    }

    /// Returns the operator that is next, without reading it. `<(` and `>(` begin a word.
    pub(super) fn peek_operator(&self) -> Option<&'static str> {
        let rest = self.rest();
        if rest.starts_with("<(") || rest.starts_with(">(") {
            return None;
        }
        OPERATORS.iter().find(|operator| rest.starts_with(**operator)).copied()
    }

    /// Returns the unquoted word that is next, if it is short enough for a keyword.
    pub(super) fn peek_keyword(&self) -> &'t str {
        let rest = self.rest();
        let ends = |c: char| c.is_ascii_whitespace() || "|&;()<>".contains(c);
        let end = rest.bytes().take(10).position(|byte| ends(char::from(byte)));
        match end {
            Some(end) => rest.get(..end).unwrap_or_default(),
            None if rest.len() < 10 => rest,
            None => "",
        }
    }

    /// Reads a list of commands with what ends it.
    pub(super) fn list(&mut self, end: ListEnd) -> CommandList {
        let mut list = ListBuilder::default();
        loop {
            self.skip_blank();
            let start = self.at;
            if self.rest().is_empty() {
                if end != ListEnd::EndOfText {
                    self.note_syntax_error();
                }
                break;
            }
            if let Some(operator) = self.peek_operator() {
                match operator {
                    ")" if end == ListEnd::Parenthesis => {
                        self.at += 1;
                        break;
                    }
                    ";;" | ";&" | ";;&" if end == ListEnd::CaseItem => break,
                    "|" | "|&" => {
                        self.at += operator.len();
                        list.is_joined = true;
                    }
                    "\n" => {
                        self.at += 1;
                        self.read_documents();
                        // A pipeline continues on the line after its `|`.
                        if !list.is_joined {
                            list.end_pipeline();
                        }
                    }
                    "&&" | "||" | "&" | ";" | ";;" | ";&" | ";;&" | ")" => {
                        self.at += operator.len();
                        if operator.starts_with([')', ';']) && !matches!(operator, ";") {
                            self.note_syntax_error();
                        }
                        list.end_pipeline();
                    }
                    "(" => {
                        if self.starts_with("((")
                            && let Some(expression) = self.arithmetic(self.at + 2)
                        {
                            let head = SimpleCommand { words: vec![expression], ..SimpleCommand::default() };
                            list.push(self.group(CommandList::default(), false, head), start..self.at);
                            continue;
                        }
                        self.at += 1;
                        match self.nested(|parser| parser.list(ListEnd::Parenthesis)) {
                            Some(inner) => {
                                let group = self.group(inner, true, SimpleCommand::default());
                                list.push(group, start..self.at);
                            }
                            None => list.end_pipeline(),
                        }
                    }
                    _ => {
                        let stage = self.simple_command();
                        list.push(stage, start..self.at);
                    }
                }
                continue;
            }
            let keyword = self.peek_keyword();
            match keyword {
                "}" | "fi" | "done" | "esac" => {
                    if end == ListEnd::Word(keyword_name(keyword)) {
                        self.at += keyword.len();
                        break;
                    }
                    if end == ListEnd::CaseItem && keyword == "esac" {
                        break;
                    }
                    self.note_syntax_error();
                    self.at += keyword.len();
                    list.end_pipeline();
                }
                "then" | "else" | "elif" | "do" => {
                    if !matches!(end, ListEnd::Word("fi" | "done")) {
                        self.note_syntax_error();
                    }
                    self.at += keyword.len();
                    list.end_pipeline();
                }
                "!" | "time" | "coproc" => {
                    self.at += keyword.len();
                    self.skip_blank();
                    let after = self.peek_keyword();
                    let body = self.rest().get(after.len()..).unwrap_or_default().trim_start_matches(' ');
                    let is_name = keyword == "coproc" && is_name(after) && body.starts_with(['{', '(']);
                    if after == "-p" || is_name {
                        self.at += after.len();
                    }
                }
                "{" | "if" | "while" | "until" | "for" | "select" | "case" | "function" | "[[" => {
                    self.at += keyword.len();
                    match self.nested(|parser| parser.compound(keyword)) {
                        Some(stage) => list.push(stage, start..self.at),
                        None => list.end_pipeline(),
                    }
                }
                _ => {
                    let stage = self.simple_command();
                    if self.at == start {
                        // Nothing that a word begins with; it must not be met again.
                        self.note_syntax_error();
                        self.next();
                    }
                    list.push(stage, start..self.at);
                }
            }
        }
        list.end_pipeline();
        Rc::new(list.pipelines)
    }

    /// Reads words and redirections up to an operator; or the definition of a function.
    fn simple_command(&mut self) -> Stage {
        let mut command = SimpleCommand::default();
        loop {
            self.skip_blank();
            match self.peek_operator() {
                Some(operator) if operator.contains(['<', '>']) => {
                    // The number of a file descriptor is not an argument: `2>`.
                    let at = self.at;
                    let is_descriptor = |word: &SyntaxWord| {
                        word.span.end == at && plain_text(word).bytes().all(|byte| byte.is_ascii_digit())
                    };
                    if command.words.last().is_some_and(is_descriptor) {
                        command.words.pop();
                    }
                    self.at += operator.len();
                    let redirect = self.redirect(operator);
                    command.redirects.push(redirect);
                }
                Some("(") if command.words.len() == 1 && command.redirects.is_empty() => {
                    let start = self.at;
                    self.at += 1;
                    self.skip_blank();
                    if self.starts_with(")") {
                        self.at += 1;
                        return self.function(command.words.first().map(plain_text).unwrap_or_default());
                    }
                    self.note_syntax_error();
                    self.at = start;
                    return Stage::Command(command);
                }
                Some(operator) => {
                    if operator == "(" {
                        self.note_syntax_error();
                    }
                    return Stage::Command(command);
                }
                None => match self.word() {
                    Some(word) => command.words.push(word),
                    None => return Stage::Command(command),
                },
            }
        }
    }

    /// Reads what comes after the operator of a redirection.
    pub(super) fn redirect(&mut self, operator: &'static str) -> Redirect {
        self.skip_blank();
        let start = self.at;
        let target = self.word().unwrap_or_default();
        if target.span.is_empty() {
            self.note_syntax_error();
        }
        let document = matches!(operator, "<<" | "<<-").then(Rc::<OnceCell<SyntaxWord>>::default);
        if let Some(document) = &document {
            let spelled = self.text.get(start..self.at).unwrap_or_default();
            self.documents.push(PendingDocument {
                end: plain_text(&target),
                is_quoted: spelled.contains(['\'', '"', '\\']),
                strips_tabs: operator == "<<-",
                document: document.clone(),
            });
        }
        Redirect { operator, target, document }
    }

    /// Reads the here-documents that begin here.
    fn read_documents(&mut self) {
        for pending in std::mem::take(&mut self.documents) {
            let start = self.at;
            let mut body_end = self.end;
            let mut next = self.end;
            let mut at = start;
            let mut is_closed = false;
            for line in self.rest().split_inclusive('\n') {
                let content = line.trim_end_matches(['\n', '\r']);
                let content = if pending.strips_tabs { content.trim_start_matches('\t') } else { content };
                if content == pending.end {
                    (body_end, next, is_closed) = (at, at + line.len(), true);
                    break;
                }
                at += line.len();
            }
            if !is_closed {
                self.note_syntax_error();
            }
            let spelled = self.text.get(start..body_end).unwrap_or_default();
            let is_verbatim = pending.is_quoted || !spelled.contains(['$', '`', '\\']);
            let literal = || SyntaxWord {
                parts: vec![Part::Text { text: spelled.to_owned(), quoted: true }],
                span: start..body_end,
            };
            let body = if is_verbatim {
                literal()
            } else {
                let read = |parser: &mut Self| {
                    parser.nested(|parser| parser.within(start..body_end, Self::document_word))
                };
                read(self).unwrap_or_else(literal)
            };
            // Set only once: each document is pending only once.
            let _ = pending.document.set(body);
            self.at = next;
        }
    }

    pub(super) fn skip_expected(&mut self, expected: &str) {
        if self.starts_with(expected) {
            self.at += expected.len();
        } else {
            self.note_syntax_error();
        }
    }

    /// Reads words up to the next operator.
    pub(super) fn words_of_line(&mut self) -> Vec<SyntaxWord> {
        let mut words = Vec::new();
        loop {
            self.skip_blank();
            if self.peek_operator().is_some() {
                return words;
            }
            match self.word() {
                Some(word) => words.push(word),
                None => return words,
            }
        }
    }

    /// Reads the words of `a=( … )`, after its opening parenthesis.
    pub(super) fn array(&mut self) -> Vec<SyntaxWord> {
        let mut words = Vec::new();
        loop {
            words.extend(self.words_of_line());
            match self.peek_operator() {
                Some(")") => {
                    self.at += 1;
                    return words;
                }
                Some("\n") => self.at += 1,
                Some(operator) => {
                    self.note_syntax_error();
                    self.at += operator.len();
                }
                None => {
                    self.note_syntax_error();
                    return words;
                }
            }
        }
    }
}

/// Collects the pipelines of a list.
#[derive(Default)]
struct ListBuilder {
    pipelines: Vec<Pipeline>,
    pipeline: Pipeline,
    /// Whether `|` came last.
    is_joined: bool,
}

impl ListBuilder {
    fn push(&mut self, mut stage: Stage, span: Range<usize>) {
        if let Stage::Command(command) = &mut stage {
            command.words.shrink_to_fit();
        }
        if !self.is_joined {
            self.end_pipeline();
        }
        self.is_joined = false;
        if self.pipeline.stages.is_empty() {
            self.pipeline.span = span.clone();
        }
        self.pipeline.span.end = span.end;
        self.pipeline.stages.push(stage);
    }

    fn end_pipeline(&mut self) {
        self.is_joined = false;
        let mut pipeline = std::mem::take(&mut self.pipeline);
        pipeline.stages.shrink_to_fit();
        if !pipeline.stages.is_empty() {
            self.pipelines.push(pipeline);
        }
    }
}

fn keyword_name(keyword: &str) -> &'static str {
    ["}", "fi", "done", "esac"].into_iter().find(|known| *known == keyword).unwrap_or_default()
}

/// Returns the text of a word, expansions as they are spelled.
pub(super) fn plain_text(word: &SyntaxWord) -> String {
    let parts = word.parts.iter().map(|part| match part {
        Part::Text { text, .. } => text.as_str(),
        Part::Variable { raw, .. } | Part::Substitution { raw, .. } => raw.as_str(),
        Part::Array(_) => "",
    });
    parts.collect()
}
