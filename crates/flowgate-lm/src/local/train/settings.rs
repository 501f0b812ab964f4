//! Defines the shape of a small model ([`ModelShape`]) and the settings of its training ([`TrainingSettings`]), both of
//! which the caller of [`Trainer`](super::Trainer) chooses. Also draws the first weights of a model.

use std::collections::BTreeMap;

use candle_core::{Device, Result, Tensor, Var};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::config::DecoderConfig;
use super::super::sampler::SplitMix;
use super::super::weights::{LayerRole, TensorRole};

/// The shape of a small model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// The most tokens of its vocabulary.
    pub vocabulary: usize,
    /// The width of its layers.
    pub width: usize,
    /// The number of layers.
    pub layers: usize,
    /// The number of heads. The width must be a multiple of this number.
    pub heads: usize,
    /// The number of heads of keys and values. The number of heads must be a multiple of this number.
    pub key_heads: usize,
    /// The width between the projections of the feed-forward part.
    pub inner_width: usize,
    /// How many earlier tokens the convolution before attention reads. With 3, a model learns to copy from a tenth of
    /// the training tokens that it needs without a convolution.
    pub convolution: usize,
    /// The most tokens of a text.
    pub context: usize,
}

/// The width of a head.
const HEAD_WIDTH: usize = 32;

impl ModelShape {
    /// Returns a shape with this number of layers and this width, which should be a multiple of 64. Each head has a
    /// width of 32, every two heads share their keys, and the inner width is 2.75 times the width. The vocabulary, the
    /// convolution and the length of texts are the same for all sizes.
    #[must_use]
    pub fn of_size(layers: usize, width: usize) -> Self {
        let heads = (width / HEAD_WIDTH).max(1);
        Self {
            vocabulary: 1024,
            width,
            layers,
            heads,
            key_heads: (heads / 2).max(1),
            inner_width: width * 11 / 4,
            convolution: 3,
            context: 4096,
        }
    }
}

impl Default for ModelShape {
    /// Returns the shape of a model with about 700 000 weights.
    fn default() -> Self {
        Self::of_size(3, 128)
    }
}

/// How a model is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingSettings {
    /// The shape of the model.
    pub shape: ModelShape,
    /// The seed from which the first weights are drawn.
    pub seed: u64,
    /// The number of steps.
    pub steps: usize,
    /// The number of examples of each step.
    pub batch: usize,
    /// The number of the first example in the corpus. A training that begins with a trained model can skip the first
    /// examples, which are short.
    #[serde(default)]
    pub first_example: usize,
    /// The number of steps in which the learning rate rises to its full value.
    pub warm_up: usize,
    /// The share of the steps, at the end of the training, in which the learning rate falls to 0. A model copies
    /// reliably only after these steps.
    pub decay: f64,
    /// The learning rate of the matrices of layers; that of all other weights is 0.15 times as high.
    pub rate: f64,
}

impl Default for TrainingSettings {
    /// Returns settings for a model of the default shape: 3000 steps with 8 examples each. The learning rate rises in
    /// the first 20 steps, and falls in the last 40 % of the steps.
    fn default() -> Self {
        Self {
            shape: ModelShape::default(),
            seed: 1,
            steps: 3000,
            batch: 8,
            first_example: 0,
            warm_up: 20,
            decay: 0.4,
            rate: 0.02,
        }
    }
}

impl TrainingSettings {
    /// Returns these settings, changed for a training that begins with a trained model. Such a training skips the
    /// easier examples at the beginning of the corpus, which mostly repeat passages or have few documents. It has half
    /// the learning rate, and the rate falls during the last 60 % of the steps.
    #[must_use]
    pub fn for_trained_model(self) -> Self {
        Self { first_example: 5500, rate: self.rate / 2.0, decay: 0.6, ..self }
    }

    /// Returns the learning rate of the step `step`, where the first step is 0. The rate rises in the first `warm_up`
    /// steps, then stays at its full value, and falls almost to 0 in the last steps: `decay` is the share of these
    /// steps.
    #[expect(clippy::cast_precision_loss, reason = "steps are few")]
    pub(super) fn rate(&self, step: usize) -> f64 {
        // A phase without steps counts as one step, so that nothing is divided by 0.
        let rising = (step + 1) as f64 / self.warm_up.max(1) as f64;
        let remaining_steps = self.steps.saturating_sub(step) as f64;
        let falling = remaining_steps / (self.steps as f64 * self.decay).max(1.0);
        self.rate * rising.min(falling).min(1.0)
    }
}

