//! Rotates queries and keys by the positions of their tokens, so that attention depends on the distance between two
//! tokens. `attention.rs` uses this module.

use candle_core::{D, Device, Result, Tensor};
use candle_nn::rotary_emb;

use super::super::config::{DecoderConfig, RotaryConfig, RotaryScaling, gguf};
use super::super::load_error::LoadError;
use super::super::weights::{TensorRole, WeightSource, Weights};
use super::Kernels;

/// The frequencies from which the angles of positions are computed.
#[derive(Debug)]
pub(super) struct RotaryTable {
    /// The angle, in radians, by which each pair of entries turns from one token to the next.
    frequencies: Vec<f64>,
    /// The factor of the rotated vectors.
    magnitude: f64,
    /// How many of the first entries of a vector are rotated.
    width: usize,
    /// Whether the two entries of a pair are adjacent.
    is_interleaved: bool,
}

/// The cosines and sines of the angles of some positions, each of shape (time, width / 2).
#[derive(Debug)]
pub(super) struct Angles {
    cosines: Tensor,
    sines: Tensor,
    width: usize,
    is_interleaved: bool,
}

impl RotaryTable {
    /// Computes the frequencies: by how much each pair of entries turns from one token to the next. A GGUF file may
    /// have divisors of the frequencies as tensors, either for all texts, or separately for short and long contexts.
    /// The divisors take precedence over the scaling of the configuration. A context is long if it exceeds the length
    /// of text that the model was trained for (`original`). Fails if a tensor does not have one entry for each pair.
    pub(super) fn load(
        rotary: &RotaryConfig,
        weights: &Weights,
        config: &DecoderConfig,
    ) -> std::result::Result<Self, LoadError> {
        let mut rotary = rotary.clone();
        if let WeightSource::Gguf(file) = &weights.source {
            let original = file.metadata.get("phi3.rope.scaling.original_context_length");
            let original =
                original.and_then(serde_json::Value::as_u64).and_then(|size| usize::try_from(size).ok());
            // The divisors for the length of this context.
            let by_length = match original {
                Some(original) if config.context > original => TensorRole::RotaryDivisorsLong,
                _ => TensorRole::RotaryDivisorsShort,
            };
            for role in [TensorRole::RotaryDivisors, by_length] {
                if weights.has(role) {
                    let divisors = weights.tensor(role, &[rotary.width / 2])?.to_vec1();
                    let divisors =
                        divisors.map_err(|error| LoadError::new(file.path(), error.to_string()))?;
                    rotary.scaling = RotaryScaling::Factors { divisors, magnitude: gguf::magnitude(file) };
                }
            }
        }
        Ok(Self {
            frequencies: rotary.frequencies(),
            magnitude: rotary.magnitude(),
            width: rotary.width,
            is_interleaved: rotary.is_interleaved,
        })
    }

    /// Returns the sines and cosines of the angles of `time` positions from `start` on. The sines and
    /// cosines are multiplied by `magnitude`, so that the rotation multiplies the vectors by this factor as well.
    pub(super) fn angles(&self, start: usize, time: usize, device: &Device) -> Result<Angles> {
        #[expect(clippy::cast_precision_loss, reason = "a position is far below 2^52")]
        let angles = (start..start + time)
            .flat_map(|position| self.frequencies.iter().map(move |frequency| position as f64 * frequency));
        #[expect(clippy::cast_possible_truncation, reason = "the model computes in single precision")]
        let table = |function: fn(f64) -> f64| -> Result<Tensor> {
            let values: Vec<f32> =
                angles.clone().map(|angle| (function(angle) * self.magnitude) as f32).collect();
            Tensor::from_vec(values, (time, self.frequencies.len()), device)
        };
        Ok(Angles {
            cosines: table(f64::cos)?,
            sines: table(f64::sin)?,
            width: self.width,
            is_interleaved: self.is_interleaved,
        })
    }
}

impl Angles {
    /// Rotates the first `width` entries of vectors of shape (batch, heads, time, head width); the others are
    /// unchanged.
    pub(super) fn rotate(&self, x: &Tensor, kernels: Kernels) -> Result<Tensor> {
        let head_width = x.dim(D::Minus1)?;
        if self.width == head_width {
            return self.rotate_all(&x.contiguous()?, kernels);
        }
        let rotated = self.rotate_all(&x.narrow(D::Minus1, 0, self.width)?.contiguous()?, kernels)?;
        let unrotated = x.narrow(D::Minus1, self.width, head_width - self.width)?;
        Tensor::cat(&[&rotated, &unrotated], D::Minus1)
    }

    /// Rotates vectors in all their entries. Models differ in which two entries form a pair: adjacent entries
    /// (interleaved), or entries that are half a width apart. `kernels` selects the implementation: the fused one is
    /// faster, but has no gradient.
    fn rotate_all(&self, x: &Tensor, kernels: Kernels) -> Result<Tensor> {
        let rotate = match (kernels, self.is_interleaved) {
            (Kernels::Fused, false) => rotary_emb::rope,
            (Kernels::Fused, true) => rotary_emb::rope_i,
            (Kernels::Differentiable, false) => rotary_emb::rope_slow,
            (Kernels::Differentiable, true) => rotary_emb::rope_i_slow,
        };
        rotate(x, &self.cosines, &self.sines)
    }
}
