//! Converts tokens to the syntax tree by recursive descent, with one function for each production of the grammar. The
//! loader of the policy's files (`source`) calls [`parse_range`] for each file.
//!
//! This file defines the state of the [`Parser`] and how it reads tokens and reports errors. The submodules parse
//! statements (`statement`, `consent`), their conditions (`body`), expressions (`expression`) and text literals
//! (`text`).
//!
//! The parser always returns a tree. It reports an error and continues with the next line or statement, so that one
//! error does not hide the next. A statement with an error is not part of the tree: without one of its conditions, it
//! would apply too widely.

mod body;
mod consent;
mod expression;
mod statement;
mod text;

use super::diagnostic::{Diagnostic, Severity, Span};
use super::dialect::Dialect;
use super::lexer::{self, Lexeme, Token};
use super::syntax::{Expr, ExprKind, Name, PolicyFile};

/// Maximum length of a policy, in bytes.
pub const MAX_SOURCE: usize = 1 << 20;
/// Maximum nesting depth of expressions and blocks.
const MAX_HEIGHT: usize = 100;
/// Maximum number of errors that are reported, and of warnings.
const MAX_DIAGNOSTICS: usize = 100;

/// Parses one file of a policy, which is at `range` in `source`, the text of all files. Spans refer to `source`.
/// Returns the statements that have no errors, and the diagnostics. A file that is too long yields no statement and one
/// error.
pub(super) fn parse_range(source: &str, range: Span, dialect: Dialect) -> (PolicyFile, Vec<Diagnostic>) {
    let text = source.get(range.clone()).unwrap_or_default();
    if text.len() > MAX_SOURCE {
        let start = range.start..range.start;
        let diagnostic =
            Diagnostic::error("too-long", start, format!("the policy is longer than {MAX_SOURCE} bytes"))
                .help("use several policies, each for some clients or servers");
        return (PolicyFile::default(), vec![diagnostic]);
    }
    let shifted = |span: Span| span.start + range.start..span.end + range.start;
    let tokens = lexer::lex(text).into_iter().filter(|(token, _)| *token != Token::Comment);
    let tokens = tokens.map(|(token, span)| (token, shifted(span))).collect();
    // The files after this one are cut off, so that the end of the text is the end of this file.
    let source = source.get(..range.end).unwrap_or_default();
    let mut parser = Parser { source, dialect, tokens, position: 0, depth: 0, diagnostics: Vec::new() };
    let file = parser.file();
    (file, parser.diagnostics)
}

/// The error of a production that cannot continue; its diagnostic has been reported.
#[derive(Debug)]
struct ReportedParseError;

/// The result of parsing a part of the policy.
type ParseResult<T> = Result<T, ReportedParseError>;

/// The state of the parsing of one file.
struct Parser<'a> {
    /// The text up to the end of the file that is parsed.
    source: &'a str,
    dialect: Dialect,
    tokens: Vec<Lexeme>,
    /// The index of the next token.
    position: usize,
    /// The number of nested parts (expressions and blocks) that are being parsed, which [`Parser::with_depth`] limits.
    depth: usize,
    diagnostics: Vec<Diagnostic>,
}

