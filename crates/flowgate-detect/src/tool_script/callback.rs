//! Reads calls of methods in a tool script, such as `list.map(x => tools.f({a: x}))`, with the functions (callbacks)
//! that are their arguments. [`expression`](super::expression) calls [`Reader::method`] for each such call. If the
//! script uses an unknown method or a part of the language that the reader does not support, `Reader::method` returns
//! the reason as an error.

use super::ScriptUnreadReason;
use super::lexer::Token;
use super::operand::Operand;
use super::reader::{Reader, Result};

/// Methods that only compute a value from others, and change nothing.
const PURE_METHODS: [&str; 27] = [
    "at",
    "concat",
    "endsWith",
    "entries",
    "flat",
    "includes",
    "indexOf",
    "join",
    "keys",
    "lastIndexOf",
    "match",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "slice",
    "split",
    "startsWith",
    "substring",
    "toFixed",
    "toLowerCase",
    "toString",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
];
/// Methods that call a function for each item of a list.
const PER_ITEM_METHODS: [&str; 4] = ["filter", "flatMap", "forEach", "map"];
/// Methods that call a function for some items of a list, or when there is a result.
const SOMETIMES_METHODS: [&str; 5] = ["every", "find", "findIndex", "some", "then"];

impl Reader<'_> {
    /// Reads the arguments of the method `name` of `value`, and returns its result as far as it is known. The reader is
    /// at the opening parenthesis. If an argument is a function that the method calls for each item of a list, the
    /// function is read once for each known item. If it is uncertain whether the method calls the function, the
    /// function is read once, as a branch. Fails for an unknown method, since it may have an effect.
    pub(super) fn method(&mut self, value: &Operand, name: &str) -> Result<Operand> {
        if PURE_METHODS.contains(&name) {
            let arguments = self.arguments()?;
            return if name == "join" { self.join(value, &arguments) } else { Ok(Operand::Computed) };
        }
        let is_per_item = PER_ITEM_METHODS.contains(&name);
        if !is_per_item && !SOMETIMES_METHODS.contains(&name) {
            return Err(ScriptUnreadReason::Name);
        }
        let begin = self.previous_end_after("(")?;
        let mut results = Vec::new();
        // Unless the method calls the function for each item, the items count as unknown: `each` then reads the
        // function once, as a branch.
        let items = if is_per_item { value.clone() } else { Operand::Computed };
        self.spend(items.size())?;
        let has_known_items = matches!(&items, Operand::List(items) if !items.is_empty());
        self.each(items, |reader, item| {
            reader.return_to(begin)?;
            let result = reader.in_function(|reader| reader.scoped(|reader| reader.arrow_function(&item)))?;
            results.push(result);
            Ok(())
        })?;
        self.skip(",")?;
        self.expect(")")?;
        if has_known_items && name == "map" {
            self.built(Operand::List(results))
        } else {
            Ok(Operand::Computed)
        }
    }

    /// Reads a function `(ITEM, INDEX) => BODY` that a method calls with `item`, and returns its result. The result of
    /// a body in braces is not known. A line break after `async` or before `=>` could change the meaning, so it is a
    /// syntax error.
    fn arrow_function(&mut self, item: &Operand) -> Result<Operand> {
        let is_async = self.is_at_name("async");
        if is_async {
            self.advance()?;
            if self.follows_break {
                return Err(ScriptUnreadReason::Syntax);
            }
        }
        if self.skip("(")? {
            // The values of the parameters: the item, and its index, which is not followed. A third parameter is an error.
            let values = [item, &Operand::Computed];
            let mut values = values.into_iter();
            while !self.is_at(")") {
                let pattern = self.pattern()?;
                self.declare(&pattern, values.next().ok_or(ScriptUnreadReason::Syntax)?)?;
                if !self.is_at(")") {
                    self.expect(",")?;
                }
            }
            self.advance()?;
        } else {
            // A single parameter without parentheses.
            let Token::Name(_) = self.token else { return Err(ScriptUnreadReason::Syntax) };
            let pattern = self.pattern()?;
            self.declare(&pattern, item)?;
        }
        if self.follows_break {
            return Err(ScriptUnreadReason::Syntax);
        }
        self.expect("=>")?;
        if self.is_at("{") {
            self.block()?;
            return Ok(Operand::Computed);
        }
        let value = self.expression()?;
        // An asynchronous function returns a promise and not the value itself.
        Ok(if is_async { Operand::Computed } else { value })
    }

    /// Returns the result of `list.join(separator)`; it is known if the items of the list and the separator are known
    /// texts. Fails if the work for the text exceeds the limit.
    fn join(&mut self, list: &Operand, arguments: &[Operand]) -> Result<Operand> {
        let (Operand::List(items), [Operand::Text(separator)]) = (list, arguments) else {
            return Ok(Operand::Computed);
        };
        let text = |item: &Operand| if let Operand::Text(text) = item { Some(text.clone()) } else { None };
        let Some(texts) = items.iter().map(text).collect::<Option<Vec<String>>>() else {
            return Ok(Operand::Computed);
        };
        self.spend(texts.iter().map(|text| text.len() + separator.len()).sum())?;
        Ok(Operand::Text(texts.join(separator)))
    }
}
