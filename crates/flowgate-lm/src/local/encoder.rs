//! Defines [`Encoder`], a neural network of the family BERT or ModernBERT that reads a text and gives each label a
//! score. `text_labels.rs` loads and evaluates encoders.
//!
//! The network has three parts: an embedding, which turns each token into a vector; layers, in which each token reads
//! the vectors of others by attention; and a classifier, which computes the scores from the vector of the first token,
//! or from the mean of all vectors. A token attends to all tokens of the text, but in some layers of ModernBERT only to
//! those near it. The names of the tensors are those of `transformers`.
//!
//! Texts are evaluated one at a time, and the queries of a text in pieces, so that the matrices of attention of a long
//! text stay small.

use candle_core::{D, Device, IndexOp as _, Result, Tensor};
use candle_nn::{ops, rotary_emb};

use super::config::Activation;
use super::config::encoder::{BertShape, EncoderConfig, EncoderFamily, ModernShape};
use super::load_error::LoadError;
use super::weights::safetensors::SafetensorsFolder;

/// How many queries of a text attend at the same time.
const PIECE: usize = 256;

/// An encoder with its weights, and the classifier of its output.
#[derive(Debug)]
pub(super) struct Encoder {
    config: EncoderConfig,
    device: Device,
    /// The vector of each token, as a row.
    embedding: Tensor,
    /// For each position, the vector that BERT adds to the token there: that of the position plus that of the first
    /// segment.
    positions: Option<Tensor>,
    embedding_norm: Norm,
    layers: Vec<Layer>,
    /// The normalisation after the last layer, if the model has one.
    final_norm: Option<Norm>,
    classifier: Classifier,
}

/// One layer: attention and a feed-forward part.
#[derive(Debug)]
struct Layer {
    attention: Attention,
    feed_forward: FeedForward,
    /// The normalisation of attention. ModernBERT normalises the input of attention, except in the first layer; BERT
    /// normalises the sum of input and output.
    attention_norm: Option<Norm>,
    feed_forward_norm: Norm,
    /// Whether the input of attention and of the feed-forward part is normalised, as in ModernBERT, and not the sum of
    /// their input and output, as in BERT.
    is_norm_first: bool,
}

/// Attention to the whole text, or to the tokens near a token.
#[derive(Debug)]
struct Attention {
    /// Queries, keys and values, one after another.
    inputs: Vec<Dense>,
    output: Dense,
    heads: usize,
    /// How many queries attend at the same time.
    piece: usize,
    /// The base of the rotary frequencies, if positions are rotations.
    rotary: Option<f64>,
    /// The greatest distance at which a token attends to another; `None` without a limit.
    reach: Option<usize>,
}

/// An input projection, an activation and an output projection.
#[derive(Debug)]
struct FeedForward {
    up: Dense,
    down: Dense,
    activation: Activation,
    /// Whether the second half of the input projection is multiplied with the activated first half.
    is_gated: bool,
}

/// The layers that map the vectors of a text to a score for each label.
#[derive(Debug)]
struct Classifier {
    hidden: Dense,
    activation: HiddenActivation,
    norm: Option<Norm>,
    output: Dense,
    /// Whether the classifier reads the mean of all tokens instead of the first token.
    is_mean_pooled: bool,
}

/// The function of the classifier's hidden layer.
#[derive(Debug, Clone, Copy)]
enum HiddenActivation {
    Tanh,
    Of(Activation),
}

/// A matrix, rows first, with an optional bias.
#[derive(Debug)]
struct Dense {
    matrix: Tensor,
    bias: Option<Tensor>,
}

/// A normalisation by mean and variance.
#[derive(Debug)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f32,
}

/// Reads the tensors of a folder onto a device.
struct Tensors<'a> {
    folder: &'a SafetensorsFolder,
    device: &'a Device,
    /// The constant of the normalisations, which avoids a division by 0.
    epsilon: f32,
}

