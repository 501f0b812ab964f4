//! Implements [`JacobianModel`] for local models: estimates how much an output can reveal of each token of its prompt.
//!
//! candle returns gradients only for variables. Therefore a variable with zeros is added to the embeddings of all
//! tokens: the gradient with respect to it equals that with respect to the embeddings. The whole text is evaluated at
//! once, with a graph of gradients, so memory grows with the square of its length. `crate::jacobian` derives the bound.

use candle_core::{D, DType, Result, Tensor, Var};
use candle_nn::ops;

use super::LocalModel;
use super::decoder::{Decoder, Kernels, KeyValueCache, Probe, token_row};
use super::evaluation::failed;
use super::sampler::SplitMix;
use crate::{Error, InformationBounds, JacobianModel, JacobianRequest};

/// The most entries of all attention matrices together. An entry needs about 40 bytes.
const MAX_ENTRIES: usize = 1 << 27;
/// The most projections of a request.
const MAX_PROJECTIONS: usize = 256;

impl JacobianModel for LocalModel {
    /// Evaluates the whole text at once, and estimates the bounds by random projections. Also fails for quantised
    /// weights, which have no gradients, for a number of projections that is not from 1 to 256, and if the evaluation
    /// would take too much memory.
    fn information_bounds(
        &self,
        request: &JacobianRequest<'_>,
    ) -> std::result::Result<InformationBounds, Error> {
        if self.decoder.is_quantized() {
            return Err(Error::Unsupported(
                "quantised weights have no gradients; load the model from safetensors",
            ));
        }
        if request.projections == 0 || request.projections > MAX_PROJECTIONS {
            return Err(Error::Unsupported(
                "the number of projections is out of range; choose one from 1 to 256",
            ));
        }
        let pair = self.tokenizer.encode_pair(request.prompt, request.continuation)?;
        self.check_length(pair.text.ids.len())?;
        let steps = pair.text.ids.len() - pair.boundary;
        if pair.boundary == 0 || steps == 0 {
            return Err(Error::Unsupported("the prompt or the output has no tokens; give both"));
        }
        // The last token of the output is no input, since it generates no further token.
        let inputs = pair.text.ids.split_last().map_or(&[] as &[u32], |(_, inputs)| inputs);
        // The gradients need the attention matrices of all layers and heads in memory at the same time.
        let config = self.decoder.config();
        if is_too_large(&[config.layers, config.heads, inputs.len(), inputs.len()]) {
            let tokens = inputs.len();
            return Err(Error::Failed(format!(
                "the text has {tokens} tokens, too many to compute their gradients in memory; shorten the text"
            )));
        }
        // The gradients of all projections are in memory at the same time as well.
        if is_too_large(&[request.projections, inputs.len(), config.width]) {
            return Err(Error::Failed(format!(
                "the gradients of {} projections for a text of {} tokens do not fit into memory; use fewer projections",
                request.projections,
                inputs.len()
            )));
        }
        let (mut bounds, mut products) =
            token_bounds(&self.decoder, inputs, steps, (request.projections, request.seed))
                .map_err(failed)?;
        if bounds.iter().any(|bound| !bound.is_finite()) {
            return Err(Error::Failed(
                "a gradient of the model is not a number, so its weights are damaged; download them again"
                    .to_owned(),
            ));
        }
        // The inputs also contain tokens of the output, which are not part of the prompt. They are cut off.
        bounds.truncate(pair.boundary);
        let mut tokens = pair.text.spans;
        tokens.truncate(pair.boundary);
        products.truncate(pair.boundary);
        Ok(InformationBounds { tokens, bounds, products })
    }
}

/// Returns whether tensors with these dimensions have too many entries for the memory: more than [`MAX_ENTRIES`].
fn is_too_large(dimensions: &[usize]) -> bool {
    let entries = dimensions.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    entries.is_none_or(|entries| entries > MAX_ENTRIES)
}

