//! Reads recorded runs as trace entries: OpenAI and Anthropic messages, MCP logs, JSON lines of any of them, and logs
//! of the benchmark AgentDojo.
//!
//! A reader only converts formats; it assigns no labels. Fields that it does not know become `extra` fields of the
//! entries, and ambiguous input is an error with its location. The command line, the policy API and the Python package
//! call [`file()`], [`line()`] and [`list`].

mod agentdojo;
mod anthropic;
mod mcp;
mod openai;

use std::fmt;

use serde_json::{Map, Value};

use super::event::TraceEntry;
use crate::json::{self, Numbers};

/// The member of a run, or of a line of its own before the messages, that has the parameters of the policy.
const PARAMETERS: &str = "policy_parameters";

/// One recorded run of an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedRun {
    /// Fields in addition to the messages: ids, suite, outcome.
    pub meta: Map<String, Value>,
    /// The events, in order.
    pub entries: Vec<TraceEntry>,
}

impl RecordedRun {
    /// Returns an object with one member, `policy_parameters`: the parameters of a run's policy, which are the values of
    /// `input.NAME`. A run has this member next to its messages. In a file with one message a line, the object is a
    /// line of its own before the messages.
    pub fn parameters_member(parameters: &Map<String, Value>) -> Map<String, Value> {
        Map::from_iter([(PARAMETERS.to_owned(), Value::Object(parameters.clone()))])
    }

    /// Returns the parameters that the policy had in this run, as far as the run says so.
    pub fn parameters(&self) -> Option<&Map<String, Value>> {
        self.meta.get(PARAMETERS).and_then(Value::as_object)
    }

    /// Sets the parameters that the policy had in this run.
    pub fn set_parameters(&mut self, parameters: &Map<String, Value>) {
        self.meta.extend(Self::parameters_member(parameters));
    }

    /// Appends the events of further messages, which follow the present ones. The numbers of messages in their origins
    /// continue those of the present events.
    pub fn append(&mut self, mut entries: Vec<TraceEntry>) {
        let last = self.entries.iter().rev().find_map(|entry| entry.origin);
        shift_origins(&mut entries, last.map_or(0, |origin| origin.message + 1));
        self.entries.extend(entries);
    }
}

/// Input that is not a trace; reports the location, never the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// The index of the message in the line, from 0, if the line holds several.
    pub message: Option<usize>,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for ReadError {
    /// Writes the location, as far as it is known, and the problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(message) = self.message {
            write!(f, ", message {message}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ReadError {}

/// The content of one line of JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonLine {
    /// A whole run.
    Run(RecordedRun),
    /// A part of the run that the whole file contains.
    Part(Vec<TraceEntry>),
    /// The parameters of the policy in that run.
    Parameters(Map<String, Value>),
}

/// Reads one line of a file of JSON lines. The line is a whole run, or it belongs to the one run that all such lines of
/// the file form together: then it holds messages of that run, or the parameters of its policy. `number` is the number
/// of the line in its file, from 1, for error messages.
///
/// # Errors
/// If the line is not strict JSON, or is neither a run, a message nor parameters.
pub fn line(text: &str, number: usize) -> Result<JsonLine, ReadError> {
    // `file` passes a document of several lines as one text, so the line of the error counts from `number`.
    let value = json::parse(text, Numbers::Any).map_err(|error| ReadError {
        line: number + error.line.saturating_sub(1),
        message: None,
        problem: format!("not strict JSON: {} at column {}", error.message, error.column),
    })?;
    let located = |(message, problem)| ReadError { line: number, message, problem };
    value_to_line(value).map_err(located)
}

/// Reads a whole file: one JSON document, or JSON lines. All lines that are single messages form one run together,
/// which is the last one of the result.
///
/// # Errors
/// If a line is not strict JSON, or holds nothing that could be a run or a message. The error is about the first one.
pub fn file(text: &str) -> Result<Vec<RecordedRun>, ReadError> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let mut runs = Vec::new();
    // A document that spans several lines: its first line alone is not JSON.
    if json::parse(first, Numbers::Any).is_err() && json::parse(text, Numbers::Any).is_ok() {
        match line(text, 1)? {
            JsonLine::Run(run) => runs.push(run),
            JsonLine::Part(entries) => runs.push(RecordedRun { meta: Map::new(), entries }),
            // There is no event.
            JsonLine::Parameters(_) => {}
        }
        return Ok(runs);
    }
    let mut part = RecordedRun::default();
    for (index, line_text) in text.lines().enumerate().filter(|(_, line_text)| !line_text.trim().is_empty()) {
        match line(line_text, index + 1)? {
            JsonLine::Run(run) => runs.push(run),
            JsonLine::Part(entries) => part.append(entries),
            JsonLine::Parameters(parameters) => part.set_parameters(&parameters),
        }
    }
    if !part.entries.is_empty() {
        runs.push(part);
    }
    Ok(runs)
}

