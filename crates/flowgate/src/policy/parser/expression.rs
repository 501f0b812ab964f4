//! Parses expressions, with Python's precedence.
//!
//! From loose to tight: choice (`a if c else b`), `or`, `and`, `not`, comparisons (with the flow operators `->`, `~>`
//! and `=>`), sums, products, sign, power, postfix (`x.y`, `x[i]`, `f(x)`). Each level has a function, which calls the
//! function of the next tighter level for its operands. The parsers of statements and of bodies call
//! [`Parser::expression`].

use super::super::diagnostic::Diagnostic;
use super::super::lexer::Token;
use super::super::syntax::{Arithmetic, Comparison, Expr, ExprKind, Name, ToolName, ToolRef};
use super::{MAX_HEIGHT, ParseResult, Parser, text};

/// Arguments by position and by name.
type ParsedArguments = (Vec<Expr>, Vec<(Name, Expr)>);

impl Parser<'_> {
    /// Parses `value if condition else other`, or an expression of higher precedence.
    pub(super) fn expression(&mut self) -> ParseResult<Expr> {
        self.with_depth(|parser| {
            let start = parser.next_span().start;
            let value = parser.disjunction()?;
            // `if:` at the end of a line starts a body, not a choice.
            if parser.peek_word() != "if" || parser.peek_at(1) == Token::Colon {
                return Ok(value);
            }
            parser.advance();
            let condition = parser.disjunction()?;
            parser.expect_word("else", "write `VALUE if CONDITION else VALUE`")?;
            let other = parser.expression()?;
            parser.node(start, ExprKind::Choice { value, condition, other })
        })
    }

    /// Calls `production`, a function that parses a nested part of the policy. Fails if parts are nested more than
    /// [`MAX_HEIGHT`] levels deep, so that recursion cannot exhaust the stack.
    pub(super) fn with_depth<T>(
        &mut self,
        production: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        if self.depth >= MAX_HEIGHT {
            let here = self.next_span();
            return Err(self.report_too_deep(here));
        }
        self.depth += 1;
        let result = production(self);
        self.depth -= 1;
        result
    }

    /// Parses operands joined by `or`, or one alone.
    pub(super) fn disjunction(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let mut parts = vec![self.conjunction()?];
        while self.eat_word("or") {
            parts.push(self.conjunction()?);
        }
        self.connective(start, parts, ExprKind::Or)
    }

    /// Parses operands joined by `and`, or one alone.
    fn conjunction(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let mut parts = vec![self.negation()?];
        while self.eat_word("and") {
            parts.push(self.negation()?);
        }
        self.connective(start, parts, ExprKind::And)
    }

    /// Returns a node that joins `parts`, the operands of `or` or `and` (`join` states which). A single operand is
    /// returned without a node. `start` is the byte at which the first operand begins.
    fn connective(
        &mut self,
        start: usize,
        mut parts: Vec<Expr>,
        join: fn(Vec<Expr>) -> ExprKind,
    ) -> ParseResult<Expr> {
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            Some(last) => {
                parts.push(last);
                self.node(start, join(parts))
            }
            // Unreachable: the callers pass at least one operand.
            None => self.node(start, ExprKind::Missing),
        }
    }

    /// Parses `not` before an operand, or a comparison.
    fn negation(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        if !self.eat_word("not") {
            return self.comparison();
        }
        let inner = self.with_depth(Self::negation)?;
        self.node(start, ExprKind::Not(inner))
    }

    /// Parses a chain of comparisons, such as `a < b < c`, or a sum alone.
    fn comparison(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(operator) = self.comparison_operator() {
            rest.push((operator, self.sum()?));
        }
        if rest.is_empty() { Ok(first) } else { self.node(start, ExprKind::Compare(first, rest)) }
    }

    /// Reads a comparison operator, such as `<` or `not in`; `None` if the next token is not one. A `not` without `in`
    /// after it is reported and counts as `not in`, so that parsing continues.
    fn comparison_operator(&mut self) -> Option<Comparison> {
        let operator = match self.peek() {
            Token::Equal => Comparison::Equal,
            Token::NotEqual => Comparison::NotEqual,
            Token::Less => Comparison::Less,
            Token::LessEqual => Comparison::LessEqual,
            Token::Greater => Comparison::Greater,
            Token::GreaterEqual => Comparison::GreaterEqual,
            Token::Arrow => Comparison::Before,
            Token::Immediate => Comparison::RightBefore,
            Token::Influence => Comparison::Influences,
            // The operators that are words; two of them have a second word.
            Token::Name => match self.peek_word() {
                "in" => Comparison::In,
                "contains_only" => Comparison::ContainsOnly,
                "is" => {
                    self.advance();
                    return Some(if self.eat_word("not") { Comparison::IsNot } else { Comparison::Is });
                }
                "not" => {
                    self.advance();
                    if !self.eat_word("in") {
                        self.expected("`in`", Some("between two values, only `not in` begins with `not`"));
                    }
                    return Some(Comparison::NotIn);
                }
                _ => return None,
            },
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    /// Parses one product, or several that are joined by `+` and `-`.
    fn sum(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Token::Plus => Arithmetic::Add,
                Token::Minus => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.advance();
            let right = self.product()?;
            left = self.node(start, ExprKind::Arithmetic(operator, left, right))?;
        }
    }

    /// Parses one signed operand, or several that are joined by `*`, `/` and `%`.
    fn product(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let mut left = self.sign()?;
        loop {
            let operator = match self.peek() {
                Token::Star => Arithmetic::Multiply,
                Token::Slash => Arithmetic::Divide,
                Token::Percent => Arithmetic::Modulo,
                _ => return Ok(left),
            };
            self.advance();
            let right = self.sign()?;
            left = self.node(start, ExprKind::Arithmetic(operator, left, right))?;
        }
    }

    /// Parses `-` or `+` before an operand, or a power.
    fn sign(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        if self.eat(Token::Minus) {
            let inner = self.with_depth(Self::sign)?;
            return self.node(start, ExprKind::Negate(inner));
        }
        // A `+` has no effect, so it has no node.
        if self.eat(Token::Plus) {
            return self.with_depth(Self::sign);
        }
        self.power()
    }

    /// Parses `base ** exponent`. It binds tighter than a sign before the base (`-a ** b` is `-(a ** b)`) and looser
    /// than a sign of the exponent (`a ** -b` is `a ** (-b)`).
    fn power(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let base = self.postfix()?;
        if !self.eat(Token::Power) {
            return Ok(base);
        }
        let exponent = self.with_depth(Self::sign)?;
        self.node(start, ExprKind::Arithmetic(Arithmetic::Power, base, exponent))
    }

    /// Parses a value followed by any number of members, indices and calls: `call.arguments["to"]`.
    pub(super) fn postfix(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let mut value = self.atom()?;
        loop {
            let kind = match self.peek() {
                Token::Dot => {
                    self.advance();
                    ExprKind::Member(value, self.name("a field")?)
                }
                Token::BracketOpen => {
                    self.advance();
                    self.subscript(value)?
                }
                Token::ParenOpen => {
                    self.advance();
                    let (arguments, named) = self.arguments()?;
                    ExprKind::Call(value, arguments, named)
                }
                _ => return Ok(value),
            };
            value = self.node(start, kind)?;
        }
    }

    /// Parses the rest of `value[...]` after the bracket: `[*]` (every item), an index, or a slice `[FROM:TO]` whose
    /// bounds are optional.
    fn subscript(&mut self, value: Expr) -> ParseResult<ExprKind> {
        if self.peek() == Token::Star && self.peek_at(1) == Token::BracketClose {
            self.advance();
            self.advance();
            return Ok(ExprKind::Each(value));
        }
        // Parses an index or one bound of a slice; `None` if a bound is left out.
        let bound = |parser: &mut Self| match parser.peek() {
            Token::Colon | Token::BracketClose => Ok(None),
            _ => parser.expression().map(Some),
        };
        let from = bound(self)?;
        if self.eat(Token::Colon) {
            let to = bound(self)?;
            self.expect(Token::BracketClose, "`]`")?;
            return Ok(ExprKind::Slice(value, from, to));
        }
        let Some(index) = from else { return Err(self.expected("an index", None)) };
        self.expect(Token::BracketClose, "`]`")?;
        Ok(ExprKind::Index(value, index))
    }

    /// Parses the rest of a call after the parenthesis: arguments by position and by name (`NAME=VALUE`), in any order.
    /// A comma may follow the last argument.
    fn arguments(&mut self) -> ParseResult<ParsedArguments> {
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        while self.peek() != Token::ParenClose {
            if self.peek() == Token::Name && self.peek_at(1) == Token::Assign {
                let name = self.name("a name")?;
                self.advance();
                named.push((name, self.expression()?));
            } else {
                positional.push(self.expression()?);
            }
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::ParenClose, "`)`")?;
        Ok((positional, named))
    }

    /// Parses a literal, a name, a declaration of a variable, a tool pattern, or an expression in brackets.
    pub(super) fn atom(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let kind = match self.peek() {
            Token::Name => return self.word_or_typed(start),
            Token::Int => {
                let span = self.advance();
                match self.text(&span).replace('_', "").parse() {
                    Ok(number) => ExprKind::Int(number),
                    Err(_) => {
                        let message = "the number does not fit into 64 bits";
                        let help = "write a smaller number, or one with a decimal point";
                        return Err(self.report(Diagnostic::error("number", span, message).help(help)));
                    }
                }
            }
            Token::Float => {
                let span = self.advance();
                // The lexer admits only texts that `parse` reads, so NAN does not occur.
                ExprKind::Float(self.text(&span).replace('_', "").parse().unwrap_or(f64::NAN))
            }
            Token::Str => {
                let span = self.advance();
                self.literal(&span)?
            }
            // A variable called `tool`: the lexer has read its colon as the start of a pattern.
            Token::ToolPrefix if self.peek_at(1) == Token::Name => {
                let span = self.advance();
                let name = Name { text: "tool".to_owned(), span };
                ExprKind::Typed(name, self.name("a type")?)
            }
            Token::OpenStr => {
                let span = self.next_span();
                let message = "the text has no closing quote";
                return Err(self.report(
                    Diagnostic::error("syntax", span, message)
                        .help("write the closing quote on the same line"),
                ));
            }
            Token::Tool | Token::ToolQuoted => return self.tool_reference(),
            Token::Star => {
                self.advance();
                ExprKind::Anything
            }
            // A kind of text in the arguments of a tool pattern, such as `<EMAIL_ADDRESS>`.
            Token::Matcher => {
                let span = self.advance();
                ExprKind::Matcher(self.text(&span).trim_matches(['<', '>']).to_owned())
            }
            Token::ParenOpen => {
                self.advance();
                return self.group(start);
            }
            Token::BracketOpen => {
                self.advance();
                self.list()?
            }
            Token::BraceOpen => {
                self.advance();
                self.dict()?
            }
            _ => return Err(self.expected("a value", None)),
        };
        self.node(start, kind)
    }

    /// Parses the rest of parentheses after `(`, which is at `start`: an expression, or a tuple such as `(a, b)`, which
    /// becomes a list. The result is marked as grouped (except for `()`): the warnings about invariant-ai need to know
    /// it, since invariant-ai reads some expressions differently only without parentheses.
    fn group(&mut self, start: usize) -> ParseResult<Expr> {
        if self.eat(Token::ParenClose) {
            return self.node(start, ExprKind::List(Vec::new()));
        }
        let mut inner = self.expression()?;
        if self.peek() == Token::Comma {
            let mut items = vec![inner];
            while self.eat(Token::Comma) && self.peek() != Token::ParenClose {
                items.push(self.expression()?);
            }
            self.expect(Token::ParenClose, "`)`")?;
            inner = self.node(start, ExprKind::List(items))?;
        } else {
            self.expect(Token::ParenClose, "`)`")?;
        }
        inner.is_grouped = true;
        Ok(inner)
    }

    /// Parses a name, a constant such as `True`, or a typed variable `name: Type`. A keyword where a value is expected
    /// is an error.
    fn word_or_typed(&mut self, start: usize) -> ParseResult<Expr> {
        let name = self.name("a name")?;
        let kind = match name.text.as_str() {
            "True" | "true" => ExprKind::Bool(true),
            "False" | "false" => ExprKind::Bool(false),
            "None" | "null" => ExprKind::None,
            "if" | "else" | "and" | "or" | "in" | "is" | "not" | "for" => {
                // The error points to the keyword, so the keyword becomes the next token again.
                self.position -= 1;
                return Err(self.expected("a value", None));
            }
            _ if self.peek() == Token::Colon && self.peek_at(1) == Token::Name => {
                self.advance();
                let ty = self.name("a type")?;
                ExprKind::Typed(name, ty)
            }
            _ => ExprKind::Name(name.text),
        };
        self.node(start, kind)
    }

    /// Parses the rest of a list, or of a comprehension (`[VALUE for NAME in LIST if CONDITION]`), after the bracket.
    fn list(&mut self) -> ParseResult<ExprKind> {
        if self.eat(Token::BracketClose) {
            return Ok(ExprKind::List(Vec::new()));
        }
        let value = self.expression()?;
        if self.eat_word("for") {
            let name = self.name("a name")?;
            self.expect_word("in", "write `[VALUE for NAME in LIST if CONDITION]`")?;
            // Not `expression`, which would read the `if` of the comprehension as the `if` of a choice,
            // `VALUE if CONDITION else OTHER`.
            let list = self.disjunction()?;
            let condition = if self.eat_word("if") { Some(self.disjunction()?) } else { None };
            self.expect(Token::BracketClose, "`]`")?;
            return Ok(ExprKind::Comprehension { value, name, list, condition });
        }
        let mut items = vec![value];
        while self.eat(Token::Comma) && self.peek() != Token::BracketClose {
            items.push(self.expression()?);
        }
        self.expect(Token::BracketClose, "`]`")?;
        Ok(ExprKind::List(items))
    }

    /// Parses the rest of a map after the opening brace. Its keys are names, which count as texts, or text literals.
    fn dict(&mut self) -> ParseResult<ExprKind> {
        let mut entries = Vec::new();
        while self.peek() != Token::BraceClose {
            let start = self.next_span().start;
            let key = match self.peek() {
                Token::Name => {
                    let name = self.name("a key")?;
                    self.node(start, ExprKind::Str(name.text))?
                }
                Token::Str => self.atom()?,
                _ => return Err(self.expected("a key", None)),
            };
            self.expect(Token::Colon, "`:`")?;
            entries.push((key, self.expression()?));
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::BraceClose, "`}`")?;
        Ok(ExprKind::Dict(entries))
    }

    /// Parses `tool:name`, `tool:"name"` or `tool:r"pattern"`, with an optional pattern for the arguments in
    /// parentheses, such as `tool:send({to: "ann@.*"})`. Empty parentheses state nothing about the arguments.
    pub(super) fn tool_reference(&mut self) -> ParseResult<Expr> {
        let start = self.next_span().start;
        let span = self.advance();
        let text = self.text(&span).strip_prefix("tool:").unwrap_or_default();
        let name = match text.chars().next() {
            Some('r' | 'R') if text.ends_with('"') => ToolName::Regex(text::unquote(text, self.dialect)),
            Some('"') => ToolName::Exact(text::unquote(text, self.dialect)),
            _ => ToolName::Glob(text.to_owned()),
        };
        let mut arguments = None;
        if self.eat(Token::ParenOpen) {
            if self.peek() != Token::ParenClose {
                arguments = Some(self.expression()?);
            }
            self.expect(Token::ParenClose, "`)`")?;
        }
        self.node(start, ExprKind::Tool(ToolRef { name, arguments }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::syntax::{FormatPart, StatementKind};
    use super::*;

    /// Renders the tree with brackets.
    fn show(expr: &Expr) -> String {
        let list = |items: &[Expr]| items.iter().map(show).collect::<Vec<_>>().join(" ");
        match &*expr.kind {
            ExprKind::Missing => "?".into(),
            ExprKind::None => "None".into(),
            ExprKind::Bool(b) => b.to_string(),
            ExprKind::Int(n) => n.to_string(),
            ExprKind::Float(x) => x.to_string(),
            ExprKind::Str(s) => format!("{s:?}"),
            ExprKind::Name(name) => name.clone(),
            ExprKind::Typed(name, ty) => format!("{}:{}", name.text, ty.text),
            ExprKind::List(items) => format!("[{}]", list(items)),
            ExprKind::Dict(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(k, v)| format!("{}: {}", show(k), show(v))).collect();
                format!("{{{}}}", entries.join(", "))
            }
            ExprKind::Member(a, name) => format!("{}.{}", show(a), name.text),
            ExprKind::Index(a, b) => format!("{}[{}]", show(a), show(b)),
            ExprKind::Each(a) => format!("{}[*]", show(a)),
            ExprKind::Slice(a, b, c) => {
                let part = |e: &Option<Expr>| e.as_ref().map(show).unwrap_or_default();
                format!("{}[{}:{}]", show(a), part(b), part(c))
            }
            ExprKind::Call(f, arguments, named) => {
                let named: Vec<_> = named.iter().map(|(n, e)| format!(" {}={}", n.text, show(e))).collect();
                format!("{}({}{})", show(f), list(arguments), named.concat())
            }
            ExprKind::Not(a) => format!("(not {})", show(a)),
            ExprKind::Negate(a) => format!("(- {})", show(a)),
            ExprKind::And(items) => format!("(and {})", list(items)),
            ExprKind::Or(items) => format!("(or {})", list(items)),
            ExprKind::Arithmetic(op, a, b) => format!("({op:?} {} {})", show(a), show(b)),
            ExprKind::Compare(first, rest) => {
                let rest: Vec<_> = rest.iter().map(|(op, e)| format!(" {op:?} {}", show(e))).collect();
                format!("({}{})", show(first), rest.concat())
            }
            ExprKind::Choice { value, condition, other } => {
                format!("(if {} {} {})", show(condition), show(value), show(other))
            }
            ExprKind::Comprehension { value, name, list, condition } => {
                let condition = condition.as_ref().map(|c| format!(" if {}", show(c))).unwrap_or_default();
                format!("[{} for {} in {}{condition}]", show(value), name.text, show(list))
            }
            ExprKind::Tool(tool) => {
                format!("{:?}{}", tool.name, tool.arguments.as_ref().map(show).unwrap_or_default())
            }
            ExprKind::Format(parts) => {
                let parts: Vec<_> = parts
                    .iter()
                    .map(|part| match part {
                        FormatPart::Text(text) => format!("{text:?}"),
                        FormatPart::Value(expr) => show(expr),
                    })
                    .collect();
                format!("f({})", parts.join(" "))
            }
            ExprKind::Quantified(quantifier, body) => {
                let lines: Vec<_> = body.lines.iter().map(|line| show(line.expr())).collect();
                format!("{quantifier:?}{{{}}}", lines.join("; "))
            }
            ExprKind::Anything => "*".into(),
            ExprKind::Matcher(name) => format!("<{name}>"),
        }
    }

    fn check(source: &str, expected: &str) {
        let (file, diagnostics) =
            super::super::tests::parse(&format!("x := {source}"), crate::policy::Dialect::Flowgate);
        let shown = match file.statements.first().map(|s| &s.kind) {
            Some(StatementKind::Constant { value, .. }) => show(value),
            _ => diagnostics.iter().map(|d| d.message.clone()).collect::<Vec<_>>().join("; "),
        };
        assert_eq!(shown, expected, "{source}");
    }

    #[test]
    fn precedence_is_pythons() {
        check("a == 1 and b == 2 and not c.z", "(and (a Equal 1) (b Equal 2) (not c.z))");
        check("a or b and c", "(or a (and b c))");
        check("not a == b", "(not (a Equal b))");
        check("not c is tool:f", "(not (c Is Glob(\"f\")))");
        check("a in b or c not in d", "(or (a In b) (c NotIn d))");
        check("a + b * c - d", "(Subtract (Add a (Multiply b c)) d)");
        check("-a ** b ** c", "(- (Power a (Power b c)))");
        check("a == 1 if b == 2 else c", "(if (b Equal 2) (a Equal 1) c)");
        check("a -> b -> c", "(a Before b Before c)");
        check("(a: ToolCall) => (b: ToolCall)", "(a:ToolCall Influences b:ToolCall)");
        check("x is not None", "(x IsNot None)");
    }

    #[test]
    fn values_are_parsed() {
        check(r#"["a\n\d", r"\n", 1.5, None, True]"#, r#"["a\n\\d" "\\n" 1.5 None true]"#);
        check("out.content[*].a[0][\"b c\"][1:]", "out.content[*].a[0][\"b c\"][1:]");
        check("[x.a for x in y if x.b]", "[x.a for x in y if x.b]");
        check("f(a, b=1)(c)", "f(a b=1)(c)");
        check(
            "tool:s/f({to: \"x\", n: *, m: <EMAIL_ADDRESS>})",
            "Glob(\"s/f\"){\"to\": \"x\", \"n\": *, \"m\": <EMAIL_ADDRESS>}",
        );
        check("tool:r\"get_.*\"", "Regex(\"get_.*\")");
        check("tool:\"a b\"", "Exact(\"a b\")");
        check("(1, \"a\",)", "[1 \"a\"]");
        check("(tool: Tool)", "tool:Tool");
        check("f\"{{a}} {x.y + 1} b\"", "f(\"{a} \" (Add x.y 1) \" b\")");
        check("f\"\\n\"", "f(\"\\n\")");
        check("a or\n  b\n  and c", "(or a (and b c))");
    }

    #[test]
    fn mistakes_are_reported_at_their_place() {
        check("a b", "expected the end of the line, found `b`");
        check("a = b", "expected the end of the line, found `=`");
        check("(a", "expected `)`, found the end of the line");
        check("\"abc", "the text has no closing quote");
        check("99999999999999999999", "the number does not fit into 64 bits");
        check("a not b", "expected `in`, found `b`");
        check("", "expected a value, found the end of the policy");
        check("f\"{a\"", "the `{` has no `}` after it");
        check("f\"{a b}\"", "expected `}`, found `b`");
        check("f\"}\"", "the `}` has no `{` before it");
        check("[1 for x of y]", "expected `in`, found `of`");
    }
}
