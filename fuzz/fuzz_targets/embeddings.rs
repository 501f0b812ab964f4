//! Arbitrary requests for embeddings, and answers to them, are decoded or rejected with an error of one line. What is
//! decoded is encoded to a body that decodes to the same, and an answer has one embedding for each text.

#![no_main]

mod bytes;
mod fixed;
mod json;

use std::fmt::Display;

use bytes::Choices;
use flowgate_lm::json::Json;
use flowgate_lm::wire::DecodeOptions;
use flowgate_lm::wire::embeddings::{EmbeddingsRequest, EmbeddingsResponse};
use json::edit;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    if *kind == b'?' {
        return check(&serde_json::from_slice(rest).unwrap_or_default());
    }
    let mut choices = Choices::new(rest);
    let mut body = serde_json::from_str(choices.of(&GOOD)).expect("good");
    while !choices.are_spent() {
        edit(&mut body, &mut choices);
    }
    check(&body);
});

/// The bodies to mutate: a request and an answer.
const GOOD: [&str; 2] =
    [include_str!("good/embeddings-request.json"), include_str!("good/embeddings-response.json")];

fn check(body: &Value) {
    match EmbeddingsRequest::decode(&Json::from(body), &DecodeOptions::default()) {
        Ok(request) => {
            let sent = request.encode();
            let again = EmbeddingsRequest::decode(&Json::from(&sent), &DecodeOptions::default());
            assert_eq!(again.as_ref(), Ok(&request), "{sent}");
        }
        Err(error) => is_one_line(&error),
    }
    for texts in 0..4 {
        match EmbeddingsResponse::decode(body, texts) {
            Ok(response) => {
                assert_eq!(response.embeddings.len(), texts);
                let sent = response.encode();
                assert_eq!(EmbeddingsResponse::decode(&sent, texts).ok(), Some(response), "{sent}");
            }
            Err(error) => is_one_line(&error),
        }
    }
}

fn is_one_line(error: &impl Display) {
    let text = error.to_string();
    assert!(!text.contains(char::is_control) && text.len() < 500, "{text:?}");
}
