//! Reads the statements of a program that calls tools, and evaluates them as far as they are known.

use std::collections::HashMap;

use super::lexer::{Lexer, Token};
use super::operand::Operand;
use super::{ScriptCall, ToolScript, UnreadReason};
use crate::MAX_FINDINGS;

/// The greatest length of a program.
const MAX_BYTES: usize = 1 << 18;
/// The greatest work: bytes of tokens that are read, in loops several times, and of values that are copied.
const MAX_WORK: usize = 1 << 20;
/// How deeply constructs and values can be nested.
const MAX_DEPTH: usize = 64;

/// Names that a program cannot declare: reserved words, and what [`Reader`] knows by name.
const RESERVED: [&str; 59] = [
    "arguments",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "get",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "set",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "undefined",
    "globalThis",
    "tools",
    "text",
    "Promise",
    "JSON",
    "String",
];
/// Further names of functions that [`Reader`] knows, which a program cannot declare, either.
const KNOWN_FUNCTIONS: [&str; 3] = ["Number", "Boolean", "Object"];

/// What a declaration gives names to.
pub(super) enum Pattern<'a> {
    Name(&'a str),
    /// The items of a list.
    Items(Vec<&'a str>),
    /// Fields of a map, each with the name that its value gets.
    Fields(Vec<(&'a str, &'a str)>),
}

pub(super) type Result<T> = std::result::Result<T, UnreadReason>;

/// The state of reading.
pub(super) struct Reader<'a> {
    pub(super) lexer: Lexer<'a>,
    /// The token at which the reader is, its beginning, and whether a line break precedes it.
    pub(super) token: Token<'a>,
    start: usize,
    pub(super) follows_break: bool,
    /// The end of the token before.
    pub(super) previous_end: usize,
    /// The names that are declared, from the outermost block to the innermost.
    scopes: Vec<HashMap<&'a str, Operand>>,
    /// Whether the code at this place is in a branch: what a tool has returned can decide whether it runs.
    is_conditional: bool,
    /// Whether the function that contains the code at this place can have ended before, in a branch.
    can_have_ended: bool,
    /// Whether a function contains the code at this place.
    is_in_function: bool,
    calls: Vec<ScriptCall>,
    depth: usize,
    work: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let work = if text.len() > MAX_BYTES { MAX_WORK + 1 } else { 0 };
        Self {
            lexer: Lexer::new(text),
            token: Token::End,
            start: 0,
            follows_break: false,
            previous_end: 0,
            scopes: vec![HashMap::new()],
            is_conditional: false,
            can_have_ended: false,
            is_in_function: false,
            calls: Vec::new(),
            depth: 0,
            work,
        }
    }

    /// Reads the whole program.
    pub(super) fn read(mut self) -> ToolScript {
        let outcome = self.statements();
        let unread = outcome.err().map(|reason| (reason, self.start..self.lexer.at.max(self.start)));
        ToolScript { calls: self.calls, unread }
    }

    fn statements(&mut self) -> Result<()> {
        self.advance()?;
        while self.token != Token::End {
            self.statement()?;
        }
        Ok(())
    }

    /// Spends work.
    pub(super) fn spend(&mut self, work: usize) -> Result<()> {
        self.work = self.work.saturating_add(work);
        if self.work > MAX_WORK { Err(UnreadReason::Limit) } else { Ok(()) }
    }

    /// Reads on by a token.
    pub(super) fn advance(&mut self) -> Result<()> {
        self.previous_end = self.lexer.at;
        self.spend(1)?;
        self.follows_break = self.lexer.skip_space()?;
        self.start = self.lexer.at;
        self.token = self.lexer.token()?;
        self.spend(self.lexer.at - self.previous_end)
    }

    /// Continues at an earlier place: the end of the token before the one to read next.
    pub(super) fn return_to(&mut self, previous_end: usize) -> Result<()> {
        self.lexer.at = previous_end;
        self.advance()
    }

    pub(super) fn is_at(&self, mark: &str) -> bool {
        matches!(self.token, Token::Mark(found) if found == mark)
    }

    pub(super) fn is_at_name(&self, name: &str) -> bool {
        matches!(self.token, Token::Name(found) if found == name)
    }

    /// Skips a mark if it is the next token. Returns whether it is.
    pub(super) fn skip(&mut self, mark: &str) -> Result<bool> {
        let found = self.is_at(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, mark: &str) -> Result<()> {
        if self.skip(mark)? { Ok(()) } else { Err(UnreadReason::Syntax) }
    }

    /// Reads any name, also a reserved word: that of a property.
    pub(super) fn any_name(&mut self) -> Result<&'a str> {
        let Token::Name(name) = self.token else { return Err(UnreadReason::Syntax) };
        self.advance()?;
        Ok(name)
    }

    /// Runs `read` one level deeper.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(UnreadReason::Limit);
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Runs `read` on code that is in a branch.
    pub(super) fn conditional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = std::mem::replace(&mut self.is_conditional, true);
        let value = read(self)?;
        self.is_conditional = before;
        Ok(value)
    }

    /// Runs `read` on the body of a function.
    pub(super) fn in_function<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = (self.is_in_function, self.can_have_ended);
        self.is_in_function = true;
        let value = read(self)?;
        (self.is_in_function, self.can_have_ended) = before;
        Ok(value)
    }

    /// Runs `read` in a scope of its own.
    pub(super) fn scoped<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.scopes.push(HashMap::new());
        let value = read(self)?;
        self.scopes.pop();
        Ok(value)
    }

    /// Returns the value of a name that the program has declared.
    pub(super) fn lookup(&mut self, name: &str) -> Result<Option<Operand>> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned();
        self.spend(found.as_ref().map_or(0, Operand::size))?;
        Ok(found)
    }

    /// Checks that a new value is not too deep, and spends work for it.
    pub(super) fn built(&mut self, value: Operand) -> Result<Operand> {
        self.spend(value.size())?;
        if value.depth() > MAX_DEPTH { Err(UnreadReason::Limit) } else { Ok(value) }
    }

    /// Records a call. `span` are the bytes of its name.
    pub(super) fn call(
        &mut self,
        tool: &str,
        argument: &Operand,
        span: std::ops::Range<usize>,
    ) -> Result<()> {
        if self.is_conditional || self.can_have_ended {
            return Err(UnreadReason::Condition);
        }
        let argument = argument.literal().ok_or(UnreadReason::Arguments)?;
        if self.calls.len() == MAX_FINDINGS {
            return Err(UnreadReason::Limit);
        }
        self.calls.push(ScriptCall { tool: tool.to_owned(), argument, span });
        Ok(())
    }

    /// Returns the bytes of the token at which the reader is.
    pub(super) fn token_span(&self) -> std::ops::Range<usize> {
        self.start..self.lexer.at
    }

    fn statement(&mut self) -> Result<()> {
        self.nested(|reader| match reader.token {
            Token::Mark(";") => reader.advance(),
            Token::Mark("{") => reader.block(),
            Token::Name("const" | "let") => reader.declaration(),
            Token::Name("if") => reader.if_statement(),
            Token::Name("for") => reader.for_statement(),
            Token::Name("return") => reader.return_statement(),
            _ => {
                reader.expression()?;
                reader.end_of_statement()
            }
        })
    }

    /// Reads a block with a scope of its own.
    pub(super) fn block(&mut self) -> Result<()> {
        self.scoped(|reader| {
            reader.expect("{")?;
            while !reader.is_at("}") {
                reader.statement()?;
            }
            reader.advance()
        })
    }

    /// Reads the end of a statement: a semicolon, or the place where JavaScript inserts one. A line break before a name
    /// is such a place, since no expression continues with a name; before a mark it may be none.
    fn end_of_statement(&mut self) -> Result<()> {
        match self.token {
            Token::Mark(";") => self.advance(),
            Token::Mark("}") | Token::End => Ok(()),
            Token::Name(_) if self.follows_break => Ok(()),
            _ => Err(UnreadReason::Syntax),
        }
    }

    /// Reads `const NAME = VALUE, …`. A name that is declared with `let` has one value as well: assignments are not read.
    /// `var` is not read, since a function that runs later would see the value of a later loop.
    fn declaration(&mut self) -> Result<()> {
        self.advance()?;
        loop {
            let pattern = self.pattern()?;
            self.expect("=")?;
            let value = self.expression()?;
            self.declare(&pattern, &value)?;
            if !self.skip(",")? {
                return self.end_of_statement();
            }
        }
    }

    fn if_statement(&mut self) -> Result<()> {
        self.advance()?;
        self.expect("(")?;
        self.expression()?;
        self.expect(")")?;
        self.conditional(|reader| {
            reader.scoped(Self::statement)?;
            if reader.is_at_name("else") {
                reader.advance()?;
                reader.scoped(Self::statement)?;
            }
            Ok(())
        })
    }

    /// Reads `for (const PATTERN of LIST) BODY`. The body is read once for each item of a list that is known.
    fn for_statement(&mut self) -> Result<()> {
        self.advance()?;
        if self.is_at_name("await") {
            self.advance()?;
        }
        self.expect("(")?;
        if !matches!(self.token, Token::Name("const" | "let")) {
            return Err(UnreadReason::Syntax);
        }
        self.advance()?;
        let pattern = self.pattern()?;
        if !self.is_at_name("of") {
            return Err(UnreadReason::Syntax);
        }
        self.advance()?;
        let list = self.expression()?;
        let body = self.previous_end_after(")")?;
        self.each(list, |reader, item| {
            reader.return_to(body)?;
            reader.scoped(|reader| {
                reader.declare(&pattern, &item)?;
                reader.statement()
            })
        })
    }

    /// Reads a mark. Returns its end, to which [`return_to`](Self::return_to) can return.
    pub(super) fn previous_end_after(&mut self, mark: &str) -> Result<usize> {
        self.expect(mark)?;
        Ok(self.previous_end)
    }

    /// Reads code that runs once for each item of a list, `read` once for each. If the items are not known, or there are
    /// none, the code is read once, with an unknown item.
    pub(super) fn each(
        &mut self,
        list: Operand,
        mut read: impl FnMut(&mut Self, Operand) -> Result<()>,
    ) -> Result<()> {
        match list {
            Operand::List(items) if !items.is_empty() => {
                items.into_iter().try_for_each(|item| read(self, item))
            }
            _ => self.conditional(|reader| read(reader, Operand::Computed)),
        }
    }

    /// Reads `return` in a function. If it is in a branch, so is what follows in the function.
    fn return_statement(&mut self) -> Result<()> {
        if !self.is_in_function {
            return Err(UnreadReason::Syntax);
        }
        self.advance()?;
        let has_value = !matches!(self.token, Token::Mark(";" | "}") | Token::End);
        if has_value && self.follows_break {
            return Err(UnreadReason::Syntax);
        }
        if has_value {
            self.expression()?;
        }
        self.can_have_ended |= self.is_conditional;
        self.end_of_statement()
    }

    pub(super) fn pattern(&mut self) -> Result<Pattern<'a>> {
        if self.skip("[")? {
            let mut names = Vec::new();
            while !self.is_at("]") {
                names.push(self.any_name()?);
                if !self.is_at("]") {
                    self.expect(",")?;
                }
            }
            self.advance()?;
            return Ok(Pattern::Items(names));
        }
        if self.skip("{")? {
            let mut names = Vec::new();
            while !self.is_at("}") {
                let field = self.any_name()?;
                let name = if self.skip(":")? { self.any_name()? } else { field };
                names.push((field, name));
                if !self.is_at("}") {
                    self.expect(",")?;
                }
            }
            self.advance()?;
            return Ok(Pattern::Fields(names));
        }
        self.any_name().map(Pattern::Name)
    }

    /// Declares the names of a pattern.
    pub(super) fn declare(&mut self, pattern: &Pattern<'a>, value: &Operand) -> Result<()> {
        self.spend(value.size())?;
        match pattern {
            Pattern::Name(name) => self.declare_name(name, value.clone()),
            Pattern::Items(names) => names
                .iter()
                .enumerate()
                .try_for_each(|(index, name)| self.declare_name(name, value.item(index))),
            Pattern::Fields(names) => names.iter().try_for_each(|(field, name)| {
                super::expression::check_property(field)?;
                self.spend(value.size())?;
                self.declare_name(name, value.field(field))
            }),
        }
    }

    /// Declares a name, which must not be visible yet: what a name means where several are declared is not followed.
    fn declare_name(&mut self, name: &'a str, value: Operand) -> Result<()> {
        if !can_be_declared(name) || self.scopes.iter().any(|scope| scope.contains_key(name)) {
            return Err(UnreadReason::Name);
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, value);
        }
        Ok(())
    }
}

/// Returns whether a program can declare this name.
fn can_be_declared(name: &str) -> bool {
    !is_reserved(name) && !KNOWN_FUNCTIONS.contains(&name)
}

/// Returns whether a name is a reserved word, or one that the reader knows.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}
