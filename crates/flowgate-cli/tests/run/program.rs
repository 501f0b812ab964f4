//! Starts the program under test, `flowgate run`, and a scripted model behind an address.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowgate_lm::chat::{Completion, Message, Part, Stop, ToolCall, Usage};
use flowgate_lm::json::Json;
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ReceivedRequest, ResponseHead};
use serde_json::Value;

pub(crate) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/run");
pub(crate) const DOUBLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run");

/// A scripted model with the requests that it received.
pub(crate) struct ModelServerDouble {
    pub(crate) url: String,
    pub(crate) asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl ModelServerDouble {
    /// Starts a model. A line `name {arguments}` is a call, `wait` never ends, and any other line is text.
    pub(crate) fn new(script: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Mutex<VecDeque<String>> =
            Mutex::new(script.iter().map(|line| (*line).to_owned()).collect());
        let (script, log) = (Arc::new(script), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                std::thread::spawn(move || serve(stream.unwrap(), &script, &log));
            }
        });
        Self { url, asked }
    }

    /// Returns the text of the chat in this request.
    pub(crate) fn shown(&self, index: usize) -> String {
        let text = |parts: &[Part]| parts.iter().map(|part| format!("{part:?}")).collect::<String>();
        let shown = |message: &Message| match message {
            Message::System(parts) => format!("system {}", text(parts)),
            Message::User(parts) => format!("user {}", text(parts)),
            Message::Assistant { text, calls, .. } => format!("model {text} {calls:?}"),
            Message::Tool { content, .. } => format!("tool {}", text(content)),
        };
        self.asked.lock().unwrap()[index].request.messages.iter().map(shown).collect::<Vec<_>>().join("\n")
    }

    /// Returns the model's name in this request.
    pub(crate) fn name(&self, index: usize) -> String {
        self.asked.lock().unwrap()[index].model.clone()
    }

    pub(crate) fn tools(&self, index: usize) -> Vec<String> {
        self.asked.lock().unwrap()[index].request.tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, script: &Mutex<VecDeque<String>>, log: &Mutex<Vec<ReceivedRequest>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0_u8; length];
    reader.read_exact(&mut body).unwrap();
    let api = Api::ChatCompletions;
    let asked = api.decode_request(&Json::parse(std::str::from_utf8(&body).unwrap()).unwrap()).unwrap();
    let (stream_wanted, usage) = (asked.stream, asked.usage);
    log.lock().unwrap().push(asked);
    let said = script.lock().unwrap().pop_front().unwrap_or_else(|| "The script is over.".to_owned());
    if said == "wait" {
        std::thread::sleep(Duration::from_secs(120));
        return;
    }
    let (completion, head) = (
        written(&said),
        ResponseHead {
            id: "r",
            model: "double",
            created: 0,
            tools: &ONLY_FUNCTIONS,
            storage: AnswerStorage::NotStored,
        },
    );
    let (kind, text) = if stream_wanted {
        let events = api.encode_stream(&completion, head, usage);
        ("text/event-stream", events.iter().map(|event| event.encode()).collect::<String>())
    } else {
        ("application/json", api.encode_response(&completion, head).to_string())
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", text.len());
    let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{text}").as_bytes());
}

fn written(script: &str) -> Completion {
    let mut completion =
        Completion { usage: Usage { input: 10, output: 5, cached: 0 }, ..Completion::default() };
    for (index, line) in script.lines().enumerate() {
        match line.split_once(" {") {
            Some((name, arguments)) => {
                completion.stop = Stop::Calls;
                completion.calls.push(ToolCall {
                    id: format!("x{index}"),
                    name: name.to_owned(),
                    arguments: format!("{{{arguments}"),
                });
            }
            None => completion.text.push_str(line),
        }
    }
    completion
}

/// Creates a folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

pub(crate) fn flowgate(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(arguments)
        .env("OUTBOX", folder.join("outbox"))
        .env("MODEL_KEY", "s3cret")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns the arguments of a run of the example.
pub(crate) fn example<'a>(model: &'a ModelServerDouble, more: &[&'a str]) -> Vec<String> {
    let common = [
        "run",
        "--policy",
        "policy.flow",
        "--config",
        "servers.json",
        "--url",
        &model.url,
        "--model",
        "double",
    ];
    let paths = common.iter().map(|argument| match *argument {
        "policy.flow" | "servers.json" => format!("{EXAMPLE}/{argument}"),
        other => other.to_owned(),
    });
    paths.chain(more.iter().map(|argument| (*argument).to_owned())).collect()
}

pub(crate) fn run(folder: &Path, arguments: &[String], input: &str) -> Output {
    flowgate(folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), input)
}

pub(crate) fn outbox(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("outbox")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