impl ModelShape {
    /// Returns the content of the `config.json` of a model with this shape, whose tokenizer has `rows` tokens. Fields
    /// that are not written have the defaults of the reader (`config/hugging_face.rs`).
    pub(super) fn config(&self, rows: usize) -> Map<String, Value> {
        let config = json!({
            "model_type": "flowgate",
            "vocab_size": rows,
            "hidden_size": self.width,
            "intermediate_size": self.inner_width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "max_position_embeddings": self.context,
            "convolution": self.convolution,
            // The embeddings are drawn with a standard deviation of 1 / 25. This factor scales the deviation to 1.
            "embedding_scale": 25.0,
            "tie_word_embeddings": true,
        });
        match config {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}

/// Draws the weights with which a training starts, and returns them by their names in Hugging Face's form.
/// Normalisations are 1. The convolution and the last matrices of attention and of the feed-forward part are 0, so that
/// a layer changes nothing at first. All other weights are drawn with mean 0. The same seed gives the same weights.
pub(super) fn initial_weights(shape: &DecoderConfig, seed: u64) -> Result<BTreeMap<String, Var>> {
    let mut random = SplitMix::new(seed);
    let (width, inner) = (shape.width, shape.inner_width);
    let mut weights = BTreeMap::new();
    // Adds a tensor of the shape `dims`: normally distributed entries with the standard deviation `deviation`, or 1
    // everywhere if it is `None`.
    let mut add = |role: TensorRole, dims: &[usize], deviation: Option<f64>| -> Result<()> {
        let count: usize = dims.iter().product();
        #[expect(clippy::cast_possible_truncation, reason = "weights are in single precision")]
        let values: Vec<f32> = match deviation {
            // The sum of twelve uniform numbers is nearly normal, with mean 6 and standard deviation 1.
            Some(deviation) => (0..count)
                .map(|_| {
                    let normal = (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
                    (normal * deviation) as f32
                })
                .collect(),
            None => vec![1.0; count],
        };
        // All roles below have a name in this architecture.
        let name = role.hugging_face_name(shape.architecture).unwrap_or_default();
        weights.insert(name, Var::from_tensor(&Tensor::from_vec(values, dims, &Device::Cpu)?)?);
        Ok(())
    };
    add(TensorRole::Embedding, &[shape.vocabulary, width], Some(1.0 / 25.0))?;
    #[expect(clippy::cast_precision_loss, reason = "widths are small")]
    // The standard deviation for which the outputs of a matrix vary as much as its inputs.
    let deviation = |columns: usize| Some((1.0 / columns as f64).sqrt());
    for layer in 0..shape.layers {
        let of = |role| TensorRole::OfLayer(layer, role);
        add(of(LayerRole::AttentionNorm), &[width], None)?;
        add(of(LayerRole::FeedForwardNorm), &[width], None)?;
        add(of(LayerRole::QueryNorm), &[shape.head_width], None)?;
        add(of(LayerRole::KeyNorm), &[shape.head_width], None)?;
        add(of(LayerRole::Query), &[shape.query_width(), width], deviation(width))?;
        add(of(LayerRole::Key), &[shape.key_width(), width], deviation(width))?;
        add(of(LayerRole::Value), &[shape.key_width(), width], deviation(width))?;
        // At first, a layer changes nothing: the output of attention and of the feed-forward part is 0.
        add(of(LayerRole::AttentionOutput), &[width, shape.query_width()], Some(0.0))?;
        add(of(LayerRole::Gate), &[inner, width], deviation(width))?;
        add(of(LayerRole::Up), &[inner, width], deviation(width))?;
        add(of(LayerRole::Down), &[width, inner], Some(0.0))?;
        if shape.convolution > 0 {
            add(of(LayerRole::Convolution), &[shape.convolution, width], Some(0.0))?;
        }
    }
    add(TensorRole::FinalNorm, &[width], None)?;
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_grow_with_their_width() {
        let default = ModelShape::default();
        assert_eq!((default.heads, default.key_heads, default.inner_width), (4, 2, 352));
        let large = ModelShape::of_size(6, 256);
        assert_eq!((large.layers, large.heads, large.key_heads, large.inner_width), (6, 8, 4, 704));
        assert_eq!(large.config(1000)["num_key_value_heads"], 4);
    }

    #[test]
    fn the_rate_rises_stays_and_falls() {
        let settings = TrainingSettings {
            steps: 100,
            warm_up: 10,
            decay: 0.4,
            rate: 2.0,
            ..TrainingSettings::default()
        };
        for (step, expected) in [(0, 0.2), (9, 2.0), (59, 2.0), (60, 2.0), (80, 1.0), (99, 0.05)] {
            assert!((settings.rate(step) - expected).abs() < 1e-9, "{step}: {}", settings.rate(step));
        }
    }
}
