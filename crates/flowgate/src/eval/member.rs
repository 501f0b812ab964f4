//! Evaluates access to parts of values: fields of events and maps, items of lists, and slices. Decides which fields
//! events of each kind have. `Evaluator::evaluate` calls these methods for each field, index and slice of an
//! expression.

use super::{
    BYTES_PER_STEP, EvalError, Evaluator, Frame, ITEM, MissingValueMode, RegionKind, RegionRead, Result,
    Value,
};
use crate::policy::dialect::Dialect;
use crate::policy::plan::CompiledExpr;
use crate::trace::{EventBody, EventId, NodeContent, NodeId, PathStep, Status, Tool, sole_text};

impl Evaluator<'_> {
    /// Evaluates `object.name`, the access to a field of an event, of a map, or of a text that encodes a map. The
    /// result is a missing value if there is no such field. A missing object and a number have no fields. The empty
    /// content of a message (`Silent`) yields itself.
    pub(super) fn member(&mut self, object: &Value, name: &str) -> Result<Value> {
        match object {
            Value::Absent | Value::None => Ok(Value::Absent),
            Value::Silent => Ok(Value::Silent),
            Value::Dict(entries) => {
                // One step of fuel pays for the comparison of 64 keys.
                self.spend(entries.len() / 64)?;
                let found = entries.iter().find(|(key, _)| **key == *name);
                Ok(found.map_or(Value::Absent, |(_, value)| value.clone()))
            }
            Value::Texts(texts) => match &**texts {
                // A field is looked up in a single text; of several texts, it would be ambiguous which one is meant.
                [only] => self.member(only, name),
                _ => Ok(Value::Absent),
            },
            Value::Part(part, event, node) => Ok(self.part_member(*part, *event, *node, name)),
            Value::Node(event, node) => {
                if self.is_text(*event, *node) {
                    let text = self.resolve(object)?;
                    return self.member(&text, name);
                }
                Ok(self.child(*event, *node, name))
            }
            Value::Event(event) => self.event_member(*event, name),
            // The `function` of a call, as OpenAI's format nests the name of the tool and the arguments.
            Value::Function(event) => match name {
                // In a rule, the result is a reference, so that a finding can name the location.
                "name" if self.missing == MissingValueMode::IsNone => Ok(Value::ToolName(*event)),
                "name" => self.event_member(*event, "name"),
                "arguments" => self.arguments(*event),
                _ => self.unknown_field("Function", &["name", "arguments"], name),
            },
            Value::ToolName(_) => {
                let text = self.resolve(object)?;
                self.member(&text, name)
            }
            // A field of a text is looked up in the JSON that the text encodes.
            Value::Str(text) => {
                // A parsed number takes far more memory than its digits.
                self.charge_bytes(text.len().saturating_mul(16))?;
                Ok(crate::json::parse(text, crate::json::Numbers::Any)
                    .ok()
                    .and_then(|json| json.get(name).map(Value::from_json))
                    .unwrap_or(Value::Absent))
            }
            _ => Ok(Value::Absent),
        }
    }

    /// Returns the value under a key of a map in an event, as a reference. If there is no such key, the result is a
    /// missing value, and the structure of the map counts as read.
    pub(super) fn child(&mut self, event: EventId, node: NodeId, key: &str) -> Value {
        let document = self.trace.event(event).map(|event| &event.document);
        // Keys are compared one by one: one step of fuel pays for 64 nodes. This function cannot fail, so if the fuel
        // does not suffice, all of it is spent, and the next step fails.
        let node_count =
            document.and_then(|document| document.node(node)).map_or(0, |found| found.end - node);
        *self.fuel = self.fuel.saturating_sub(u64::try_from(node_count / 64).unwrap_or(u64::MAX));
        let found = document.and_then(|document| document.key(node, key));
        match found {
            Some(child) => Value::Node(event, child),
            None => {
                // The absence of a key is information that the structure carries.
                self.reads.push(RegionRead { event, node, deep: false });
                Value::Absent
            }
        }
    }

    /// Returns whether a node is text that encodes no other value.
    fn is_text(&self, event: EventId, node: NodeId) -> bool {
        self.trace.event(event).and_then(|event| event.document.node(node)).is_some_and(|node| {
            node.text.is_none() && matches!(&node.content, NodeContent::Scalar(value) if value.is_string())
        })
    }

    /// Returns whether a node is the content of a message or an output that is a list of one text block. Such content
    /// is stored as the text alone, so access to its blocks needs special treatment.
    pub(super) fn is_sole_block(&self, event: EventId, node: NodeId) -> bool {
        let Some(event) = self.trace.event(event) else { return false };
        let content = match &event.body {
            EventBody::Message(message) => &message.content,
            EventBody::Output(output) => &output.content,
            _ => return false,
        };
        sole_text(content).is_some() && event.document.key(0, "content") == Some(node)
    }

    /// Returns the field `name` of a content block (`text`, `type`) or of a tool parameter (`name`, `required`, or a
    /// key of its schema). `part` states which of the two the node is. Records a read of the regions on which the
    /// result depends.
    fn part_member(&mut self, part: RegionKind, event: EventId, node: NodeId, name: &str) -> Value {
        let document = self.trace.event(event).map(|event| &event.document);
        let is_sole = self.is_sole_block(event, node);
        let step = document.and_then(|document| document.node(node)).map(|node| node.step.clone());
        match (part, name, step) {
            (RegionKind::Parameter, "name", Some(PathStep::Key(key))) => {
                self.reads.push(RegionRead { event, node, deep: false });
                Value::text(key)
            }
            (RegionKind::Parameter, "required", Some(PathStep::Key(key))) => {
                let Value::Node(_, required) = self.child(event, 0, "inputSchema") else {
                    return Value::Absent;
                };
                // A schema without the list `required` requires no parameter.
                let Value::Node(_, required) = self.child(event, required, "required") else {
                    return Value::Bool(false);
                };
                self.reads.push(RegionRead { event, node: required, deep: true });
                let list = document.map(|document| document.to_value(required)).unwrap_or_default();
                let names = list.as_array().map_or(&[] as &[serde_json::Value], Vec::as_slice);
                Value::Bool(names.iter().any(|name| name.as_str() == Some(&*key)))
            }
            // A single block of text is represented by its text.
            (RegionKind::Text, "text", _) if is_sole => Value::Node(event, node),
            (RegionKind::Text, "type", _) if is_sole => Value::text("text"),
            _ => self.child(event, node, name),
        }
    }

    /// Returns the result of reading the field `name`, which the object does not have: a missing value. In the dialect
    /// of invariant-ai, the result is an error. Its message names the kind of the object (`kind`, such as `Message`)
    /// and the fields that such an object has (`known`).
    fn unknown_field(&self, kind: &str, known: &[&str], name: &str) -> Result<Value> {
        match self.dialect() {
            Dialect::Flowgate => Ok(Value::Absent),
            Dialect::Compat => {
                // The message is that of invariant-ai.
                let known = known.join(", ");
                let message =
                    format!("Attribute {name} not found in {kind}. Available attributes are: {known}");
                Err(EvalError::Attribute(message))
            }
        }
    }

    /// Returns a field of an event: one that its kind of event has, or a further field that its client sent; a missing
    /// value if there is neither. A statement that grants something cannot read the name of a tool.
    ///
    /// # Errors
    /// In the dialect of invariant-ai, if events of this kind have no such field. In both dialects, if the content of
    /// the event is not readable ([`Self::check_readable`]), or if `is_error` is read and the format of the trace does
    /// not record whether a tool failed.
    pub(super) fn event_member(&mut self, id: EventId, name: &str) -> Result<Value> {
        let Some(event) = self.trace.event(id) else { return Ok(Value::Absent) };
        // In the dialect of invariant-ai, a field that is not in one of these lists is an error.
        if self.dialect() == Dialect::Compat {
            let (kind, known): (&str, &[&str]) = match &event.body {
                EventBody::Message(_) => ("Message", &["role", "content", "tool_calls", "metadata"]),
                EventBody::Call(_) => ("ToolCall", &["function", "type", "id", "metadata"]),
                EventBody::Output(_) => ("ToolOutput", &["role", "content", "tool_call_id", "metadata"]),
                EventBody::Tool(_) => ("Tool", &["name", "description", "inputSchema", "server"]),
            };
            if !known.contains(&name) {
                return self.unknown_field(kind, known, name);
            }
        }
        if self.missing == MissingValueMode::FailsAll && matches!(name, "name" | "tool") {
            // A name alone identifies no tool: a statement that grants something uses `is tool:`.
            return Ok(Value::Absent);
        }
        if matches!(
            name,
            "content" | "arguments" | "structured" | "description" | "inputSchema" | "outputSchema"
        ) {
            self.check_readable(id)?;
        }
        // The tool is copied, since `tool_of` borrows the evaluator.
        let tool_field = |tool: Option<Tool>| match (name, tool) {
            ("name", Some(tool)) => Value::text(&tool.name),
            ("tool", Some(tool)) => Value::text(tool.to_string()),
            ("server", Some(tool)) => tool.server.map_or(Value::None, Value::text),
            _ => Value::Absent,
        };
        // The fields of each kind of event, and then the further fields that the client sent.
        Ok(match (&event.body, name) {
            (EventBody::Call(_), "name") => Value::ToolName(id),
            (EventBody::Call(call), "tool" | "server") => tool_field(Some(call.tool.clone())),
            (EventBody::Message(_), "tool_calls") => Value::list(self.calls_of(id)),
            (EventBody::Tool(_), "name" | "description" | "inputSchema" | "outputSchema") => {
                self.child(id, 0, name)
            }
            (EventBody::Tool(description), "server") => tool_field(Some(description.tool.clone())),
            (EventBody::Call(call), "id") => Value::text(&call.id),
            (EventBody::Call(_), "function") => Value::Function(id),
            (EventBody::Call(_), "type") => Value::text("function"),
            (EventBody::Output(_), "name" | "tool" | "server") => tool_field(self.tool_of(id).cloned()),
            (EventBody::Output(output), "tool_call_id") => Value::text(&output.call_id),
            (EventBody::Output(_), "role") => Value::text("tool"),
            (EventBody::Output(_) | EventBody::Message(_), "content") => self.content(id),
            (EventBody::Output(output), "is_error") if output.is_error.is_none() => {
                return Err(self.missing_value_error(|| {
                    "`is_error` is missing: the format of this trace does not record whether tools fail; leave out \
                     the condition"
                        .to_owned()
                }));
            }
            (EventBody::Output(_), "is_error" | "structured")
            | (EventBody::Message(_), "role")
            | (EventBody::Call(_), "arguments") => self.child(id, 0, name),
            _ => match event.extra.get(name) {
                Some(extra) => {
                    // A further field has no label of its own. The author of the event also wrote its other fields, so
                    // all labels of the event apply.
                    self.reads.push(RegionRead { event: id, node: 0, deep: true });
                    self.charge_bytes(crate::json::estimated_size(extra))?;
                    Value::from_json(extra)
                }
                None => Value::Absent,
            },
        })
    }

    /// Returns the content of a message or an output. For a rule in the dialect of Flowgate, null or absent content is
    /// an empty text ([`Value::Silent`]) and not a missing value: a message of a model that proposes calls often has no
    /// text.
    fn content(&mut self, id: EventId) -> Value {
        let content = self.child(id, 0, "content");
        let is_silent = match &content {
            Value::Node(event, node) => {
                let document = self.trace.event(*event).map(|event| &event.document);
                document.and_then(|document| document.node(*node)).is_some_and(
                    |found| matches!(&found.content, NodeContent::Scalar(value) if value.is_null()),
                )
            }
            content => content.is_absent_or_none(),
        };
        // Null content is a missing value in a statement that grants something (`FailsAll`), and in the dialect of
        // invariant-ai, where `needs_values` is false.
        if !is_silent || self.missing == MissingValueMode::FailsAll || !self.needs_values() {
            return content;
        }
        // The result depends on the content being null, so this counts as a read.
        if let Value::Node(event, node) = content {
            self.reads.push(RegionRead { event, node, deep: false });
        }
        Value::Silent
    }

    /// Returns the arguments of a call, as a reference to the map in its event.
    ///
    /// # Errors
    /// If the arguments are not readable ([`Self::check_readable`]).
    pub(super) fn arguments(&mut self, call: EventId) -> Result<Value> {
        self.check_readable(call)?;
        Ok(self.child(call, 0, "arguments"))
    }

    /// Checks that conditions can read the content of an event. A condition must not be decided without content that
    /// the tool or the model may act on.
    ///
    /// # Errors
    /// If the arguments of a call are not JSON that every parser reads alike, or the event is too large to decompose.
    pub(super) fn check_readable(&self, id: EventId) -> Result<()> {
        let Some(event) = self.trace.event(id) else { return Ok(()) };
        if event.document.is_oversize {
            return Err(EvalError::Type(
                "the event is too large for rules to read: it has more than 200000 values, or lists and maps \
                nested more than 64 deep; send or return less in one message, call or answer"
                    .to_owned(),
            ));
        }
        match &event.body {
            EventBody::Call(call) => match &call.arguments {
                Err(error) => Err(EvalError::Type(error.to_string())),
                Ok(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Returns the calls that a message proposes, except withdrawn ones. They directly follow the message in the trace.
    pub(super) fn calls_of(&self, message: EventId) -> Vec<Value> {
        let after = (message.0 + 1..self.trace.len()).map(EventId);
        let of_message =
            after.take_while(|id| self.trace.event(*id).is_some_and(|event| event.message == Some(message)));
        let live =
            |id: &EventId| self.trace.event(*id).is_some_and(|event| event.status != Status::Withdrawn);
        of_message.filter(live).map(Value::Event).collect()
    }

    /// Returns the tool that an event is about. For an output, it is the tool of the call that the output answers.
    /// `None` for a message, and for an output without a call.
    pub(super) fn tool_of(&self, id: EventId) -> Option<&Tool> {
        let event = self.trace.event(id)?;
        if let EventBody::Tool(description) = &event.body {
            return Some(&description.tool);
        }
        event.tool().or_else(|| self.trace.event(self.answered_call(id)?)?.tool())
    }

    /// Returns the call that an output answers. In a rule, this can also be a call that another output has answered
    /// before (`claimed`): such an output has no call by which statements could label it.
    fn answered_call(&self, id: EventId) -> Option<EventId> {
        let event = self.trace.event(id)?;
        event.call.or_else(|| event.claimed.filter(|_| self.missing == MissingValueMode::IsNone))
    }

    /// Returns the call that an output answers; a missing value if `value` is not an output, or answers no call.
    pub(crate) fn call_of(&self, value: &Value) -> Value {
        let Value::Event(id) = value else { return Value::Absent };
        self.answered_call(*id).map_or(Value::Absent, Value::Event)
    }

    /// Returns the number of regions that were hidden from the model that proposed a call; a missing value if `value`
    /// is not a call.
    pub(crate) fn hidden_region_count(&self, value: &Value) -> Value {
        let Value::Event(id) = value else { return Value::Absent };
        match self.trace.event(*id) {
            Some(event) if matches!(event.body, EventBody::Call(_)) => {
                Value::Int(i64::try_from(event.hidden).unwrap_or(i64::MAX))
            }
            _ => Value::Absent,
        }
    }

    /// Returns the server of an event: the one in the client's metadata, or else the server of the event's tool. The
    /// result is [`Value::None`] if there is neither, and a missing value if `value` is not an event.
    pub(crate) fn server_of(&mut self, value: &Value) -> Value {
        let Value::Event(id) = value else { return Value::Absent };
        let Some(event) = self.trace.event(*id) else { return Value::Absent };
        let reported = event.extra.get("metadata").and_then(|metadata| metadata.get("server"));
        let reported = reported.and_then(serde_json::Value::as_str).map(Value::text);
        if reported.is_some() {
            // The author of the metadata also wrote the other fields of the event, so all its labels apply.
            self.reads.push(RegionRead { event: *id, node: 0, deep: true });
        }
        let server = match &event.body {
            EventBody::Tool(description) => description.tool.server.clone(),
            _ => self.tool_of(*id).and_then(|tool| tool.server.clone()),
        };
        reported.or_else(|| server.map(Value::text)).unwrap_or(Value::None)
    }

    /// Evaluates `object[index]`: an item of a list, a key of a map, or a character of a text; a missing value if
    /// there is none. A negative index counts from the end. The empty content of a message (`Silent`) yields itself.
    ///
    /// # Errors
    /// If a value of the object's type cannot be indexed, or not with a value of the index's type: a text or a list is
    /// indexed with an integer, a map with a text.
    pub(super) fn index(&mut self, object: &Value, index: &Value) -> Result<Value> {
        match (object, index) {
            (Value::Silent, _) => Ok(Value::Silent),
            (Value::Absent | Value::None, _) | (_, Value::Absent | Value::None) => Ok(Value::Absent),
            (_, Value::Str(key)) => self.member(object, key),
            (Value::Node(event, node), Value::Int(0 | -1)) if self.is_sole_block(*event, *node) => {
                // A single block of text is represented by its text.
                Ok(Value::Part(RegionKind::Text, *event, *node))
            }
            (Value::ToolName(_), _) => {
                let text = self.resolve(object)?;
                self.index(&text, index)
            }
            (Value::Node(event, node), Value::Int(_)) if self.is_text(*event, *node) => {
                let text = self.resolve(object)?;
                self.index(&text, index)
            }
            // An item counted from the beginning is found without reading its siblings, so its label alone counts. The
            // fuel pays for walking past the earlier items.
            (Value::Node(event, node), Value::Int(index)) if *index >= 0 => {
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                let document = self.trace.event(*event).map(|event| &event.document);
                let child = document.and_then(|document| document.child(*node, &PathStep::Index(index)));
                self.spend(index.min(document.map_or(0, |document| document.nodes().len())))?;
                match child {
                    Some(child) => Ok(Value::Node(*event, child)),
                    // That there is no such item is information about the list.
                    None => {
                        self.reads.push(RegionRead { event: *event, node: *node, deep: false });
                        Ok(Value::Absent)
                    }
                }
            }
            (Value::List(items) | Value::Texts(items), Value::Int(index)) => {
                Ok(items.get(position(*index, items.len())).cloned().unwrap_or(Value::Absent))
            }
            (Value::Node(..) | Value::Answers(_), Value::Int(index)) => {
                let items = self.items(object)?;
                self.spend(items.len())?;
                Ok(items.get(position(*index, items.len())).cloned().unwrap_or(Value::Absent))
            }
            (Value::Str(text), Value::Int(index)) => {
                self.spend(text.len() / BYTES_PER_STEP)?;
                let found = match usize::try_from(*index) {
                    Ok(index) => text.chars().nth(index),
                    // A negative index counts from the end: -1 is the last character.
                    Err(_) => {
                        text.chars().nth_back(usize::try_from(index.unsigned_abs() - 1).unwrap_or(usize::MAX))
                    }
                };
                Ok(found.map_or(Value::Absent, |c| Value::text(c.to_string())))
            }
            (
                Value::Str(_)
                | Value::List(_)
                | Value::Texts(_)
                | Value::Answers(_)
                | Value::Dict(_)
                | Value::Node(..),
                _,
            ) => Err(EvalError::Type(format!(
                "a value of the type {} cannot be indexed with a value of the type {}; index a text or a list with \
                an integer, or a map with a text",
                object.type_name(),
                index.type_name()
            ))),
            _ => Err(EvalError::Type(format!(
                "a value of the type {} cannot be indexed with `[...]`; index a text, a list or a map",
                object.type_name()
            ))),
        }
    }

    /// Evaluates `object[from:to]` on a text, by characters, or a list. As in Python, a negative bound counts from
    /// the end, and bounds beyond the ends are clipped. The empty content of a message (`Silent`), as the object or as
    /// a bound, yields itself. `frame` contains the values of variables.
    ///
    /// # Errors
    /// If the object cannot be sliced, or a bound is not an integer. In the dialect of Flowgate also if the object or a
    /// bound is missing.
    pub(super) fn slice(
        &mut self,
        object: &CompiledExpr,
        from: Option<&CompiledExpr>,
        to: Option<&CompiledExpr>,
        frame: &mut Frame,
    ) -> Result<Value> {
        let object = self.evaluate_resolved(object, frame)?;
        // Returns the value of a bound; `None` if the policy does not write it.
        let mut bound = |expr: Option<&CompiledExpr>| {
            let Some(expr) = expr else { return Ok(None) };
            match self.evaluate_resolved(expr, frame)? {
                value @ (Value::Int(_) | Value::Silent) => Ok(Some(value)),
                value if value.is_absent_or_none() => self.require_present(value, "a slice").map(Some),
                other => {
                    let message = format!(
                        "a bound of a slice must be an integer, not {}; convert a text with `int`",
                        other.type_name()
                    );
                    Err(EvalError::Type(message))
                }
            }
        };
        let (from, to) = (bound(from)?, bound(to)?);
        if [&from, &to].into_iter().flatten().any(|bound| matches!(bound, Value::Silent)) {
            return Ok(Value::Silent);
        }
        // Returns the position of the first item of the slice, and the number of items, for an object of this length.
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
            Value::Silent => Ok(Value::Silent),
            value if value.is_absent_or_none() => {
                self.require_present(value, "a slice").map(|_| Value::Absent)
            }
            Value::Str(text) => {
                self.spend(text.len() / BYTES_PER_STEP)?;
                let (from, count) = range(text.chars().count());
                self.charge_bytes(count)?;
                Ok(Value::text(text.chars().skip(from).take(count).collect::<String>()))
            }
            Value::List(items) => {
                let (from, count) = range(items.len());
                self.charge_bytes(count.saturating_mul(ITEM))?;
                Ok(Value::list(items.iter().skip(from).take(count).cloned()))
            }
            other => Err(EvalError::Type(format!(
                "a value of the type {} cannot be sliced; slice a text or a list",
                other.type_name()
            ))),
        }
    }
}

/// Converts an index of the policy language to a position from the start, in a list of this `length`. A negative index
/// counts from the end. An index out of range yields a position out of range.
fn position(index: i64, length: usize) -> usize {
    let from_end =
        |n: u64| length.checked_sub(usize::try_from(n).unwrap_or(usize::MAX)).unwrap_or(usize::MAX);
    usize::try_from(index).unwrap_or_else(|_| from_end(index.unsigned_abs()))
}
