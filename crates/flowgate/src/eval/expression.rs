//! Evaluates one compiled expression: dispatches by the kind of the expression, and evaluates the kinds that no other
//! file of [`eval`](super) evaluates. It also replaces references to parts of events by their values, and records that
//! these regions are read. The search for assignments, the monitor and the rules call [`Evaluator::evaluate`].

use std::ops::Range;
use std::sync::Arc;

use super::compare::{arithmetic, repeat_count};
use super::missing_values::missing_value_message;
use super::{
    BYTES_PER_STEP, EvalError, Evaluator, Frame, ITEM, MAX_DEPTH, MissingValueMode, RegionRead, Result,
    Value, set,
};
use crate::policy::plan::{CompiledExpr, RegexUse, Type};
use crate::policy::regex::{Pattern, weight};
use crate::policy::syntax::Arithmetic;
use crate::trace::NodeContent;

/// The cost of compiling a pattern that is computed during the evaluation, in steps of fuel, in addition to the cost of
/// its length.
const COMPILING: usize = 2_000;
/// The cost of asking an extern predicate, in steps of fuel.
const ASKING_EXTERN: usize = 2_000;
/// Maximum number of matches of a pattern in one text; a rule that finds more fails.
const MAX_FOUND: usize = 10_000;

impl Evaluator<'_> {
    /// Evaluates an expression. In a statement that grants something, an expression whose value is missing fails with
    /// [`EvalError::Missing`], so that omitting a value cannot grant anything; see [`MissingValueMode::FailsAll`].
    /// `frame` contains the values of variables.
    pub(crate) fn evaluate(&mut self, ex: &CompiledExpr, frame: &mut Frame) -> Result<Value> {
        self.spend(1)?;
        let value = self.value_of(ex, frame)?;
        if self.missing == MissingValueMode::FailsAll
            // A `None` that the policy itself writes is not missing.
            && !matches!(ex, CompiledExpr::Constant(_))
            && self.is_null(&value)
        {
            return Err(EvalError::Missing);
        }
        Ok(value)
    }

    /// Evaluates an expression by its kind; `evaluate` checks whether the value is missing. `frame` contains the values
    /// of the variables. A part of an event stays a reference to its region until it is resolved.
    fn value_of(&mut self, ex: &CompiledExpr, frame: &mut Frame) -> Result<Value> {
        match ex {
            CompiledExpr::Constant(value) => Ok(value.clone()),
            CompiledExpr::Slot(slot) => match frame.get(*slot) {
                Some(Value::Failed(error)) => Err((**error).clone()),
                value => Ok(value.cloned().unwrap_or(Value::Absent)),
            },
            CompiledExpr::Parameter(name) => match self.parameters.get(name) {
                Some(value) => Ok(value.clone()),
                None => Err(EvalError::MissingParameter(name.to_string())),
            },
            CompiledExpr::Parameters => Ok(self.parameters.as_dict()),
            CompiledExpr::Format(parts) => {
                let mut text = String::new();
                for part in parts {
                    let value = self.evaluate_resolved(part, frame)?;
                    let before = text.len();
                    value.print(&mut text);
                    self.charge_bytes(text.len() - before)?;
                }
                Ok(Value::text(text))
            }
            CompiledExpr::Parts(holder, ty) => {
                let holder = self.evaluate(holder, frame)?;
                self.parts(&holder, *ty).map(Value::list)
            }
            CompiledExpr::Proposes(pair) => {
                let [call, message] = &**pair;
                let (call, message) = (self.evaluate(call, frame)?, self.evaluate(message, frame)?);
                let (Value::Event(call), Value::Event(message)) = (call, message) else {
                    return Ok(Value::Bool(false));
                };
                let proposing = self.trace.event(call).and_then(|call| call.message);
                Ok(Value::Bool(proposing == Some(message)))
            }
            CompiledExpr::IsInstance(value, types) => {
                let value = self.evaluate(value, frame)?;
                Ok(Value::Bool(types.iter().any(|ty| self.has_type(&value, *ty))))
            }
            CompiledExpr::CompatMethod(object, name, arguments) => {
                let object = self.evaluate(object, frame)?;
                let arguments = self.evaluate_all(arguments, frame)?;
                self.compat_method(object, name, arguments)
            }
            CompiledExpr::Quantified(block) => self.evaluate_quantified(block, frame),
            CompiledExpr::Member(object, name) => {
                let object = self.evaluate(object, frame)?;
                self.member(&object, name)
            }
            CompiledExpr::Index(object, index) => {
                let object = self.evaluate(object, frame)?;
                let index = self.evaluate(index, frame)?;
                let index = self.resolve(&index)?;
                self.index(&object, &index)
            }
            CompiledExpr::Slice(object, from, to) => {
                self.slice(object, from.as_deref(), to.as_deref(), frame)
            }
            CompiledExpr::List(items) => Ok(Value::list(self.evaluate_all(items, frame)?)),
            CompiledExpr::Dict(entries) => {
                let pairs = entries.iter().map(|(key, ex)| Ok((Arc::clone(key), self.evaluate(ex, frame)?)));
                Ok(Value::Dict(pairs.collect::<Result<_>>()?))
            }
            CompiledExpr::Call(function, arguments) => {
                let arguments = self.evaluate_all(arguments, frame)?;
                self.call(*function, &arguments)
            }
            CompiledExpr::Regex(how, regex, text) => {
                let text = self.evaluate(text, frame)?;
                self.search_text(*how, regex, &text)
            }
            CompiledExpr::ComputedRegex(how, pair) => {
                let [source, text] = &**pair;
                let source = self.evaluate_resolved(source, frame)?;
                let text = self.evaluate(text, frame)?;
                let Some(source) = source.as_text() else {
                    return self.outcome_without_text(&source, "a pattern");
                };
                self.spend(COMPILING + weight(source))?;
                let pattern = Pattern::new(source, how.extent()).map_err(|problem| {
                    EvalError::Type(format!(
                        "the pattern is malformed: {problem}; write it in the syntax of Python's `re`"
                    ))
                })?;
                self.search_text(*how, &pattern, &text)
            }
            CompiledExpr::Predicate(index, arguments) => {
                let arguments = self.evaluate_all(arguments, frame)?;
                self.evaluate_predicate(*index, arguments)
            }
            CompiledExpr::Extern(index, arguments) => {
                let arguments = self.evaluate_all(arguments, frame)?;
                self.evaluate_extern(*index, &arguments)
            }
            CompiledExpr::Not(inner) => {
                let value = self.evaluate(inner, frame)?;
                Ok(Value::Bool(!self.truth(&value)?))
            }
            CompiledExpr::Negate(inner) => match self.evaluate_resolved(inner, frame)? {
                Value::Int(n) => Ok(n.checked_neg().map_or(Value::Float(-(n as f64)), Value::Int)),
                Value::Float(x) => Ok(Value::Float(-x)),
                value if value.is_absent_or_none() && self.needs_values() => {
                    Err(self.missing_value_error(|| missing_value_message("`-`")))
                }
                Value::Absent => Ok(Value::Absent),
                other => Err(EvalError::Type(format!(
                    "the operand of `-` has the type {}, not int or float; convert a text with `int` or `float`",
                    other.type_name()
                ))),
            },
            CompiledExpr::And(items) => {
                // An operand that cannot be evaluated (`trouble`) does not matter if another one decides the result.
                let mut trouble = None;
                for item in items {
                    match self.evaluate_resolved(item, frame) {
                        Ok(value) if !value.is_true() => return Ok(value),
                        Ok(_) => {}
                        Err(EvalError::Fuel) => return Err(EvalError::Fuel),
                        Err(error) => trouble = trouble.or(Some(error)),
                    }
                }
                trouble.map_or(Ok(Value::Bool(true)), Err)
            }
            CompiledExpr::Or(items) => {
                // As in Python, the result is the first operand that holds, otherwise the last one. An operand that
                // cannot be evaluated (`trouble`) does not matter if another one holds.
                let mut last = Value::Bool(false);
                let mut trouble = None;
                let mut first_true = None;
                for item in items {
                    let value = match self.evaluate_resolved(item, frame) {
                        Ok(value) => value,
                        Err(EvalError::Fuel) => return Err(EvalError::Fuel),
                        Err(error) => {
                            trouble = trouble.or(Some(error));
                            continue;
                        }
                    };
                    if value.is_true() {
                        // While locations are recorded, all operands that hold are evaluated.
                        if self.marks.is_none() {
                            return Ok(value);
                        }
                        first_true = first_true.or(Some(value.clone()));
                    }
                    // One missing operand must not become a definite `false`.
                    if last != Value::Absent {
                        last = value;
                    }
                }
                match (first_true, trouble) {
                    (Some(value), _) => Ok(value),
                    (None, Some(error)) => Err(error),
                    (None, None) => Ok(last),
                }
            }
            CompiledExpr::Arithmetic(operator, left, right) => {
                let (left, right) =
                    (self.evaluate_resolved(left, frame)?, self.evaluate_resolved(right, frame)?);
                if self.needs_values() && (left.is_absent_or_none() || right.is_absent_or_none()) {
                    return Err(self.missing_value_error(|| missing_value_message("arithmetic")));
                }
                // The memory of the result is charged before it is allocated.
                let byte_size = |value: &Value| match value {
                    Value::Str(text) => text.len(),
                    Value::List(items) => items.len().saturating_mul(ITEM),
                    _ => 0,
                };
                self.charge_bytes(match (operator, &left, &right) {
                    (Arithmetic::Multiply, Value::Int(n), other)
                    | (Arithmetic::Multiply, other, Value::Int(n)) => {
                        byte_size(other).saturating_mul(repeat_count(*n))
                    }
                    _ => byte_size(&left).saturating_add(byte_size(&right)),
                })?;
                arithmetic(*operator, &left, &right)
            }
            CompiledExpr::Compare(operator, left, right) => self.compare(*operator, left, right, frame),
            CompiledExpr::IsTool(event, pattern, shape) => {
                let event = self.evaluate(event, frame)?;
                self.is_tool(&event, *pattern, shape.as_ref(), frame).map(Value::Bool)
            }
            CompiledExpr::Listed(value, source, form) => {
                let value = self.evaluate(value, frame)?;
                self.is_listed(&value, source, *form, frame).map(Value::Bool)
            }
            CompiledExpr::Choice(parts) => {
                let [condition, value, other] = &**parts;
                let condition = self.evaluate(condition, frame)?;
                if self.truth(&condition)? {
                    self.evaluate(value, frame)
                } else {
                    self.evaluate(other, frame)
                }
            }
            CompiledExpr::Comprehension { slot, list, condition, value } => {
                let list = self.evaluate(list, frame)?;
                let mut results = Vec::new();
                for item in self.items(&list)? {
                    set(frame, *slot, item);
                    let keep = match condition {
                        Some(condition) => {
                            let value = self.evaluate(condition, frame)?;
                            self.truth(&value)?
                        }
                        None => true,
                    };
                    if keep {
                        self.charge_bytes(ITEM)?;
                        results.push(self.evaluate(value, frame)?);
                    }
                }
                Ok(Value::list(results))
            }
        }
    }

    /// Evaluates `match`, `fullmatch` or `find`, as `how` says, on a value. The first two yield a truth value. `find`
    /// searches each text in the value, yields the list of matches, and records them as locations if the texts are
    /// parts of events.
    fn search_text(&mut self, how: RegexUse, pattern: &Pattern, value: &Value) -> Result<Value> {
        if let (RegexUse::Find, Value::Texts(_) | Value::Node(..) | Value::ToolName(_)) = (how, value) {
            let mut matches = Vec::new();
            let pieces = self.pieces(value)?;
            // A list or a map without texts has no matches; any other value without text is missing or of another
            // type.
            if pieces.is_empty() {
                let value = self.resolve(value)?;
                if !matches!(value, Value::Texts(_) | Value::List(_) | Value::Dict(_)) {
                    return self.outcome_without_text(&value, "a pattern");
                }
            }
            for piece in pieces {
                for range in self.find(pattern, &piece.text)? {
                    matches.extend(piece.text.get(range.clone()).map(Value::text));
                    self.mark_bytes(piece.location, range);
                }
            }
            return Ok(Value::list(matches));
        }
        // Any other value must be one text. For `find`, its matches are not recorded as locations.
        let text = self.resolve(value)?;
        let Some(text) = text.to_text() else { return self.outcome_without_text(&text, "a pattern") };
        Ok(match how {
            RegexUse::Match | RegexUse::FullMatch { .. } => {
                self.spend(pattern.cost(&text))?;
                Value::Bool(pattern.is_match(&text)?)
            }
            RegexUse::Find => {
                let matches = self.find(pattern, &text)?;
                Value::list(matches.into_iter().filter_map(|range| text.get(range).map(Value::text)))
            }
        })
    }

    /// Returns the byte ranges of all matches of a pattern in a text. Spends the fuel for the search, which begins
    /// again after each match, and for the result.
    ///
    /// # Errors
    /// If there are more than [`MAX_FOUND`] matches, if the search exceeds a limit of backtracking, or if the fuel is
    /// spent.
    fn find(&mut self, pattern: &Pattern, text: &str) -> Result<Vec<Range<usize>>> {
        self.spend(pattern.cost(text))?;
        let ranges = pattern.find(text, MAX_FOUND + 1)?;
        if ranges.len() > MAX_FOUND {
            return Err(EvalError::Type(format!(
                "the pattern matches more than {MAX_FOUND} times in a text; write a pattern that matches less often"
            )));
        }
        let cost = ranges.iter().map(|range| pattern.cost_after_match(text, range.end)).sum();
        self.spend(cost)?;
        self.charge_bytes(ranges.iter().map(|range| ITEM + range.len()).sum())?;
        Ok(ranges)
    }

    /// Evaluates the extern predicate with this index in the plan: checks the types of its arguments, asks for the
    /// answer, and checks the type of the answer. If an argument is missing although its parameter has a type other
    /// than `any`, the predicate is not asked: the result is an error, or in the dialect of invariant-ai a missing
    /// value.
    fn evaluate_extern(&mut self, index: usize, arguments: &[Value]) -> Result<Value> {
        // The compiler has declared the predicate in the same plan, so `else` is unreachable.
        let Some(declared) = self.plan.externs.get(index) else { return Ok(Value::Absent) };
        let name = &declared.name;
        // The arguments in the form in which they are sent.
        let mut json_arguments = Vec::with_capacity(arguments.len());
        for ((parameter, ty), value) in declared.parameters.iter().zip(arguments) {
            let value = self.resolve(value)?;
            if value.is_absent_or_none() && *ty != Type::Any {
                if self.needs_values() {
                    return Err(self.missing_value_error(|| missing_value_message(&format!("`{name}`"))));
                }
                return Ok(Value::Absent);
            }
            // The empty content of a message has only the type `any`. For a parameter of another type, the result is
            // missing, and not an error.
            if value == Value::Silent && *ty != Type::Any {
                return Ok(Value::Absent);
            }
            if !self.has_type(&value, *ty) {
                let (wanted, given) = (ty.name(), value.type_name());
                return Err(EvalError::Type(format!(
                    "the argument `{parameter}` of the extern predicate `{name}` is {given}, not {wanted}; \
                    pass a value of the type {wanted}"
                )));
            }
            json_arguments.push(value.to_json());
        }
        // The answer, recorded or new.
        self.spend(ASKING_EXTERN)?;
        let answer = self.answers.evaluate(name, &json_arguments);
        let answer =
            answer.map_err(|why| EvalError::Type(format!("the extern predicate `{name}` failed: {why}")))?;
        let answer = Value::from_json(&answer);
        if self.has_type(&answer, declared.result) {
            return Ok(answer);
        }
        let (given, wanted) = (answer.type_name(), declared.result.name());
        Err(EvalError::Type(format!(
            "the extern predicate `{name}` answered with a value of the type {given}, not {wanted}; correct \
            its implementation or its declaration"
        )))
    }

    /// Calls the method `name` of a text or a map, as in Python. Only the dialect of invariant-ai has these methods. If
    /// the object is missing, the result is a missing value.
    ///
    /// # Errors
    /// If values of the object's type have no such method, or it takes another number of arguments.
    fn compat_method(&mut self, object: Value, name: &str, arguments: Vec<Value>) -> Result<Value> {
        let resolved = self.resolve(&object)?;
        let methods_of_type: &[&str] = match &resolved {
            Value::Dict(_) => &["keys", "values", "items", "get"],
            Value::Absent | Value::None => return Ok(Value::Absent),
            _ => &["strip", "lower", "upper", "splitlines", "split", "format", "join"],
        };
        let found = self.functions.find(name).filter(|_| methods_of_type.contains(&name));
        let Some((id, function)) = found else {
            // The message is that of invariant-ai.
            return Err(EvalError::Unavailable(format!("Unavailable attribute {name}")));
        };
        // A method is the function of the same name, with the object as its first argument.
        let arguments: Vec<Value> = std::iter::once(object).chain(arguments).collect();
        let (least, most) = function.arguments;
        if !(least..=most).contains(&arguments.len()) {
            // The message counts the arguments as the policy writes them, without the object.
            let [least, most, given] = [least, most, arguments.len()].map(|count| count.saturating_sub(1));
            let expected = match (least, most) {
                (0, 0) => "no arguments".to_owned(),
                (1, 1) => "1 argument".to_owned(),
                _ if least == most => format!("{least} arguments"),
                _ => format!("{least} to {most} arguments"),
            };
            let advice = match (given, most) {
                (1, 0) => "remove it",
                _ if given > most => "remove arguments",
                _ => "add arguments",
            };
            return Err(EvalError::Type(format!(
                "`{name}` takes {expected}, but the call has {given}; {advice}"
            )));
        }
        self.call(id, &arguments)
    }

    /// Evaluates expressions, such as the arguments of a call, in order. Fails at the first one that fails. `frame`
    /// contains the values of variables.
    fn evaluate_all(&mut self, list: &[CompiledExpr], frame: &mut Frame) -> Result<Vec<Value>> {
        list.iter().map(|ex| self.evaluate(ex, frame)).collect()
    }

    /// Evaluates an expression and replaces references to parts of events by their content ([`Self::resolve`]).
    pub(super) fn evaluate_resolved(&mut self, ex: &CompiledExpr, frame: &mut Frame) -> Result<Value> {
        let value = self.evaluate(ex, frame)?;
        self.resolve(&value)
    }

    /// Replaces references to parts of events by the values there, and records a read of each. A list or a map that is
    /// encoded as text becomes that text.
    pub(crate) fn resolve(&mut self, value: &Value) -> Result<Value> {
        self.resolve_nested(value, false)
    }

    /// Replaces references to parts of events, at any depth, by their content, and records a read of each, except of
    /// the name of a tool; returns other values unchanged. `is_nested` states whether the value is within a list or a
    /// map. Spends fuel for the memory of a copied list or map. Within a list or a map (`is_nested`), this also holds
    /// for a copied text, which is kept as long as the list or map.
    fn resolve_nested(&mut self, value: &Value, is_nested: bool) -> Result<Value> {
        let (event, node) = match value {
            Value::Node(event, node) | Value::Part(_, event, node) => (event, node),
            Value::ToolName(event) => {
                let tool = self.trace.event(*event).and_then(|event| event.tool());
                return Ok(tool.map_or(Value::Absent, |tool| Value::Str(Arc::clone(&tool.name))));
            }
            Value::Texts(texts) => {
                self.charge_bytes(texts.len().saturating_mul(ITEM))?;
                let resolved =
                    texts.iter().map(|text| self.resolve_nested(text, true)).collect::<Result<_>>()?;
                return Ok(Value::Texts(resolved));
            }
            Value::List(items) => {
                self.charge_bytes(items.len().saturating_mul(ITEM))?;
                let resolved =
                    items.iter().map(|item| self.resolve_nested(item, true)).collect::<Result<_>>()?;
                return Ok(Value::List(resolved));
            }
            Value::Dict(entries) => {
                self.charge_bytes(entries.len().saturating_mul(ITEM))?;
                let resolved =
                    entries.iter().map(|(key, item)| Ok((Arc::clone(key), self.resolve_nested(item, true)?)));
                return Ok(Value::Dict(resolved.collect::<Result<_>>()?));
            }
            value => return Ok(value.clone()),
        };
        let Some(document) = self.trace.event(*event).map(|event| &event.document) else {
            return Ok(Value::Absent);
        };
        let Some(found) = document.node(*node) else { return Ok(Value::Absent) };
        // Captured parts of a text are nodes below it; a read of the text includes these parts.
        let deep = !matches!(found.content, NodeContent::Scalar(_)) || found.end > node + 1;
        self.reads.push(RegionRead { event: *event, node: *node, deep });
        if let Some(text) = &found.text {
            self.spend(text.len() / BYTES_PER_STEP)?;
            return Ok(Value::Str(Arc::clone(text)));
        }
        // Each node of the subtree costs four steps.
        self.spend((found.end - node).saturating_mul(4))?;
        if is_nested || deep {
            self.charge_copy(*event, *node)?;
        }
        Ok(match &found.content {
            NodeContent::Scalar(value) => {
                self.spend(value.as_str().map_or(0, str::len) / BYTES_PER_STEP)?;
                Value::from_json(value)
            }
            _ => Value::from_json(&document.to_value(*node)),
        })
    }

    /// Replaces a reference to a part of an event by a copy of its content, and records that the part was read. A text
    /// that encodes a list or a map becomes this list or map, whereas [`Self::resolve`] returns the text. Any other
    /// value is resolved by [`Self::resolve`].
    pub(crate) fn resolve_structure(&mut self, value: &Value) -> Result<Value> {
        let Value::Node(event, node) = value else { return self.resolve(value) };
        let Some(document) = self.trace.event(*event).map(|event| &event.document) else {
            return Ok(Value::Absent);
        };
        self.reads.push(RegionRead { event: *event, node: *node, deep: true });
        // Each node of the subtree costs one step.
        self.spend(document.node(*node).map_or(0, |found| found.end - node))?;
        // The document has parsed such texts already, and `to_value` returns what they encode.
        Ok(Value::from_json(&document.to_value(*node)))
    }

    /// Returns whether a value, which may refer to a part of an event, counts as true: whether it is neither missing,
    /// nor `False`, 0 or empty. Records a read of the part.
    pub(crate) fn truth(&mut self, value: &Value) -> Result<bool> {
        Ok(self.resolve(value)?.is_true())
    }

    /// Returns the result of a text operation on a value that is not a text. An empty content (`Silent`) is its own
    /// result. In the dialect of invariant-ai, a missing value yields a missing one. Any other value is an error, in
    /// which `what` names the operation.
    pub(crate) fn outcome_without_text(&self, value: &Value, what: &str) -> Result<Value> {
        match value {
            Value::Silent => Ok(Value::Silent),
            value if value.is_absent_or_none() && self.needs_values() => {
                Err(self.missing_value_error(|| missing_value_message(what)))
            }
            Value::Absent | Value::None => Ok(Value::Absent),
            other => Err(EvalError::Type(format!(
                "{what} needs text, not {}; convert the value with `str`",
                other.type_name()
            ))),
        }
    }

    /// Evaluates the predicate with this index in the plan to a truth value: whether some assignment of its variables
    /// satisfies its conditions. `arguments` are the values of its parameters, which are its first variables.
    ///
    /// # Errors
    /// If predicates call each other more than [`MAX_DEPTH`] deep, or an assignment cannot be decided.
    fn evaluate_predicate(&mut self, index: usize, arguments: Vec<Value>) -> Result<Value> {
        let plan = self.plan;
        // The compiler has declared the predicate in the same plan, so `else` is unreachable.
        let Some(predicate) = plan.predicates.get(index) else { return Ok(Value::Absent) };
        if self.depth >= MAX_DEPTH {
            return Err(EvalError::Type(format!(
                "calls of predicates are nested more than {MAX_DEPTH} deep at `{}`; write a condition that ends the recursion",
                predicate.name
            )));
        }
        let mut frame = vec![Value::Absent; predicate.query.slots];
        for (slot, value) in arguments.into_iter().enumerate() {
            set(&mut frame, slot, value);
        }
        self.depth += 1;
        // `true`: the search ends at the first assignment that satisfies the conditions.
        let result = self.solve(&predicate.ops, &mut frame, &mut |_, _| Ok(true));
        self.depth -= 1;
        result.map(Value::Bool)
    }
}
