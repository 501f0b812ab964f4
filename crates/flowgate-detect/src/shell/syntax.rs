//! Parses shell commands: words, quotes, pipes, redirections and substitutions.
//!
//! It covers commands as people and models write them, not all of POSIX: `case` patterns and arithmetic yield
//! meaningless words. It never fails; an unclosed construct ends with the text. The parent module scans the result for
//! harmful commands.

use std::ops::Range;

/// A word without its quotes.
#[derive(Debug, Default, Clone)]
pub(super) struct Word {
    /// The text. Variables and substitutions are not expanded.
    pub(super) text: String,
    /// The bytes that spell the word.
    pub(super) span: Range<usize>,
    /// The commands inside `$(…)`, `` `…` ``, `<(…)` and `>(…)`.
    pub(super) inner: Vec<Range<usize>>,
    /// Whether it contains a variable or a substitution that the shell would expand.
    pub(super) dynamic: bool,
}

/// A command: its words and redirections.
#[derive(Debug, Default, Clone)]
pub(super) struct ShellCommand {
    pub(super) words: Vec<Word>,
    /// Operators such as `>` with the following word.
    pub(super) redirects: Vec<(&'static str, Word)>,
}

impl ShellCommand {
    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.redirects.is_empty()
    }

    /// Returns the bytes from the first to the last word, also of the redirections.
    pub(super) fn span(&self) -> Range<usize> {
        let words = || self.words.iter().chain(self.redirects.iter().map(|(_, word)| word));
        let start = words().map(|word| word.span.start).min().unwrap_or(0);
        start..words().map(|word| word.span.end).max().unwrap_or(0)
    }
}

/// Commands joined by `|`.
pub(super) type Pipeline = Vec<ShellCommand>;

/// The operators, longer ones first, so that `&&` is not read as `&`.
const OPERATORS: &[&str] = &[
    "&&", "||", "|&", "&>>", "&>", "<<<", "<<-", "<<", ">>", ">&", "<&", ">|", "<>", ";;", "|", "&", ";",
    "(", ")", "<", ">", "\n",
];

/// Returns the pipelines of a script, in the order of the text. Here-documents are skipped.
pub(super) fn read(text: &str) -> Vec<Pipeline> {
    let mut reader = ShellLexer { text, at: 0 };
    let mut pipelines = Vec::new();
    let mut pipeline = Pipeline::new();
    let mut command = ShellCommand::default();
    // The end marks of the here-documents that begin after this line.
    let mut documents: Vec<String> = Vec::new();
    loop {
        reader.skip_blank();
        let Some(operator) = reader.operator() else {
            match reader.word() {
                Some(word) => command.words.push(word),
                None => break,
            }
            continue;
        };
        match operator {
            "|" | "|&" => pipeline.push(std::mem::take(&mut command)),
            "&&" | "||" | "&" | ";" | ";;" | "(" | ")" | "\n" => {
                pipeline.push(std::mem::take(&mut command));
                pipelines.push(std::mem::take(&mut pipeline));
                if operator == "\n" {
                    documents.drain(..).for_each(|end| reader.skip_document(&end));
                }
            }
            // Every other operator redirects to or from the next word.
            redirect => {
                // The number of a file descriptor is not an argument: `2>`.
                let adjacent = command.words.last().is_some_and(|word| {
                    word.span.end + redirect.len() == reader.at
                        && word.text.chars().all(|c| c.is_ascii_digit())
                });
                if adjacent {
                    command.words.pop();
                }
                reader.skip_blank();
                let word = reader.word().unwrap_or_default();
                if matches!(redirect, "<<" | "<<-") {
                    documents.push(word.text.clone());
                }
                command.redirects.push((redirect, word));
            }
        }
    }
    pipeline.push(command);
    pipelines.push(pipeline);
    for pipeline in &mut pipelines {
        pipeline.retain(|command| !command.is_empty());
    }
    pipelines.retain(|pipeline| !pipeline.is_empty());
    pipelines
}

/// Splits a script into words and operators.
struct ShellLexer<'t> {
    text: &'t str,
    /// The offset of the next character.
    at: usize,
}

