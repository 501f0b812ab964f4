//! Tests that every scenario of `tests/scenarios`, a chat with its answer, has the bytes of its golden files in all
//! formats. `UPDATE_GOLDEN=1` rewrites the files.

#![expect(clippy::unwrap_used, reason = "tests")]

mod scenarios;

use std::path::{Path, PathBuf};

use flowgate_lm::chat::{
    Completion, Effort, Message, Part, Reasoning, ReasoningPart, ReasoningSummary, Request, Sampling, Seal,
    ThinkingDisplay, ThinkingMode, ToolCall, ToolSpec, Verbosity,
};
use flowgate_lm::json::Json;
use flowgate_lm::sse::{EventSplitter, SseEvent};
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ResponseHead};
use flowgate_lm::{Delta, ignore_deltas};
use scenarios::{Scenario, all};
use serde_json::Value;

fn folder(api: Api) -> PathBuf {
    let name = api.form().name.replace('-', "_");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares a text with its file, or writes the file; returns the content of the file.
fn golden(api: Api, name: &str, text: &str) -> String {
    let path = folder(api).join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(folder(api)).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{} (UPDATE_GOLDEN=1 writes it anew)", path.display());
    kept
}

fn without_thoughts(request: &Request) -> Request {
    let mut request = request.clone();
    for message in request.messages.iter_mut() {
        if let Message::Assistant { thoughts, .. } = message {
            thoughts.clear();
        }
    }
    request
}

/// A model that reasons before it calls a tool, and again before it answers. Only the server of each format can read the
/// seals.
fn reasoning(api: Api) -> Scenario {
    let thoughts = |number: usize, text: &str| match api {
        Api::Responses => vec![ReasoningPart {
            texts: vec![text.to_owned(), "And once more.".to_owned()],
            seal: Seal::Item { id: format!("rs_r1_{number}"), encrypted: Some("ZW5jcnlwdGVk".to_owned()) },
            author: String::new(),
        }],
        Api::Messages => vec![
            ReasoningPart {
                texts: vec![text.to_owned()],
                seal: Seal::Signature("c2lnbmVk".to_owned()),
                author: String::new(),
            },
            ReasoningPart { seal: Seal::Redacted("cmVkYWN0ZWQ=".to_owned()), ..ReasoningPart::default() },
        ],
        Api::GenerateContent => {
            // The first message has a call, and the second one a text.
            let seal = Seal::Part { signature: "c2lnbmVk".to_owned(), call: (number > 0).then_some(0) };
            vec![
                ReasoningPart { texts: vec![text.to_owned()], ..ReasoningPart::default() },
                ReasoningPart { seal, ..ReasoningPart::default() },
            ]
        }
        // Chat completions have no reasoning.
        _ => Vec::new(),
    };
    let effort = Some(Effort::High);
    let reasoning = match api {
        Api::Responses => Reasoning {
            effort,
            summary: Some(ReasoningSummary::Auto),
            is_returned: true,
            ..Reasoning::default()
        },
        Api::Messages => Reasoning {
            effort,
            thinking: Some(ThinkingMode::Adaptive),
            display: Some(ThinkingDisplay::Summarized),
            ..Reasoning::default()
        },
        Api::GenerateContent => {
            Reasoning { effort, display: Some(ThinkingDisplay::Summarized), ..Reasoning::default() }
        }
        _ => Reasoning { effort, ..Reasoning::default() },
    };
    let has_errors = matches!(api, Api::Messages | Api::GenerateContent);
    let verbosity = Some(Verbosity::Low).filter(|_| !has_errors);
    let call = ToolCall { id: "call_1".to_owned(), name: "clock".to_owned(), arguments: "{}".to_owned() };
    let tool = ToolSpec {
        name: "clock".to_owned(),
        description: "Returns the time.".to_owned(),
        parameters: serde_json::json!({"type": "object", "properties": {}}).into(),
    };
    let messages = vec![
        Message::User(vec![Part::from("What time is it?")]),
        Message::Assistant {
            text: String::new(),
            calls: vec![call],
            thoughts: thoughts(7, "I need a clock."),
        },
        Message::Tool {
            call_id: "call_1".to_owned(),
            content: vec![Part::from("12:00")],
            is_error: Some(false).filter(|_| has_errors),
        },
    ];
    let sampling = Sampling { reasoning, verbosity, single_call: true, ..Sampling::default() };
    let request = Request { messages: messages.into(), tools: vec![tool], sampling, ..Request::default() };
    let completion = Completion {
        text: "It is noon.".to_owned(),
        thoughts: thoughts(0, "The clock says twelve."),
        ..Completion::default()
    };
    Scenario { name: "reasoning", request, completion }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn check(api: Api, scenario: &Scenario) {
    let name = scenario.name;
    for stream in [false, true] {
        let sent = api.encode_request(&scenario.request, name, stream);
        let file = format!("{name}.{}.json", if stream { "request_stream" } else { "request" });
        let kept: Value = serde_json::from_str(&golden(api, &file, &pretty(&sent))).unwrap();
        let asked = api.decode_request(&Json::from(&kept)).unwrap();
        let (model, is_stream) = match api {
            // The address states both.
            Api::GenerateContent => ("", false),
            _ => (name, stream),
        };
        assert_eq!((asked.model.as_str(), asked.stream), (model, is_stream));
        // The decoded request equals the original as far as the format can express it, and encodes to the
        // same JSON, apart from earlier reasoning, which a server does not take from its clients.
        let expected = api.encode_request(&without_thoughts(&scenario.request), name, stream);
        assert_eq!(api.encode_request(&asked.request, name, stream), expected);
        if api == Api::Messages && name == "length" {
            assert_eq!(asked.request, scenario.request);
        }
    }
    let head = ResponseHead {
        id: "r1",
        model: name,
        created: 1_700_000_000,
        tools: &ONLY_FUNCTIONS,
        storage: AnswerStorage::NotStored,
    };
    let body = pretty(&api.encode_response(&scenario.completion, head));
    let kept = golden(api, &format!("{name}.response.json"), &body);
    let read = api.decode_response(&serde_json::from_str(&kept).unwrap());
    assert_eq!(read.unwrap(), scenario.completion, "{api:?} {name}");
    let stream: String =
        api.encode_stream(&scenario.completion, head, true).iter().map(SseEvent::encode).collect();
    let kept = golden(api, &format!("{name}.stream.txt"), &stream);
    let mut decoder = api.decoder();
    for event in EventSplitter::default().feed(kept.as_bytes()) {
        decoder.feed(&event.unwrap(), &mut |delta: Delta<'_>| ignore_deltas(delta)).unwrap();
    }
    assert_eq!(decoder.finish().unwrap(), scenario.completion, "{api:?} {name}, streamed");
}

#[test]
fn every_form_of_every_scenario() {
    for api in Api::ALL {
        for scenario in all() {
            check(api, &scenario);
        }
        check(api, &reasoning(api));
        // There are no files of scenarios that no longer exist.
        for entry in std::fs::read_dir(folder(api)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let names = all().into_iter().map(|scenario| scenario.name).chain(["reasoning"]);
            let known = names.into_iter().any(|name| file.starts_with(&format!("{name}.")));
            assert!(known, "{file}");
        }
    }
}
