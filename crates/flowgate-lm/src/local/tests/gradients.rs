//! Compares gradients of attention with finite differences: the change of the loss when one entry of attention is
//! changed.

use candle_core::{DType, Device, Tensor};

use super::tiny;
use crate::local::LocalModel;
use crate::local::decoder::{Kernels, KeyValueCache, Probe};
use crate::local::inside::attention_and_gradients;
use crate::{AttentionLoss, AttentionModel, AttentionRequest, Prefix};

const PROMPT: &[u32] = &[3, 250, 17, 99, 280];
const CONTINUATION: &[u32] = &[64, 3, 17];

/// The loss with `change` added to one entry of attention.
fn changed_loss(
    model: &LocalModel,
    (layer, head, row, column): (usize, usize, usize, usize),
    change: f64,
    loss: AttentionLoss,
) -> f64 {
    let tokens = [PROMPT, CONTINUATION].concat();
    let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[PROMPT.len()..]);
    let heads = model.decoder.config().heads;
    // The oracle has no cache, so it reads the whole text at once and returns all rows of attention.
    let size = inputs.len();
    let added: Vec<Tensor> = (0..model.decoder.config().layers)
        .map(|at| {
            let mut entries = vec![0.0_f32; heads * size * size];
            if at == layer {
                entries[(head * size + PROMPT.len() - 1 + row) * size + column] = change as f32;
            }
            Tensor::from_vec(entries, (1, heads, size, size), &Device::Cpu).unwrap()
        })
        .collect();
    let mut probe =
        Probe { kernels: Kernels::Differentiable, added_to_attention: Some(&added), ..Probe::default() };
    let row = crate::local::decoder::token_row(inputs, &Device::Cpu).unwrap();
    let (hidden, _) = model.decoder.forward(&row, &KeyValueCache::default(), &mut probe).unwrap();
    let logits = model.decoder.logits(&hidden.squeeze(0).unwrap()).unwrap().to_dtype(DType::F64).unwrap();
    let logits: Vec<Vec<f64>> = logits.to_vec2().unwrap();
    let of_step = |(step, target): (usize, &u32)| {
        let logits = &logits[PROMPT.len() - 1 + step];
        let chosen = logits[*target as usize];
        match loss {
            AttentionLoss::NegativeLogProbability => {
                logits.iter().map(|l| l.exp()).sum::<f64>().ln() - chosen
            }
            AttentionLoss::Margin => {
                let others = logits.iter().enumerate().filter(|(id, _)| *id != *target as usize);
                others.map(|(_, logit)| *logit).fold(f64::NEG_INFINITY, f64::max) - chosen
            }
        }
    };
    targets.iter().enumerate().map(of_step).sum()
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    const STEP: f64 = 1e-3;
    let (mut narrow, mut all) = (0, 0);
    for (name, config) in tiny::configurations() {
        let model = tiny::model(&config);
        let tokens = [PROMPT, CONTINUATION].concat();
        let (before, inputs) = tokens[..tokens.len() - 1].split_at(PROMPT.len() - 1);
        let cache = model.extend(KeyValueCache::default(), before).unwrap();
        for loss in [AttentionLoss::NegativeLogProbability, AttentionLoss::Margin] {
            let (weights, gradients) =
                attention_and_gradients(&model.decoder, inputs, CONTINUATION, &cache, loss).unwrap();
            let columns = tokens.len() - 1;
            let mut largest = 0.0_f64;
            for (layer, head, row, column) in [
                (0, 0, 0, 0),
                (0, 1, 2, 5),
                (0, 3, 1, 2),
                (0, 2, 2, 6),
                (1, 0, 0, 4),
                (1, 2, 1, 1),
                (1, 3, 2, 3),
            ] {
                let place = (layer, head, row, column);
                let above = changed_loss(&model, place, STEP, loss);
                let below = changed_loss(&model, place, -STEP, loss);
                let here = changed_loss(&model, place, 0.0, loss);
                // At a kink of an activation the differences of the two sides differ, and the gradient is between them.
                let slopes = [(above - here) / STEP, (here - below) / STEP];
                let index = ((layer * 4 + head) * 3 + row) * columns + column;
                let found = f64::from(gradients[index]);
                largest = largest.max(found.abs());
                let tolerance = 2e-2_f64.max(2e-2 * found.abs());
                let (low, high) =
                    (slopes[0].min(slopes[1]) - tolerance, slopes[0].max(slopes[1]) + tolerance);
                assert!(
                    (low..high).contains(&found),
                    "{name}, {loss:?}, {place:?}: {found} and not {slopes:?}"
                );
                narrow += usize::from(high - low < 3.0 * tolerance);
                all += 1;
            }
            assert!(largest > 0.1, "{name}: the gradients are not compared at 0 alone");
            for row in weights.chunks(columns) {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{name}");
            }
        }
    }
    assert!(narrow * 10 > all * 8, "most slopes are certain: {narrow} of {all}");
}

#[test]
fn rows_belong_to_the_texts() {
    let model = tiny::model(&tiny::configuration("qwen3"));
    let ask = |prefix: Option<&Prefix>, prompt: &str, continuation: &str| {
        model.attention(&AttentionRequest { prefix, prompt, continuation, loss: AttentionLoss::default() })
    };
    let attention = ask(None, "the cat", " ate the").unwrap();
    for text in ["the", "the ca", "the cat"] {
        let prefix = crate::block_on(crate::ScoringModel::prefix(&model, None, text)).unwrap();
        let rest = "the cat".strip_prefix(text).unwrap();
        let same = ask(Some(&prefix), rest, " ate the").unwrap();
        assert_eq!(same.prompt_tokens(), attention.prompt_tokens());
        for (same, expected) in same.saliency().concat().iter().zip(attention.saliency().concat()) {
            assert!((same - expected).abs() < 1e-4, "{text}: {same} and not {expected}");
        }
    }
    assert_eq!((attention.layer_count(), attention.head_count()), (2, 4));
    let texts = |text: &str, spans: &[std::ops::Range<usize>]| -> Vec<String> {
        spans.iter().map(|span| text[span.clone()].to_owned()).collect()
    };
    assert_eq!(texts("the cat", attention.prompt_tokens()), ["", "the", " ", "c", "a", "t"]);
    assert_eq!(texts(" ate the", attention.continuation_tokens()), [" a", "t", "e", " ", "the"]);
    assert_eq!((attention.rows(), attention.columns()), (5, 10));
    // A step does not depend on the steps after it.
    let saliency = attention.saliency();
    for (row, saliency) in saliency.iter().enumerate() {
        assert!(saliency.iter().skip(6 + row).all(|value| *value == 0.0));
        assert!(saliency.iter().take(6).sum::<f32>() > 0.0);
    }
    let error = |prompt: &str, continuation: &str| ask(None, prompt, continuation).unwrap_err().to_string();
    let empty =
        "the model cannot answer this request: the prompt or the continuation has no tokens; give both";
    assert_eq!(error("a", ""), empty);
    let long = "the text has 601 tokens, but the model reads at most 512; shorten the text";
    assert_eq!(error("a", &"b".repeat(599)), long);
}
