//! Defines the chats that the golden files contain, and that the model server in `compat/clients` answers with.

use flowgate_lm::chat::{
    Completion, Message, OutputFormat, OutputSchema, Part, Request, Sampling, Stop, ToolCall, ToolChoice,
    ToolSpec, Usage,
};
use serde_json::json;

/// A chat and its next message.
pub(crate) struct Scenario {
    /// The name, which is also that of the requested model.
    pub(crate) name: &'static str,
    /// The request.
    pub(crate) request: Request,
    /// The answer.
    pub(crate) completion: Completion,
}

fn text(text: &str) -> Vec<Part> {
    vec![Part::from(text)]
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, description: &str, field: &str| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({"type": "object", "properties": {field: {"type": "string"}}, "required": [field]})
            .into(),
    };
    vec![tool("read_mail", "Reads a folder.", "folder"), tool("send_mail", "", "to")]
}

fn asks(messages: Vec<Message>) -> Request {
    Request { messages: messages.into(), tools: tools(), ..Request::default() }
}

fn question() -> Request {
    asks(vec![Message::System(text("You are helpful.")), Message::User(text("What is in my inbox?"))])
}

fn scenario(name: &'static str, request: Request, said: &str, calls: Vec<ToolCall>) -> Scenario {
    let stop = if calls.is_empty() { Stop::End } else { Stop::Calls };
    let usage = Usage { input: 21, output: 13, cached: 0 };
    Scenario {
        name,
        request,
        completion: Completion { text: said.to_owned(), calls, stop, usage, ..Completion::default() },
    }
}

/// Returns all scenarios.
pub(crate) fn all() -> Vec<Scenario> {
    let read = || call("call_1", "read_mail", r#"{"folder":"inbox"}"#);
    let list = call("call_2", "send_mail", r#"{"to":"ann@example.org","body":"Grüße 😀\n\"bye\""}"#);
    let after = |content: &str, is_error: bool| {
        let mut request = question();
        let tool = |id: &str, text: &str, is_error: bool| Message::Tool {
            call_id: id.to_owned(),
            content: vec![Part::from(text)],
            is_error: Some(is_error),
        };
        let archive = call("call_3", "read_mail", r#"{"folder":"archive"}"#);
        request.messages.extend([
            Message::Assistant {
                text: "Let me look.".to_owned(),
                calls: vec![read(), archive],
                thoughts: Vec::new(),
            },
            tool("call_1", content, is_error),
            tool("call_3", "empty", false),
        ]);
        request
    };
    let seen = Request {
        messages: vec![Message::User(vec![
            Part::from("What do these show?"),
            Part::ImageData { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() },
            Part::ImageData { media_type: "application/pdf".to_owned(), data: "JVBERi0xLjQ=".to_owned() },
        ])]
        .into(),
        ..Request::default()
    };
    let forced = Request { choice: ToolChoice::Tool("read_mail".to_owned()), ..question() };
    let sampling =
        Sampling { max_tokens: Some(13), temperature: Some(0.5), top_p: Some(0.25), ..Sampling::default() };
    let short = Request { sampling, ..question() };
    let schema = json!({
        "type": "object",
        "properties": {"mails": {"type": "integer", "description": "How many mails there are."}},
        "required": ["mails"],
        "additionalProperties": false,
    });
    let format = OutputFormat::Schema(OutputSchema {
        name: "inbox".to_owned(),
        description: "What is in the inbox.".to_owned(),
        schema: schema.into(),
        strict: Some(true),
    });
    let structured = Request { format: Some(format), ..question() };
    let long = "There is one mail in your inbox, and it is from Ann: \u{201c}Grüße 😀\u{201d}\n";
    let with = |mut scenario: Scenario, stop: Stop| {
        scenario.completion.stop = stop;
        scenario
    };
    vec![
        scenario("text", question(), long, Vec::new()),
        scenario("one_call", question(), "", vec![read()]),
        scenario("parallel_calls", question(), "", vec![read(), list]),
        scenario("text_and_call", question(), "I shall look into your inbox for you.", vec![read()]),
        scenario("tool_error", after("no such folder", true), "There is no such folder.", Vec::new()),
        scenario("image", seen, "A cat, and nothing.", Vec::new()),
        scenario("forced_tool", forced, "", vec![read()]),
        scenario("structured", structured, r#"{"mails":1}"#, Vec::new()),
        with(scenario("refusal", question(), "I cannot help with that.", Vec::new()), Stop::Refused),
        with(scenario("length", short, "There is one mail in your", Vec::new()), Stop::Length),
    ]
}
