//! Reads the expressions of a program that calls tools.

use super::UnreadReason;
use super::lexer::Token;
use super::operand::Operand;
use super::reader::{Reader, Result, is_reserved};

/// The operators between two values, with their precedence. What stands to the right of the first three is evaluated or
/// not, depending on the value to the left.
const OPERATORS: [(&str, u8); 17] = [
    ("??", 1),
    ("||", 1),
    ("&&", 2),
    ("===", 3),
    ("!==", 3),
    ("==", 3),
    ("!=", 3),
    ("<", 4),
    (">", 4),
    ("<=", 4),
    (">=", 4),
    ("+", 5),
    ("-", 5),
    ("*", 6),
    ("/", 6),
    ("%", 6),
    ("**", 6),
];

/// Properties that lead from a value to functions that run code or call others, and methods that change a list. Even a
/// method that is only named could be called by a function that it is given to, such as `JSON.stringify`.
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
    if is_foreign { Err(UnreadReason::Name) } else { Ok(()) }
}

impl<'a> Reader<'a> {
    /// Reads an expression, and evaluates it as far as it is known.
    pub(super) fn expression(&mut self) -> Result<Operand> {
        self.nested(|reader| {
            let value = reader.binary(0)?;
            if !reader.skip("?")? {
                return Ok(value);
            }
            reader.conditional(|reader| {
                reader.expression()?;
                reader.expect(":")?;
                reader.expression()
            })?;
            Ok(Operand::Computed)
        })
    }

    /// Reads operands that are joined by operators of at least this precedence.
    fn binary(&mut self, least: u8) -> Result<Operand> {
        let mut left = self.unary()?;
        loop {
            let Token::Mark(mark) = self.token else { return Ok(left) };
            let found = OPERATORS.into_iter().find(|(operator, _)| *operator == mark);
            let Some((operator, precedence)) = found.filter(|(_, precedence)| *precedence >= least) else {
                return Ok(left);
            };
            self.advance()?;
            let right = self.nested(|reader| match operator {
                "??" | "||" | "&&" => reader.conditional(|reader| reader.binary(precedence + 1)),
                _ => reader.binary(precedence + 1),
            })?;
            left = match (left, right) {
                (Operand::Text(left), Operand::Text(right)) if operator == "+" => {
                    Operand::Text(left + &right)
                }
                _ => Operand::Computed,
            };
            left = self.built(left)?;
        }
    }

    fn unary(&mut self) -> Result<Operand> {
        match self.token {
            Token::Name("await") => {
                self.advance()?;
                if self.is_at_name("Promise") {
                    let results = self.promise()?;
                    // The properties after it are those of the promise, which is not followed.
                    return match self.token {
                        Token::Mark("." | "?." | "[" | "(") | Token::Template => {
                            self.properties_of(Operand::Computed)
                        }
                        _ => Ok(results),
                    };
                }
                self.nested(Self::unary)
            }
            Token::Mark("!") | Token::Name("typeof") => {
                self.advance()?;
                self.nested(Self::unary)?;
                Ok(Operand::Computed)
            }
            Token::Mark("-") => {
                self.advance()?;
                Ok(match self.nested(Self::unary)? {
                    Operand::Number(number) => Operand::Number(-number),
                    _ => Operand::Computed,
                })
            }
            _ => self.postfix(),
        }
    }

    /// Reads a value, and the properties and methods after it.
    fn postfix(&mut self) -> Result<Operand> {
        let value = self.primary()?;
        self.properties_of(value)
    }

