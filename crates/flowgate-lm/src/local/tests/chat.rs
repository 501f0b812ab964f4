//! Tests of chats: generation is reproducible, a prompt that is reused changes no bit, and text is passed on while it
//! is generated.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::json;

use super::tiny;
use crate::chat::{Completion, Message, Request, Sampling, Stop, ToolChoice, ToolSpec};
use crate::local::LocalModel;
use crate::{ChatModel, Delta, Error, block_on, ignore_deltas};

fn request(text: &str, sampling: Sampling) -> Request {
    let mut request = Request { sampling, ..Request::default() };
    request.messages.push(Message::User(vec![text.into()]));
    request
}

fn limited(max_tokens: u32) -> Sampling {
    Sampling { max_tokens: Some(max_tokens), ..Sampling::default() }
}

fn complete(model: &LocalModel, request: &Request) -> Result<Completion, Error> {
    block_on(model.complete(request, &mut ignore_deltas))
}

#[test]
fn greedy_generation_is_the_most_probable_token_each_time() {
    let model = tiny::model(&tiny::configuration("qwen3"));
    let request = request("hello", limited(6));
    let completion = complete(&model, &request).unwrap();
    let mut tokens = model
        .tokenizer
        .encode_written_out("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
        .unwrap()
        .ids;
    assert_eq!(completion.usage.input, tokens.len() as u64);
    let prompt = tokens.len();
    for _ in 0..completion.usage.output {
        let (hidden, _) = model.evaluate(&tokens, &Default::default(), &mut Default::default()).unwrap();
        let logits = model.last_logits(&hidden).unwrap();
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        tokens.push(u32::try_from(best).unwrap());
    }
    let expected = model.tokenizer.decode(&tokens[prompt..]).unwrap();
    assert_eq!(completion.text, expected.trim_end_matches('\u{fffd}'));
    assert!(completion.usage.output > 0);
}

#[test]
fn a_seed_repeats_and_text_is_streamed() {
    let model = tiny::model(&tiny::configuration("llama"));
    let sampling = |seed| Sampling { temperature: Some(1.0), seed: Some(seed), ..limited(20) };
    let one = complete(&model, &request("hello", sampling(1))).unwrap();
    assert_eq!(one, complete(&model, &request("hello", sampling(1))).unwrap());
    assert_ne!(one.text, complete(&model, &request("hello", sampling(2))).unwrap().text);
    let mut heard = String::new();
    let mut pieces = 0;
    let mut hear = |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            heard += text;
            pieces += 1;
        }
        ControlFlow::Continue(())
    };
    let again = request("hello", sampling(1));
    let streamed = block_on(model.complete(&again, &mut hear)).unwrap();
    assert_eq!((&heard, &streamed), (&one.text, &one));
    assert!(pieces > 1);
    let cancelled = block_on(model.complete(&again, &mut |_: Delta<'_>| ControlFlow::Break(())));
    assert_eq!(cancelled, Err(Error::Cancelled));
}

/// A model that reuses the evaluations of earlier prompts computes the same logits as one whose cache is emptied after
/// each prompt.
#[test]
fn what_is_reused_changes_no_bit() {
    let (fresh, used) =
        (tiny::model(&tiny::configuration("llama")), tiny::model(&tiny::configuration("llama")));
    let long = "a long message that several chats begin with ".repeat(6);
    for text in [long.clone() + "one", long.clone() + "another end", "short".to_owned(), long] {
        let tokens = used.tokenizer.encode(&text).unwrap().ids;
        let (_, expected) = fresh.evaluate_prompt(&tokens).unwrap();
        *fresh.recent.lock().unwrap() = Default::default();
        let (_, found) = used.evaluate_prompt(&tokens).unwrap();
        let bits = |logits: Vec<f32>| -> Vec<u32> { logits.into_iter().map(f32::to_bits).collect() };
        assert_eq!(bits(found), bits(expected));
    }
}

#[test]
fn limits_and_refusals() {
    let model = tiny::model(&tiny::configuration("llama"));
    let stop = complete(&model, &request("hello", limited(3))).unwrap();
    assert_eq!((stop.stop, stop.usage.output), (Stop::Length, 3));
    let error = |request: &Request| complete(&model, request).unwrap_err().to_string();
    let long = request(&"x".repeat(600), limited(3));
    assert_eq!(error(&long), "the text has 619 tokens, but the model reads at most 512; shorten the text");
    let mut forced = request("hello", limited(3));
    forced.choice = ToolChoice::Any;
    assert_eq!(
        error(&forced),
        "the model cannot answer this request: a local model cannot be forced to call a tool; let the model decide whether it calls a tool"
    );
    let folder = tiny::folder(&tiny::configuration("llama"));
    std::fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    let plain = LocalModel::load(folder.path(), &Default::default()).unwrap();
    let error = complete(&plain, &request("hello", limited(3))).unwrap_err().to_string();
    assert_eq!(
        error,
        "the model cannot answer this request: the model has no chat template; use a model for chats"
    );
}

#[test]
fn tools_are_in_the_prompt() {
    let model = tiny::model(&tiny::configuration("llama"));
    let mut request = request("hello", limited(2));
    let without = complete(&model, &request).unwrap();
    let parameters = Arc::new(json!({"type": "object"}));
    request.tools.push(ToolSpec { name: "pay".into(), description: "Pays.".into(), parameters });
    let with = complete(&model, &request).unwrap();
    assert!(with.usage.input > without.usage.input + 50);
    request.choice = ToolChoice::None;
    assert_eq!(complete(&model, &request).unwrap(), without);
}
