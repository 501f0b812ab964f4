//! Defines [`TextTokenizer`], which converts texts to tokens and back. It returns for each token the byte range of the
//! text that the token spells, so that scores and attention can be attributed to regions of the text.
//! [`LocalModel`](super::LocalModel), the classifier of texts and the trainer use this module. The submodule `gguf`
//! reads the tokenizer of a GGUF file.

mod gguf;

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::Tokenizer;

use super::file;
use super::load_error::LoadError;
use crate::Error;

/// The limit on the size of `tokenizer.json`. The files of large vocabularies have 10 to 35 MB.
const FILE_LIMIT: u64 = 128 << 20;

/// A tokenizer.
pub(super) struct TextTokenizer {
    tokenizer: Tokenizer,
    /// The largest id plus 1.
    token_count: usize,
}

impl std::fmt::Debug for TextTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextTokenizer").field("token_count", &self.token_count).finish_non_exhaustive()
    }
}

/// The tokens of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TokenizedText {
    pub(super) ids: Vec<u32>,
    /// The byte range that each token spells; empty for a token that the tokenizer adds. A token that is only a part of
    /// a character has the range of the whole character.
    pub(super) spans: Vec<Range<usize>>,
}

/// The tokens of a prompt and its continuation. No token contains parts of both, so that the continuation can be scored
/// by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenizedPair {
    /// All tokens. The spans of the continuation are relative to its beginning.
    pub(super) text: TokenizedText,
    /// The number of tokens of the prompt.
    pub(super) boundary: usize,
}

