//! Converts the matches of rules to violations, which are the result of [`analysis`](super): the [`ViolationCollector`]
//! receives each match. A violation contains the message of the rule, evaluated for the match, and the addresses of the
//! locations that the match concerns, such as `messages.1.content:5-10`. It also has a key, by which a client that
//! analyses a growing trace repeatedly recognises the match.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use super::{Analysis, EvaluationFailure, EvaluationFailureKind, Violation};
use crate::eval::{EvalError, Evaluator, Frame, MatchLocation, TextLocation, Value};
use crate::policy::dialect::Dialect;
use crate::policy::plan::{CompiledExpr, Plan, Rule};
use crate::rules::MatchReceiver;
use crate::trace::{EventBody, EventId, NodeContent, NodeId, Origin, Trace, characters, sole_text};

/// Maximum total size of the messages of the violations of one analysis, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Receives the matches and failures of the rules of a policy, and collects them in an [`Analysis`].
pub(super) struct ViolationCollector<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    /// The maximum number of listed violations.
    limit: usize,
    analysis: Analysis,
    /// The number of matches with each key, before a counter makes the keys distinct.
    keys: HashMap<String, usize>,
    /// The failures in the analysis, each by the index of its rule and its message.
    failed: HashSet<(usize, String)>,
    /// The size of the messages so far, in bytes.
    message_bytes: usize,
    /// The index that invariant-ai gives each event; computed on first use.
    compat_indices: Vec<usize>,
}

impl<'a> ViolationCollector<'a> {
    /// Creates an empty collector that lists at most `limit` violations.
    pub(super) fn new(plan: &'a Plan, trace: &'a Trace, limit: usize) -> Self {
        let (analysis, compat_indices) = (Analysis::default(), Vec::new());
        Self {
            plan,
            trace,
            limit,
            analysis,
            keys: HashMap::new(),
            failed: HashSet::new(),
            message_bytes: 0,
            compat_indices,
        }
    }

    /// Adds a failure of the rule with this index in the plan, unless the same failure was added before, so that a rule
    /// that fails on every event is reported once.
    fn fail(&mut self, index: usize, rule: &Rule, kind: EvaluationFailureKind, message: String) {
        if self.failed.insert((index, message.clone())) {
            let statement = rule.span.clone();
            self.analysis.failures.push(EvaluationFailure { rule: index, statement, kind, message });
        }
    }

    /// Returns the violations and the failures, both in the order of their rules.
    pub(super) fn finish(mut self) -> Analysis {
        self.analysis.violations.sort_by_key(|violation| violation.rule);
        self.analysis.failures.sort_by_key(|failure| failure.rule);
        self.analysis
    }

    /// Returns the key of a match of the rule with this index. A client that analyses a growing trace repeatedly
    /// recognises the match by its key. The key consists of the index of the rule, the values of its variables, which
    /// `frame` contains, and, for a further match with the same values, its number (`keys` counts them). In the dialect
    /// of invariant-ai, the key has the format of that analyzer, without such a number.
    fn violation_key(
        &mut self,
        index: usize,
        rule: &Rule,
        frame: &Frame,
        evaluator: &mut Evaluator<'_>,
    ) -> String {
        let values: Vec<&Value> = rule.named.iter().filter_map(|(_, slot)| frame.get(*slot)).collect();
        if self.plan.dialect == Dialect::Compat {
            let indices: Vec<String> = values.iter().map(|value| self.compat_index(value)).collect();
            // The format of invariant-ai is a tuple of Python, in which a single item is followed by a comma.
            let comma = if indices.len() == 1 { "," } else { "" };
            return format!("({index}, ({}{comma}))", indices.join(", "));
        }
        let mut key = format!("{index}");
        for value in values {
            // A part of the trace is identified by its address, any other value by its content. A value that cannot be
            // resolved adds nothing to the key.
            let identity = match MatchLocation::of_value(value) {
                Some(location) => address(self.trace, &location),
                None => evaluator
                    .resolve(value)
                    .map_or_else(|_| String::new(), |value| value.to_json().to_string()),
            };
            // Writing to a `String` never fails.
            let _ = write!(key, ";{identity}");
        }
        // Several matches can have the same values, such as two equal words of a text. A counter distinguishes them
        // by their order.
        let count = self.keys.entry(key.clone()).or_default();
        *count += 1;
        if *count > 1 {
            let _ = write!(key, ";#{count}");
        }
        key
    }

