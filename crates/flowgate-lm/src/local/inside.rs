//! Implements [`HiddenStateModel`] and [`AttentionModel`] for local models: computes hidden states, and attention with
//! its gradients. The screener *attention* of `flowgate_guard` estimates from attention and gradients which regions of
//! a chat the next step depends on.
//!
//! A request for attention has a prompt and a continuation. The *loss* ([`AttentionLoss`]) measures how improbable the
//! model finds the tokens of the continuation. The gradient of the loss with respect to the attention shows how much
//! these tokens depend on each entry of the attention. candle returns gradients only for variables, which the attention
//! is not. Therefore a variable with zeros is added to the attention of each layer: the gradient with respect to this
//! variable equals that with respect to the attention.
//!
//! Gradients are needed only for the tokens that generate the continuation: the last token of the prompt, and the
//! tokens of the continuation except the last one. All tokens before them are evaluated without a graph of gradients.
//! Memory therefore grows with the product of the lengths of prompt and continuation, not with the square of the whole
//! length.

use candle_core::{D, DType, IndexOp, Tensor, Var};

use super::LocalModel;
use super::decoder::{Decoder, Kernels, KeyValueCache, Probe, token_row};
use super::evaluation::{PIECE, failed};
use crate::{
    Attention, AttentionLoss, AttentionModel, AttentionRequest, Error, HiddenStateModel, HiddenStates, Prefix,
};

/// The most entries of attention, over all layers and heads. An entry needs about 40 bytes.
const MAX_ENTRIES: usize = 1 << 27;

impl HiddenStateModel for LocalModel {
    fn layer_count(&self) -> usize {
        self.decoder.config().layers
    }

    /// Evaluates the text in pieces, so that memory is bounded, and collects the vectors of the layer from each. Fails
    /// if the model has no such layer, or the text is too long for it.
    fn hidden_states(&self, text: &str, layer: usize) -> Result<HiddenStates, Error> {
        if layer > self.layer_count() {
            return Err(Error::Unsupported(
                "it has fewer layers than the number of the requested layer; name a lower layer",
            ));
        }
        let text = self.tokenizer.encode(text)?;
        self.check_length(text.ids.len())?;
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(text.ids.len());
        let mut cache = KeyValueCache::default();
        for piece in text.ids.chunks(PIECE) {
            let mut probe = Probe { hidden_layer: Some(layer), ..Probe::default() };
            // The hidden states of the last layer are not needed: the probe receives those of `layer`.
            cache = self.evaluate(piece, &cache, &mut probe)?.1;
            if let Some(hidden) = probe.hidden {
                vectors.extend(hidden.i(0).and_then(|hidden| hidden.to_vec2()).map_err(failed)?);
            }
        }
        Ok(HiddenStates { tokens: text.spans, vectors })
    }
}

