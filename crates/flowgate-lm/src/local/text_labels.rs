//! Defines [`LocalTextClassifier`], a model in a folder that classifies texts: for example a detector of prompt
//! injections, of topics or of harmful language. A program can answer an extern predicate of a policy with such a
//! model.
//!
//! The folder has a model for *sequence classification* as Hugging Face distributes it. The model is either an encoder
//! (BERT, RoBERTa, XLM-RoBERTa or ModernBERT, in `encoder.rs`), or a decoder that this crate supports. Such a decoder
//! has no output matrix, but a matrix `score.weight` with a row for each label. The field `id2label` of `config.json`
//! names the labels.

use std::path::Path;

use candle_core::Device;
use serde_json::{Map, Value};

use super::config::encoder::{EncoderConfig, is_encoder};
use super::encoder::Encoder;
use super::evaluation::failed;
use super::load_error::LoadError;
use super::tokenizer::TextTokenizer;
use super::weights::safetensors::SafetensorsFolder;
use super::{LocalModel, LocalSettings, device, file};
use crate::{Error, HiddenStateModel, TextLabelModel};

/// The name of the matrix with a row for each label.
const SCORE: &str = "score.weight";
/// The most labels of a model.
const MAX_LABELS: usize = 10_000;

/// A model that classifies texts, evaluated in this process.
#[derive(Debug)]
pub struct LocalTextClassifier {
    model: ScoredModel,
    labels: Vec<String>,
    /// Whether several labels can apply to a text; otherwise their probabilities sum to 1.
    is_multiple: bool,
}

/// A model that gives each label a score.
#[derive(Debug)]
enum ScoredModel {
    /// The score of a label is the product of its row with the hidden state of the last token.
    Decoder {
        model: Box<LocalModel>,
        rows: Vec<Vec<f32>>,
    },
    Encoder {
        encoder: Box<Encoder>,
        tokenizer: Box<TextTokenizer>,
    },
}

impl LocalTextClassifier {
    /// Loads the model of a folder. The files need not be trusted: malformed ones are an error, and memory is bounded
    /// by their size.
    ///
    /// # Errors
    /// If a file is missing, cut off or malformed, or the kind of model is not supported. The error names the file, and
    /// the tensor or field.
    pub fn load(folder: &Path, settings: &LocalSettings) -> Result<Self, LoadError> {
        let config_file = folder.join("config.json");
        let map: Map<String, Value> = file::read_json(&config_file)?;
        let labels = labels(&map).map_err(|problem| LoadError::new(&config_file, problem))?;
        // The type of the model decides whether it is an encoder or a decoder.
        let model = if map.get("model_type").and_then(Value::as_str).is_some_and(is_encoder) {
            let config = EncoderConfig::read(&config_file, &map, settings.context)?;
            let tokenizer = TextTokenizer::read(&folder.join("tokenizer.json"))?;
            if tokenizer.token_count() > config.vocabulary {
                let (tokens, rows) = (tokenizer.token_count(), config.vocabulary);
                let problem = format!(
                    "the tokenizer has {tokens} tokens, but the weights have vectors for only {rows}; use the tokenizer of these weights"
                );
                return Err(LoadError::new(folder, problem));
            }
            let (weights, device) = (SafetensorsFolder::open(folder)?, device(folder, settings.processor)?);
            let encoder = Box::new(Encoder::load(&config, &weights, &device, labels.len())?);
            ScoredModel::Encoder { encoder, tokenizer: Box::new(tokenizer) }
        } else {
            load_decoder(folder, settings, labels.len())?
        };
        let is_multiple =
            map.get("problem_type").and_then(Value::as_str) == Some("multi_label_classification");
        Ok(Self { model, labels, is_multiple })
    }

