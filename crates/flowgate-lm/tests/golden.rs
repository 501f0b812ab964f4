//! Tests that every scenario of `tests/scenarios`, a chat with its answer, has the bytes of its golden files in all
//! three formats. `UPDATE_GOLDEN=1` rewrites the files.

#![expect(clippy::unwrap_used, reason = "tests")]

mod scenarios;

use std::path::{Path, PathBuf};

use flowgate_lm::json::Json;
use flowgate_lm::sse::{EventSplitter, SseEvent};
use flowgate_lm::wire::{Api, ResponseHead};
use flowgate_lm::{Delta, ignore_deltas};
use scenarios::{Scenario, all};
use serde_json::Value;

fn folder(api: Api) -> PathBuf {
    let name = match api {
        Api::ChatCompletions => "chat_completions",
        Api::Responses => "responses",
        Api::Messages => "messages",
    };
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
        assert_eq!((asked.model.as_str(), asked.stream), (name, stream));
        // The decoded request equals the original as far as the format can express it, and encodes to the
        // same JSON.
        assert_eq!(api.encode_request(&asked.request, name, stream), sent);
        if api == Api::Messages && scenario.request.sampling.max_tokens.is_some() {
            assert_eq!(asked.request, scenario.request);
        }
    }
    let head = ResponseHead { id: "r1", model: name, created: 1_700_000_000 };
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
        // There are no files of scenarios that no longer exist.
        for entry in std::fs::read_dir(folder(api)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let known = all().iter().any(|scenario| file.starts_with(&format!("{}.", scenario.name)));
            assert!(known, "{file}");
        }
    }
}