    /// Reads the properties and methods after a value.
    fn properties_of(&mut self, mut value: Operand) -> Result<Operand> {
        loop {
            if self.skip(".")? || self.skip("?.")? {
                let name = self.any_name()?;
                check_property(name)?;
                value = if self.is_at("(") { self.method(&value, name)? } else { value.field(name) };
            } else if self.skip("[")? {
                let index = self.expression()?;
                self.expect("]")?;
                value = match index {
                    Operand::Number(_) => Operand::Computed,
                    Operand::Text(name) => {
                        check_property(&name)?;
                        value.field(&name)
                    }
                    _ => return Err(UnreadReason::Name),
                };
                if self.is_at("(") {
                    return Err(UnreadReason::Name);
                }
            } else if self.is_at("(") || self.token == Token::Template {
                return Err(UnreadReason::Name);
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Operand> {
        match self.token.clone() {
            Token::Text(text) => {
                self.advance()?;
                Ok(Operand::Text(text))
            }
            Token::Number(number) => {
                self.advance()?;
                Ok(Operand::Number(number))
            }
            Token::Template => self.template(false),
            Token::Mark("(") => {
                self.advance()?;
                let value = self.expression()?;
                self.expect(")")?;
                Ok(value)
            }
            Token::Mark("[") => self.list(),
            Token::Mark("{") => self.map(),
            Token::Name(name) => self.named(name),
            Token::Mark(_) | Token::End => Err(UnreadReason::Syntax),
        }
    }

    /// Reads a template, which begins here. With `raw`, escapes stay as they are written.
    fn template(&mut self, raw: bool) -> Result<Operand> {
        let mut text = Some(String::new());
        loop {
            let before = self.lexer.at;
            let piece = self.lexer.template_piece(raw)?;
            self.spend(self.lexer.at - before)?;
            if let Some(text) = &mut text {
                text.push_str(&piece.text);
            }
            if piece.is_last {
                self.advance()?;
                return self.built(text.map_or(Operand::Computed, Operand::Text));
            }
            self.advance()?;
            let value = self.expression()?;
            text = match (text, value) {
                (Some(text), Operand::Text(value)) => Some(text + &value),
                _ => None,
            };
            // The reader is at the brace, and the lexer behind it, where the template continues.
            if !self.is_at("}") {
                return Err(UnreadReason::Syntax);
            }
        }
    }

    fn list(&mut self) -> Result<Operand> {
        self.advance()?;
        let mut items = Vec::new();
        while !self.is_at("]") {
            items.push(self.expression()?);
            if !self.is_at("]") {
                self.expect(",")?;
            }
        }
        self.advance()?;
        self.built(Operand::List(items))
    }

    /// Reads a map whose keys are written out. A key that occurs twice is not read: other readers could take either value.
    fn map(&mut self) -> Result<Operand> {
        self.advance()?;
        let mut entries: Vec<(String, Operand)> = Vec::new();
        while !self.is_at("}") {
            let (key, name) = match self.token.clone() {
                Token::Name(name) => (name.to_owned(), Some(name)),
                Token::Text(text) => (text, None),
                _ => return Err(UnreadReason::Syntax),
            };
            self.advance()?;
            self.spend(entries.len())?;
            if key == "__proto__" || entries.iter().any(|(known, _)| *known == key) {
                return Err(UnreadReason::Syntax);
            }
            let value = match (self.skip(":")?, name) {
                (true, _) => self.expression()?,
                (false, Some(name)) => self.lookup(name)?.ok_or(UnreadReason::Name)?,
                (false, None) => return Err(UnreadReason::Syntax),
            };
            entries.push((key, value));
            if !self.is_at("}") {
                self.expect(",")?;
            }
        }
        self.advance()?;
        self.built(Operand::Map(entries))
    }

    /// Reads what begins with this name.
    fn named(&mut self, name: &'a str) -> Result<Operand> {
        self.advance()?;
        match name {
            "true" | "false" => Ok(Operand::Bool(name == "true")),
            "null" => Ok(Operand::Null),
            "undefined" => Ok(Operand::Computed),
            "tools" => self.tool_call(),
            "text" => self.arguments().map(|_| Operand::Computed),
            "Promise" => self.promise().map(|_| Operand::Computed),
            "JSON" => self.function_of(&["stringify", "parse"]),
            "Object" => self.function_of(&["keys", "values", "entries"]),
            "String" if self.skip(".")? => {
                if !self.is_at_name("raw") {
                    return Err(UnreadReason::Name);
                }
                self.advance()?;
                if self.token == Token::Template { self.template(true) } else { Err(UnreadReason::Name) }
            }
            "String" | "Number" | "Boolean" => self.arguments().map(|_| Operand::Computed),
            _ if is_reserved(name) => Err(UnreadReason::Syntax),
            _ => self.lookup(name)?.ok_or(UnreadReason::Name),
        }
    }

    /// Reads the arguments of a function.
    pub(super) fn arguments(&mut self) -> Result<Vec<Operand>> {
        self.expect("(")?;
        let mut values = Vec::new();
        while !self.is_at(")") {
            values.push(self.expression()?);
            if !self.is_at(")") {
                self.expect(",")?;
            }
        }
        self.advance()?;
        Ok(values)
    }

    /// Reads `.NAME(ARGUMENT)` after `tools`.
    fn tool_call(&mut self) -> Result<Operand> {
        self.expect(".")?;
        let span = self.token_span();
        let tool = self.any_name()?;
        check_property(tool)?;
        let arguments = self.arguments()?;
        let argument = match arguments.as_slice() {
            [] => &Operand::Map(Vec::new()),
            [argument] => argument,
            _ => return Err(UnreadReason::Arguments),
        };
        self.call(tool, argument, span)?;
        Ok(Operand::Computed)
    }

    /// Reads `Promise.all(LIST)` or `Promise.allSettled(LIST)`, and returns what it is if it is awaited: as many results
    /// as there are items.
    fn promise(&mut self) -> Result<Operand> {
        if self.is_at_name("Promise") {
            self.advance()?;
        }
        self.expect(".")?;
        let name = self.any_name()?;
        let arguments = self.arguments()?;
        match (name, arguments.into_iter().next()) {
            ("all", Some(list @ Operand::List(_))) => Ok(list),
            ("allSettled", Some(Operand::List(items))) => {
                self.built(Operand::List(vec![Operand::Computed; items.len()]))
            }
            ("all" | "allSettled", Some(_)) => Ok(Operand::Computed),
            _ => Err(UnreadReason::Name),
        }
    }

    /// Reads a function of a known object, which has no effect besides its value.
    fn function_of(&mut self, names: &[&str]) -> Result<Operand> {
        self.expect(".")?;
        let name = self.any_name()?;
        if !names.contains(&name) {
            return Err(UnreadReason::Name);
        }
        self.arguments().map(|_| Operand::Computed)
    }
}
