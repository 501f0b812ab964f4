//! Reads the shape of an encoder for sequence classification, [`EncoderConfig`], from the `config.json` of a model in
//! Hugging Face's form. `text_labels.rs` uses it for folders of BERT, RoBERTa, XLM-RoBERTa and ModernBERT.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::load_error::LoadError;
use super::fields::Fields;
use super::hugging_face::activation;
use super::{Activation, MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH};

/// The shape of an encoder with what classifies its output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EncoderConfig {
    /// The number of tokens: rows of the embedding.
    pub(crate) vocabulary: usize,
    /// The length of a token's vector between layers.
    pub(crate) width: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// The width between the two projections of the feed-forward part.
    pub(crate) inner_width: usize,
    /// The most tokens that the model reads.
    pub(crate) context: usize,
    /// The constant that a normalisation adds to avoid a division by 0.
    pub(crate) epsilon: f64,
    pub(crate) activation: Activation,
    pub(crate) family: EncoderFamily,
}

/// The family of an encoder, which determines its operations and the names of its tensors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EncoderFamily {
    /// BERT and its descendants: learned positions, and the sum of input and output is normalised.
    Bert(BertShape),
    /// ModernBERT: rotary positions, and the input of attention and of the feed-forward part is normalised.
    Modern(ModernShape),
}

/// The parts of the shape in which BERT and its descendants differ.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BertShape {
    /// The beginning of the names of tensors.
    pub(crate) root: &'static str,
    /// The rows of the table of positions.
    pub(crate) position_rows: usize,
    /// The row of the first token in this table.
    pub(crate) first_position: usize,
    /// The rows of the table of segments; a text is in the first one.
    pub(crate) segments: usize,
    /// Whether a classifier of two matrices computes the labels, as in RoBERTa. In BERT, the pooler and one matrix do.
    pub(crate) has_wide_classifier: bool,
}

/// The parts of the shape that only ModernBERT has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModernShape {
    /// For each layer, the base of the rotary frequencies, and the greatest distance at which a token attends to
    /// another (`None` without a limit).
    pub(crate) attention: Vec<(f64, Option<usize>)>,
    pub(crate) norm_bias: bool,
    pub(crate) attention_bias: bool,
    pub(crate) feed_forward_bias: bool,
    pub(crate) classifier_bias: bool,
    /// The function of the classifier's hidden layer.
    pub(crate) classifier_activation: Activation,
    /// Whether the classifier reads the mean of all tokens instead of the first token.
    pub(crate) is_mean_pooled: bool,
}

/// Returns whether a `model_type` is that of an encoder.
pub(crate) fn is_encoder(kind: &str) -> bool {
    matches!(kind, "bert" | "roberta" | "xlm-roberta" | "modernbert")
}

impl EncoderConfig {
    /// Reads the shape from `map`, the content of `file`, whose `model_type` is that of an encoder. `context` is the
    /// maximum number of tokens that the caller wants to read; `None` selects as many as the model has positions for.
    /// Fails if a field is missing, out of range or not supported.
    pub(crate) fn read(
        file: &Path,
        map: &Map<String, Value>,
        context: Option<usize>,
    ) -> Result<Self, LoadError> {
        let fields = Fields { file, map };
        let kind = fields.text("model_type")?.unwrap_or_default();
        if fields.get("quantization_config").is_some() {
            return Err(fields.error(
                "`quantization_config`: quantised safetensors are not supported; use the model's weights without quantisation",
            ));
        }
        let width = fields.size("hidden_size", MAX_WIDTH)?;
        let heads = fields.size("num_attention_heads", MAX_WIDTH)?;
        if !width.is_multiple_of(heads) || (kind == "modernbert" && !(width / heads).is_multiple_of(2)) {
            return Err(fields.error(format_args!(
                "`hidden_size` ({width}) must be a multiple of `num_attention_heads` ({heads}), and heads of ModernBERT must have an even width; use the unchanged file of a supported model"
            )));
        }
        let layers = fields.size("num_hidden_layers", MAX_LAYERS)?;
        let rows = fields.size("max_position_embeddings", MAX_CONTEXT)?;
        // `longest` is the maximum number of tokens that have a position in the model, and `activation_name` the field
        // that names the activation.
        let (family, longest, epsilon, activation_name) = if kind == "modernbert" {
            let shape = modern(fields, layers)?;
            (EncoderFamily::Modern(shape), rows, fields.number("norm_eps", 1e-5)?, "hidden_activation")
        } else {
            let shape = bert(fields, kind, rows)?;
            let longest = rows - shape.first_position;
            (EncoderFamily::Bert(shape), longest, fields.number("layer_norm_eps", 1e-12)?, "hidden_act")
        };
        Ok(Self {
            vocabulary: fields.size("vocab_size", MAX_VOCABULARY)?,
            width,
            layers,
            heads,
            inner_width: fields.size("intermediate_size", MAX_WIDTH)?,
            context: context.unwrap_or(longest).min(longest),
            epsilon,
            activation: activation(fields, fields.text(activation_name)?.unwrap_or("gelu"))?,
            family,
        })
    }
}

