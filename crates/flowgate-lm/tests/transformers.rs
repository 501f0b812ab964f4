//! Compares local models with transformers through the public interface: `compat/lm/run` makes the models and runs this test.
#![cfg(feature = "local")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "these are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate_lm::chat::{Message, Request, Sampling, ToolCall, ToolSpec};
use flowgate_lm::local::LocalSettings;
use flowgate_lm::{ChatModel, LocalModel, ScoringModel, block_on, ignore_deltas};
use serde_json::{Value, json};

/// The chat of `compat/lm/tiny.py`.
fn chat() -> Request {
    let arguments = json!({"to": "Ünal <u@example.org>", "amount": 12.5}).to_string();
    let call = ToolCall { id: "c1".to_owned(), name: "pay".to_owned(), arguments };
    let parameters = json!({
        "type": "object", "properties": {"to": {"type": "string"}, "amount": {"type": "number"}}, "required": ["to"],
    });
    let mut request = Request {
        tools: vec![ToolSpec {
            name: "pay".into(),
            description: "Pays.".into(),
            parameters: Arc::new(parameters),
        }],
        sampling: Sampling { max_tokens: Some(12), ..Sampling::default() },
        ..Request::default()
    };
    request.messages.extend([
        Message::System(vec!["You pay invoices. ".into()]),
        Message::User(vec!["Pay the one of März, it's 12,50 €.\n".into()]),
        Message::Assistant { text: String::new(), calls: vec![call], thoughts: Vec::new() },
        Message::Tool { call_id: "c1".to_owned(), content: vec!["paid".into()], is_error: None },
        Message::User(vec!["Thanks".into()]),
    ]);
    request
}

fn check(folder: &Path) {
    let reference: Value =
        serde_json::from_slice(&std::fs::read(folder.join("reference.json")).unwrap()).unwrap();
    let model = LocalModel::load(folder, &LocalSettings::default()).unwrap();
    for case in reference["scores"].as_array().unwrap() {
        let (prompt, continuation) =
            (case["prompt"].as_str().unwrap(), case["continuation"].as_str().unwrap());
        let found = block_on(model.score(prompt, continuation)).unwrap();
        let expected: Vec<f64> =
            case["logprobs"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
        assert_eq!(found.len(), expected.len(), "{}: {continuation}", folder.display());
        for (found, expected) in found.iter().zip(expected) {
            let difference = (found.logprob - expected).abs();
            assert!(difference < 2e-4, "{}: {} {expected}", folder.display(), found.logprob);
        }
    }
    // Longer than the original context of `phi3-long`, which then has other wavelengths.
    let settings = LocalSettings { context: Some(512), ..LocalSettings::default() };
    let model = LocalModel::load(folder, &settings).unwrap();
    let completion = block_on(model.complete(&chat(), &mut ignore_deltas)).unwrap();
    assert_eq!(completion.usage.input, reference["chat"]["prompt_tokens"].as_u64().unwrap());
    let generated = reference["chat"]["generated"].as_str().unwrap();
    // What is no complete character at the end is not passed on.
    assert_eq!(completion.text, generated.trim_end_matches('\u{fffd}'), "{}", folder.display());
}

#[test]
#[ignore = "needs models that transformers has written: run compat/lm/run"]
fn local_models_are_as_transformers_computes_them() {
    let folder = PathBuf::from(std::env::var_os("FLOWGATE_TINY_MODELS").expect("run compat/lm/run"));
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        check(&entry.unwrap().path());
        count += 1;
    }
    assert_eq!(count, 8);
}
