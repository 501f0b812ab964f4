//! Reads the expressions of a tool script, and evaluates them as far as their values are known. The
//! [`reader`](super::reader) calls [`Reader::expression`] for each expression of a statement. At a part of the language
//! that is not read, the functions fail with the reason.

use super::ScriptUnreadReason;
use super::lexer::Token;
use super::operand::Operand;
use super::reader::{Reader, Result, check_property, is_reserved};

/// The operators between two values, with their precedence. For the first three, the value to the left decides whether
/// the value to the right is evaluated.
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

impl<'a> Reader<'a> {
    /// Reads an expression, and returns its value as far as it is known. Both branches of `CONDITION ? A : B` are read
    /// as branches, and the result is not known. Fails if a part of the expression is not read.
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

    /// Reads operands that are joined by operators of at least the precedence `least`, from left to right. The right
    /// side of `??`, `||` or `&&` may not be evaluated, so it is read as a branch. The result of an operator is known
    /// only for texts that are joined by `+`. Fails if an operand is not read.
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

    /// Reads an operand with the operators before it: `await`, `!`, `typeof` and `-`. Returns its value as far as it is
    /// known. Fails if the operand is not read.
    fn unary(&mut self) -> Result<Operand> {
        match self.token {
            Token::Name("await") => {
                self.advance()?;
                if self.is_at_name("Promise") {
                    let results = self.promise()?;
                    // Properties after `Promise.all(…)` belong to the promise and not to its results, so their values
                    // are not known.
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

    /// Reads the properties, indices and methods after `value`, and returns the value to which they lead. Fails if a
    /// property could have an effect, if its name is not known, or if a value that is not a method is called.
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
                    // Items of lists are not followed.
                    Operand::Number(_) => Operand::Computed,
                    Operand::Text(name) => {
                        check_property(&name)?;
                        value.field(&name)
                    }
                    _ => return Err(ScriptUnreadReason::Name),
                };
                // A method is read only after `.` or `?.`.
                if self.is_at("(") {
                    return Err(ScriptUnreadReason::Name);
                }
            } else if self.is_at("(") || self.token == Token::Template {
                // A call of the value itself: a template directly after a value calls it as well.
                return Err(ScriptUnreadReason::Name);
            } else {
                return Ok(value);
            }
        }
    }

    /// Reads a literal, a template, a list, a map, an expression in parentheses, or what begins with a name. Fails at
    /// any other token.
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
            Token::Mark(_) | Token::End => Err(ScriptUnreadReason::Syntax),
        }
    }

    /// Reads a template, whose opening backquote is the current token. With `raw`, escapes are not decoded. The result
    /// is known if the values of all expressions in the template are known texts. Fails if the template does not end,
    /// or if an expression in it is not read.
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
            // The current token is the closing brace of the expression, and the lexer is directly after it, where the
            // text of the template continues.
            if !self.is_at("}") {
                return Err(ScriptUnreadReason::Syntax);
            }
        }
    }

    /// Reads a list, whose opening bracket is the current token. Fails if an item is not read, as in `[...x]`.
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

    /// Reads a map, whose opening brace is the current token. Its keys are names or texts. In `{name}`, the value is
    /// that of the variable. Fails for a key that occurs twice, since other readers could take either of its values,
    /// and for `__proto__`, which is not an ordinary key.
    fn map(&mut self) -> Result<Operand> {
        self.advance()?;
        let mut entries: Vec<(String, Operand)> = Vec::new();
        while !self.is_at("}") {
            let (key, name) = match self.token.clone() {
                Token::Name(name) => (name.to_owned(), Some(name)),
                Token::Text(text) => (text, None),
                _ => return Err(ScriptUnreadReason::Syntax),
            };
            self.advance()?;
            self.spend(entries.len())?;
            if key == "__proto__" || entries.iter().any(|(known, _)| *known == key) {
                return Err(ScriptUnreadReason::Syntax);
            }
            let value = match (self.skip(":")?, name) {
                (true, _) => self.expression()?,
                (false, Some(name)) => self.lookup(name)?.ok_or(ScriptUnreadReason::Name)?,
                (false, None) => return Err(ScriptUnreadReason::Syntax),
            };
            entries.push((key, value));
            if !self.is_at("}") {
                self.expect(",")?;
            }
        }
        self.advance()?;
        self.built(Operand::Map(entries))
    }

    /// Reads an operand that begins with `name`, the current token: a constant, a call of a tool, a call of a known
    /// function, or a name that the program has declared. Fails for any other name.
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
            // `String.raw` before a template: its escapes are not decoded.
            "String" if self.skip(".")? => {
                if !self.is_at_name("raw") {
                    return Err(ScriptUnreadReason::Name);
                }
                self.advance()?;
                if self.token == Token::Template {
                    self.template(true)
                } else {
                    Err(ScriptUnreadReason::Name)
                }
            }
            "String" | "Number" | "Boolean" => self.arguments().map(|_| Operand::Computed),
            _ if is_reserved(name) => Err(ScriptUnreadReason::Syntax),
            _ => self.lookup(name)?.ok_or(ScriptUnreadReason::Name),
        }
    }

    /// Reads the arguments of a function in parentheses, and returns their values. Fails if there are no parentheses,
    /// or if an argument is not read.
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

    /// Reads `.NAME(ARGUMENT)` after `tools`, and records the call. Its result is not known. Fails for several
    /// arguments, and if [`Reader::call`] cannot record the call.
    fn tool_call(&mut self) -> Result<Operand> {
        self.expect(".")?;
        let span = self.token_span();
        let tool = self.any_name()?;
        check_property(tool)?;
        let arguments = self.arguments()?;
        let argument = match arguments.as_slice() {
            [] => &Operand::Map(Vec::new()),
            [argument] => argument,
            _ => return Err(ScriptUnreadReason::Arguments),
        };
        self.call(tool, argument, span)?;
        Ok(Operand::Computed)
    }

    /// Reads `Promise.all(LIST)` or `Promise.allSettled(LIST)`; the current token is `Promise` or the `.` after it.
    /// Returns the value of the awaited promise: a list with one result for each item, if LIST is known. Fails for any
    /// other function of `Promise`.
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
            _ => Err(ScriptUnreadReason::Name),
        }
    }

    /// Reads `.NAME(ARGUMENTS)` after a known object such as `JSON`. `names` are the functions of the object that have
    /// no effect besides their value; fails for any other. The result is not known.
    fn function_of(&mut self, names: &[&str]) -> Result<Operand> {
        self.expect(".")?;
        let name = self.any_name()?;
        if !names.contains(&name) {
            return Err(ScriptUnreadReason::Name);
        }
        self.arguments().map(|_| Operand::Computed)
    }
}