impl Parser<'_> {
    /// Returns the next token without reading it.
    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    /// Returns the token that is `ahead` positions after the next one, without reading it; [`Token::End`] after the
    /// last.
    fn peek_at(&self, ahead: usize) -> Token {
        self.tokens.get(self.position + ahead).map_or(Token::End, |(token, _)| *token)
    }

    /// Returns the location of the next token; an empty span at the end of the file if there is none.
    fn next_span(&self) -> Span {
        let end = self.source.len();
        self.tokens.get(self.position).map_or(end..end, |(_, span)| span.clone())
    }

    /// Returns the byte at which the previous token ends; 0 if there is none.
    fn previous_end(&self) -> usize {
        let last = self.position.checked_sub(1).and_then(|position| self.tokens.get(position));
        last.map_or(0, |(_, span)| span.end)
    }

    /// Returns the source text at `span`.
    fn text(&self, span: &Span) -> &str {
        self.source.get(span.clone()).unwrap_or("")
    }

    /// Returns the next token if it is a name; otherwise an empty text.
    fn peek_word(&self) -> &str {
        if self.peek() == Token::Name { self.text(&self.next_span()) } else { "" }
    }

    /// Reads the next token and returns its location.
    fn advance(&mut self) -> Span {
        let span = self.next_span();
        self.position += usize::from(self.position < self.tokens.len());
        span
    }

    /// Reads the next token if it is `token`; returns whether it was.
    fn eat(&mut self, token: Token) -> bool {
        let found = self.peek() == token;
        if found {
            self.advance();
        }
        found
    }

    /// Reads the next token if it is the name `word`; returns whether it was.
    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.advance();
        }
        found
    }

    /// Adds a diagnostic, an error or a warning, and returns the marker of a reported error. Drops the diagnostic if
    /// [`MAX_DIAGNOSTICS`] of its severity have been added. Errors are counted apart from warnings, since a policy is
    /// rejected for its errors: warnings must not displace them.
    fn report(&mut self, diagnostic: Diagnostic) -> ReportedParseError {
        let reported = self.diagnostics.iter().filter(|other| other.severity == diagnostic.severity).count();
        if reported < MAX_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        }
        ReportedParseError
    }

    /// Reports that `what`, such as "a value", was expected in place of the next token, and returns the marker of a
    /// reported error. `help` says what to write.
    fn expected(&mut self, what: &str, help: Option<&str>) -> ReportedParseError {
        let span = self.next_span();
        let found = match self.peek() {
            Token::Newline => "the end of the line".to_owned(),
            Token::End => "the end of the policy".to_owned(),
            Token::Indent => "a line that is indented more".to_owned(),
            Token::Dedent => "a line that is indented less".to_owned(),
            Token::BadIndent => "an indentation that no line above has".to_owned(),
            Token::OpenStr => "a text without closing quote".to_owned(),
            _ => format!("`{}`", excerpt(self.text(&span))),
        };
        let mut diagnostic = Diagnostic::error("syntax", span, format!("expected {what}, found {found}"));
        diagnostic.help = help.map(str::to_owned);
        self.report(diagnostic)
    }

    /// Reads the next token, which must be `token`, and returns its location. `what` names it in the error message.
    fn expect(&mut self, token: Token, what: &str) -> ParseResult<Span> {
        if self.peek() == token { Ok(self.advance()) } else { Err(self.expected(what, None)) }
    }

    /// Reads the next token, which must be the name `word`; otherwise reports an error with `help`.
    fn expect_word(&mut self, word: &str, help: &str) -> ParseResult<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"), Some(help))) }
    }

    /// Reads the next token, which must be a name. `what` describes it in the error message.
    fn name(&mut self, what: &str) -> ParseResult<Name> {
        let span = self.expect(Token::Name, what)?;
        Ok(Name { text: self.text(&span).to_owned(), span })
    }

    /// Creates a node of the syntax tree, whose span extends from `start` to the end of the last token that was read.
    /// Fails if the expression is nested too deep, since recursive walks of its tree could exhaust the stack.
    fn node(&mut self, start: usize, kind: ExprKind) -> ParseResult<Expr> {
        // No token was read if the last one ends before `start`: the span is empty.
        let span = start..self.previous_end().max(start);
        let mut expr = Expr { kind: Box::new(kind), span, height: 1, is_grouped: false };
        expr.height += expr.children().iter().map(|child| child.height).max().unwrap_or(0);
        if expr.height > MAX_HEIGHT {
            return Err(self.report_too_deep(expr.span));
        }
        Ok(expr)
    }

    /// Returns the number of reported errors, without warnings.
    fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count()
    }

    /// Reports that the expression at `span` is nested too deep, and returns the marker of a reported error.
    fn report_too_deep(&mut self, span: Span) -> ReportedParseError {
        let message = format!("the expression is nested more than {MAX_HEIGHT} levels deep");
        self.report(
            Diagnostic::error("too-deep", span, message)
                .help("give names to parts of the expression with `:=`"),
        )
    }

    /// Skips the rest of a statement after an error: its line, and the block below it, so that parsing continues with
    /// the next statement.
    fn skip_statement(&mut self) {
        self.skip_line();
        if self.eat(Token::Indent) {
            // The number of blocks that have begun and not ended.
            let mut open = 1;
            while open > 0 && self.peek() != Token::End {
                match self.peek() {
                    Token::Indent => open += 1,
                    Token::Dedent => open -= 1,
                    _ => {}
                }
                self.advance();
            }
        }
    }

    /// Skips the rest of a line with its line end. Stops before a token that begins or ends a block.
    fn skip_line(&mut self) {
        while !matches!(self.peek(), Token::Newline | Token::Indent | Token::Dedent | Token::End) {
            self.advance();
        }
        self.eat(Token::Newline);
    }
}