/// Estimates for each input token the most that the output reveals about it, in nats. Uses `projections` random
/// projections, which `seed` determines. The last `steps` inputs generate the tokens of the output. Also returns for
/// each token the matrix of the inner products of its gradients, row by row, scaled so that the trace of the matrix is
/// twice the bound.
pub(super) fn token_bounds(
    decoder: &Decoder,
    inputs: &[u32],
    steps: usize,
    (projections, seed): (usize, u64),
) -> Result<(Vec<f64>, Vec<Vec<f64>>)> {
    let device = decoder.device();
    let added = Var::zeros((1, inputs.len(), decoder.config().width), DType::F32, device)?;
    let mut probe = Probe {
        kernels: Kernels::Differentiable,
        added_to_embedding: Some(added.as_tensor()),
        // The probe collects the embeddings of the tokens, which count as layer 0.
        hidden_layer: Some(0),
        ..Probe::default()
    };
    let (hidden, _) = decoder.forward(&token_row(inputs, device)?, &KeyValueCache::default(), &mut probe)?;
    let logits = decoder.logits(&hidden.squeeze(0)?.narrow(0, inputs.len() - steps, steps)?)?;
    // The variance of the noise: the mean square of the entries of the embeddings.
    let variance = match &probe.hidden {
        Some(embedded) => f64::from(embedded.detach().sqr()?.mean_all()?.to_scalar::<f32>()?),
        None => {
            return Err(candle_core::Error::Msg(
                "the decoder returned no embeddings; this is a defect of Flowgate; please report it"
                    .to_owned(),
            ));
        }
    };
    // Each projection is a random direction in the space of the logits. Its gradient is one sample of how much the
    // inputs influence the output.
    let probabilities = ops::softmax(&logits.detach(), D::Minus1)?;
    let roots = probabilities.sqrt()?;
    let mut random = SplitMix::new(seed);
    let mut found = Vec::with_capacity(projections);
    for _ in 0..projections {
        let signs = random_signs(&mut random, logits.dims2()?, &logits)?;
        // The root of the Fisher information times the signs: √p z - p (√p · z).
        let scaled = (&roots * signs)?;
        let shift = scaled.sum_keepdim(D::Minus1)?;
        let projection = (&scaled - probabilities.broadcast_mul(&shift)?)?;
        let gradients = (&logits * projection.detach())?.sum_all()?.backward()?;
        let Some(gradient) = gradients.get(&added) else {
            return Err(candle_core::Error::Msg(
                "the embeddings have no gradient; this is a defect of Flowgate; please report it".to_owned(),
            ));
        };
        found.push(gradient.squeeze(0)?.detach());
    }
    // For each token a matrix with a row for each projection, and the inner products of these rows.
    let found = Tensor::stack(&found, 1)?;
    let products = found.matmul(&found.transpose(1, 2)?)?.flatten_from(1)?.to_vec2::<f32>()?;
    // The bound is half the variance times the expected squared length of the gradient (`jacobian.rs` of this crate
    // derives it). The diagonal of the products has one sample of this length for each projection.
    #[expect(clippy::cast_precision_loss, reason = "projections are few")]
    let scale = variance / projections as f64;
    let products: Vec<Vec<f64>> =
        products.iter().map(|row| row.iter().map(|product| f64::from(*product) * scale).collect()).collect();
    let bounds = products.iter().map(|row| row.iter().step_by(projections + 1).sum::<f64>() / 2.0).collect();
    Ok((bounds, products))
}

/// Returns a matrix of random signs, 1 and -1, with `rows` rows and `columns` columns, on the device of `like`.
fn random_signs(random: &mut SplitMix, (rows, columns): (usize, usize), like: &Tensor) -> Result<Tensor> {
    let count = rows * columns;
    // Each random number gives 64 signs, so there can be up to 63 too many, which are cut off.
    let mut signs: Vec<f32> = Vec::with_capacity(count + 64);
    while signs.len() < count {
        let bits = random.next();
        signs.extend((0..64).map(|bit| if bits >> bit & 1 == 1 { 1.0 } else { -1.0 }));
    }
    signs.truncate(count);
    Tensor::from_vec(signs, (rows, columns), like.device())
}