/// Reads the parts of the shape in which BERT and its descendants differ. `kind` is the `model_type`, and `rows` the
/// number of rows of the table of positions. Fails if the model has relative positions or is a decoder, since the
/// encoder of this crate implements neither. Also fails if a field is out of range.
fn bert(fields: Fields<'_>, kind: &str, rows: usize) -> Result<BertShape, LoadError> {
    let positions = fields.text("position_embedding_type")?.unwrap_or("absolute");
    if positions != "absolute" || fields.flag("is_decoder", false)? {
        return Err(fields.error(
            "`position_embedding_type` must be `absolute`, and `is_decoder` false; use the unchanged file of a supported model",
        ));
    }
    let is_roberta = kind != "bert";
    // In RoBERTa and XLM-RoBERTa, the first token has the row after that of the padding token.
    let first_position =
        if is_roberta { fields.optional_number("pad_token_id")?.unwrap_or(1) + 1 } else { 0 };
    if first_position >= rows {
        return Err(fields.error(format_args!(
            "`max_position_embeddings` ({rows}) must be greater than `pad_token_id` by at least 2; use the unchanged file of a supported model"
        )));
    }
    Ok(BertShape {
        root: if is_roberta { "roberta" } else { "bert" },
        position_rows: rows,
        first_position,
        segments: fields.size("type_vocab_size", MAX_VOCABULARY)?,
        has_wide_classifier: is_roberta,
    })
}

/// Reads the parts of the shape that only ModernBERT has. In some of its `layers` layers, a token attends to all others
/// (global attention); in the others, only to those within a distance (local attention). Fails if a field is out of
/// range or not supported.
fn modern(fields: Fields<'_>, layers: usize) -> Result<ModernShape, LoadError> {
    // `local_attention` counts the tokens on both sides. Every `every`-th layer, beginning with the first, is global.
    let reach = fields.optional_size("local_attention", MAX_CONTEXT)?.unwrap_or(128) / 2;
    let every = fields.optional_size("global_attn_every_n_layers", MAX_LAYERS)?.unwrap_or(3);
    // Files of newer versions of transformers state the kind of each layer, and the rotary positions of each kind.
    let kinds = fields.get("layer_types").and_then(Value::as_array);
    let rope = fields.object("rope_parameters")?;
    // Returns the base of the rotary frequencies in layers of this kind: from the parameters of the kind, or else from
    // `field`, where older files have it.
    let base = |kind: &str, field: &str, default: f64| {
        let of_kind = rope.map(|rope| rope.object(kind)).transpose()?.flatten();
        let Some(of_kind) = of_kind else { return fields.number(field, default) };
        match of_kind.text("rope_type")? {
            None | Some("default") => of_kind.number("rope_theta", default),
            Some(other) => Err(fields.error(format_args!(
                "`rope_parameters.{kind}.rope_type` is `{other}`, which is not supported for ModernBERT; use a model with `default`"
            ))),
        }
    };
    let global = (base("full_attention", "global_rope_theta", 160_000.0)?, None);
    let local = (base("sliding_attention", "local_rope_theta", 10_000.0)?, Some(reach));
    // Returns for a layer the base of its frequencies and its distance (`None` for global attention), by the kind that
    // the file states for it or, in older files, by its number.
    let of_layer = |layer: usize| {
        let Some(kinds) = kinds else {
            return Ok(if layer.is_multiple_of(every) { global } else { local });
        };
        match kinds.get(layer).and_then(Value::as_str) {
            Some("full_attention") => Ok(global),
            Some("sliding_attention") => Ok(local),
            _ => Err(fields.error(format_args!(
                "`layer_types` must have `full_attention` or `sliding_attention` for each of {layers} layers; use the unchanged file of a supported model"
            ))),
        }
    };
    let pooling = fields.text("classifier_pooling")?.unwrap_or("cls");
    if !matches!(pooling, "cls" | "mean") {
        return Err(
            fields.error(format_args!("`classifier_pooling` is `{pooling}`; use a model with cls or mean"))
        );
    }
    Ok(ModernShape {
        attention: (0..layers).map(of_layer).collect::<Result<_, _>>()?,
        norm_bias: fields.flag("norm_bias", false)?,
        attention_bias: fields.flag("attention_bias", false)?,
        feed_forward_bias: fields.flag("mlp_bias", false)?,
        classifier_bias: fields.flag("classifier_bias", false)?,
        classifier_activation: activation(fields, fields.text("classifier_activation")?.unwrap_or("gelu"))?,
        is_mean_pooled: pooling == "mean",
    })
}
