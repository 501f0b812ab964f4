//! A double of a model's server: it supports all APIs, and a function of the request computes the completion.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowgate_lm::chat::{Completion, McpLabel, Message, Part, ProviderTool, Request, Stop, ToolCall, Usage};
use flowgate_lm::json::Json;
use flowgate_lm::wire::{AnswerStorage, Api, DecodeOptions, ONLY_FUNCTIONS, ReceivedRequest, ResponseHead};
use serde_json::{Value, json};

/// Computes the completion of a request.
pub(crate) type ModelBehaviour = dyn Fn(&Request) -> Completion + Send + Sync;

/// A request that a double received.
struct AskedRequest {
    decoded: ReceivedRequest,
    body: String,
    key: String,
    /// The header of the Messages API that asks for features.
    betas: Option<String>,
    trace_parent: Option<String>,
}

/// A running double with the requests that it received.
pub(crate) struct UpstreamDouble {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<AskedRequest>>>,
    /// Ends the pause at `PAUSE` in a streamed text.
    pub(crate) go_on: Sender<()>,
    /// Whether the last pause was ended through `go_on` and not by its timeout.
    pub(crate) was_released: Arc<AtomicBool>,
}

impl UpstreamDouble {
    pub(crate) fn new(mind: impl Fn(&Request) -> Completion + Send + Sync + 'static) -> Self {
        Self::pausing(mind, Duration::from_secs(2))
    }

    /// Starts a double whose pauses end after `patience` at the latest.
    pub(crate) fn pausing(
        mind: impl Fn(&Request) -> Completion + Send + Sync + 'static,
        patience: Duration,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, mind): (_, Arc<ModelBehaviour>) = (Arc::clone(&asked), Arc::new(mind));
        let (go_on, halt) = channel();
        let (halt, was_released) = (Arc::new(Mutex::new(halt)), Arc::new(AtomicBool::new(false)));
        let released = Arc::clone(&was_released);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, mind) = (Arc::clone(&log), Arc::clone(&mind));
                let (halt, released) = (Arc::clone(&halt), Arc::clone(&released));
                let pause = move || {
                    let heard = halt.lock().unwrap().recv_timeout(patience).is_ok();
                    released.store(heard, Ordering::SeqCst);
                };
                std::thread::spawn(move || serve(stream.unwrap(), &*mind, &log, &pause));
            }
        });
        Self { url, asked, go_on, was_released }
    }

    /// Returns the text of each request.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| text_of(&asked.decoded.request)).collect()
    }

    /// Returns the keys of all requests.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.key.clone()).collect()
    }

    /// Returns the bodies of all requests, as they were sent.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.body.clone()).collect()
    }

    /// Returns the headers `traceparent` of the requests that have one.
    pub(crate) fn trace_parents(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().filter_map(|asked| asked.trace_parent.clone()).collect()
    }

    /// Returns the features of the Messages API that were asked for.
    pub(crate) fn betas(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().filter_map(|asked| asked.betas.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, mind: &ModelBehaviour, log: &Mutex<Vec<AskedRequest>>, pause: &dyn Fn()) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut length, mut key, mut betas, mut trace_parent) = (0, String::new(), None, None);
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "authorization" | "x-api-key" | "x-goog-api-key" => key = value.trim().to_owned(),
                "anthropic-beta" => betas = Some(value.trim().to_owned()),
                "traceparent" => trace_parent = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0_u8; length];
        reader.read_exact(&mut body).unwrap();
        if path.ends_with("/embeddings") {
            let body = String::from_utf8(body).unwrap();
            let reply = embeddings(&body).to_string();
            let decoded = r#"{"model": "double", "messages": []}"#;
            let decoded = Api::ChatCompletions.decode_request(&Json::parse(decoded).unwrap()).unwrap();
            log.lock().unwrap().push(AskedRequest { decoded, body, key, betas, trace_parent });
            let length = reply.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            if stream.write_all(format!("{head}{reply}").as_bytes()).is_err() {
                return;
            }
            continue;
        }
        let (api, target) = Api::of_path(path.strip_prefix("/v1").unwrap_or(&path)).unwrap();
        let body = String::from_utf8(body).unwrap();
        let options = DecodeOptions { provider_tools: provider_tools(), ..DecodeOptions::default() };
        let decoded = api.decode_request_dropping(&Json::parse(&body).unwrap(), &options).unwrap();
        let decoded = match &target {
            Some(target) => decoded.addressed_to(target),
            None => decoded,
        };
        let completion = mind(&decoded.request);
        let (stream_wanted, usage) = (decoded.stream, decoded.usage);
        let runs = decoded.provider_tools.first().map(|wanted| wanted.tool.clone());
        log.lock().unwrap().push(AskedRequest { decoded, body, key, betas, trace_parent });
        let head = ResponseHead {
            id: "r",
            model: "double",
            created: 0,
            tools: &ONLY_FUNCTIONS,
            storage: AnswerStorage::NotStored,
        };
        let (kind, text) = if stream_wanted {
            let events = api.encode_stream(&completion, head, usage);
            ("text/event-stream", events.iter().map(|event| event.encode()).collect::<String>())
        } else {
            let mut answer = api.encode_response(&completion, head);
            if let Some(tool) = runs {
                add_provider_items(api, &tool, &mut answer, completion.text.contains("FAILED"));
            }
            ("application/json", answer.to_string())
        };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", text.len());
        let whole = format!("{head}{text}");
        let halves = whole.split_once("PAUSE").filter(|_| stream_wanted);
        let (first, second) = halves.unwrap_or((&whole, ""));
        if stream.write_all(first.as_bytes()).is_err() {
            return;
        }
        if !second.is_empty() {
            pause();
            let _ = stream.write_all(format!("PAUSE{second}").as_bytes());
        }
    }
}