impl TextTokenizer {
    /// Reads a tokenizer from the file `tokenizer.json`. Fails if the file is longer than [`FILE_LIMIT`] or malformed.
    pub(super) fn read(path: &Path) -> Result<Self, LoadError> {
        let bytes = file::read(path, FILE_LIMIT)?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            LoadError::new(path, format!("the file is not valid JSON: {error}; download it again"))
        })?;
        Self::from_json(path, value)
    }

    /// Builds the tokenizer that the metadata of a GGUF file describes.
    pub(super) fn of_gguf(path: &Path, metadata: &Map<String, Value>) -> Result<Self, LoadError> {
        Self::from_json(path, gguf::tokenizer_json(path, metadata)?)
    }

    /// Loads a tokenizer from `value`, the content of a `tokenizer.json`. Changes its options, so that texts are
    /// neither cut off nor padded, and the span of a token includes the spaces that the token spells. Fails if the
    /// tokenizer is malformed or not supported; `path` names the file in the error.
    pub(super) fn from_json(path: &Path, mut value: Value) -> Result<Self, LoadError> {
        if let Some(map) = value.as_object_mut() {
            // Texts are evaluated whole, without padding.
            map.insert("truncation".to_owned(), Value::Null);
            map.insert("padding".to_owned(), Value::Null);
            if let Some(processor) = map.get_mut("post_processor") {
                // A list of processors has three levels of nesting. The limit of 8 bounds the recursion.
                keep_spaces(processor, 8);
            }
        }
        let tokenizer: Tokenizer = serde_json::from_value(value).map_err(|error| {
            let advice = "use the complete `tokenizer.json` of a supported model";
            LoadError::new(path, format!("the tokenizer cannot be loaded: {error}; {advice}"))
        })?;
        // The ids may have gaps, so the count is one more than the largest id and not the number of entries.
        // `true`: the vocabulary includes the added tokens.
        let ids = tokenizer.get_vocab(true);
        let token_count =
            ids.values().max().map_or(0, |&id| usize::try_from(id).unwrap_or(usize::MAX).saturating_add(1));
        Ok(Self { tokenizer, token_count })
    }

    /// Returns the number of tokens: the largest id plus 1.
    pub(super) fn token_count(&self) -> usize {
        self.token_count
    }

    /// Returns the id of the token with this text; `None` if there is none.
    pub(super) fn token(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    /// Converts a text to tokens, including those that the tokenizer adds at the beginning of each text.
    pub(super) fn encode(&self, text: &str) -> Result<TokenizedText, Error> {
        self.convert(text, true)
    }

    /// Converts a text to the ids of its tokens, including those that the tokenizer adds at the beginning and at the
    /// end. An encoder needs both, since it reads whole texts.
    pub(super) fn encode_whole(&self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(self.tokenizer.encode(text, true).map_err(failed)?.get_ids().to_vec())
    }

    /// Converts a text to tokens without adding any: the text itself spells the special tokens, as the output of a chat
    /// template does.
    pub(super) fn encode_written_out(&self, text: &str) -> Result<TokenizedText, Error> {
        self.convert(text, false)
    }

    /// Converts a text to tokens. `with_added` says whether the tokenizer adds its tokens at the beginning. Special
    /// tokens that it adds at the end are removed, since the model continues the text.
    fn convert(&self, text: &str, with_added: bool) -> Result<TokenizedText, Error> {
        let encoding = self.tokenizer.encode(text, with_added).map_err(failed)?;
        let mut ids = encoding.get_ids().to_vec();
        let mut spans: Vec<Range<usize>> =
            encoding.get_offsets().iter().map(|&(from, to)| from..to).collect();
        // A special token at the end would tell the model that the text is over. An added token has an empty span.
        while spans.last().is_some_and(Range::is_empty)
            && encoding.get_special_tokens_mask().get(ids.len() - 1) == Some(&1)
        {
            ids.pop();
            spans.pop();
        }
        // If a normaliser removed text, some ranges may begin or end within a character. Such ranges are made empty.
        spans.iter_mut().for_each(|span| {
            if text.get(span.clone()).is_none() {
                *span = 0..0
            }
        });
        Ok(TokenizedText { ids, spans })
    }

    /// Converts a prompt with its continuation to tokens, so that no token contains parts of both: a score of the
    /// continuation must not include a part of the prompt.
    ///
    /// If no token of the whole text spans the end of the prompt, the result has the tokens of the whole text.
    /// Otherwise, prompt and continuation are converted separately. The spans of the tokens of the continuation count
    /// from the beginning of the continuation.
    ///
    /// # Errors
    /// If the tokens of the separately converted parts do not spell the same text as the tokens of the whole text.
    pub(super) fn encode_pair(&self, prompt: &str, continuation: &str) -> Result<TokenizedPair, Error> {
        let whole = format!("{prompt}{continuation}");
        let mut text = self.encode(&whole)?;
        // The index of the first token that ends after the prompt.
        let boundary = text.spans.iter().position(|span| span.end > prompt.len()).unwrap_or(text.ids.len());
        let crosses = text.spans.get(boundary).is_some_and(|span| span.start < prompt.len());
        if !crosses {
            for span in text.spans.iter_mut().skip(boundary) {
                *span = span.start.saturating_sub(prompt.len())..span.end.saturating_sub(prompt.len());
            }
            return Ok(TokenizedPair { text, boundary });
        }
        // A token spans the end of the prompt, so the two texts are converted separately.
        let (mut parts, second) = (self.encode(prompt)?, self.convert(continuation, false)?);
        let boundary = parts.ids.len();
        parts.ids.extend(second.ids);
        parts.spans.extend(second.spans);
        if self.decode(&parts.ids)? != self.decode(&text.ids)? {
            return Err(Error::Unsupported(
                "one token contains the end of the prompt and the beginning of the continuation; divide the text elsewhere, for example before a space, so that the continuation begins with the space",
            ));
        }
        Ok(TokenizedPair { text: parts, boundary })
    }

    /// Returns a function to which the caller passes the tokens of a text one by one. The function returns the
    /// characters that the token completes, or `None` if it completes none.
    pub(super) fn stream(&self) -> impl FnMut(u32) -> Result<Option<String>, Error> + Send + '_ {
        // `false`: the text of special tokens is returned as well.
        let mut stream = self.tokenizer.decode_stream(false);
        move |token| stream.step(token).map_err(failed)
    }

    /// Returns the text of tokens, special ones included.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, Error> {
        // `false`: special tokens are not skipped.
        self.tokenizer.decode(ids, false).map_err(failed)
    }
}

/// Converts an error of the tokenizer library. Only its first line is used.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: tokenizers::Error) -> Error {
    Error::Failed(format!(
        "the tokenizer of the model failed: {}; download the files of the model again",
        error.to_string().lines().next().unwrap_or_default()
    ))
}

/// Sets the option `trim_offsets` in the configuration of a tokenizer's post-processor to false: the spans of tokens
/// then include their spaces, and every byte of a text belongs to a token. Searches for the option in the nested
/// configuration, up to `depth` levels deep.
fn keep_spaces(processor: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match processor {
        Value::Object(map) => {
            if let Some(trim) = map.get_mut("trim_offsets") {
                *trim = Value::Bool(false);
            }
            map.values_mut().for_each(|value| keep_spaces(value, depth));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| keep_spaces(value, depth)),
        _ => {}
    }
}