impl AttentionModel for LocalModel {
    /// Evaluates with gradients the tokens that generate the continuation, and without gradients all tokens before
    /// them. Fails for quantised weights, which have no gradients, if the prompt or the continuation has no tokens, if
    /// they are too long for the model, or if the matrices would take too much memory.
    fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
        if self.decoder.is_quantized() {
            return Err(Error::Unsupported(
                "quantised weights have no gradients; load the model from safetensors",
            ));
        }
        let prefix = request.prefix.map_or("", Prefix::text);
        let prompt = format!("{prefix}{}", request.prompt);
        let pair = self.tokenizer.encode_pair(&prompt, request.continuation)?;
        self.check_length(pair.text.ids.len())?;
        let (before, targets) = pair.text.ids.split_at(pair.boundary);
        if before.is_empty() || targets.is_empty() {
            return Err(Error::Unsupported("the prompt or the continuation has no tokens; give both"));
        }
        // The first input, with the index `first`, is the last token of the prompt: it generates the first token of the
        // continuation. Each of the `steps` inputs generates one token of the continuation.
        let (first, steps) = (before.len() - 1, targets.len());
        let inputs = pair.text.ids.get(first..first + steps).unwrap_or_default();
        let config = self.decoder.config();
        let (layers, heads) = (config.layers, config.heads);
        let entries =
            [layers, heads, steps, first + steps].iter().try_fold(1_usize, |a, &b| a.checked_mul(b));
        if entries.is_none_or(|entries| entries > MAX_ENTRIES) {
            return Err(Error::Failed(format!(
                "the attention matrices of {steps} by {} tokens do not fit into memory; split the continuation into shorter parts",
                first + steps
            )));
        }
        // All tokens before the first input are in the cache of the prefix, or are evaluated without a graph of
        // gradients.
        let (cached, common) = self.cached_prefix(request.prefix, before);
        let cached = cached.truncated(common.min(first)).map_err(failed)?;
        let rest = before.get(cached.len()..first).unwrap_or_default();
        let cache = self.extend(cached, rest)?;
        let (weights, gradients) =
            attention_and_gradients(&self.decoder, inputs, targets, &cache, request.loss).map_err(failed)?;
        if weights.iter().chain(&gradients).any(|entry| !entry.is_finite()) {
            return Err(Error::Failed(
                "the attention of the model is not a number, so its weights are damaged; download them again"
                    .to_owned(),
            ));
        }
        let mut spans = pair.text.spans;
        let continuation_spans = spans.split_off(pair.boundary);
        Attention::new(spans, continuation_spans, (layers, heads), weights, gradients).ok_or_else(|| {
            Error::Failed(
                "the attention of the model has an unexpected shape; this is a defect of Flowgate; please report it".to_owned(),
            )
        })
    }
}

/// Evaluates `inputs`, which follow the tokens of `cache`. Returns the attention of the inputs, and the gradients of
/// the loss with respect to this attention. Both have the order layer, head, input, token that the input attends to.
/// `targets` are the tokens that the loss measures: each is the token after the input with the same index.
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
    // A variable with zeros is added to the attention of each layer: the gradient with respect to the zeros equals that
    // with respect to the attention, which is not a variable.
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
    // `slopes` are the gradients with respect to `weights`.
    let (mut weights, mut slopes) = (Vec::new(), Vec::new());
    for (attention, zero) in probe.attention.iter().flatten().zip(&zeros) {
        weights.extend(attention.flatten_all()?.to_vec1::<f32>()?);
        match gradients.get(zero) {
            Some(slope) => slopes.extend(slope.flatten_all()?.to_vec1::<f32>()?),
            None => {
                return Err(candle_core::Error::Msg(
                    "the attention of a layer has no gradient; this is a defect of Flowgate; please report it".to_owned(),
                ));
            }
        }
    }
    Ok((weights, slopes))
}

/// Evaluates `inputs`, which follow the tokens of `cache`, and returns the loss as a tensor that has a gradient. The
/// loss is a sum over `targets`, the tokens after each input: of their negative log-probabilities or of their margins,
/// as `loss` selects.
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
    // The margin is the logit of the likeliest other token (`rival`) minus the logit of the target. The search for the
    // other token has no gradient, so it reads a detached copy of the logits.
    let excluded = Tensor::full(f32::NEG_INFINITY, targets.dims(), device)?;
    let others = logits.detach().scatter(&targets, &excluded, D::Minus1)?;
    let rival = others.argmax_keepdim(D::Minus1)?;
    (logits.gather(&rival, D::Minus1)?.squeeze(1)? - chosen)?.sum_all()
}

/// Returns the negative log-probability of each target token, as a tensor that has a gradient. `logits` has the shape
/// (targets, vocabulary): row `i` predicts `targets[i]`.
pub(super) fn token_losses(logits: &Tensor, targets: &Tensor) -> candle_core::Result<Tensor> {
    let chosen = logits.gather(&targets.unsqueeze(1)?, D::Minus1)?.squeeze(1)?;
    // The logarithm of the sum of exponentials. The highest logit is subtracted first, so that no exponential
    // overflows, and added to the result. The result does not depend on the subtracted number, so this number needs no
    // gradient.
    let highest = logits.detach().max_keepdim(D::Minus1)?;
    let sum = logits.broadcast_sub(&highest)?.exp()?.sum(D::Minus1)?;
    (sum.log()? + highest.squeeze(1)?)? - chosen
}