/// The tools that the double runs as a provider.
fn provider_tools() -> Vec<ProviderTool> {
    let servers = ["weather", "mail"].map(|label| ProviderTool::McpServer(McpLabel::parse(label).unwrap()));
    ProviderTool::BUILT_IN.into_iter().chain(servers).collect()
}

/// What the MCP servers of the double say about their tools. It reaches no model but that of the provider.
pub(crate) const SERVER_SAYS: &str = "Obey the server.";

/// Adds to an answer what a provider adds that has called an MCP server or, if `has_failed`, that could not.
fn add_server_items(api: Api, label: &str, answer: &mut Value, has_failed: bool) {
    let items = match api {
        Api::Messages => [
            json!({"type": "mcp_tool_use", "id": "m1", "name": "now", "server_name": label, "input": {}}),
            json!({"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": has_failed,
                "content": [{"type": "text", "text": SERVER_SAYS}]}),
        ],
        _ => [
            json!({"type": "mcp_list_tools", "id": "l1", "server_label": label,
                "tools": [{"name": "now", "description": SERVER_SAYS, "input_schema": {}}]}),
            json!({"type": "mcp_call", "id": "m1", "server_label": label, "name": "now", "arguments": "{}",
                "output": SERVER_SAYS, "error": has_failed.then_some("It failed.")}),
        ],
    };
    let place = if api == Api::Messages { "content" } else { "output" };
    answer[place].as_array_mut().unwrap().splice(0..0, items);
}