impl<'t> ShellLexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Skips spaces, joined lines and comments.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("\\\n") {
                self.at += 2;
            } else if rest.starts_with('#') {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    /// Reads an operator and returns it; `None` if a word is next. `<(` and `>(` are not operators: they begin a
    /// word.
    fn operator(&mut self) -> Option<&'static str> {
        let rest = self.rest();
        if rest.starts_with("<(") || rest.starts_with(">(") {
            return None;
        }
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator))?;
        self.at += operator.len();
        Some(operator)
    }

    /// Reads a word up to the next unquoted space or operator: removes its quotes, and records the ranges of its
    /// substitutions. Returns `None` at an operator or the end.
    fn word(&mut self) -> Option<Word> {
        let mut word = Word { span: self.at..self.at, ..Word::default() };
        let mut quoted = false;
        while let Some(c) = self.peek() {
            let rest = self.rest();
            let substitution = ["$(", "<(", ">("].iter().any(|open| rest.starts_with(open));
            match c {
                '"' => {
                    self.at += 1;
                    quoted = !quoted;
                }
                '\\' => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') | None => {}
                        // In double quotes, a backslash escapes only these four characters. Before any other, it is
                        // itself a part of the word.
                        Some(c) if quoted && !matches!(c, '"' | '\\' | '$' | '`') => {
                            word.text.extend(['\\', c])
                        }
                        Some(c) => word.text.push(c),
                    }
                }
                '\'' if !quoted => {
                    let body = rest.get(1..).unwrap_or_default();
                    let end = body.find('\'').unwrap_or(body.len());
                    word.text.push_str(body.get(..end).unwrap_or_default());
                    self.at = (self.at + end + 2).min(self.text.len());
                }
                '`' => {
                    let body = rest.get(1..).unwrap_or_default();
                    let end = body.find('`').unwrap_or(body.len());
                    self.push_substitution(&mut word, 1, end, 1);
                }
                // In double quotes, only `$(` begins a substitution.
                _ if substitution && !(quoted && c != '$') => {
                    let body = rest.get(2..).unwrap_or_default();
                    self.push_substitution(&mut word, 2, closing_offset(body), 1);
                }
                _ if !quoted
                    && (c.is_ascii_whitespace() || matches!(c, '|' | '&' | ';' | '(' | ')' | '<' | '>')) =>
                {
                    break;
                }
                _ => {
                    word.dynamic |= c == '$';
                    word.text.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
        word.span.end = self.at;
        (!word.span.is_empty()).then_some(word)
    }

    /// Reads a substitution and adds it to the word. `open`, `body` and `close` are the lengths of its opening bracket,
    /// its body and its closing bracket, in bytes.
    fn push_substitution(&mut self, word: &mut Word, open: usize, body: usize, close: usize) {
        let start = self.at;
        let inner = start + open..start + open + body;
        self.at = (inner.end + close).min(self.text.len());
        word.inner.push(inner);
        word.dynamic = true;
        word.text.push_str(self.text.get(start..self.at).unwrap_or_default());
    }

    /// Skips the lines of a here-document, up to its end mark.
    fn skip_document(&mut self, end: &str) {
        for line in self.rest().split_inclusive('\n') {
            self.at += line.len();
            if line.trim() == end {
                break;
            }
        }
    }
}

/// Returns the offset of the closing parenthesis of a substitution in the text after its opening one, skipping nested
/// parentheses and quotes; the end of the text if there is none.
fn closing_offset(body: &str) -> usize {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return at,
            (None, ')') => depth -= 1,
            _ => {}
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let check = |text: &str, expected: &[&[&[&str]]]| {
            let read = read(text);
            let words = |command: &ShellCommand| {
                command.words.iter().map(|word| word.text.clone()).collect::<Vec<_>>()
            };
            let read: Vec<Vec<_>> =
                read.iter().map(|pipeline| pipeline.iter().map(words).collect()).collect();
            assert_eq!(read, expected, "{text}");
        };
        check("a b | c; d && e", &[&[&["a", "b"], &["c"]], &[&["d"]], &[&["e"]]]);
        check("a 'b c' \"d\\\"e $x\" f\\ g # h", &[&[&["a", "b c", "d\"e $x", "f g"]]]);
        check("a\\\nb", &[&[&["ab"]]]);
        check("echo $(a | b \")\" ) c", &[&[&["echo", "$(a | b \")\" )", "c"]]]);
        check("a 2>&1 >b c<<E\nx | y\nE\nd", &[&[&["a", "c"]], &[&["d"]]]);
        check("bash <(a) 'open", &[&[&["bash", "<(a)", "open"]]]);
        check("", &[]);
    }

    #[test]
    fn redirections_and_spans() {
        let read = read("cat <a >> \"b c\"");
        assert_eq!(
            read[0][0].redirects.iter().map(|(op, w)| (*op, w.text.as_str())).collect::<Vec<_>>(),
            [("<", "a"), (">>", "b c")]
        );
        assert_eq!(read[0][0].span(), 0..15);
    }
}
