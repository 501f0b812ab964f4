//! Parses the body of a statement: the lines of its conditions, definitions of names, and blocks such as `forall:`.
//! [`super::statement`] calls [`Parser::body`] after the head of a statement.

use super::super::diagnostic::Diagnostic;
use super::super::lexer::Token;
use super::super::syntax::{BodyLine, ConditionBody, Expr, ExprKind, Quantifier};
use super::{ParseResult, Parser, ReportedParseError};

impl Parser<'_> {
    /// Parses `if:` and the conditions.
    pub(super) fn body(&mut self) -> ParseResult<ConditionBody> {
        self.expect_word("if", "write `if:` at the end of the line, and the conditions below it")?;
        if !self.eat(Token::Colon) {
            return Err(self.expected("`:`", Some("end the first line of the statement with `if:`")));
        }
        self.block_or_line()
    }

    /// Parses conditions: one on the rest of the line, or an indented block with one on each line. Fails if there is
    /// neither. A line of the block that is indented more than the one above causes a warning, and counts as a further
    /// condition. After an error in a line of the block, parsing continues with the next line; the result lacks the
    /// line, and [`Parser::file`] omits the statement.
    pub(super) fn block_or_line(&mut self) -> ParseResult<ConditionBody> {
        let mut body = ConditionBody::default();
        if self.peek() != Token::Newline {
            body.lines.push(self.body_line()?);
            return Ok(body);
        }
        self.advance();
        if !self.eat(Token::Indent) {
            let diagnostic =
                Diagnostic::error("no-conditions", self.next_span(), "the statement has no conditions")
                    .help("write the conditions on the following lines, indented more than the statement");
            return Err(self.report(diagnostic));
        }
        // The number of indents that begin no block and have not ended. Their dedents do not end the block.
        let mut deeper = 0;
        loop {
            match self.peek() {
                Token::End => break,
                Token::Dedent if deeper == 0 => break,
                Token::Dedent => {
                    deeper -= 1;
                    self.advance();
                    continue;
                }
                Token::Indent => {
                    let here = self.next_span();
                    let message = "the line is indented more than the one above, which begins no block";
                    let warning = Diagnostic::warning("indentation", here, message)
                        .help("the line counts as one more condition; indent it like the line above");
                    self.report(warning);
                    deeper += 1;
                    self.advance();
                    continue;
                }
                _ => {}
            }
            let line = self.body_line();
            match line {
                Ok(line) => body.lines.push(line),
                Err(ReportedParseError) => {
                    // Skips the rest of the line, and the first line of a block that it may begin.
                    self.skip_line();
                    while self.eat(Token::Indent) {
                        self.skip_line();
                    }
                }
            }
        }
        self.eat(Token::Dedent);
        Ok(body)
    }

    /// Parses one line of a body: `NAME := VALUE`, a condition, or a block that begins with `forall:`, `count(...):` or
    /// `not:`.
    fn body_line(&mut self) -> ParseResult<BodyLine> {
        if self.peek() == Token::Name && self.peek_at(1) == Token::Define {
            let name = self.name("a name")?;
            self.advance();
            // A long value may be on the next line, indented more.
            let is_indented = self.peek() == Token::Newline && self.peek_at(1) == Token::Indent;
            if is_indented {
                self.advance();
                self.advance();
            }
            let value = self.expression()?;
            self.end_of_line()?;
            if is_indented && !self.eat(Token::Dedent) {
                return Err(self.expected("the end of the block", Some("write one expression after `:=`")));
            }
            return Ok(BodyLine::Let(name, value));
        }
        if self.peek_word() == "not" && self.peek_at(1) == Token::Colon {
            // `not:` means that no assignment of the block's variables satisfies the block, as `count(max=0):` does.
            let start = self.advance().start;
            self.advance();
            let body = self.with_depth(Self::block_or_line)?;
            let none = self.node(start, ExprKind::Int(0))?;
            let quantifier = Quantifier::Count { min: None, max: Some(none) };
            return self.node(start, ExprKind::Quantified(quantifier, body)).map(BodyLine::Condition);
        }
        let condition = self.expression()?;
        if self.peek() == Token::Colon {
            return self.quantified(condition).map(BodyLine::Condition);
        }
        self.end_of_line()?;
        Ok(BodyLine::Condition(condition))
    }

    /// Parses the block that follows `head` and a colon. `head` is `forall`, `count`, `count(...)` with bounds, or one
    /// of these after `not`; any other expression is an error.
    fn quantified(&mut self, head: Expr) -> ParseResult<Expr> {
        let start = head.span.start;
        let is_count = |function: &Expr| matches!(&*function.kind, ExprKind::Name(name) if name == "count");
        let quantifier = match *head.kind {
            // `not forall:`: parses the block that follows `forall`, and negates it.
            ExprKind::Not(inner) => {
                let inner = self.quantified(inner)?;
                return self.node(start, ExprKind::Not(inner));
            }
            ExprKind::Name(name) if name == "forall" => Quantifier::ForAll,
            ExprKind::Name(name) if name == "count" => Quantifier::Count { min: None, max: None },
            ExprKind::Call(function, arguments, bounds)
                if is_count(&function)
                    && arguments.is_empty()
                    && bounds.iter().all(|(name, _)| matches!(name.text.as_str(), "min" | "max")) =>
            {
                let bound = |which: &str| {
                    bounds.iter().find(|(name, _)| name.text == which).map(|(_, bound)| bound.clone())
                };
                Quantifier::Count { min: bound("min"), max: bound("max") }
            }
            _ => {
                let help = "only `forall:`, `count(min=1, max=2):`, `not:`, `not forall:` and `not \
                    count(...):` begin a block; remove the colon, or write one of them";
                return Err(self.expected("the end of the line", Some(help)));
            }
        };
        // The colon after the head.
        self.advance();
        let body = self.with_depth(Self::block_or_line)?;
        self.node(start, ExprKind::Quantified(quantifier, body))
    }

    /// Reads the end of a line; fails if another token follows. The end of a block or of the file ends a line as well.
    pub(super) fn end_of_line(&mut self) -> ParseResult<()> {
        match self.peek() {
            Token::Newline => {
                self.advance();
                Ok(())
            }
            Token::End | Token::Dedent => Ok(()),
            Token::Assign => Err(self.expected("the end of the line", Some("`==` compares, `:=` defines"))),
            _ => {
                let help = "write each condition on a line of its own, or join two with `and` or `or`";
                Err(self.expected("the end of the line", Some(help)))
            }
        }
    }
}