type Loaded<T> = std::result::Result<T, LoadError>;

impl Tensors<'_> {
    /// Reads the tensor `name`. Fails if it is missing or its shape is not `shape`.
    fn get(&self, name: &str, shape: &[usize]) -> Loaded<Tensor> {
        self.folder.tensor(name, shape, self.device)
    }

    /// Reads a matrix and, with `has_bias`, its bias.
    fn dense(&self, name: &str, rows: usize, columns: usize, has_bias: bool) -> Loaded<Dense> {
        let matrix = self.get(&format!("{name}.weight"), &[rows, columns])?;
        let bias = has_bias.then(|| self.get(&format!("{name}.bias"), &[rows])).transpose()?;
        Ok(Dense { matrix, bias })
    }

    /// Reads a normalisation of vectors with `width` entries. Without `has_bias`, the bias is 0.
    fn norm(&self, name: &str, width: usize, has_bias: bool) -> Loaded<Norm> {
        let weight = self.get(&format!("{name}.weight"), &[width])?;
        let bias = if has_bias {
            self.get(&format!("{name}.bias"), &[width])?
        } else {
            weight.zeros_like().map_err(|error| LoadError::of_tensor(self.folder.path(), name, error))?
        };
        Ok(Norm { weight, bias, epsilon: self.epsilon })
    }
}

impl Dense {
    /// Multiplies the matrix with each row of `x`, and adds the bias.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mapped = x.matmul(&self.matrix.t()?)?;
        match &self.bias {
            Some(bias) => mapped.broadcast_add(bias),
            None => Ok(mapped),
        }
    }
}

impl Norm {
    /// Normalises each row of `x` by its mean and variance, and scales and shifts it by the learned numbers.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm(&x.contiguous()?, &self.weight, &self.bias, self.epsilon)
    }
}

/// Applies an activation to each entry.
fn activate(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Silu => ops::silu(x),
        Activation::Gelu => x.gelu_erf(),
        Activation::GeluTanh => x.gelu(),
        Activation::Relu => x.relu(),
    }
}

impl Attention {
    /// Computes attention for the rows of `x`, the vectors of the tokens: each token reads the values of the others in
    /// proportion to how well its query fits their keys. Returns the output of attention for each token, which the
    /// layer adds to its input.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (time, width) = x.dims2()?;
        let head_width = width / self.heads;
        // The queries, the keys and the values, each of shape (heads, time, head width).
        let mut parts = Vec::with_capacity(3);
        for input in &self.inputs {
            let all = input.forward(x)?;
            // BERT has one matrix each for queries, keys and values. ModernBERT has one matrix for all three, whose
            // result contains them side by side.
            for start in (0..all.dim(1)?).step_by(width) {
                let part = all.narrow(1, start, width)?;
                parts.push(part.reshape((time, self.heads, head_width))?.transpose(0, 1)?.contiguous()?);
            }
        }
        let [queries, keys, values] = parts.as_slice() else {
            return Err(candle_core::Error::Msg(
                "attention has no queries, keys and values; this is a defect of Flowgate; please report it"
                    .to_owned(),
            ));
        };
        let (queries, keys) = match self.rotary {
            Some(base) => (rotated(queries, base)?, rotated(keys, base)?),
            None => (queries.clone(), keys.clone()),
        };
        let keys = keys.t()?.contiguous()?;
        #[expect(clippy::cast_precision_loss, reason = "widths are small")]
        let scale = 1.0 / (head_width as f64).sqrt();
        let mut read = Vec::new();
        // The queries attend in pieces, to bound the size of the matrix of scores.
        for start in (0..time).step_by(self.piece) {
            let rows = self.piece.min(time - start);
            let mut scores = (queries.narrow(1, start, rows)?.contiguous()?.matmul(&keys)? * scale)?;
            if let Some(reach) = self.reach {
                // In a layer with local attention, a token reads only the tokens within this reach.
                scores = scores.broadcast_add(&window(start, rows, time, reach, x.device())?)?;
            }
            read.push(ops::softmax_last_dim(&scores)?.matmul(values)?);
        }
        // From (heads, time, head width) to (time, width): the results of all heads side by side.
        let read = Tensor::cat(&read, 1)?.transpose(0, 1)?.reshape((time, width))?;
        self.output.forward(&read)
    }
}