/// The index of a message, if there are several, and the problem with it.
type MessageProblem = (Option<usize>, String);

/// Converts the value of one line: a list of messages, or an object with `messages`, is a run. A list of JSON-RPC
/// messages, or a single message, is a part of the run that all such lines form; an object with `policy_parameters`
/// alone has the parameters of that run.
///
/// # Errors
/// If the value or a message has no known form: the index of the message, if there are several, and the problem.
fn value_to_line(value: Value) -> Result<JsonLine, MessageProblem> {
    match value {
        Value::Array(items) if items.first().is_some_and(|item| item.get("jsonrpc").is_some()) => {
            messages(&items).map(JsonLine::Part)
        }
        Value::Array(items) => {
            Ok(JsonLine::Run(RecordedRun { meta: Map::new(), entries: messages(&items)? }))
        }
        Value::Object(run) if run.get("messages").is_some_and(Value::is_array) => {
            object_to_run(run).map(JsonLine::Run)
        }
        Value::Object(mut line) if line.len() == 1 && line.contains_key(PARAMETERS) => {
            match line.remove(PARAMETERS) {
                Some(Value::Object(parameters)) => Ok(JsonLine::Parameters(parameters)),
                _ => Err((
                    None,
                    "`policy_parameters` is not an object; write one with the values of `input.NAME`"
                        .to_owned(),
                )),
            }
        }
        Value::Object(_) => Ok(JsonLine::Part(read_message(&value).map_err(|problem| (None, problem))?)),
        _ => Err((
            None,
            "the line is not a message, a list of messages or an object with `messages`; write one of these"
                .to_owned(),
        )),
    }
}

/// Converts an object with the list `messages`. Its other fields are the metadata of the run, apart from `system`.
fn object_to_run(mut run: Map<String, Value>) -> Result<RecordedRun, MessageProblem> {
    let mut items = run.remove("messages").unwrap_or_default();
    // A log of AgentDojo is first brought into OpenAI's form.
    if agentdojo::is_log(&run) {
        agentdojo::add_common_fields(&mut run);
        items = agentdojo::messages(items.as_array().map_or(&[], Vec::as_slice))?.into();
    }
    let mut entries = Vec::new();
    // Anthropic's API places the system prompt next to the messages.
    if let Some(system) = run.remove("system") {
        entries.push(TraceEntry { origin: None, ..openai::message("system", system) });
    }
    entries.extend(messages(items.as_array().map_or(&[], Vec::as_slice))?);
    Ok(RecordedRun { meta: run, entries })
}

/// Reads a list of messages.
///
/// # Errors
/// If one of them could not be a message. The error has the index of the message; its line is always 1, since the
/// messages are not lines of a file.
pub fn list(items: &[Value]) -> Result<Vec<TraceEntry>, ReadError> {
    messages(items).map_err(|(message, problem)| ReadError { line: 1, message, problem })
}

/// Returns the events of a list of messages. The origin of each event contains the index of its message. An error names
/// the index of the message that is wrong.
fn messages(items: &[Value]) -> Result<Vec<TraceEntry>, MessageProblem> {
    let mut entries = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mut events = read_message(item).map_err(|problem| (Some(index), problem))?;
        shift_origins(&mut events, index);
        entries.extend(events);
    }
    Ok(entries)
}