/// Returns the beginning of a token's text for a message: at most 40 characters of its first line, with `…` if more
/// follows.
fn excerpt(token: &str) -> String {
    let line = token.lines().next().unwrap_or_default();
    let short: String = line.chars().take(40).collect();
    if short.len() < token.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn parse(source: &str, dialect: Dialect) -> (PolicyFile, Vec<Diagnostic>) {
        parse_range(source, 0..source.len(), dialect)
    }

    /// Several errors are reported together, each at its location.
    #[test]
    fn mistakes_are_reported_together() {
        let source = "lattice integrity trusted\nraise \"x\" if:\n    (a: ToolCall\n    a.b ==\nlabel as x if:\n    y\n";
        let (file, diagnostics) = parse(source, Dialect::Flowgate);
        let shown: Vec<String> = diagnostics
            .iter()
            .map(|d| {
                let (line, column) = d.position(source);
                format!("{line}:{column} {}", d.message)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "1:19 expected `:`, found `trusted`",
                "4:5 expected `)`, found `a`",
                "5:7 expected a region to label, found `as`",
            ]
        );
        assert!(file.statements.is_empty());
    }

    /// A statement that cannot be parsed is left out, so its error must be reported however many warnings precede it.
    #[test]
    fn warnings_do_not_displace_errors() {
        let deeper: String =
            (0..MAX_DIAGNOSTICS + 10).map(|_| "    x == 1\n      y == 2\n".to_owned()).collect();
        let source =
            format!("raise \"x\" if:\n    (a: ToolCall)\n{deeper}raise \"y\" if\n    (b: ToolCall)\n");
        let (file, diagnostics) = parse(&source, Dialect::Flowgate);
        let count = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
        assert_eq!(
            (count(Severity::Warning), count(Severity::Error)),
            (MAX_DIAGNOSTICS, 1),
            "{diagnostics:?}"
        );
        assert_eq!(file.statements.len(), 1);
        assert!(crate::policy::Policy::parse(&source).is_err());
    }

    #[test]
    fn depth_is_bounded() {
        for source in [
            format!("x := {}1{}", "(".repeat(50_000), ")".repeat(50_000)),
            format!("x := {}1", "not ".repeat(50_000)),
            format!("x := a{}", ".b".repeat(50_000)),
            format!("x := 1{}", " + 1".repeat(50_000)),
            format!("x := {}", "[".repeat(50_000)),
            format!("x := 1{}", " ** 1".repeat(50_000)),
            format!("x := {}", "1 if 1 else ".repeat(50_000)),
        ] {
            let (_, diagnostics) = parse(&source, Dialect::Flowgate);
            assert_eq!(diagnostics[0].code, "too-deep", "{source:.20}");
        }
    }

    #[test]
    fn a_policy_that_is_too_long_is_refused() {
        assert_eq!(parse(&" ".repeat(MAX_SOURCE + 1), Dialect::Flowgate).1[0].code, "too-long");
    }
}