/// Rotates the vectors of queries or keys, of shape (heads, time, head width), by the positions of their tokens, so
/// that attention depends on the distance between two tokens. The angle of a pair of entries is the position divided by
/// a power of `base` that grows with the index of the pair.
fn rotated(x: &Tensor, base: f64) -> Result<Tensor> {
    let (_, time, width) = x.dims3()?;
    let half = width / 2;
    #[expect(clippy::cast_precision_loss, reason = "positions and widths are far below 2^52")]
    let angles = (0..time).flat_map(|position| {
        (0..half).map(move |pair| position as f64 / base.powf((2 * pair) as f64 / width as f64))
    });
    #[expect(clippy::cast_possible_truncation, reason = "the model computes in single precision")]
    let table = |function: fn(f64) -> f64| {
        let values: Vec<f32> = angles.clone().map(|angle| function(angle) as f32).collect();
        Tensor::from_vec(values, (time, half), x.device())
    };
    rotary_emb::rope(&x.unsqueeze(0)?, &table(f64::cos)?, &table(f64::sin)?)?.squeeze(0)
}

/// Returns the mask that limits attention to near tokens, for the `rows` tokens from `start` on in a text of `time`
/// tokens. It has the shape (rows, time): 0 for tokens at most `reach` away, and minus infinity for all others. The
/// mask is added to the scores of attention.
fn window(start: usize, rows: usize, time: usize, reach: usize, device: &Device) -> Result<Tensor> {
    let entry =
        |row: usize, column: usize| if row.abs_diff(column) <= reach { 0.0 } else { f32::NEG_INFINITY };
    let entries = (start..start + rows).flat_map(|row| (0..time).map(move |column| entry(row, column)));
    Tensor::from_vec(entries.collect::<Vec<f32>>(), (rows, time), device)
}

impl FeedForward {
    /// Maps each row of `x`, the vector of a token. In a gated model, the projection `up` gives two halves: the first
    /// is activated, and multiplied with the second.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let up = self.up.forward(x)?;
        let inner = if self.is_gated {
            let half = up.dim(D::Minus1)? / 2;
            let first = activate(self.activation, &up.narrow(1, 0, half)?.contiguous()?)?;
            (first * up.narrow(1, half, half)?)?
        } else {
            activate(self.activation, &up)?
        };
        self.down.forward(&inner)
    }
}

impl Layer {
    /// Evaluates the layer for the rows of `x`, the vectors of the tokens. Attention and then the feed-forward part
    /// each add their output to their input. ModernBERT (`is_norm_first`) normalises the input of each part, BERT the
    /// sum.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Returns `x` unchanged if the layer does not have the normalisation.
        let normed =
            |norm: Option<&Norm>, x: &Tensor| norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x));
        if self.is_norm_first {
            let x = (x + self.attention.forward(&normed(self.attention_norm.as_ref(), x)?)?)?;
            return &x + self.feed_forward.forward(&self.feed_forward_norm.forward(&x)?)?;
        }
        let x = normed(self.attention_norm.as_ref(), &(x + self.attention.forward(x)?)?)?;
        self.feed_forward_norm.forward(&(&x + self.feed_forward.forward(&x)?)?)
    }
}

