//! Evaluates the operators of expressions: comparisons, arithmetic, the flow operators, and patterns for tools and
//! their arguments (`call is tool:send({to: "bob"})`). The flow operators compare two events: `a -> b` holds if the
//! agent of `b` had seen `a`, `a ~> b` if `a` directly precedes `b`, and `a => b` if `a` may have influenced `b`.
//! `Evaluator::evaluate` calls these methods.

use super::{BYTES_PER_STEP, EvalError, Evaluator, Frame, MissingValueMode, Result, Value};
use crate::policy::pattern::PatternId;
use crate::policy::plan::{ArgumentShape, CompiledExpr, Type};
use crate::policy::syntax::{Arithmetic, Comparison};

impl Evaluator<'_> {
    /// Evaluates a comparison, a membership test or a flow operator to a truth value. In a rule
    /// ([`MissingValueMode::IsNone`]), membership of a list can yield several answers ([`Self::test_membership`]).
    /// `frame` contains the values of variables.
    pub(super) fn compare(
        &mut self,
        operator: Comparison,
        left: &CompiledExpr,
        right: &CompiledExpr,
        frame: &mut Frame,
    ) -> Result<Value> {
        if matches!(operator, Comparison::Before | Comparison::RightBefore | Comparison::Influences) {
            let (left, right) = (self.evaluate(left, frame)?, self.evaluate(right, frame)?);
            return self.compare_flow(operator, &left, &right).map(Value::Bool);
        }
        let is_equality =
            matches!(operator, Comparison::Is | Comparison::IsNot | Comparison::Equal | Comparison::NotEqual);
        // `x.field is None` tests whether a field is present.
        let is_written_none = |ex: &CompiledExpr| matches!(ex, CompiledExpr::Constant(Value::None));
        let tests_presence = is_equality && (is_written_none(left) || is_written_none(right));
        // Each side is evaluated to a reference, from which locations are recorded, and then resolved to a value.
        let (left_reference, right_reference) = match tests_presence {
            true => (self.evaluate_or_none(left, frame)?, self.evaluate_or_none(right, frame)?),
            false => (self.evaluate(left, frame)?, self.evaluate(right, frame)?),
        };
        let left_value = self.resolve(&left_reference)?;
        if let (Comparison::In, Some(part)) = (operator, left_value.as_text()) {
            self.mark_occurrences(part, &right_reference)?;
        }
        let right_value = match operator {
            // Membership in a text that encodes a list is membership in the list.
            Comparison::In | Comparison::NotIn if left_value.as_text().is_none() => {
                self.resolve_structure(&right_reference)?
            }
            _ => self.resolve(&right_reference)?,
        };
        self.spend(comparison_cost(&left_value, &right_value) / BYTES_PER_STEP)?;
        // In the dialect of Flowgate, an operator other than equality fails if a value that it needs is missing.
        if !is_equality && self.needs_values() {
            self.check_decidable(operator, (&left_value, left), (&right_value, right))?;
        }
        if matches!(operator, Comparison::In | Comparison::NotIn) {
            return self.test_membership(operator, &left_value, &right_value);
        }
        self.compare_values(operator, &left_value, &right_value).map(Value::Bool)
    }

    /// Evaluates a comparison of two resolved values by any operator but `in`, `not in` and the flow operators.
    fn compare_values(&mut self, operator: Comparison, left: &Value, right: &Value) -> Result<bool> {
        Ok(match operator {
            Comparison::Is | Comparison::Equal => left.equals(right),
            Comparison::IsNot | Comparison::NotEqual => !left.equals(right),
            Comparison::ContainsOnly => {
                let items = self.items(left)?;
                let mut contains_all = true;
                // An item that cannot be tested is an error, even after an item that is not contained.
                for item in items {
                    contains_all &= self.contains(&item, right)?;
                }
                contains_all
            }
            // Only in the dialect of invariant-ai: in Flowgate's own dialect, `check_decidable` has failed before.
            _ if left.is_absent_or_none() || right.is_absent_or_none() => false,
            Comparison::Less => self.order(left, right)?.is_lt(),
            Comparison::LessEqual => self.order(left, right)?.is_le(),
            Comparison::Greater => self.order(left, right)?.is_gt(),
            Comparison::GreaterEqual => self.order(left, right)?.is_ge(),
            // Unreachable: `compare` has evaluated the other operators.
            _ => false,
        })
    }

    /// Evaluates `item in container` or, if `operator` is [`Comparison::NotIn`], `item not in container`, for values
    /// that are resolved. The result is a truth value. The exception is a list `item` in a rule
    /// ([`MissingValueMode::IsNone`]): unless the list as a whole is a member, the result is one answer for each of
    /// its items, for `any` and `all`.
    ///
    /// # Errors
    /// If the types do not permit the test, such as a number as container, or the fuel is spent. In a statement that
    /// grants something ([`MissingValueMode::FailsAll`]), also if `item` is a list or a map that is not a member itself
    /// but contains one at some depth: the test is then undecided.
    fn test_membership(&mut self, operator: Comparison, item: &Value, container: &Value) -> Result<Value> {
        let expects_member = operator == Comparison::In;
        if let (Value::List(items), MissingValueMode::IsNone) = (item, self.missing)
            && !self.contains(item, container)?
        {
            let mut answers = Vec::with_capacity(items.len());
            for item in items.iter() {
                answers.push(self.contains(item, container)? == expects_member);
            }
            return Ok(Value::Answers(answers.into()));
        }
        if matches!(self.missing, MissingValueMode::FailsAll)
            && matches!(item, Value::List(_) | Value::Dict(_))
            && !self.contains(item, container)?
            && self.contains_nested(item, container)?
        {
            // Suppose that a statement grants something if `call.arguments.to not in blocked`, and that `to` is the
            // list `["eve"]`. The list itself is not an item of `blocked`, but the tool sends to Eve. So the test has
            // no result.
            return Err(EvalError::Missing);
        }
        Ok(Value::Bool(self.contains(item, container)? == expects_member))
    }

    /// Evaluates one side of a comparison with `None`: a missing field (`x.field`, `x.get("field")`) yields
    /// [`Value::None`], so that `x.field is None` tests whether the field is present. The object itself is evaluated as
    /// usual: only a field that is missing in it becomes `None`. `frame` contains the values of variables.
    fn evaluate_or_none(&mut self, ex: &CompiledExpr, frame: &mut Frame) -> Result<Value> {
        let value = match ex {
            CompiledExpr::Member(object, name) => {
                let object = self.evaluate(object, frame)?;
                self.member(&object, name)
            }
            CompiledExpr::Call(function, arguments) if function.name == "get" => {
                let arguments: Vec<Value> =
                    arguments.iter().map(|ex| self.evaluate(ex, frame)).collect::<Result<_>>()?;
                self.call(*function, &arguments)
            }
            // The `None` that the policy itself writes.
            CompiledExpr::Constant(value) => Ok(value.clone()),
            ex => self.evaluate(ex, frame),
        };
        Ok(match value? {
            Value::Absent => Value::None,
            value => value,
        })
    }

    /// Orders two texts or two numbers, and spends the fuel for it: a comparison of texts reads at most as many bytes
    /// as the shorter one has.
    ///
    /// # Errors
    /// If the values are of other types, one of them is not a number (NaN), or the fuel is spent.
    fn order(&mut self, left: &Value, right: &Value) -> Result<std::cmp::Ordering> {
        if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
            self.spend(left.len().min(right.len()) / BYTES_PER_STEP)?;
        }
        order(left, right)
    }

    /// Evaluates `item in container`: whether the item is a part of a text, an item of a list, or a key of a map. In a
    /// rule, a list of content blocks also contains each part of the text of a block. A missing or empty container
    /// contains nothing, and a missing item is not a part of any text.
    ///
    /// # Errors
    /// If the types do not permit the test, such as a number as container, or the fuel is spent.
    pub(super) fn contains(&mut self, item: &Value, container: &Value) -> Result<bool> {
        match (item, container) {
            (_, Value::Absent | Value::None | Value::Silent)
            | (Value::Absent | Value::None | Value::Silent, Value::Str(_)) => Ok(false),
            (_, Value::Texts(texts)) => {
                for text in texts.iter() {
                    if self.contains(item, text)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            // A list is neither a part of a text nor a key. In a rule, the caller then tests the items of the list one
            // by one.
            (Value::List(_), Value::Str(_) | Value::Dict(_)) => Ok(false),
            (Value::Str(part), Value::Str(text)) => {
                // One step of fuel pays for 16 bytes of a search.
                self.spend(text.len() / 16)?;
                Ok(text.contains(&**part))
            }
            (_, Value::List(items)) => {
                let cost: usize = items.iter().map(|other| comparison_cost(item, other)).sum();
                self.spend(items.len() + cost / BYTES_PER_STEP)?;
                if let (Value::Str(part), MissingValueMode::IsNone) = (item, self.missing)
                    && items.iter().any(|block| block_text(block).is_some_and(|text| text.contains(&**part)))
                {
                    // A substring of a block is contained in the content of the message.
                    return Ok(true);
                }
                Ok(items.iter().any(|other| item.equals(other)))
            }
            (Value::Str(key), Value::Dict(entries)) => Ok(entries.iter().any(|(k, _)| k == key)),
            (_, other) => Err(EvalError::Type(format!(
                "the right side of `in` has the type {}, which has no items; write a text, a list or a map there",
                other.type_name()
            ))),
        }
    }

    /// Returns whether a container contains a value. If the value is a list or a map, it suffices that the container
    /// contains an item of the value, at any depth; the keys of a map do not count.
    ///
    /// # Errors
    /// If the types do not permit the test, such as a number as container, or the fuel is spent.
    fn contains_nested(&mut self, value: &Value, container: &Value) -> Result<bool> {
        self.spend(1)?;
        let parts: Vec<&Value> = match value {
            Value::List(items) => items.iter().collect(),
            Value::Dict(entries) => entries.iter().map(|(_, value)| value).collect(),
            _ => return self.contains(value, container),
        };
        for part in parts {
            if self.contains_nested(part, container)? {
                return Ok(true);
            }
        }
        // The list or map as a whole can also be an item of the container.
        self.contains(value, container)
    }

    /// Evaluates a flow operator on two events. `->` holds if the agent of the right one has seen the left one before,
    /// `~>` if the left one directly precedes the right one, and `=>` if the left one may have influenced the right
    /// one.
    ///
    /// # Errors
    /// If one of the values is not an event, or the fuel is spent.
    pub(super) fn compare_flow(&mut self, operator: Comparison, left: &Value, right: &Value) -> Result<bool> {
        let (Value::Event(earlier), Value::Event(later)) = (left, right) else {
            let message = "one side of a flow operator such as `->` is not an event; compare variables of \
                 the types Message, ToolCall or ToolOutput";
            return Err(EvalError::Type(message.to_owned()));
        };
        self.spend(1)?;
        Ok(match operator {
            Comparison::Before => self.trace.sees(*later, *earlier),
            Comparison::RightBefore => self.trace.previous(*later) == Some(*earlier),
            // `=>`: the caller passes only flow operators.
            _ => {
                let (influences, steps) = self.trace.influences_in_steps(*earlier, *later);
                self.spend(steps)?;
                influences
            }
        })
    }

    /// Evaluates `event is tool:PATTERN(ARGUMENTS)`: whether the pattern matches the tool that the event is about, and
    /// the arguments of the call have this shape. The event is a call, an output or the description of a tool; `shape`
    /// is `None` if the policy writes no arguments. If the tool or the arguments are missing, the result is false in a
    /// rule and an error in a statement that grants something. `frame` contains the values of variables.
    pub(super) fn is_tool(
        &mut self,
        event: &Value,
        pattern: PatternId,
        shape: Option<&ArgumentShape>,
        frame: &mut Frame,
    ) -> Result<bool> {
        let id = match event {
            Value::Event(id) | Value::Function(id) => *id,
            Value::Absent | Value::None => return self.outcome_of_missing_value(),
            other => {
                let message = format!(
                    "the left side of `is tool:` has the type {}, not ToolCall or ToolOutput; write a variable of \
                     one of these types",
                    other.type_name()
                );
                return Err(EvalError::Type(message));
            }
        };
        // The compiler has added the pattern to the same plan, so `else` is unreachable.
        let Some(pattern) = self.plan.patterns.get(pattern.0) else { return Ok(false) };
        let Some(tool) = self.tool_of(id) else { return self.outcome_of_missing_value() };
        if !pattern.matches(tool) {
            return Ok(false);
        }
        let Some(shape) = shape else { return Ok(true) };
        let call = match self.call_of(event) {
            Value::Event(call) => call,
            // The event answers no call: it is the call itself, or a description of a tool, which has no arguments.
            _ => id,
        };
        match self.arguments(call)? {
            Value::Node(event, node) => self.has_shape(&Value::Node(event, node), shape, frame),
            _ => self.outcome_of_missing_value(),
        }
    }

    /// Returns the result of `is tool:` if the tested value is missing: false in a rule, and an error, which leaves the
    /// condition undecided, in a statement that grants something.
    fn outcome_of_missing_value(&self) -> Result<bool> {
        match self.missing {
            MissingValueMode::IsNone => Ok(false),
            MissingValueMode::FailsAll => Err(EvalError::Missing),
        }
    }

    /// Returns whether a value has the shape that a tool pattern requires of an argument, such as `{to: "bob"}`. A
    /// missing or null value satisfies no shape that needs a value: then
    /// [`outcome_of_missing_value`](Self::outcome_of_missing_value) decides. `frame` contains the values of variables.
    fn has_shape(&mut self, value: &Value, shape: &ArgumentShape, frame: &mut Frame) -> Result<bool> {
        self.spend(1)?;
        // A tool may treat null as a missing value, so null satisfies no shape that needs a value. For `Equal` and
        // `Computed`, `is_value` decides.
        let may_be_null =
            matches!(shape, ArgumentShape::Anything | ArgumentShape::Equal(_) | ArgumentShape::Computed(_));
        if !may_be_null && self.is_null(value) {
            return self.outcome_of_missing_value();
        }
        match shape {
            ArgumentShape::Anything => Ok(true),
            ArgumentShape::Dict(entries) => {
                for (key, shape) in entries {
                    let found = self.member(value, key)?;
                    if found == Value::Absent {
                        return self.outcome_of_missing_value();
                    }
                    if !self.has_shape(&found, shape, frame)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ArgumentShape::List(shapes) => {
                if !self.has_type(value, Type::List) {
                    return Ok(false);
                }
                let items = self.items(value)?;
                if items.len() != shapes.len() {
                    return Ok(false);
                }
                for (item, shape) in items.iter().zip(shapes) {
                    if !self.has_shape(item, shape, frame)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ArgumentShape::Text(exact, regex) => {
                let value = self.resolve(value)?;
                let Some(text) = value.as_text() else { return Ok(false) };
                // One step pays for 16 bytes. The text matches if it is equal, or if the pattern matches it.
                self.spend(text.len() / 16)?;
                if **exact == *text {
                    return Ok(true);
                }
                let Some(regex) = regex else { return Ok(false) };
                self.spend(regex.cost(text))?;
                regex.is_match(text)
            }
            ArgumentShape::Equal(expected) => self.is_value(value, expected),
            ArgumentShape::Kind(function) => {
                let found = self.call(*function, std::slice::from_ref(value))?;
                Ok(found.is_true())
            }
            ArgumentShape::Finds(kind) => (self.functions.finds)(self, kind, value),
            ArgumentShape::Computed(ex) => {
                let expected = self.evaluate(ex, frame)?;
                let expected = self.resolve(&expected)?;
                self.is_value(value, &expected)
            }
        }
    }

    /// Returns whether a value equals an expected one. A missing or null value equals only an expected `None`; compared
    /// with any other value, [`outcome_of_missing_value`](Self::outcome_of_missing_value) decides: false in a rule, and
    /// an error in a statement that grants something.
    fn is_value(&mut self, value: &Value, expected: &Value) -> Result<bool> {
        if !expected.is_absent_or_none() && self.is_null(value) {
            return self.outcome_of_missing_value();
        }
        Ok(self.resolve(value)?.equals(expected))
    }
}

/// Returns the number of bytes that a comparison of two values may read: for two texts of equal length their length,
/// since they may have to be read to the end. Otherwise 0: texts of different lengths differ, and no other value is
/// compared as a text.
fn comparison_cost(left: &Value, right: &Value) -> usize {
    match (left.as_text(), right.as_text()) {
        (Some(left), Some(right)) if left.len() == right.len() => left.len(),
        _ => 0,
    }
}

/// Returns the text of a text block of a message, or the address of an image block, in OpenAI's format; `None` for
/// another value.
fn block_text(block: &Value) -> Option<&str> {
    let Value::Dict(entries) = block else { return None };
    let field = |key: &str| entries.iter().find(|(known, _)| **known == *key).map(|(_, value)| value);
    match (field("type")?.as_text()?, field("text"), field("image_url")) {
        ("text", Some(text), _) => text.as_text(),
        ("image_url", _, Some(Value::Dict(image))) => {
            image.iter().find(|(key, _)| **key == *"url").and_then(|(_, url)| url.as_text())
        }
        _ => None,
    }
}

/// Orders two texts or two numbers.
///
/// # Errors
/// If the values are of other types, or one of them is not a number (NaN).
fn order(left: &Value, right: &Value) -> Result<std::cmp::Ordering> {
    let ordering = match (left, right) {
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        // As floating-point numbers, neighbouring large integers would be equal.
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        _ => match (left.as_number(), right.as_number()) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => None,
        },
    };
    ordering.ok_or_else(|| {
        EvalError::Type(format!(
            "values of the types {} and {} cannot be compared by `<` or `>`; compare two numbers or two texts",
            left.type_name(),
            right.type_name()
        ))
    })
}

/// Converts the count of a repetition, such as `3 * "ab"`, to `usize`; a negative one to 0.
pub(super) fn repeat_count(n: i64) -> usize {
    usize::try_from(n.max(0)).unwrap_or(usize::MAX)
}

/// Evaluates an arithmetic operator as Python does. `+` also concatenates two texts or lists, and `*` repeats one.
/// Integers stay exact where they fit, a division yields a floating-point number, and the result of `%` has the sign of
/// the divisor. A missing operand yields a missing value; a result such as infinity, after a division by zero, is an
/// error.
pub(super) fn arithmetic(operator: Arithmetic, left: &Value, right: &Value) -> Result<Value> {
    let symbol = match operator {
        Arithmetic::Add => "+",
        Arithmetic::Subtract => "-",
        Arithmetic::Multiply => "*",
        Arithmetic::Divide => "/",
        Arithmetic::Modulo => "%",
        Arithmetic::Power => "**",
    };
    let type_error = || {
        EvalError::Type(format!(
            "`{symbol}` cannot be applied to values of the types {} and {}; convert one of them with `int`, `float` or `str`",
            left.type_name(),
            right.type_name()
        ))
    };
    // Missing operands, texts and lists.
    match (operator, left, right) {
        (_, Value::Absent, _) | (_, _, Value::Absent) => return Ok(Value::Absent),
        (Arithmetic::Add, Value::Str(a), Value::Str(b)) => return Ok(Value::text(format!("{a}{b}"))),
        (Arithmetic::Add, Value::List(a), Value::List(b)) => {
            return Ok(Value::list(a.iter().chain(b.iter()).cloned()));
        }
        (Arithmetic::Multiply, Value::Str(text), Value::Int(n))
        | (Arithmetic::Multiply, Value::Int(n), Value::Str(text)) => {
            return Ok(Value::text(text.repeat(repeat_count(*n))));
        }
        (Arithmetic::Multiply, Value::List(items), Value::Int(n))
        | (Arithmetic::Multiply, Value::Int(n), Value::List(items)) => {
            return Ok(Value::list((0..repeat_count(*n)).flat_map(|_| items.iter().cloned())));
        }
        _ => {}
    }
    // Two integers, if the exact result is an integer that fits.
    if let (Value::Int(a), Value::Int(b)) = (left, right) {
        let exact = match operator {
            Arithmetic::Add => a.checked_add(*b),
            Arithmetic::Subtract => a.checked_sub(*b),
            Arithmetic::Multiply => a.checked_mul(*b),
            Arithmetic::Modulo => a
                .checked_rem(*b)
                .map(|rest| if rest != 0 && (rest < 0) != (*b < 0) { rest + b } else { rest }),
            Arithmetic::Power => u32::try_from(*b).ok().and_then(|b| a.checked_pow(b)),
            // Always a floating-point number, as in Python.
            Arithmetic::Divide => None,
        };
        if let Some(exact) = exact {
            return Ok(Value::Int(exact));
        }
    }
    // Everything else as floating-point numbers.
    let (a, b) = (left.as_number().ok_or_else(type_error)?, right.as_number().ok_or_else(type_error)?);
    let value = match operator {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide => a / b,
        Arithmetic::Modulo => match a % b {
            rest if rest != 0.0 && (rest < 0.0) != (b < 0.0) => rest + b,
            rest => rest,
        },
        Arithmetic::Power => a.powf(b),
    };
    if value.is_finite() {
        Ok(Value::Float(value))
    } else {
        Err(EvalError::Type(
            "the result of the calculation is infinite or not a number; test first whether a divisor is 0, a number is too large, or the base of a power is negative"
                .to_owned(),
        ))
    }
}
