//! Compares bounds of information with the divergence of distributions under small changes of the embeddings. For a
//! change `d`, the divergence is `d' J' F J d / 2` to second order; summed over the directions of a token's
//! embedding, this is the trace from which the bound of the token is computed.

use candle_core::{DType, Device, Tensor};

use super::tiny;
use crate::local::LocalModel;
use crate::local::decoder::{KeyValueCache, Probe, token_row};
use crate::local::jacobian::token_bounds;
use crate::{JacobianModel, JacobianRequest};

const INPUTS: [u32; 6] = [3, 250, 17, 99, 280, 64];
/// How many of the inputs generate the output.
const STEPS: usize = 2;

/// The probabilities after each step, with `change` added to the embeddings; and the mean square of the embeddings.
fn probabilities(model: &LocalModel, change: &Tensor) -> (Vec<Vec<f64>>, f64) {
    let mut probe = Probe { added_to_embedding: Some(change), hidden_layer: Some(0), ..Probe::default() };
    let row = token_row(&INPUTS, &Device::Cpu).unwrap();
    let (hidden, _) = model.decoder.forward(&row, &KeyValueCache::default(), &mut probe).unwrap();
    let hidden = hidden.squeeze(0).unwrap().narrow(0, INPUTS.len() - STEPS, STEPS).unwrap();
    let logits: Vec<Vec<f64>> =
        model.decoder.logits(&hidden).unwrap().to_dtype(DType::F64).unwrap().to_vec2().unwrap();
    let softmax = |logits: &Vec<f64>| {
        let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
        logits.iter().map(|logit| logit.exp() / sum).collect()
    };
    let square = probe.hidden.unwrap().sqr().unwrap().mean_all().unwrap().to_scalar::<f32>().unwrap();
    (logits.iter().map(softmax).collect(), f64::from(square))
}

/// The bound of a token by its definition: the divergences that small changes of its embedding cause, one for each
/// direction, added up and scaled to the variance of the noise.
fn expected(model: &LocalModel, token: usize) -> f64 {
    const STEP: f32 = 3e-3;
    let width = model.decoder.config().width;
    let change = |direction: Option<usize>| {
        let mut entries = vec![0.0_f32; INPUTS.len() * width];
        if let Some(direction) = direction {
            entries[token * width + direction] = STEP;
        }
        Tensor::from_vec(entries, (1, INPUTS.len(), width), &Device::Cpu).unwrap()
    };
    let (before, square) = probabilities(model, &change(None));
    let divergence = |direction: usize| -> f64 {
        let (after, _) = probabilities(model, &change(Some(direction)));
        let pairs = before.iter().flatten().zip(after.iter().flatten());
        // The second-order term of the divergence; it has no rounding errors from the first-order term.
        pairs.map(|(p, q)| (q - p).powi(2) / p / 2.0).sum()
    };
    (0..width).map(divergence).sum::<f64>() * square / f64::from(STEP).powi(2)
}

#[test]
fn bounds_are_divergences_of_small_changes() {
    for name in ["llama", "qwen3", "opt", "flowgate"] {
        let model = tiny::model(&tiny::configuration(name));
        let found = token_bounds(&model.decoder, &INPUTS, STEPS, (96, 5)).unwrap();
        assert_eq!(found, token_bounds(&model.decoder, &INPUTS, STEPS, (96, 5)).unwrap());
        let (bounds, products) = found;
        assert!(products.iter().all(|row| row.len() == 96 * 96), "{name}");
        for token in [0, 2, 4, 5] {
            let expected = expected(&model, token);
            let ratio = bounds[token] / expected;
            // The estimate is random, with a fixed seed.
            assert!((0.8..1.25).contains(&ratio), "{name}, {token}: {} is not {expected}", bounds[token]);
        }
    }
}

#[test]
fn regions_before_the_output_have_bounds() {
    let model = tiny::model(&tiny::configuration("qwen3"));
    let request = JacobianRequest { prompt: "hello there", continuation: " you", projections: 2, seed: 1 };
    let found = model.information_bounds(&request).unwrap();
    assert_eq!(found.tokens.len(), found.bounds.len());
    assert_eq!(found.tokens.last().map(|token| token.end), Some(request.prompt.len()));
    let (traces, estimates) = (found.of_regions(&[0..5, 5..11]), found.low_rank_of_regions(&[0..5, 5..11]));
    assert!(traces.iter().zip(estimates).all(|(trace, estimate)| 0.0 < estimate && estimate <= *trace));
    assert_eq!(found.products.len(), found.tokens.len());
    let error = |request: JacobianRequest<'_>| model.information_bounds(&request).unwrap_err().to_string();
    assert!(error(JacobianRequest { projections: 0, ..request }).contains("from 1 to 256"));
    assert!(error(JacobianRequest { continuation: "", ..request }).contains("give both"));
    let long = "x".repeat(600);
    assert!(error(JacobianRequest { prompt: &long, ..request }).contains("reads at most 512"));
}