impl Encoder {
    /// Reads an encoder from the files of `folder`, for evaluation on `device`. `labels` is the number of labels of its
    /// classifier. Fails if a tensor is missing or has another shape.
    pub(super) fn load(
        config: &EncoderConfig,
        folder: &SafetensorsFolder,
        device: &Device,
        labels: usize,
    ) -> Loaded<Self> {
        #[expect(clippy::cast_possible_truncation, reason = "the model computes in single precision")]
        let epsilon = config.epsilon as f32;
        let tensors = Tensors { folder, device, epsilon };
        match &config.family {
            EncoderFamily::Bert(shape) => Self::load_bert(config, shape, &tensors, labels),
            EncoderFamily::Modern(shape) => Self::load_modern(config, shape, &tensors, labels),
        }
    }

    /// Reads an encoder of the family BERT, whose classifier has `labels` labels. Each layer has separate matrices for
    /// queries, keys and values, and normalises the sum of input and output. Fails if a tensor is missing or has
    /// another shape.
    fn load_bert(
        config: &EncoderConfig,
        shape: &BertShape,
        tensors: &Tensors<'_>,
        labels: usize,
    ) -> Loaded<Self> {
        let (root, width) = (shape.root, config.width);
        let embeddings = format!("{root}.embeddings");
        let positions = tensors
            .get(&format!("{embeddings}.position_embeddings.weight"), &[shape.position_rows, width])?;
        let segments =
            tensors.get(&format!("{embeddings}.token_type_embeddings.weight"), &[shape.segments, width])?;
        // All tokens are in the first segment, so its vector is added to each position.
        let positions = segments
            .i(0)
            .and_then(|first| {
                positions.narrow(0, shape.first_position, config.context)?.broadcast_add(&first)
            })
            .map_err(|error| LoadError::of_tensor(tensors.folder.path(), &embeddings, error))?;
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            layers.push(Self::load_bert_layer(config, root, tensors, layer)?);
        }
        // The names of the two matrices of the classifier. BERT calls the first one its pooler.
        let (hidden, output) = if shape.has_wide_classifier {
            ("classifier.dense".to_owned(), "classifier.out_proj")
        } else {
            (format!("{root}.pooler.dense"), "classifier")
        };
        Ok(Self {
            embedding: tensors
                .get(&format!("{embeddings}.word_embeddings.weight"), &[config.vocabulary, width])?,
            positions: Some(positions),
            embedding_norm: tensors.norm(&format!("{embeddings}.LayerNorm"), width, true)?,
            layers,
            final_norm: None,
            classifier: Classifier {
                hidden: tensors.dense(&hidden, width, width, true)?,
                activation: HiddenActivation::Tanh,
                norm: None,
                output: tensors.dense(output, labels, width, true)?,
                is_mean_pooled: false,
            },
            device: tensors.device.clone(),
            config: config.clone(),
        })
    }

    /// Reads the layer with the index `layer` of an encoder of the family BERT. The names of all tensors begin with
    /// `root`.
    fn load_bert_layer(
        config: &EncoderConfig,
        root: &str,
        tensors: &Tensors<'_>,
        layer: usize,
    ) -> Loaded<Layer> {
        let width = config.width;
        let name = |part: &str| format!("{root}.encoder.layer.{layer}.{part}");
        let square = |part: &str| tensors.dense(&name(part), width, width, true);
        Ok(Layer {
            attention: Attention {
                inputs: vec![
                    square("attention.self.query")?,
                    square("attention.self.key")?,
                    square("attention.self.value")?,
                ],
                output: square("attention.output.dense")?,
                heads: config.heads,
                piece: PIECE,
                rotary: None,
                reach: None,
            },
            feed_forward: FeedForward {
                up: tensors.dense(&name("intermediate.dense"), config.inner_width, width, true)?,
                down: tensors.dense(&name("output.dense"), width, config.inner_width, true)?,
                activation: config.activation,
                is_gated: false,
            },
            attention_norm: Some(tensors.norm(&name("attention.output.LayerNorm"), width, true)?),
            feed_forward_norm: tensors.norm(&name("output.LayerNorm"), width, true)?,
            is_norm_first: false,
        })
    }

    /// Reads an encoder of the family ModernBERT, whose classifier has `labels` labels. Each layer has one matrix for
    /// queries, keys and values together, a gated feed-forward part, and normalises its inputs. Fails if a tensor is
    /// missing or has another shape.
    fn load_modern(
        config: &EncoderConfig,
        shape: &ModernShape,
        tensors: &Tensors<'_>,
        labels: usize,
    ) -> Loaded<Self> {
        let (width, inner) = (config.width, config.inner_width);
        let norm = |name: &str| tensors.norm(name, width, shape.norm_bias);
        let mut layers = Vec::new();
        for (layer, (base, reach)) in shape.attention.iter().enumerate() {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            layers.push(Layer {
                attention: Attention {
                    inputs: vec![tensors.dense(
                        &name("attn.Wqkv"),
                        3 * width,
                        width,
                        shape.attention_bias,
                    )?],
                    output: tensors.dense(&name("attn.Wo"), width, width, shape.attention_bias)?,
                    heads: config.heads,
                    piece: PIECE,
                    rotary: Some(*base),
                    reach: *reach,
                },
                feed_forward: FeedForward {
                    up: tensors.dense(&name("mlp.Wi"), 2 * inner, width, shape.feed_forward_bias)?,
                    down: tensors.dense(&name("mlp.Wo"), width, inner, shape.feed_forward_bias)?,
                    activation: config.activation,
                    is_gated: true,
                },
                // The input of the first layer is normalised already.
                attention_norm: if layer == 0 { None } else { Some(norm(&name("attn_norm"))?) },
                feed_forward_norm: norm(&name("mlp_norm"))?,
                is_norm_first: true,
            });
        }
        Ok(Self {
            embedding: tensors.get("model.embeddings.tok_embeddings.weight", &[config.vocabulary, width])?,
            positions: None,
            embedding_norm: norm("model.embeddings.norm")?,
            layers,
            final_norm: Some(norm("model.final_norm")?),
            classifier: Classifier {
                hidden: tensors.dense("head.dense", width, width, shape.classifier_bias)?,
                activation: HiddenActivation::Of(shape.classifier_activation),
                norm: Some(norm("head.norm")?),
                output: tensors.dense("classifier", labels, width, true)?,
                is_mean_pooled: shape.is_mean_pooled,
            },
            device: tensors.device.clone(),
            config: config.clone(),
        })
    }

    /// Returns the shape of the encoder.
    pub(super) fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// Sets how many queries attend at the same time.
    #[cfg(test)]
    pub(super) fn with_piece(mut self, piece: usize) -> Self {
        self.layers.iter_mut().for_each(|layer| layer.attention.piece = piece);
        self
    }

    /// Returns the score of each label for a text of these tokens. There must be at least one token, and at most
    /// `context` of the configuration.
    pub(super) fn scores(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        // The vectors of the tokens, one row for each token.
        let ids = Tensor::new(tokens, &self.device)?;
        let mut x = self.embedding.index_select(&ids, 0)?;
        if let Some(positions) = &self.positions {
            x = (x + positions.narrow(0, 0, tokens.len())?)?;
        }
        x = self.embedding_norm.forward(&x)?;
        for layer in &self.layers {
            x = layer.forward(&x)?;
        }
        if let Some(norm) = &self.final_norm {
            x = norm.forward(&x)?;
        }
        // The classifier: one vector for the whole text, a hidden layer, and the scores.
        let Classifier { hidden, activation, norm, output, is_mean_pooled } = &self.classifier;
        let pooled = if *is_mean_pooled { x.mean_keepdim(0)? } else { x.narrow(0, 0, 1)? };
        let mapped = hidden.forward(&pooled)?;
        let mut activated = match activation {
            HiddenActivation::Tanh => mapped.tanh()?,
            HiddenActivation::Of(activation) => activate(*activation, &mapped)?,
        };
        if let Some(norm) = norm {
            activated = norm.forward(&activated)?;
        }
        output.forward(&activated)?.flatten_all()?.to_vec1()
    }
}