/// Adds `offset` to the index of the message in the origin of each event.
fn shift_origins(entries: &mut [TraceEntry], offset: usize) {
    for origin in entries.iter_mut().filter_map(|entry| entry.origin.as_mut()) {
        origin.message += offset;
    }
}

/// Returns the events of one message, in the order in which they happened. An error is the problem with the message;
/// the caller adds its location.
fn read_message(item: &Value) -> Result<Vec<TraceEntry>, String> {
    let object = item.as_object().ok_or("the message is not a JSON object; write one with a `role`")?;
    if object.contains_key("jsonrpc") {
        // Metadata that a server adds to its messages must not choose the agent or the parents.
        return mcp::read(object);
    }
    let mut entries =
        if anthropic::is_anthropic(object) { anthropic::read(object)? } else { openai::read(object)? };
    read_agent_and_parents(object, &mut entries)?;
    Ok(entries)
}

/// Sets the agent, the name and the parents of the events of one message. They are in the fields `metadata.agent`,
/// `metadata.id` and `metadata.parents`, since no provider's format has fields for them. All events get the agent, the
/// first one the parents, and the last one the name, since the events of a message follow each other. Fails if the
/// agent or a parent is not a string, or if the parents are not a list.
fn read_agent_and_parents(object: &Map<String, Value>, entries: &mut [TraceEntry]) -> Result<(), String> {
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return Ok(()) };
    let agent = metadata.get("agent").map(|agent| text_field(agent, "`metadata.agent`")).transpose()?;
    for entry in entries.iter_mut() {
        entry.agent.clone_from(&agent);
    }
    if let (Some(id), Some(last)) = (metadata.get("id").and_then(Value::as_str), entries.last_mut()) {
        last.name = Some(id.to_owned());
    }
    if let (Some(parents), Some(first)) = (metadata.get("parents"), entries.first_mut()) {
        let parents = parents
            .as_array()
            .ok_or("`metadata.parents` is not a list of ids; write the ids of earlier messages")?;
        first.parents = parents
            .iter()
            .map(|id| text_field(id, "an item of `metadata.parents`"))
            .collect::<Result<_, _>>()?;
    }
    Ok(())
}

/// Returns `value` as a text; if it is not a string, an error that begins with `field`, the name of its field.
fn text_field(value: &Value, field: &str) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{field} is not a string; write one"))
}