    /// Returns the part for one value in the key of a violation, in the format of invariant-ai (see `violation_key`):
    /// the index of the value's event in the list of messages, or -1 if the value is not an event. A call has the index
    /// of the message that proposes it; each tool of a list of tools has an index of its own. The first use of this
    /// method computes the indices of all events (`compat_indices`).
    fn compat_index(&mut self, value: &Value) -> String {
        let Value::Event(id) = value else { return "-1".to_owned() };
        if self.compat_indices.is_empty() {
            let mut message_count = 0_usize;
            for event in self.trace.events() {
                let is_proposed_call = event.message.is_some();
                message_count += usize::from(!is_proposed_call);
                // A proposed call follows its message, so the last message is the one that proposes it.
                self.compat_indices.push(message_count.saturating_sub(1));
            }
        }
        self.compat_indices.get(id.0).map_or_else(|| "-1".to_owned(), usize::to_string)
    }

    /// Returns the `ranges` of a violation: the addresses of all locations that the match concerns, without duplicates.
    /// These are the locations of the values of the rule's variables, which `frame` contains, and the locations that
    /// the rule's domains (the lists after `in`) and conditions find. For the latter, this method evaluates the domains
    /// and conditions a second time, and records the locations (`Evaluator::marks`).
    ///
    /// # Errors
    /// If the fuel is spent.
    fn ranges(
        &self,
        rule: &Rule,
        frame: &Frame,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<Vec<String>, EvalError> {
        let mut marks: Vec<MatchLocation> = rule
            .named
            .iter()
            .filter_map(|(_, slot)| frame.get(*slot).and_then(MatchLocation::of_value))
            .collect();
        evaluator.marks = Some(Vec::new());
        let mut frame = frame.clone();
        for variable in &rule.query.variables {
            match &variable.domain {
                // Parts of an event are found by their type, which marks no further location.
                None | Some(CompiledExpr::Parts(..)) => {}
                Some(domain) => evaluator.mark(domain, &mut frame)?,
            }
        }
        for item in &rule.query.items {
            evaluator.mark(item.expression(), &mut frame)?;
        }
        marks.extend(evaluator.marks.take().unwrap_or_default());
        let mut addresses: Vec<String> = Vec::with_capacity(marks.len());
        let mut seen = HashSet::new();
        for mark in &marks {
            if let MatchLocation::Bytes(_, bytes) = mark {
                // The address gives the position in characters, so the text is read up to the position. One step of
                // fuel pays for 64 bytes.
                evaluator.spend(bytes.end / 64)?;
            }
            let address = address(self.trace, mark);
            if !address.is_empty() && seen.insert(address.clone()) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

impl MatchReceiver for ViolationCollector<'_> {
    /// Adds the violation of a match of the rule with this index; `frame` contains the values of its variables. Returns
    /// `false`, so that the search for further matches continues. If the limit of listed violations is already reached,
    /// adds a failure of the rule instead, and returns `true`, which ends the search for its matches.
    ///
    /// # Errors
    /// If the fuel is spent, or the messages of all violations together exceed [`MAX_MESSAGE_BYTES`], which is reported
    /// like spent fuel.
    fn receive_match(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        index: usize,
        frame: &Frame,
    ) -> Result<bool, EvalError> {
        let Some(rule) = self.plan.rules.get(index) else { return Ok(true) };
        if self.analysis.violations.len() >= self.limit {
            self.fail(
                index,
                rule,
                EvaluationFailureKind::TooMany,
                format!(
                    "the trace has more than {} violations, the limit of this analysis; the others are not \
                    listed: write rules that match less often, or analyze a shorter trace",
                    self.limit
                ),
            );
            return Ok(true);
        }
        // The evaluation of an argument may overwrite variables, which must not change the match.
        let mut scratch = frame.clone();
        // Evaluates one argument of the message, and counts its size.
        let mut json_argument = |ex| -> Result<Json, EvalError> {
            let value = evaluator.evaluate(ex, &mut scratch)?;
            let json = argument(evaluator, &value)?;
            let size = crate::json::estimated_size(&json);
            self.message_bytes = self.message_bytes.saturating_add(size);
            if self.message_bytes > MAX_MESSAGE_BYTES {
                return Err(EvalError::Fuel);
            }
            evaluator.charge_bytes(size)?;
            Ok(json)
        };
        let args: Result<Vec<Json>, _> = rule.args.iter().map(&mut json_argument).collect();
        let kwargs: Result<Map<String, Json>, _> =
            rule.kwargs.iter().map(|(name, ex)| Ok((name.to_string(), json_argument(ex)?))).collect();
        // Both lists are evaluated in any case. If both fail, the error of `args` counts.
        let (args, kwargs) = match args.and_then(|args| Ok((args, kwargs?))) {
            Err(EvalError::Fuel) => return Err(EvalError::Fuel),
            Err(error) => {
                // The match is reported even if its message cannot be computed.
                let text = format!("the rule matches, but its message cannot be computed: {error}");
                self.receive_failure(index, error);
                (vec![Json::String(text)], Map::new())
            }
            Ok(message) => message,
        };
        let ranges = self.ranges(rule, frame, evaluator)?;
        let key = self.violation_key(index, rule, frame, evaluator);
        let (statement, action) = (rule.span.clone(), rule.action);
        self.analysis.violations.push(Violation {
            rule: index,
            statement,
            action,
            args,
            kwargs,
            ranges,
            key,
        });
        Ok(false)
    }

    /// Adds the failure of a rule, unless it was added before.
    fn receive_failure(&mut self, index: usize, error: EvalError) {
        let Some(rule) = self.plan.rules.get(index) else { return };
        let message = match &error {
            // The name alone, so that a program that reads the failure can ask for the parameter.
            EvalError::MissingParameter(name) => name.clone(),
            error => error.to_string(),
        };
        self.fail(index, rule, EvaluationFailureKind::from(&error), message);
    }
}

/// Converts a value to an argument of a violation: numbers, truth values and texts unchanged, events as messages in
/// OpenAI's format, all others as text.
///
/// # Errors
/// If the fuel is spent.
fn argument(evaluator: &mut Evaluator<'_>, value: &Value) -> Result<Json, EvalError> {
    if let Value::Event(id) = value {
        return Ok(event_json(evaluator.trace, *id));
    }
    Ok(match evaluator.resolve(value)? {
        Value::Bool(b) => Json::Bool(b),
        Value::Int(n) => n.into(),
        Value::Float(x) => json!(x),
        other => {
            let mut text = String::new();
            other.print(&mut text);
            Json::String(text)
        }
    })
}

/// Converts an event to a message in OpenAI's format, for an argument of a violation. A message includes the calls that
/// it proposes. The result is null if the trace has no such event.
fn event_json(trace: &Trace, id: EventId) -> Json {
    let Some(event) = trace.event(id) else { return Json::Null };
    let metadata = event.extra.get("metadata").cloned().unwrap_or_else(|| json!({}));
    match &event.body {
        EventBody::Message(message) => {
            // The calls that a message proposes are the events directly after it.
            let calls = trace.events().iter().skip(id.0 + 1).take_while(|next| next.message == Some(id));
            let calls: Vec<Json> = calls.map(|call| call_json(&call.body)).collect();
            json!({"role": message.role, "content": message.content, "tool_calls": calls, "metadata": metadata})
        }
        EventBody::Call(_) => call_json(&event.body),
        EventBody::Output(output) => {
            json!({"role": "tool", "content": output.content, "tool_call_id": output.call_id, "metadata": metadata})
        }
        EventBody::Tool(tool) => {
            json!({"name": &*tool.tool.name, "description": tool.description, "inputSchema": &*tool.input_schema})
        }
    }
}

/// Converts a call to its form in OpenAI's format; an event of another kind becomes null.
fn call_json(body: &EventBody) -> Json {
    let EventBody::Call(call) = body else { return Json::Null };
    let arguments = call.arguments.clone().unwrap_or_default();
    json!({"id": call.id, "type": "function", "function": {"name": &*call.tool.name, "arguments": arguments}})
}

/// Returns the address of a location in the list of messages from which the trace was read, such as
/// `messages.1.content:5-10`. An event that was not read from such a list has an address by its number in the trace,
/// such as `events.3`; a location within such an event has an empty address.
fn address(trace: &Trace, mark: &MatchLocation) -> String {
    // The position of an event in the list of messages; `None` for an event that was not read from such a list.
    let origin = |id: &EventId| trace.event(*id).and_then(|event| event.origin);
    match mark {
        MatchLocation::Event(id) => {
            origin(id).map_or_else(|| format!("events.{}", id.0), |origin| origin.address())
        }
        MatchLocation::Function(id) => origin(id).map_or_else(String::new, |origin| {
            // The function of a call contains its name: `….function` contains `….function.name`.
            let address = origin.name_address();
            address.strip_suffix(".name").map_or_else(|| origin.address(), str::to_owned)
        }),
        MatchLocation::ToolName(id) => origin(id).map_or_else(String::new, |origin| origin.name_address()),
        // The second item of `node_address`, whether the address is final, matters only for bytes of a node.
        MatchLocation::Node(id, node) => {
            origin(id).map_or_else(String::new, |origin| node_address(trace, origin, *id, *node).0)
        }
        MatchLocation::Part(id, node) => {
            let address =
                origin(id).map_or_else(String::new, |origin| node_address(trace, origin, *id, *node).0);
            // If the client sent the content as a list of one text block, the event stores only the text of the block,
            // and `address` leads to this text. Without its end (`.text`), the address leads to the block.
            address
                .strip_suffix(".content.0.text")
                .map_or(address.clone(), |before| format!("{before}.content.0"))
        }
        MatchLocation::Bytes(TextLocation::ToolName(id), bytes) => {
            let name =
                trace.event(*id).and_then(|event| event.tool()).map(|tool| &*tool.name).unwrap_or_default();
            origin(id).map_or_else(String::new, |origin| origin.name_address() + &characters(name, bytes))
        }
        MatchLocation::Bytes(TextLocation::Node(id, node), bytes) => {
            let Some(origin) = origin(id) else { return String::new() };
            let (address, is_final) = node_address(trace, origin, *id, *node);
            if is_final {
                // For example, the node is a part of a text in JSON: `bytes` counts in the decoded text, not in the
                // text of the message.
                return address;
            }
            let document = trace.event(*id).map(|event| &event.document);
            let text = document.and_then(|document| document.node(*node)).map_or("", |node| {
                match (&node.text, &node.content) {
                    (Some(text), _) => text,
                    (None, NodeContent::Scalar(Json::String(text))) => text,
                    _ => "",
                }
            });
            address + &characters(text, bytes)
        }
    }
}

/// Returns the address of a node of an event, and whether the address is *final*: the caller must not append a range of
/// characters to it. An address is final if it already ends with the range of the node within an enclosing text, or if
/// it is that of a whole name or event. `origin` is the position of the event in the list of messages.
fn node_address(trace: &Trace, origin: Origin, id: EventId, node: NodeId) -> (String, bool) {
    let Some(event) = trace.event(id) else { return (String::new(), false) };
    let document = &event.document;
    if matches!(event.body, EventBody::Call(_)) && document.key(0, "tool") == Some(node) {
        // The tool name may be written without its server, so it is reported as a whole.
        return (origin.name_address(), true);
    }
    // Whether the client sent the content as a list of one text block. The event stores such content as a plain text,
    // and the address leads to the text of the block.
    let is_sole = match &event.body {
        EventBody::Message(message) => sole_text(&message.content).is_some(),
        EventBody::Output(output) => sole_text(&output.content).is_some(),
        _ => false,
    };
    let span = document.node(node).and_then(|node| node.span.clone());
    let Some(span) = span else {
        let path = document.path(node);
        let is_content =
            matches!(path.0.first(), Some(crate::trace::PathStep::Key(key)) if **key == *"content");
        return (origin.part_address(&path, is_sole && is_content), false);
    };
    // The node is a part of an enclosing text, which is the nearest ancestor with a text. The search visits at most 200
    // nodes, since the chain of parents never ends: the root is its own parent.
    let up = std::iter::successors(Some(node), |id| document.node(*id).map(|node| node.parent));
    let Some(enclosing) = up.take(200).find(|id| document.node(*id).is_some_and(|node| node.text.is_some()))
    else {
        return (origin.address(), true);
    };
    let text = document.node(enclosing).and_then(|node| node.text.clone()).unwrap_or_default();
    (origin.part_address(&document.path(enclosing), is_sole) + &characters(&text, &span), true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::analysis::{AnalysisOptions, analyze};
    use crate::policy::Policy;
    use crate::trace::read;

    /// Asserts the locations of each finding of a rule with these lines.
    fn check(body: &[&str], expected: &[&[&str]]) {
        let source = format!("raise \"x\" if:\n    {}", body.join("\n    "));
        let policy = Policy::parse(&source).unwrap();
        let parameters = json!({"properties": {"to": {"type": "string"}, "n": {"type": "integer"}}});
        let arguments = json!({"to": "ann", "tags": ["redder", "red"], "note": "to ann", "n": 1});
        let messages = json!([
            {"tools": [{"name": "send", "description": "", "inputSchema": parameters}, {"name": "list", "description": ""}]},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "World"}]},
            {"role": "assistant", "content": "I do", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "send", "arguments": arguments}}]},
            {"role": "user", "content": [{"type": "text", "text": "Bye"}]},
        ]);
        let analysis =
            analyze(&policy, read::list(messages.as_array().unwrap()).unwrap(), &AnalysisOptions::default())
                .unwrap();
        assert_eq!(analysis.failures, [], "{source}");
        let found: Vec<&[String]> = analysis.violations.iter().map(|violation| &*violation.ranges).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn places_of_what_is_found() {
        let call = "messages.2.tool_calls.0";
        check(
            &["(c: ToolCall)", "\"ann\" in c.arguments.note"],
            &[&[call, "messages.2.tool_calls.0.function.arguments.note:3-6"]],
        );
        // A key has no location, even if a value equals it.
        check(&["(c: ToolCall)", "\"to\" in c.arguments"], &[&[call]]);
        // In a list, items are found, not parts of them.
        let item = "messages.2.tool_calls.0.function.arguments.tags.1:0-3";
        check(&["(c: ToolCall)", "\"red\" in c.arguments.tags"], &[&[call, item]]);
        let value = "messages.2.tool_calls.0.function.arguments.to:0-3";
        check(&["(c: ToolCall)", "\"ann\" in c.arguments.values()"], &[&[call, value]]);
        check(&["(m: Message)", "\"lo\" in m.content"], &[&["messages.1", "messages.1.content.0.text:3-5"]]);
        let block = ["messages.3.content.0", "messages.3.content.0.text:0-3"];
        check(&["(t: TextChunk)", "\"Bye\" in t.text"], &[&block]);
        check(
            &["(m: Message)", "(t: TextChunk) in m.content", "\"Bye\" in t.text"],
            &[&["messages.3", block[0], block[1]]],
        );
        let block = ["messages.1.content.1", "messages.1.content.1.text:0-5"];
        check(&["(t: TextChunk)", "\"World\" in t.text"], &[&block]);
        check(&["(f: Function)", "f.name == \"send\""], &[&["messages.2.tool_calls.0.function"]]);
        let name = "messages.2.tool_calls.0.function.name";
        check(&["(s: str)", "s == \"send\""], &[&["messages.0.tools.0.name"], &[name]]);
        check(&["(l: list)", "\"red\" in l"], &[&["messages.2.tool_calls.0.function.arguments.tags", item]]);
        check(&["(c: ToolCall)", "(s: str) in [\"a\", c.function.name]", "len(s) > 1"], &[&[call, name]]);
    }

    #[test]
    fn letters_and_parameters() {
        check(&["(m: Message)", "m.content[0] == \"I\""], &[&["messages.2"]]);
        check(&["(m: Message)", "m.content[-1] == \"o\""], &[&["messages.2"]]);
        check(&["(c: ToolCall)", "c.function.name[0] == \"s\""], &[&["messages.2.tool_calls.0"]]);
        check(&["(t: Tool)", "len(t.inputSchema) == 2"], &[&["messages.0.tools.0"]]);
        check(&["(t: Tool)", "len(t.inputSchema) == 0"], &[&["messages.0.tools.1"]]);
        check(&["(t: Tool)", "any([p.name == \"n\" for p in t.inputSchema])"], &[&["messages.0.tools.0"]]);
        check(&["(t: Tool)", "t.inputSchema.properties.n.type == \"integer\""], &[&["messages.0.tools.0"]]);
    }

    #[test]
    fn values_within_values() {
        let found = |condition: &str| {
            let source = format!("raise \"x\" if:\n    {condition}");
            let policy = Policy::parse(&source).unwrap();
            let arguments = json!({"a": {"b": {"k": "deep"}}, "l": [[1, [2]]]});
            let messages = [json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "function": {"name": "send", "arguments": arguments}},
                {"id": "2", "function": {"name": "send", "arguments": {}}}]})];
            let analysis =
                analyze(&policy, read::list(&messages).unwrap(), &AnalysisOptions::default()).unwrap();
            assert_eq!(analysis.failures, [], "{source}");
            analysis.violations.len()
        };
        assert_eq!(found("(d: dict)\n    d.k == \"deep\""), 1);
        assert_eq!(found("(c: ToolCall)\n    (d: dict) in c.arguments\n    d.k == \"deep\""), 1);
        assert_eq!(found("(c: ToolCall)\n    (s: str) in c.function\n    s == \"deep\""), 1);
        assert_eq!(found("(c: ToolCall)\n    (l: list) in c.arguments.l\n    2 in l"), 1);
        for calls in ["m", "m.tool_calls", "m[\"tool_calls\"]", "[m]"] {
            assert_eq!(
                found(&format!("(m: Message)\n    (c: ToolCall) in {calls}\n    c is tool:send")),
                2,
                "{calls}"
            );
            assert_eq!(
                found(&format!("(m: Message)\n    (f: Function) in {calls}\n    f.name == \"send\"")),
                2,
                "{calls}"
            );
        }
    }

    #[test]
    fn a_block_with_a_parseable_text_is_its_text() {
        let check = |condition: &str, expected: usize| {
            let source = format!("raise \"x\" if:\n    {condition}");
            let policy = Policy::parse(&source).unwrap();
            let block = json!([{"type": "text", "text": "{\"secret\": \"x\", \"rows\": [{\"k\": 1}]}"}]);
            let messages = [json!({"role": "tool", "tool_call_id": "1", "content": block})];
            let analysis =
                analyze(&policy, read::list(&messages).unwrap(), &AnalysisOptions::default()).unwrap();
            assert_eq!(analysis.failures, [], "{source}");
            assert_eq!(analysis.violations.len(), expected, "{source}");
        };
        check("(m: ToolOutput)\n    \"secret\" in m.content[0].text", 1);
        check("(t: TextChunk)\n    \"secret\" in t.text", 1);
        check("(m: ToolOutput)\n    (t: TextChunk) in m.content\n    t.type == \"text\"", 1);
        check("(m: ToolOutput)\n    any([\"secret\" in b.text for b in m.content])", 1);
        check("(m: ToolOutput)\n    (d: dict) in m.content\n    d.k == 1", 1);
        check("(m: ToolOutput)\n    (d: dict) in m\n    d.k == 1", 1);
        check("(t: TextChunk)\n    (d: dict) in t\n    d.k == 1", 1);
        check("(m: ToolOutput)\n    (i: int) in m.content", 1);
        check("(m: ToolOutput)\n    (i: Image) in m.content", 0);
        check("(m: ToolOutput)\n    m.content.secret == \"x\"", 1);
    }

    #[test]
    fn unreadable_values_fail() {
        let check = |message: serde_json::Value, condition: &str, expected: &str| {
            let policy = Policy::parse(&format!("raise \"x\" if:\n    {condition}")).unwrap();
            let analysis =
                analyze(&policy, read::list(&[message]).unwrap(), &AnalysisOptions::default()).unwrap();
            let failures: Vec<&str> = analysis.failures.iter().map(|failure| &*failure.message).collect();
            let said = if analysis.violations.is_empty() { failures.join("; ") } else { "found".to_owned() };
            assert!(
                said.contains(expected) && (said.is_empty() == expected.is_empty()),
                "{condition}: {said}"
            );
        };
        let call = |arguments: &str| {
            json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "1", "function": {"name": "send", "arguments": arguments}}]})
        };
        for (arguments, problem) in [
            (r#"{"to": "eve", "to": "bob"}"#, "duplicate"),
            (r#"{"to": "eve", "n": NaN}"#, "JSON"),
            (r#"{"to": "eve",}"#, "JSON"),
        ] {
            for condition in [
                "(c: ToolCall) is tool:send({to: \"eve\"})",
                "(c: ToolCall)\n    c.arguments.to == \"eve\"",
                "(c: ToolCall)\n    c.function.arguments.to == \"eve\"",
                "(c: ToolCall)\n    any(pii(c))",
                "(f: Function)\n    f.arguments.to == \"eve\"",
                "(s: str)\n    s == \"eve\"",
                "(c: ToolCall)\n    \"eve\" in text(c.function)",
            ] {
                check(call(arguments), condition, problem);
            }
            check(call(arguments), "(c: ToolCall) is tool:send", "found");
            check(call(arguments), "(c: ToolCall) is tool:other({to: \"eve\"})", "");
        }
        let content = json!([{"type": "text", "text": "x"}, {"type": "a", "pad": vec![0; 300_000]}]);
        for condition in
            ["(t: TextChunk)", "(m: Message)\n    \"y\" in m.content", "(s: str)\n    s == \"y\""]
        {
            check(json!({"role": "user", "content": content}), condition, "too large for rules");
        }
    }
}
