//! The value of one expression.

use std::sync::Arc;

use super::{EvalError, Evaluator, Frame, MAX_DEPTH, Missing, Read, Result, Value, set};
use crate::policy::pattern::PatternId;
use crate::policy::plan::{Ex, RegexUse, Shape};
use crate::policy::syntax::{Arithmetic, Comparison};
use crate::trace::{Body, Content, EventId, NodeId, Step, Tool};

impl Evaluator<'_> {
    pub(crate) fn evaluate(&mut self, ex: &Ex, frame: &mut Frame) -> Result<Value> {
        self.spend(1)?;
        match ex {
            Ex::Constant(value) => Ok(value.clone()),
            Ex::Slot(slot) => Ok(frame.get(*slot).cloned().unwrap_or(Value::Absent)),
            Ex::Member(object, name) => {
                let object = self.evaluate(object, frame)?;
                self.member(&object, name)
            }
            Ex::Index(object, index) => {
                let object = self.evaluate(object, frame)?;
                let index = self.evaluate(index, frame)?;
                let index = self.resolve(&index)?;
                self.index(&object, &index)
            }
            Ex::Slice(object, from, to) => self.slice(object, from.as_deref(), to.as_deref(), frame),
            Ex::List(items) => Ok(Value::list(self.all(items, frame)?)),
            Ex::Dict(entries) => {
                let pairs = entries.iter().map(|(key, ex)| Ok((Arc::clone(key), self.evaluate(ex, frame)?)));
                Ok(Value::Dict(pairs.collect::<Result<_>>()?))
            }
            Ex::Call(builtin, arguments) => {
                let arguments = self.all(arguments, frame)?;
                builtin.call(self, &arguments)
            }
            Ex::Regex(how, regex, text) => {
                let text = self.evaluate(text, frame)?;
                let text = self.resolve(&text)?;
                let Some(text) = text.as_text() else { return self.not_text(&text, "a pattern") };
                self.spend(text.len() / 16)?;
                Ok(match how {
                    RegexUse::Match => Value::Bool(regex.is_match(text)),
                    RegexUse::Find => {
                        Value::list(regex.find_iter(text).map(|found| Value::text(found.as_str())))
                    }
                })
            }
            Ex::Predicate(index, arguments) => {
                let arguments = self.all(arguments, frame)?;
                self.predicate(*index, arguments)
            }
            Ex::Not(inner) => {
                let value = self.evaluate(inner, frame)?;
                match self.resolve(&value)? {
                    Value::Absent if self.missing == Missing::FailsAll => {
                        self.missed = true;
                        Ok(Value::Absent)
                    }
                    value => Ok(Value::Bool(!value.is_true())),
                }
            }
            Ex::Negate(inner) => match self.plain(inner, frame)? {
                Value::Int(n) => Ok(n.checked_neg().map_or(Value::Float(-(n as f64)), Value::Int)),
                Value::Float(x) => Ok(Value::Float(-x)),
                Value::Absent => Ok(Value::Absent),
                other => Err(EvalError::Type(format!("{} has no negative", other.type_name()))),
            },
            Ex::And(items) => {
                for item in items {
                    let value = self.plain(item, frame)?;
                    if !value.is_true() {
                        return Ok(value);
                    }
                }
                Ok(Value::Bool(true))
            }
            Ex::Or(items) => {
                let mut last = Value::Bool(false);
                for item in items {
                    let value = self.plain(item, frame)?;
                    if value.is_true() {
                        return Ok(value);
                    }
                    // One missing side must not turn into a definite no.
                    if last != Value::Absent {
                        last = value;
                    }
                }
                Ok(last)
            }
            Ex::Arithmetic(operator, left, right) => {
                let (left, right) = (self.plain(left, frame)?, self.plain(right, frame)?);
                arithmetic(*operator, &left, &right)
            }
            Ex::Compare(operator, left, right) => self.compare(*operator, left, right, frame),
            Ex::IsTool(event, pattern, shape) => {
                let event = self.evaluate(event, frame)?;
                self.is_tool(&event, *pattern, shape.as_ref()).map(Value::Bool)
            }
            Ex::Choice(parts) => {
                let [condition, value, other] = &**parts;
                let condition = self.evaluate(condition, frame)?;
                if self.truth(&condition)? {
                    self.evaluate(value, frame)
                } else {
                    self.evaluate(other, frame)
                }
            }
            Ex::Comprehension { slot, list, condition, value } => {
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
                        results.push(self.evaluate(value, frame)?);
                    }
                }
                Ok(Value::list(results))
            }
        }
    }

    fn all(&mut self, list: &[Ex], frame: &mut Frame) -> Result<Vec<Value>> {
        list.iter().map(|ex| self.evaluate(ex, frame)).collect()
    }

    /// The value of an expression, parts of events resolved.
    fn plain(&mut self, ex: &Ex, frame: &mut Frame) -> Result<Value> {
        let value = self.evaluate(ex, frame)?;
        self.resolve(&value)
    }

    /// Looks at a part of an event: its text if it is spelled as text, else its value.
    pub(crate) fn resolve(&mut self, value: &Value) -> Result<Value> {
        let (event, node) = match value {
            Value::Node(event, node) => (event, node),
            Value::List(items) => {
                let resolved = items.iter().map(|item| self.resolve(item)).collect::<Result<_>>()?;
                return Ok(Value::List(resolved));
            }
            Value::Dict(entries) => {
                let resolved = entries.iter().map(|(key, item)| Ok((Arc::clone(key), self.resolve(item)?)));
                return Ok(Value::Dict(resolved.collect::<Result<_>>()?));
            }
            value => return Ok(value.clone()),
        };
        let Some(document) = self.trace.event(*event).map(|event| &event.document) else {
            return Ok(Value::Absent);
        };
        let Some(found) = document.node(*node) else { return Ok(Value::Absent) };
        // A text with captured parts is more than what is left of it.
        let deep = !matches!(found.content, Content::Scalar(_)) || found.end > node + 1;
        self.reads.push(Read { event: *event, node: *node, deep });
        if let Some(text) = &found.text {
            self.spend(text.len() / 64)?;
            return Ok(Value::Str(Arc::clone(text)));
        }
        self.spend(found.end - node)?;
        Ok(match &found.content {
            Content::Scalar(value) => Value::from_json(value),
            _ => Value::from_json(&document.to_value(*node)),
        })
    }

    /// Like [`Self::resolve`], but a text that spells a list or a map is taken as that.
    pub(crate) fn resolve_structure(&mut self, value: &Value) -> Result<Value> {
        let Value::Node(event, node) = value else { return self.resolve(value) };
        let Some(document) = self.trace.event(*event).map(|event| &event.document) else {
            return Ok(Value::Absent);
        };
        self.reads.push(Read { event: *event, node: *node, deep: true });
        self.spend(document.node(*node).map_or(0, |found| found.end - node))?;
        Ok(Value::from_json(&document.to_value(*node)))
    }

    pub(crate) fn truth(&mut self, value: &Value) -> Result<bool> {
        Ok(self.resolve(value)?.is_true())
    }

    /// What asking for text gives where there is none.
    pub(crate) fn not_text(&self, value: &Value, what: &str) -> Result<Value> {
        match value {
            Value::Absent | Value::None => Ok(Value::Absent),
            other => Err(EvalError::Type(format!("{what} needs text, not {}", other.type_name()))),
        }
    }

    fn predicate(&mut self, index: usize, arguments: Vec<Value>) -> Result<Value> {
        let plan = self.plan;
        let Some(predicate) = plan.predicates.get(index) else { return Ok(Value::Absent) };
        if self.depth >= MAX_DEPTH {
            return Err(EvalError::Type(format!("`{}` calls itself too deep", predicate.name)));
        }
        let mut frame = vec![Value::Absent; predicate.query.slots];
        for (slot, value) in arguments.into_iter().enumerate() {
            set(&mut frame, slot, value);
        }
        self.depth += 1;
        let result = self.solve(&predicate.ops, &mut frame, &|_| None, &mut |_, _| Ok(true));
        self.depth -= 1;
        result.map(Value::Bool)
    }

    fn member(&mut self, object: &Value, name: &str) -> Result<Value> {
        match object {
            Value::Absent | Value::None => Ok(Value::Absent),
            Value::Dict(entries) => Ok(entries
                .iter()
                .find(|(key, _)| **key == *name)
                .map_or(Value::Absent, |(_, value)| value.clone())),
            Value::Node(event, node) => {
                let is_text =
                    self.trace.event(*event).and_then(|e| e.document.node(*node)).is_some_and(|node| {
                        node.text.is_none()
                            && matches!(&node.content, Content::Scalar(value) if value.is_string())
                    });
                if is_text {
                    let text = self.resolve(object)?;
                    return self.member(&text, name);
                }
                Ok(self.child(*event, *node, name))
            }
            Value::Event(event) => self.event_member(*event, name),
            Value::Function(event) => match name {
                "name" => self.event_member(*event, "name"),
                "arguments" => Ok(self.child(*event, 0, "arguments")),
                _ => Ok(Value::Absent),
            },
            // Asking a text for a field finds the field if the text is JSON.
            Value::Str(text) => Ok(crate::json::parse(text, crate::json::Numbers::Any)
                .ok()
                .and_then(|json| json.get(name).map(Value::from_json))
                .unwrap_or(Value::Absent)),
            _ => Ok(Value::Absent),
        }
    }

    fn child(&mut self, event: EventId, node: NodeId, key: &str) -> Value {
        let found = self.trace.event(event).and_then(|e| e.document.key(node, key));
        match found {
            Some(child) => Value::Node(event, child),
            None => {
                // That a key is missing is something the structure tells.
                self.reads.push(Read { event, node, deep: false });
                Value::Absent
            }
        }
    }

    fn event_member(&mut self, id: EventId, name: &str) -> Result<Value> {
        let Some(event) = self.trace.event(id) else { return Ok(Value::Absent) };
        if self.missing == Missing::FailsAll && matches!(name, "name" | "tool") {
            // A name alone identifies no tool: a statement that grants something asks `is tool:`.
            self.missed = true;
            return Ok(Value::Absent);
        }
        let tool = |tool: Option<&Tool>| tool.cloned();
        let named = |tool: Option<Tool>| match (name, tool) {
            ("name", Some(tool)) => Value::text(&tool.name),
            ("tool", Some(tool)) => Value::text(tool.to_string()),
            ("server", Some(tool)) => tool.server.map_or(Value::None, Value::text),
            _ => Value::Absent,
        };
        Ok(match (&event.body, name) {
            (Body::Call(call), "name" | "tool" | "server") => named(tool(Some(&call.tool))),
            (Body::Call(call), "id") => Value::text(&call.id),
            (Body::Call(_), "function") => Value::Function(id),
            (Body::Call(_), "type") => Value::text("function"),
            (Body::Output(_), "name" | "tool" | "server") => named(tool(self.tool_of(id))),
            (Body::Output(output), "tool_call_id") => Value::text(&output.call_id),
            (Body::Output(_), "role") => Value::text("tool"),
            (Body::Output(_), "content" | "is_error")
            | (Body::Message(_), "content" | "role")
            | (Body::Call(_), "arguments") => self.child(id, 0, name),
            (Body::Output(_), "structured") => self.child(id, 0, name),
            _ => match event.extra.get(name) {
                Some(extra) => {
                    // Whoever wrote the event wrote its other fields as well.
                    self.reads.push(Read { event: id, node: 0, deep: true });
                    Value::from_json(extra)
                }
                None => Value::Absent,
            },
        })
    }

    /// The tool of a call, or of the call that an output answers.
    fn tool_of(&self, id: EventId) -> Option<&Tool> {
        let event = self.trace.event(id)?;
        event.tool().or_else(|| self.trace.event(event.call?)?.tool())
    }

    /// The call that an output answers.
    pub(crate) fn call_of(&self, value: &Value) -> Value {
        let Value::Event(id) = value else { return Value::Absent };
        self.trace.event(*id).and_then(|event| event.call).map_or(Value::Absent, Value::Event)
    }

    fn index(&mut self, object: &Value, index: &Value) -> Result<Value> {
        match (object, index) {
            (Value::Absent | Value::None, _) | (_, Value::Absent) => Ok(Value::Absent),
            (_, Value::Str(key)) => self.member(object, key),
            (Value::Node(event, node), Value::Int(index)) if *index >= 0 => {
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                let document = self.trace.event(*event).map(|event| &event.document);
                let child = document.and_then(|document| document.child(*node, &Step::Index(index)));
                self.spend(index.min(document.map_or(0, |document| document.nodes().len())))?;
                match child {
                    Some(child) => Ok(Value::Node(*event, child)),
                    None => {
                        self.reads.push(Read { event: *event, node: *node, deep: false });
                        Ok(Value::Absent)
                    }
                }
            }
            (Value::Node(..) | Value::List(_), Value::Int(index)) => {
                let items = self.items(object)?;
                Ok(items.get(position(*index, items.len())).cloned().unwrap_or(Value::Absent))
            }
            (Value::Str(text), Value::Int(index)) => {
                let chars: Vec<char> = text.chars().collect();
                let found = chars.get(position(*index, chars.len()));
                Ok(found.map_or(Value::Absent, |c| Value::text(c.to_string())))
            }
            _ => Err(EvalError::Type(format!("{} has no index", object.type_name()))),
        }
    }

    fn slice(&mut self, object: &Ex, from: Option<&Ex>, to: Option<&Ex>, frame: &mut Frame) -> Result<Value> {
        let object = self.plain(object, frame)?;
        let mut bound = |ex: Option<&Ex>| ex.map(|ex| self.plain(ex, frame)).transpose();
        let (from, to) = (bound(from)?, bound(to)?);
        let range = |length: usize| {
            let at = |value: &Option<Value>, default: usize| match value {
                Some(Value::Int(n)) if *n < 0 => {
                    length.saturating_sub(usize::try_from(n.unsigned_abs()).unwrap_or(length))
                }
                Some(Value::Int(n)) => usize::try_from(*n).unwrap_or(length).min(length),
                _ => default,
            };
            let (from, to) = (at(&from, 0), at(&to, length));
            (from, to.saturating_sub(from))
        };
        match object {
            Value::Absent | Value::None => Ok(Value::Absent),
            Value::Str(text) => {
                let (from, count) = range(text.chars().count());
                Ok(Value::text(text.chars().skip(from).take(count).collect::<String>()))
            }
            Value::List(items) => {
                let (from, count) = range(items.len());
                Ok(Value::list(items.iter().skip(from).take(count).cloned()))
            }
            other => Err(EvalError::Type(format!("{} cannot be sliced", other.type_name()))),
        }
    }

    fn compare(&mut self, operator: Comparison, left: &Ex, right: &Ex, frame: &mut Frame) -> Result<Value> {
        if matches!(operator, Comparison::Before | Comparison::RightBefore | Comparison::Influences) {
            let (left, right) = (self.evaluate(left, frame)?, self.evaluate(right, frame)?);
            return self.flows(operator, &left, &right).map(Value::Bool);
        }
        let left = self.evaluate(left, frame)?;
        let right = self.evaluate(right, frame)?;
        let left = self.resolve(&left)?;
        let right = match operator {
            // Membership in a text that spells a list is membership in the list.
            Comparison::In | Comparison::NotIn if left.as_text().is_none() => {
                self.resolve_structure(&right)?
            }
            _ => self.resolve(&right)?,
        };
        let is_none = |value: &Value| matches!(value, Value::None | Value::Absent);
        match operator {
            Comparison::Is => return Ok(Value::Bool(left.equals(&right))),
            Comparison::IsNot => return Ok(Value::Bool(!left.equals(&right))),
            _ => {}
        }
        let missing = left == Value::Absent || right == Value::Absent;
        if missing && self.missing == Missing::FailsAll {
            self.missed = true;
            return Ok(Value::Absent);
        }
        let truth = match operator {
            Comparison::Equal => left.equals(&right),
            Comparison::NotEqual => !left.equals(&right),
            Comparison::In => self.contains(&left, &right)?,
            Comparison::NotIn => !self.contains(&left, &right)?,
            Comparison::ContainsOnly => {
                let items = self.items(&left)?;
                let mut only = true;
                for item in items {
                    only &= self.contains(&item, &right)?;
                }
                only
            }
            _ if is_none(&left) || is_none(&right) => false,
            Comparison::Less => order(&left, &right)?.is_lt(),
            Comparison::LessEqual => order(&left, &right)?.is_le(),
            Comparison::Greater => order(&left, &right)?.is_gt(),
            Comparison::GreaterEqual => order(&left, &right)?.is_ge(),
            _ => false,
        };
        Ok(Value::Bool(truth))
    }

    fn contains(&mut self, item: &Value, container: &Value) -> Result<bool> {
        match (item, container) {
            (_, Value::Absent | Value::None) | (Value::Absent | Value::None, Value::Str(_)) => Ok(false),
            (Value::Str(part), Value::Str(text)) => {
                self.spend(text.len() / 16)?;
                Ok(text.contains(&**part))
            }
            (_, Value::List(items)) => {
                self.spend(items.len())?;
                Ok(items.iter().any(|other| item.equals(other)))
            }
            (Value::Str(key), Value::Dict(entries)) => Ok(entries.iter().any(|(k, _)| k == key)),
            (_, other) => Err(EvalError::Type(format!("{} contains nothing", other.type_name()))),
        }
    }

    fn flows(&mut self, operator: Comparison, left: &Value, right: &Value) -> Result<bool> {
        let (Value::Event(a), Value::Event(b)) = (left, right) else {
            let message =
                "the flow operators stand between a Message, a ToolCall or a ToolOutput and another";
            return Err(EvalError::Type(message.to_owned()));
        };
        self.spend(1)?;
        Ok(match operator {
            Comparison::Before => self.trace.sees(*b, *a),
            Comparison::RightBefore => self.trace.previous(*b) == Some(*a),
            _ => {
                let (influences, steps) = self.trace.influences_in_steps(*a, *b);
                self.spend(steps)?;
                influences
            }
        })
    }

    fn is_tool(&mut self, event: &Value, pattern: PatternId, shape: Option<&Shape>) -> Result<bool> {
        let call = match event {
            Value::Event(id) | Value::Function(id) => *id,
            Value::Absent | Value::None => return Ok(false),
            other => {
                let message =
                    format!("`is tool:` asks about a call or an answer, not about {}", other.type_name());
                return Err(EvalError::Type(message));
            }
        };
        let Some(pattern) = self.plan.patterns.get(pattern.0) else { return Ok(false) };
        if !self.tool_of(call).is_some_and(|tool| pattern.matches(tool)) {
            return Ok(false);
        }
        let Some(shape) = shape else { return Ok(true) };
        let call = match self.call_of(event) {
            Value::Event(call) => call,
            _ => call,
        };
        match self.child(call, 0, "arguments") {
            Value::Node(event, node) => self.has_shape(&Value::Node(event, node), shape),
            _ => Ok(false),
        }
    }

    fn has_shape(&mut self, value: &Value, shape: &Shape) -> Result<bool> {
        self.spend(1)?;
        match shape {
            Shape::Anything => Ok(true),
            Shape::Dict(entries) => {
                for (key, shape) in entries {
                    let found = self.member(value, key)?;
                    if found == Value::Absent || !self.has_shape(&found, shape)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Shape::List(shapes) => {
                let items = self.items(value)?;
                if items.len() != shapes.len() {
                    return Ok(false);
                }
                for (item, shape) in items.iter().zip(shapes) {
                    if !self.has_shape(item, shape)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Shape::Text(exact, regex) => {
                let value = self.resolve(value)?;
                let Some(text) = value.as_text() else { return Ok(false) };
                self.spend(text.len() / 16)?;
                Ok(**exact == *text || regex.as_ref().is_some_and(|regex| regex.is_match(text)))
            }
            Shape::Equal(expected) => Ok(self.resolve(value)?.equals(expected)),
            Shape::Kind(builtin) => {
                let found = builtin.call(self, std::slice::from_ref(value))?;
                Ok(found.is_true())
            }
        }
    }
}

fn position(index: i64, length: usize) -> usize {
    let from_end =
        |n: u64| length.checked_sub(usize::try_from(n).unwrap_or(usize::MAX)).unwrap_or(usize::MAX);
    usize::try_from(index).unwrap_or_else(|_| from_end(index.unsigned_abs()))
}

fn order(left: &Value, right: &Value) -> Result<std::cmp::Ordering> {
    let ordering = match (left, right) {
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        _ => match (left.as_number(), right.as_number()) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => None,
        },
    };
    ordering.ok_or_else(|| {
        EvalError::Type(format!("{} and {} have no order", left.type_name(), right.type_name()))
    })
}

fn arithmetic(operator: Arithmetic, left: &Value, right: &Value) -> Result<Value> {
    let type_error =
        || EvalError::Type(format!("{} and {} cannot be computed with", left.type_name(), right.type_name()));
    match (operator, left, right) {
        (_, Value::Absent, _) | (_, _, Value::Absent) => return Ok(Value::Absent),
        (Arithmetic::Add, Value::Str(a), Value::Str(b)) => return Ok(Value::text(format!("{a}{b}"))),
        (Arithmetic::Add, Value::List(a), Value::List(b)) => {
            return Ok(Value::list(a.iter().chain(b.iter()).cloned()));
        }
        _ => {}
    }
    if let (Value::Int(a), Value::Int(b)) = (left, right) {
        let exact = match operator {
            Arithmetic::Add => a.checked_add(*b),
            Arithmetic::Subtract => a.checked_sub(*b),
            Arithmetic::Multiply => a.checked_mul(*b),
            Arithmetic::Modulo => a.checked_rem_euclid(*b),
            Arithmetic::Power => u32::try_from(*b).ok().and_then(|b| a.checked_pow(b)),
            Arithmetic::Divide => None,
        };
        if let Some(exact) = exact {
            return Ok(Value::Int(exact));
        }
    }
    let (a, b) = (left.as_number().ok_or_else(type_error)?, right.as_number().ok_or_else(type_error)?);
    let value = match operator {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide => a / b,
        Arithmetic::Modulo => a % b,
        Arithmetic::Power => a.powf(b),
    };
    if value.is_finite() {
        Ok(Value::Float(value))
    } else {
        Err(EvalError::Type("the result is no number".to_owned()))
    }
}
