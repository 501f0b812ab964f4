//! Tests of blocked texts: a blocked text changes no bit of what the model computes for other texts, but a text that is
//! not blocked does.

use candle_core::Tensor;

use super::tiny;
use crate::chat::{Message, Request, Sampling};
use crate::local::LocalModel;
use crate::local::decoder::{BlockedTokens, Probe, token_row};
use crate::{BlockedText, BlockingModel, Error, block_on, ignore_deltas};

/// Two texts with equally many tokens, one per byte. They are longer than a piece of an evaluation.
fn contents() -> [String; 2] {
    ["QX".repeat(90), "ZJ".repeat(90)]
}

/// A chat whose user message has a text in the middle, which is blocked.
fn chat(content: &str) -> (Request, BlockedText) {
    let text = format!("before {content} after");
    let mut request = Request {
        // Sampling shows small differences that choosing the most probable token would often hide.
        sampling: Sampling {
            max_tokens: Some(12),
            temperature: Some(3.0),
            seed: Some(1),
            ..Sampling::default()
        },
        ..Request::default()
    };
    request.messages.push(Message::User(vec![text.as_str().into()]));
    (request, BlockedText { message: 0, part: 0, span: 7..7 + content.len() })
}

fn bits(logits: Vec<f32>) -> Vec<u32> {
    logits.into_iter().map(f32::to_bits).collect()
}

/// The bits of the logits after the prompt, and after each of three more tokens; with or without blocking.
fn logits(model: &LocalModel, content: &str, blocks: bool) -> Vec<Vec<u32>> {
    let (request, blocked) = chat(content);
    let template = model.template.as_ref().unwrap();
    let blocked = if blocks { vec![blocked] } else { Vec::new() };
    let (tokens, regions) = model.blocking_prompt(template, &request.messages, &[], &blocked).unwrap();
    let (mut cache, first) = model.evaluate_blocking(&tokens, &regions).unwrap();
    let mut all = vec![bits(first)];
    for token in [5, 60, 7] {
        let (hidden, extended) =
            model.evaluate(&[token], &cache, &mut Probe::blocking(Some(&regions))).unwrap();
        cache = extended;
        all.push(bits(model.last_logits(&hidden).unwrap()));
    }
    all
}

#[test]
fn a_blocked_text_changes_no_bit_of_a_logit() {
    let [one, other] = contents();
    for (name, config) in tiny::configurations() {
        let model = tiny::model(&config);
        assert_eq!(logits(&model, &one, true), logits(&model, &other, true), "{name}");
        // In one configuration the window does not reach the text, so there is no difference.
        if config.get("sliding_window").is_none() {
            let (one, other) = (logits(&model, &one, false), logits(&model, &other, false));
            assert!(one.iter().zip(&other).all(|(one, other)| one != other), "{name}");
        }
        // The blocked text is longer than a window, so a short one shows that blocking matters there as well.
        assert_eq!(logits(&model, "QX", true), logits(&model, "ZJ", true), "{name}");
    }
}

/// Each region reads the text that is not blocked, but no other region, and nothing outside a region reads it.
#[test]
fn regions_do_not_read_each_other() {
    for (name, config) in tiny::configurations() {
        let model = tiny::model(&config);
        let mut regions = BlockedTokens::default();
        regions.push(2..5);
        regions.push(6..9);
        let states = |tokens: &[u32]| -> Vec<Vec<f32>> {
            let row = token_row(tokens, model.decoder.device()).unwrap();
            let mut probe = Probe::blocking(Some(&regions));
            let (hidden, _): (Tensor, _) =
                model.decoder.forward(&row, &Default::default(), &mut probe).unwrap();
            hidden.squeeze(0).unwrap().to_vec2().unwrap()
        };
        let first = states(&[1, 2, 30, 40, 50, 3, 60, 70, 80, 4, 5]);
        let check = |tokens: &[u32], changed: &[usize]| {
            let found: Vec<usize> = states(tokens)
                .iter()
                .zip(&first)
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(at, _)| at)
                .collect();
            assert_eq!(found, changed, "{name}");
        };
        // A change in a region affects only the rest of this region.
        check(&[1, 2, 31, 40, 50, 3, 60, 70, 80, 4, 5], &[2, 3, 4]);
        check(&[1, 2, 30, 40, 50, 3, 60, 71, 80, 4, 5], &[7, 8]);
        // A change in text that is not blocked affects the regions and the rest of the text.
        check(&[1, 2, 30, 40, 50, 9, 60, 70, 80, 4, 5], &[5, 6, 7, 8, 9, 10]);
    }
}

#[test]
fn a_message_does_not_depend_on_a_blocked_text() {
    let model = tiny::model(&tiny::configuration("llama"));
    let complete = |content: &str, blocks: bool| {
        let (request, blocked) = chat(content);
        let blocked = if blocks { vec![blocked] } else { Vec::new() };
        block_on(model.complete_blocking(&request, &blocked, &mut ignore_deltas))
    };
    let [one, other] = contents();
    // The recent prompt without blocking is not reused, and the prompt with blocking does not become a recent prompt.
    let open = complete(&one, false).unwrap();
    let blocked = complete(&one, true).unwrap();
    assert_eq!(complete(&other, true).unwrap(), blocked);
    assert_eq!(complete(&one, false).unwrap(), open);
    assert_ne!(complete(&other, false).unwrap(), open);
    let (request, _) = chat(&one);
    let missing = BlockedText { message: 3, part: 0, span: 0..1 };
    let error = block_on(model.complete_blocking(&request, &[missing], &mut ignore_deltas)).unwrap_err();
    assert!(matches!(error, Error::Unsupported(what) if what.contains("not in the chat")), "{error}");
}
