//! Writes the events of a monitor as JSON lines, which [`flowgate::trace::read`] reads: the traces that `flowgate run
//! --trace`, `flowgate trace export` and the gateway write.
//!
//! Messages and answers are in OpenAI's form, with a line of its own for each call. An answer of a server with
//! structured content is in MCP's form, which has a field for such content.

use flowgate::monitor::Monitor;
use flowgate::trace::{Event, EventBody, Tool};
use serde_json::{Value, json};

/// Returns the id of a call with the name of its server before it, for a line in OpenAI's form. Two servers can use the
/// same id; the reader of MCP's form adds the server to an id in the same way, so that a call and its answer match.
fn id(server: Option<&str>, id: &str) -> String {
    server.map_or_else(|| id.to_owned(), |server| format!("{server}#{id}"))
}

/// Returns an event of a monitor's session as a JSON line.
pub fn line(event: &Event, monitor: &Monitor) -> Value {
    let call = event.call.and_then(|call| monitor.trace().event(call));
    line_of(&event.body, call.and_then(Event::tool))
}

/// Returns an event with this content as a JSON line. For an output, `answered` is the tool of the call that it answers.
/// An output with structured content from a tool of a server is written in MCP's form, since OpenAI's form has no field
/// for such content. In OpenAI's form, the name of the server precedes the id of a call (`SERVER#ID`), since two servers
/// can use the same id.
pub fn line_of(body: &EventBody, answered: Option<&Tool>) -> Value {
    match body {
        EventBody::Message(message) => json!({"role": message.role, "content": message.content}),
        EventBody::Tool(tool) => {
            let mut description = json!({
                "name": tool.tool.name,
                "description": tool.description,
                "inputSchema": &*tool.input_schema,
                "server": tool.tool.server,
            });
            if let (Some(schema), Some(fields)) = (&tool.output_schema, description.as_object_mut()) {
                fields.insert("outputSchema".to_owned(), schema.clone());
            }
            json!({"tools": [description]})
        }
        EventBody::Call(call) => {
            let server = call.tool.server.as_deref();
            // Arguments that are no JSON object are written as an empty one.
            let arguments = call.arguments.as_ref().cloned().unwrap_or_default();
            json!({
                "id": id(server, &call.id),
                "type": "function",
                "function": {"name": call.tool.name, "arguments": Value::Object(arguments).to_string()},
                "server": server,
            })
        }
        EventBody::Output(output) => {
            let server = answered.and_then(|tool| tool.server.as_deref());
            match (&output.structured, server) {
                (Some(structured), Some(server)) => json!({
                    "jsonrpc": "2.0",
                    "id": output.call_id,
                    "server": server,
                    "result": {
                        "content": output.content,
                        "structuredContent": structured,
                        "isError": output.is_error,
                    },
                }),
                _ => json!({
                    "role": "tool",
                    "tool_call_id": id(server, &output.call_id),
                    "content": output.content,
                    "is_error": output.is_error,
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::monitor::Verdict;
    use flowgate::policy::Policy;
    use flowgate::trace::{Call, Message, Output, Tool, ToolDescription, TraceEntry, read};

    use super::*;

    /// The lines of a session are read as the same events; only the ids of calls have their server added.
    #[test]
    fn what_is_written_is_read_again() {
        let policy = Policy::parse("lattice secrecy: public < private\ndefault public\n").unwrap();
        let mut monitor = Monitor::new(Arc::new(policy));
        let tool = Tool::of("bank", "list");
        let message = Message::new("user", "hi\n");
        let description = ToolDescription {
            tool: tool.clone(),
            description: "lists".to_owned(),
            input_schema: json!({"type": "object"}).into(),
            output_schema: Some(json!({"type": "array"})),
            other: serde_json::Map::new(),
        };
        monitor.push(TraceEntry::from(description)).unwrap();
        monitor.push(TraceEntry::from(message)).unwrap();
        for (number, structured) in [Some(json!({"a": [1]})), None].into_iter().enumerate() {
            let call = Call::from_json(format!("c{number}"), tool.clone(), r#"{"day":"today"}"#);
            let Verdict::Permit(permit) = monitor.judge(call) else { panic!("nothing forbids it") };
            assert!(monitor.redeem(permit).is_ok());
            let content = json!([{"type": "text", "text": "{\"a\":[1]}"}]);
            let output = Output {
                call_id: format!("c{number}"),
                tool: None,
                content,
                structured,
                is_error: Some(number == 1),
            };
            monitor.push(TraceEntry::from(output)).unwrap();
        }
        let lines: Vec<String> =
            monitor.trace().events().iter().map(|event| line(event, &monitor).to_string()).collect();
        let run = read::file(&lines.join("\n")).unwrap().remove(0);
        let bodies: Vec<EventBody> = run.entries.into_iter().map(|entry| entry.body).collect();
        let expected: Vec<EventBody> = monitor
            .trace()
            .events()
            .iter()
            .map(|event| match event.body.clone() {
                EventBody::Call(call) => EventBody::Call(Call { id: format!("bank#{}", call.id), ..call }),
                EventBody::Output(output) => {
                    EventBody::Output(Output { call_id: format!("bank#{}", output.call_id), ..output })
                }
                other => other,
            })
            .collect();
        assert_eq!(bodies, expected);
    }
}