/// Returns the fields of an object that the event stores for rules: those that are not in `known`, and always
/// `metadata`.
fn unknown_fields(object: &Map<String, Value>, known: &[&str]) -> Map<String, Value> {
    // Rules may read metadata too, although `read_agent_and_parents` reads the agent and the parents from it.
    let is_omitted = |key: &String| known.contains(&key.as_str()) && key != "metadata";
    let rest = object.iter().filter(|(key, _)| !is_omitted(key));
    rest.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the server that a client's configuration names, from the fields in which common clients write it: `server`,
/// or else `metadata.server`.
fn server(object: &Map<String, Value>) -> Option<&str> {
    let metadata = object.get("metadata").and_then(|metadata| metadata.get("server"));
    object.get("server").or(metadata).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::event::{EventBody, Tool};
    use super::*;

    /// Returns one word for each event.
    fn shape(entries: &[TraceEntry]) -> String {
        let word = |entry: &TraceEntry| match &entry.body {
            EventBody::Message(message) => message.role.clone(),
            EventBody::Call(call) => {
                format!("{}={}({})", call.id, call.tool, call.arguments.as_ref().map_or(0, |a| a.len()))
            }
            EventBody::Output(output) => format!("{}->{}", output.call_id, output.content),
            EventBody::Tool(tool) => format!("tool:{}", tool.tool),
        };
        entries.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn check(text: &str, expected: &str) {
        let shown = match file(text) {
            Ok(runs) => runs.iter().map(|run| shape(&run.entries)).collect::<Vec<_>>().join(" | "),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn openai_messages() {
        check(
            r#"[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]},
                {"role":"assistant","content":null,"tool_calls":[
                    {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
                    {"id":"c2","type":"function","function":{"name":"g","arguments":{}},"metadata":{"server":"s"}}]},
                {"role":"tool","tool_call_id":"c1","content":"ok"}]"#,
            r#"system user assistant c1=f(1) c2=s/g(0) c1->"ok""#,
        );
        check(r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}"#, "c=f(0)");
        check(r#"{"role":"tool","content":"ok"}"#, r#"->"ok""#);
        check(
            r#"{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}"#,
            "assistant function:f=f(0)",
        );
    }

    #[test]
    fn anthropic_messages() {
        check(
            r#"{"system":"s","messages":[{"role":"user","content":"hi"},
                {"role":"assistant","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"u","name":"f","input":{"a":1}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"u","content":[{"type":"text","text":"r"}]},
                    {"type":"text","text":"and"}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"v"}]}]}"#
                .replace('\n', "")
                .as_str(),
            r#"system user assistant u=f(1) u->[{"type":"text","text":"r"}] user v->null"#,
        );
    }

    #[test]
    fn mcp_logs() {
        check(
            concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"f","arguments":{"a":1}},"server":"s"}"#,
                "\n",
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"r"}],"isError":false},"server":"s"}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"x"}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}"#
            ),
            concat!(
                r#"s#1=s/f(1) mcp s#1->[{"type":"text","text":"r"}] "#,
                r#"#2=resources/read(1) #2->{"code":-1,"message":"no"}"#
            ),
        );
    }

    #[test]
    fn json_lines_of_messages_are_one_run_and_of_runs_are_many() {
        check("{\"role\":\"user\",\"content\":\"a\"}\n\n{\"role\":\"user\",\"content\":\"b\"}", "user user");
        check(
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"suite\":\"s\"}\n[{\"role\":\"user\"}]",
            "user | user",
        );
    }

    #[test]
    fn bad_input_is_located() {
        check(
            "{\"role\":\"user\"}\n{\"role\":",
            "line 2: not strict JSON: EOF while parsing a value at column 8",
        );
        check(
            "[{\"role\":\"user\"},3]",
            "line 1, message 1: the message is not a JSON object; write one with a `role`",
        );
        check(
            "3",
            "line 1: the line is not a message, a list of messages or an object with `messages`; write one of these",
        );
        check(r#"{"role":"user","role":"system"}"#, "line 1: not strict JSON: duplicate key at column 21");
        check(r#"{"content":"x"}"#, "line 1: the message has no `role`; add one, such as `user`");
        check(
            r#"[{"role":"assistant","tool_calls":[{"id":"a"}]}]"#,
            "line 1, message 0: a tool call of the message has no `function.name`; add the name of the tool",
        );
        check(
            r#"{"role":"user","metadata":{"agent":1}}"#,
            "line 1: `metadata.agent` is not a string; write one",
        );
        check("", "");
    }

    #[test]
    fn unknown_fields_are_kept() {
        let run = file(
            r#"[{"role":"assistant","content":"","origin":"user","tool_calls":[{"id":"c","function":{"name":"f"},"x":1}]}]"#,
        );
        let entries = run.unwrap().remove(0).entries;
        assert_eq!(entries[0].extra["origin"], "user");
        assert_eq!(entries[1].extra["origin"], "user", "a call keeps its message's fields");
        assert_eq!(entries[1].extra["x"], 1);
    }

    #[test]
    fn agents_and_parents() {
        let text =
            r#"{"role":"user","content":"x","metadata":{"agent":"helper","id":"e2","parents":["e1"]}}"#;
        let JsonLine::Part(entries) = line(text, 1).unwrap() else { panic!("a message is a part") };
        assert_eq!(entries[0].agent.as_deref(), Some("helper"));
        assert_eq!(
            (entries[0].name.as_deref(), entries[0].parents.as_slice()),
            (Some("e2"), &["e1".to_owned()][..])
        );
        assert_eq!(Tool::of("a", "b").to_string(), "a/b");
    }
}