    /// Returns the score of each label for a text, in the order of the labels. The score is a logit, from which
    /// `label_probabilities` computes the probability.
    ///
    /// # Errors
    /// If the text has no tokens, or too many for the model, or the model fails.
    fn scores(&self, text: &str) -> Result<Vec<f64>, Error> {
        let empty = || Error::Unsupported("the text has no tokens; give a text with words");
        match &self.model {
            ScoredModel::Decoder { model, rows } => {
                let states = model.hidden_states(text, model.layer_count())?;
                // The last token has read all others, so its hidden state represents the whole text.
                let last = states.vectors.last().ok_or_else(empty)?;
                let product = |row: &Vec<f32>| -> f64 {
                    row.iter().zip(last).map(|(weight, value)| f64::from(*weight) * f64::from(*value)).sum()
                };
                Ok(rows.iter().map(product).collect())
            }
            ScoredModel::Encoder { encoder, tokenizer } => {
                let tokens = tokenizer.encode_whole(text)?;
                let limit = encoder.config().context;
                if tokens.len() > limit {
                    return Err(Error::TooManyTokens { tokens: tokens.len(), limit });
                }
                if tokens.is_empty() {
                    return Err(empty());
                }
                Ok(encoder.scores(&tokens).map_err(failed)?.into_iter().map(f64::from).collect())
            }
        }
    }
}

/// Loads a decoder that classifies texts, with the matrix that has a row for each label. `labels` is the number of
/// labels. Fails if a file is missing or malformed, or if the matrix has another number of rows.
fn load_decoder(folder: &Path, settings: &LocalSettings, labels: usize) -> Result<ScoredModel, LoadError> {
    // A classifier has no output matrix.
    let has_output = false;
    let model = LocalModel::load_folder(folder, device(folder, settings.processor)?, settings, has_output)?;
    let width = model.decoder.config().width;
    let score = SafetensorsFolder::open(folder)?.tensor(SCORE, &[labels, width], &Device::Cpu)?;
    let rows = score.to_vec2::<f32>().map_err(|error| {
        LoadError::of_tensor(folder, SCORE, format_args!("cannot be converted: {error}; download it again"))
    })?;
    Ok(ScoredModel::Decoder { model: Box::new(model), rows })
}

impl TextLabelModel for LocalTextClassifier {
    fn labels(&self) -> Vec<&str> {
        self.labels.iter().map(String::as_str).collect()
    }

    /// Evaluates the whole text. If several labels can apply, the probability of each label is the logistic function of
    /// its score; otherwise, the probabilities are the softmax of all scores.
    fn label_probabilities(&self, text: &str) -> Result<Vec<f64>, Error> {
        let scores = self.scores(text)?;
        if scores.iter().any(|score| !score.is_finite()) {
            return Err(Error::Failed(
                "a score of the model is not a number, so its weights are damaged; download them again"
                    .to_owned(),
            ));
        }
        if self.is_multiple {
            return Ok(scores.iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect());
        }
        // The highest score is subtracted, so that no exponential overflows.
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        Ok(exponentials.iter().map(|exponential| exponential / sum).collect())
    }
}

/// Returns the labels of a configuration, in the order of their numbers. Fails if the numbers do not run from 0 on
/// without a gap, or if there are too many labels.
fn labels(config: &Map<String, Value>) -> Result<Vec<String>, String> {
    let malformed = "expected `id2label`, an object with a text for each number from 0 on; use a model for sequence \
        classification";
    let names = config.get("id2label").and_then(Value::as_object).ok_or(malformed)?;
    if names.is_empty() || names.len() > MAX_LABELS {
        return Err(format!(
            "`id2label` has {} labels; use a model with 1 to {MAX_LABELS} labels",
            names.len()
        ));
    }
    let label = |number: usize| names.get(&number.to_string()).and_then(Value::as_str).map(str::to_owned);
    (0..names.len()).map(label).collect::<Option<Vec<String>>>().ok_or_else(|| malformed.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_read_by_their_numbers() {
        for (config, expected) in [
            (json!({"id2label": {"1": "b", "0": "a"}}), Ok(vec!["a".to_owned(), "b".to_owned()])),
            (json!({}), Err("expected `id2label`")),
            (json!({"id2label": ["a"]}), Err("expected `id2label`")),
            (json!({"id2label": {}}), Err("`id2label` has 0 labels")),
            (json!({"id2label": {"0": "a", "2": "c"}}), Err("expected `id2label`")),
            (json!({"id2label": {"0": 1}}), Err("expected `id2label`")),
        ] {
            let found = labels(config.as_object().unwrap());
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }
}