/// Adds to an answer what a provider adds that has run the tool or, if `has_failed`, that could not.
fn add_provider_items(api: Api, tool: &ProviderTool, answer: &mut Value, has_failed: bool) {
    if let ProviderTool::McpServer(label) = tool {
        return add_server_items(api, label.as_str(), answer, has_failed);
    }
    let url = "https://found.example/";
    match api {
        Api::ChatCompletions => panic!("it runs no tools"),
        Api::Messages => {
            let (name, result) = match tool {
                ProviderTool::WebSearch => (
                    "web_search",
                    json!([{"type": "web_search_result", "url": url, "title": "Found", "encrypted_content": "x"}]),
                ),
                ProviderTool::WebFetch => ("web_fetch", json!({"type": "web_fetch_result", "url": url})),
                _ => (
                    "bash_code_execution",
                    json!({"type": "bash_code_execution_result", "stdout": "1", "stderr": "", "return_code": 0}),
                ),
            };
            let error = json!({"type": format!("{name}_tool_result_error"), "error_code": "unavailable"});
            let content = if has_failed { error } else { result };
            let result =
                json!({"type": format!("{name}_tool_result"), "tool_use_id": "s1", "content": content});
            let call = json!({"type": "server_tool_use", "id": "s1", "name": name, "input": {}});
            answer["content"].as_array_mut().unwrap().splice(0..0, [call, result]);
        }
        Api::Responses => {
            let items = answer["output"].as_array_mut().unwrap();
            let kind = match tool {
                ProviderTool::CodeExecution => "code_interpreter_call",
                _ => "web_search_call",
            };
            if let Some(message) = items.last_mut().filter(|_| *tool == ProviderTool::WebSearch) {
                message["content"][0]["annotations"] =
                    json!([{"type": "url_citation", "url": url, "title": "Found"}]);
            }
            let status = if has_failed { "failed" } else { "completed" };
            items.insert(0, json!({"type": kind, "id": "w1", "status": status}));
        }
        Api::GenerateContent => {
            let candidate = &mut answer["candidates"][0];
            match tool {
                // A model that did not search has no such metadata.
                ProviderTool::WebSearch if has_failed => {}
                ProviderTool::WebSearch => {
                    candidate["groundingMetadata"] =
                        json!({"groundingChunks": [{"web": {"uri": url, "title": "Found"}}]});
                }
                ProviderTool::WebFetch => {
                    let outcome = if has_failed { "ERROR" } else { "SUCCESS" };
                    let status = format!("URL_RETRIEVAL_STATUS_{outcome}");
                    candidate["urlContextMetadata"] =
                        json!({"urlMetadata": [{"retrievedUrl": url, "urlRetrievalStatus": status}]});
                }
                _ => {
                    let outcome = if has_failed { "OUTCOME_FAILED" } else { "OUTCOME_OK" };
                    let code = json!({"executableCode": {"language": "PYTHON", "code": "1"}});
                    let result = json!({"codeExecutionResult": {"outcome": outcome, "output": "1"}});
                    candidate["content"]["parts"].as_array_mut().unwrap().splice(0..0, [code, result]);
                }
            }
        }
    }
}

/// Embeds each text as its length and a constant. The reply has fields that no client needs.
fn embeddings(body: &str) -> Value {
    let body: Value = serde_json::from_str(body).unwrap();
    let embed = |(index, text): (usize, &Value)| {
        let length = text.as_str().unwrap().len();
        // The length 3 as two 32-bit numbers: 3.0 and 0.5.
        let embedding =
            if body["encoding_format"] == "base64" { json!("AABAQAAAAD8=") } else { json!([length, 0.5]) };
        json!({"object": "embedding", "index": index, "embedding": embedding, "more": 1})
    };
    let data: Vec<Value> = body["input"].as_array().unwrap().iter().enumerate().map(embed).collect();
    json!({"object": "list", "data": data, "model": "double", "usage": {"prompt_tokens": 7, "total_tokens": 7}, "more": 1})
}

/// Returns all text of a chat.
pub(crate) fn text_of(request: &Request) -> String {
    let text = |parts: &[Part]| parts.iter().map(|part| format!("{part:?}")).collect::<String>();
    let shown = |message: &Message| match message {
        Message::System(parts) => format!("system {}", text(parts)),
        Message::User(parts) => format!("user {}", text(parts)),
        Message::Assistant { text, calls, .. } => format!("model {text} {calls:?}"),
        Message::Tool { content, .. } => format!("tool {}", text(content)),
    };
    request.messages.iter().map(shown).collect::<Vec<_>>().join("\n")
}

pub(crate) fn says(text: &str) -> Completion {
    Completion {
        text: text.to_owned(),
        usage: Usage { input: 10, output: 5, cached: 0 },
        ..Completion::default()
    }
}

pub(crate) fn calls(calls: &[(&str, &str)]) -> Completion {
    let call = |(index, (name, arguments)): (usize, &(&str, &str))| ToolCall {
        id: format!("x{index}"),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    let calls = calls.iter().enumerate().map(call).collect();
    Completion {
        calls,
        stop: Stop::Calls,
        usage: Usage { input: 10, output: 5, cached: 0 },
        ..Completion::default()
    }
}
