//! Reads the statements of a tool script, follows the values that it declares, and records its calls of tools.
//! [`tool_script`](super::tool_script) calls [`Reader::read`]. At a part of the language that is not read, the
//! functions fail with the reason, and the reading ends.

use std::collections::HashMap;

use super::lexer::{Lexer, Token};
use super::operand::Operand;
use super::{ScriptCall, ScriptUnreadReason, ToolScript};
use crate::MAX_FINDINGS;

/// Maximum length of a program, in bytes.
const MAX_BYTES: usize = 1 << 18;
/// Maximum work: the bytes of tokens that are read (in a loop, once for each item) and of values that are copied.
const MAX_WORK: usize = 1 << 20;
/// Maximum depth of nested constructs and values.
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

/// The left side of a declaration, which gives names to a value or its parts.
pub(super) enum Pattern<'a> {
    Name(&'a str),
    /// The items of a list.
    Items(Vec<&'a str>),
    /// Fields of a map: pairs of the field and the name that its value gets.
    Fields(Vec<(&'a str, &'a str)>),
}

pub(super) type Result<T> = std::result::Result<T, ScriptUnreadReason>;

/// Reads a program token by token, and contains the state of this reading.
pub(super) struct Reader<'a> {
    pub(super) lexer: Lexer<'a>,
    /// The current token, which is the next one to be consumed.
    pub(super) token: Token<'a>,
    /// The offset of the beginning of the current token.
    start: usize,
    /// Whether a line break precedes the current token.
    pub(super) follows_break: bool,
    /// The offset of the end of the token before the current one.
    pub(super) previous_end: usize,
    /// The names that are declared, from the outermost block to the innermost.
    scopes: Vec<HashMap<&'a str, Operand>>,
    /// Whether the current code is in a branch, so that a tool's result can decide whether the code runs.
    is_conditional: bool,
    /// Whether the function that contains the current code can have ended before it, by a `return` in a branch.
    can_have_ended: bool,
    /// Whether the current code is in a function.
    is_in_function: bool,
    calls: Vec<ScriptCall>,
    /// The number of constructs around the current token.
    depth: usize,
    /// The work that was spent so far.
    work: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the beginning of a program. For a program that is too long, all work is spent already.
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

    /// Reads the whole program, and returns its calls up to the first part that cannot be read.
    pub(super) fn read(mut self) -> ToolScript {
        let outcome = self.statements();
        let unread = outcome.err().map(|reason| (reason, self.start..self.lexer.at.max(self.start)));
        ToolScript { calls: self.calls, unread }
    }

    /// Reads the statements up to the end of the program.
    fn statements(&mut self) -> Result<()> {
        self.advance()?;
        while self.token != Token::End {
            self.statement()?;
        }
        Ok(())
    }

    /// Spends work. Fails if more than [`MAX_WORK`] is spent in total.
    pub(super) fn spend(&mut self, work: usize) -> Result<()> {
        self.work = self.work.saturating_add(work);
        if self.work > MAX_WORK { Err(ScriptUnreadReason::Limit) } else { Ok(()) }
    }

    /// Consumes the current token, and reads the next one.
    pub(super) fn advance(&mut self) -> Result<()> {
        self.previous_end = self.lexer.at;
        self.spend(1)?;
        self.follows_break = self.lexer.skip_space()?;
        self.start = self.lexer.at;
        self.token = self.lexer.token()?;
        self.spend(self.lexer.at - self.previous_end)
    }

    /// Returns to an earlier place in the program. `previous_end` is the end of the token before the one to continue
    /// with.
    pub(super) fn return_to(&mut self, previous_end: usize) -> Result<()> {
        self.lexer.at = previous_end;
        self.advance()
    }

    /// Returns whether the current token is this mark.
    pub(super) fn is_at(&self, mark: &str) -> bool {
        matches!(self.token, Token::Mark(found) if found == mark)
    }

    /// Returns whether the current token is this name, which can also be a reserved word.
    pub(super) fn is_at_name(&self, name: &str) -> bool {
        matches!(self.token, Token::Name(found) if found == name)
    }

    /// Consumes a mark if it is the current token. Returns whether it was.
    pub(super) fn skip(&mut self, mark: &str) -> Result<bool> {
        let found = self.is_at(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Consumes the mark `mark`. Fails if another token is the current one.
    pub(super) fn expect(&mut self, mark: &str) -> Result<()> {
        if self.skip(mark)? { Ok(()) } else { Err(ScriptUnreadReason::Syntax) }
    }

    /// Reads any name, even a reserved word, since a property may have such a name.
    pub(super) fn any_name(&mut self) -> Result<&'a str> {
        let Token::Name(name) = self.token else { return Err(ScriptUnreadReason::Syntax) };
        self.advance()?;
        Ok(name)
    }

    /// Runs `read` on a nested construct. Fails if constructs are nested too deeply.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(ScriptUnreadReason::Limit);
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Runs `read` on code in a branch, in which no tool may be called.
    pub(super) fn conditional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = std::mem::replace(&mut self.is_conditional, true);
        let value = read(self)?;
        self.is_conditional = before;
        Ok(value)
    }

    /// Runs `read` on the body of a function. A `return` in it ends only this function, so the code afterwards does not
    /// depend on it.
    pub(super) fn in_function<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = (self.is_in_function, self.can_have_ended);
        self.is_in_function = true;
        let value = read(self)?;
        (self.is_in_function, self.can_have_ended) = before;
        Ok(value)
    }

    /// Runs `read` in a scope of its own: the names that it declares are not known afterwards.
    pub(super) fn scoped<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.scopes.push(HashMap::new());
        let value = read(self)?;
        self.scopes.pop();
        Ok(value)
    }

    /// Returns the value of a name that the program has declared; `None` if it has not declared the name.
    pub(super) fn lookup(&mut self, name: &str) -> Result<Option<Operand>> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned();
        self.spend(found.as_ref().map_or(0, Operand::size))?;
        Ok(found)
    }

    /// Returns a new value, after checking that it is not nested too deeply, and spends work for it.
    pub(super) fn built(&mut self, value: Operand) -> Result<Operand> {
        self.spend(value.size())?;
        if value.depth() > MAX_DEPTH { Err(ScriptUnreadReason::Limit) } else { Ok(value) }
    }

    /// Records a call of a tool. `span` are the bytes of the tool's name. Fails if the call is in a branch, if its
    /// function may have ended before it, if its argument is not known from the program alone, or if there are
    /// [`MAX_FINDINGS`] calls already.
    pub(super) fn call(
        &mut self,
        tool: &str,
        argument: &Operand,
        span: std::ops::Range<usize>,
    ) -> Result<()> {
        if self.is_conditional || self.can_have_ended {
            return Err(ScriptUnreadReason::Condition);
        }
        let argument = argument.literal().ok_or(ScriptUnreadReason::Arguments)?;
        if self.calls.len() == MAX_FINDINGS {
            return Err(ScriptUnreadReason::Limit);
        }
        self.calls.push(ScriptCall { tool: tool.to_owned(), argument, span });
        Ok(())
    }

    /// Returns the bytes of the token at which the reader is.
    pub(super) fn token_span(&self) -> std::ops::Range<usize> {
        self.start..self.lexer.at
    }

    /// Reads a statement. Any statement that is not listed here must be an expression.
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
    /// is such a place, since no expression continues with a name. After a line break before a mark, the statement may
    /// continue, so that is an error.
    fn end_of_statement(&mut self) -> Result<()> {
        match self.token {
            Token::Mark(";") => self.advance(),
            Token::Mark("}") | Token::End => Ok(()),
            Token::Name(_) if self.follows_break => Ok(()),
            _ => Err(ScriptUnreadReason::Syntax),
        }
    }

    /// Reads `const NAME = VALUE, …`. A name that is declared with `let` has a single value as well, since assignments
    /// are not read. `var` is not read, since a function that runs later would see the value that the name has after a
    /// loop.
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

    /// Reads an `if` statement. Its condition is not evaluated; both of its statements are branches.
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

    /// Reads `for (const PATTERN of LIST) BODY`. The body is read once for each item if the list is known. Fails for
    /// every other form of `for`, except with `await` before the parenthesis.
    fn for_statement(&mut self) -> Result<()> {
        self.advance()?;
        if self.is_at_name("await") {
            self.advance()?;
        }
        self.expect("(")?;
        if !matches!(self.token, Token::Name("const" | "let")) {
            return Err(ScriptUnreadReason::Syntax);
        }
        self.advance()?;
        let pattern = self.pattern()?;
        if !self.is_at_name("of") {
            return Err(ScriptUnreadReason::Syntax);
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

    /// Consumes a mark. Returns the offset of its end, to which [`return_to`](Self::return_to) can return.
    pub(super) fn previous_end_after(&mut self, mark: &str) -> Result<usize> {
        self.expect(mark)?;
        Ok(self.previous_end)
    }

    /// Calls `read`, which reads the code of a loop or a callback, once for each item of `list`. If the items are not
    /// known, or there are none, calls it once with an unknown item, as a branch, so that the code is read in any case.
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

    /// Reads `return` in a function. If it is in a branch, the rest of the function may not run, so no tool may be
    /// called there. Fails outside of a function, and if a line break precedes the value.
    fn return_statement(&mut self) -> Result<()> {
        if !self.is_in_function {
            return Err(ScriptUnreadReason::Syntax);
        }
        self.advance()?;
        let has_value = !matches!(self.token, Token::Mark(";" | "}") | Token::End);
        // JavaScript ends the statement at the line break, so the value would not be returned.
        if has_value && self.follows_break {
            return Err(ScriptUnreadReason::Syntax);
        }
        if has_value {
            self.expression()?;
        }
        self.can_have_ended |= self.is_conditional;
        self.end_of_statement()
    }

    /// Reads the left side of a declaration: `name`, `[a, b]` or `{field, field: name}`. Fails for any other form, such
    /// as one with defaults.
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

    /// Declares the names of a pattern, with `value` or its parts as their values. Fails if a name cannot be declared,
    /// or if a field could have an effect.
    pub(super) fn declare(&mut self, pattern: &Pattern<'a>, value: &Operand) -> Result<()> {
        self.spend(value.size())?;
        match pattern {
            Pattern::Name(name) => self.declare_name(name, value.clone()),
            Pattern::Items(names) => names
                .iter()
                .enumerate()
                .try_for_each(|(index, name)| self.declare_name(name, value.item(index))),
            Pattern::Fields(names) => names.iter().try_for_each(|(field, name)| {
                check_property(field)?;
                self.spend(value.size())?;
                self.declare_name(name, value.field(field))
            }),
        }
    }

    /// Declares a name in the innermost scope. Fails for a name that a program cannot declare, and for one that is
    /// visible already, since a name that hides another one is not followed.
    fn declare_name(&mut self, name: &'a str, value: Operand) -> Result<()> {
        if !can_be_declared(name) || self.scopes.iter().any(|scope| scope.contains_key(name)) {
            return Err(ScriptUnreadReason::Name);
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

/// Properties that lead from a value to functions that run code or call others, and methods that change a list. Even
/// the mention of such a method without a call is rejected, since a function that receives the method could call it.
const FOREIGN_PROPERTIES: [&str; 14] = [
    "apply",
    "bind",
    "call",
    "constructor",
    "copyWithin",
    "fill",
    "pop",
    "prototype",
    "push",
    "reverse",
    "shift",
    "sort",
    "splice",
    "unshift",
];

/// Fails for a property that could have an effect.
pub(super) fn check_property(name: &str) -> Result<()> {
    let is_foreign = name.starts_with("__") || FOREIGN_PROPERTIES.contains(&name);
    if is_foreign { Err(ScriptUnreadReason::Name) } else { Ok(()) }
}

/// Returns whether a name is in [`RESERVED`].
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}
