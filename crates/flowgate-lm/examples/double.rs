//! A double of a model server for `compat/clients`: answers with the chats of `tests/scenarios` in all formats,
//! streamed or not.
//!
//! The requested model is the name of a scenario, and the request must equal that of the scenario. With the
//! header `x-without: 3` the stream lacks its fourth event, so that a test of a client can show that it
//! detects the loss.

#[path = "../tests/scenarios/mod.rs"]
mod scenarios;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use flowgate_lm::json::Json;
use flowgate_lm::sse::SseEvent;
use flowgate_lm::wire::generate_content::Target;
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ResponseHead};
use serde_json::Value;

/// The longest request, in bytes.
const MAX_REQUEST: usize = 1 << 20;

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = io::stdout();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A client that disconnects does not stop the server.
        std::thread::spawn(move || drop(serve(stream)));
    }
    Ok(())
}

/// Answers the single request of a connection.
fn serve(stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?).take(MAX_REQUEST as u64);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut without) = (0_usize, None);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "x-without" => without = value.trim().parse::<usize>().ok(),
            _ => {}
        }
    }
    let mut body = vec![0_u8; length.min(MAX_REQUEST)];
    reader.read_exact(&mut body)?;
    answer(stream, &path, &body, without)
}

fn answer(mut stream: TcpStream, path: &str, body: &[u8], without: Option<usize>) -> io::Result<()> {
    let below = path.strip_prefix("/v1beta").or_else(|| path.strip_prefix("/v1")).unwrap_or_default();
    let Some((api, target)) = Api::of_path(below) else {
        return send(&mut stream, "404 Not Found", "{}");
    };
    let (scenario, asked) = match understood(api, target.as_ref(), body) {
        Ok(understood) => understood,
        Err(why) => return send(&mut stream, "400 Bad Request", &api.encode_error(400, &why).to_string()),
    };
    let head = ResponseHead {
        id: "r1",
        model: scenario.name,
        created: 1_700_000_000,
        tools: &ONLY_FUNCTIONS,
        storage: AnswerStorage::NotStored,
    };
    if !asked.stream {
        return send(&mut stream, "200 OK", &api.encode_response(&scenario.completion, head).to_string());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    let events: Vec<SseEvent> = api.encode_stream(&scenario.completion, head, asked.usage);
    for (index, event) in events.iter().enumerate() {
        if Some(index) != without {
            stream.write_all(event.encode().as_bytes())?;
            stream.flush()?;
        }
    }
    Ok(())
}

/// Returns the scenario of a request, if the request equals that of the scenario.
fn understood(
    api: Api,
    target: Option<&Target>,
    body: &[u8],
) -> Result<(scenarios::Scenario, flowgate_lm::wire::ReceivedRequest), String> {
    let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let asked = api.decode_request(&Json::from(&body)).map_err(|error| error.to_string())?;
    let asked = match target {
        Some(target) => asked.addressed_to(target),
        None => asked,
    };
    let scenario = scenarios::all().into_iter().find(|scenario| scenario.name == asked.model);
    let scenario = scenario.ok_or("there is no such scenario")?;
    let sent = api.encode_request(&scenario.request, scenario.name, asked.stream);
    let expected = api.decode_request(&Json::from(&sent)).map_err(|error| error.to_string())?;
    if asked.request == expected.request {
        Ok((scenario, asked))
    } else {
        Err("this is not what the scenario asks".to_owned())
    }
}

fn send(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes())
}
