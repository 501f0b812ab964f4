//! Shows hidden states, and attention with its gradients.
//!
//! The gradient is that with respect to a variable, a tensor of zeros, that is added to the attention of each layer. Only
//! the steps that generate the continuation have such variables: what a step attends to changes only this step and
//! later ones, so the tokens before are evaluated without a graph, and memory grows with the product of prompt and
//! continuation, not with the square of both.

use candle_core::{D, DType, IndexOp, Tensor, Var};

use super::LocalModel;
use super::decoder::{Decoder, Kernels, KeyValueCache, Probe, token_row};
use super::evaluation::{PIECE, failed};
use crate::{
    Attention, AttentionLoss, AttentionModel, AttentionRequest, Error, HiddenStateModel, HiddenStates, Prefix,
};

/// The most entries of attention, over all layers and heads. One needs about 40 bytes.
const MAX_ENTRIES: usize = 1 << 27;

impl HiddenStateModel for LocalModel {
    fn layer_count(&self) -> usize {
        self.decoder.config().layers
    }

    fn hidden_states(&self, text: &str, layer: usize) -> Result<HiddenStates, Error> {
        if layer > self.layer_count() {
            return Err(Error::Unsupported("hidden states of a layer that it does not have"));
        }
        let text = self.tokenizer.encode(text)?;
        self.check_length(text.ids.len())?;
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(text.ids.len());
        let mut cache = KeyValueCache::default();
        for piece in text.ids.chunks(PIECE) {
            let mut probe = Probe { hidden_layer: Some(layer), ..Probe::default() };
            cache = self.evaluate(piece, &cache, &mut probe)?.1;
            if let Some(hidden) = probe.hidden {
                vectors.extend(hidden.i(0).and_then(|hidden| hidden.to_vec2()).map_err(failed)?);
            }
        }
        Ok(HiddenStates { tokens: text.spans, vectors })
    }
}

impl AttentionModel for LocalModel {
    fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
        if self.decoder.is_quantized() {
            return Err(Error::Unsupported(
                "gradients of quantised weights; load the model from safetensors",
            ));
        }
        let prefix = request.prefix.map_or("", Prefix::text);
        let prompt = format!("{prefix}{}", request.prompt);
        let pair = self.tokenizer.encode_pair(&prompt, request.continuation)?;
        self.check_length(pair.text.ids.len())?;
        let (before, targets) = pair.text.ids.split_at(pair.boundary);
        if before.is_empty() || targets.is_empty() {
            return Err(Error::Unsupported("attention without a prompt or without a continuation"));
        }
        let (first, steps) = (before.len() - 1, targets.len());
        let inputs = pair.text.ids.get(first..first + steps).unwrap_or_default();
        let config = self.decoder.config();
        let (layers, heads) = (config.layers, config.heads);
        let entries =
            [layers, heads, steps, first + steps].iter().try_fold(1_usize, |a, &b| a.checked_mul(b));
        if entries.is_none_or(|entries| entries > MAX_ENTRIES) {
            return Err(Error::Failed(format!(
                "the attention matrix of {steps} by {} tokens is too large; split the continuation into shorter parts",
                first + steps
            )));
        }
        let (known, common) = self.known(request.prefix, before);
        let known = known.truncated(common.min(first)).map_err(failed)?;
        let rest = before.get(known.len()..first).unwrap_or_default();
        let cache = self.extend(known, rest)?;
        let (weights, gradients) =
            attention_and_gradients(&self.decoder, inputs, targets, &cache, request.loss).map_err(failed)?;
        if weights.iter().chain(&gradients).any(|entry| !entry.is_finite()) {
            return Err(Error::Failed("its attention is not a number; its weights are damaged".to_owned()));
        }
        let mut spans = pair.text.spans;
        let continuation_spans = spans.split_off(pair.boundary);
        Attention::new(spans, continuation_spans, (layers, heads), weights, gradients)
            .ok_or_else(|| Error::Failed("attention has an unexpected shape".to_owned()))
    }
}

/// Evaluates `inputs` after `cache`. Returns the attention, and its gradients, in the order layer, head, step, column.
pub(super) fn attention_and_gradients(
    decoder: &Decoder,
    inputs: &[u32],
    targets: &[u32],
    cache: &KeyValueCache,
    loss: AttentionLoss,
) -> candle_core::Result<(Vec<f32>, Vec<f32>)> {
    let config = decoder.config();
    let device = decoder.device();
    let shape = (1, config.heads, inputs.len(), cache.len() + inputs.len());
    let zeros: Vec<Var> =
        (0..config.layers).map(|_| Var::zeros(shape, DType::F32, device)).collect::<Result<_, _>>()?;
    let added: Vec<Tensor> = zeros.iter().map(|zero| zero.as_tensor().clone()).collect();
    let mut probe = Probe {
        kernels: Kernels::Differentiable,
        added_to_attention: Some(&added),
        attention: Some(Vec::new()),
        ..Probe::default()
    };
    let loss = continuation_loss(decoder, inputs, targets, cache, &mut probe, loss)?;
    let gradients = loss.backward()?;
    let (mut weights, mut slopes) = (Vec::new(), Vec::new());
    for (attention, zero) in probe.attention.iter().flatten().zip(&zeros) {
        weights.extend(attention.flatten_all()?.to_vec1::<f32>()?);
        match gradients.get(zero) {
            Some(slope) => slopes.extend(slope.flatten_all()?.to_vec1::<f32>()?),
            None => {
                return Err(candle_core::Error::Msg("the graph of gradients is interrupted".to_owned()));
            }
        }
    }
    Ok((weights, slopes))
}

/// Returns the loss of `targets`, the tokens after each of `inputs`.
fn continuation_loss(
    decoder: &Decoder,
    inputs: &[u32],
    targets: &[u32],
    cache: &KeyValueCache,
    probe: &mut Probe<'_>,
    loss: AttentionLoss,
) -> candle_core::Result<Tensor> {
    let device = decoder.device();
    let row = token_row(inputs, device)?;
    let (hidden, _) = decoder.forward(&row, cache, probe)?;
    let logits = decoder.logits(&hidden.squeeze(0)?)?;
    let targets = Tensor::from_slice(targets, targets.len(), device)?;
    if loss == AttentionLoss::NegativeLogProbability {
        return token_losses(&logits, &targets)?.sum_all();
    }
    let targets = targets.unsqueeze(1)?;
    let chosen = logits.gather(&targets, D::Minus1)?.squeeze(1)?;
    let without = Tensor::full(f32::NEG_INFINITY, targets.dims(), device)?;
    let others = logits.detach().scatter(&targets, &without, D::Minus1)?;
    let rival = others.argmax_keepdim(D::Minus1)?;
    (logits.gather(&rival, D::Minus1)?.squeeze(1)? - chosen)?.sum_all()
}

/// Returns the negative log-probability of each target; `logits` has the shape (targets, vocabulary). It has a gradient.
pub(super) fn token_losses(logits: &Tensor, targets: &Tensor) -> candle_core::Result<Tensor> {
    let chosen = logits.gather(&targets.unsqueeze(1)?, D::Minus1)?.squeeze(1)?;
    // The highest logit is a constant here, so that the exponentials stay small and the graph simple.
    let highest = logits.detach().max_keepdim(D::Minus1)?;
    let sum = logits.broadcast_sub(&highest)?.exp()?.sum(D::Minus1)?;
    (sum.log()? + highest.squeeze(1)?)? - chosen
}
