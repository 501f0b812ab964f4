//! Converts the tokenizer of a GGUF file to the form of `tokenizer.json`, which the tokenizer library loads.
//! `tokenizer.rs` calls this module for a GGUF file without a `tokenizer.json` in the same folder.
//!
//! The metadata of the file contain the tokens. For byte-level BPE, the metadata also contain the merges: the pairs of
//! tokens that are joined to a longer one, in order. For SentencePiece, they contain scores instead, from which this
//! module computes the merges.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::load_error::LoadError;

/// The longest token for which merges are computed, in bytes. Longer tokens are not words.
const LONGEST_PIECE: usize = 256;

/// The code of control tokens in the field `tokenizer.ggml.token_type`, which lists the kind of each token.
const CONTROL: u64 = 3;
/// The code of tokens that the author of the model added, in the field `tokenizer.ggml.token_type`.
const USER_DEFINED: u64 = 4;

/// The regular expressions by which texts are divided into words, each with the names by which files refer to it.
const WORDS: &[(&[&str], &str)] = &[
    (
        &["qwen2", "qwen35"],
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        &["llama-bpe", "llama3", "smaug-bpe"],
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (&["default", "gpt-2"], r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
];

/// Converts the tokenizer in `metadata`, the metadata of a GGUF file, and returns it as the content of a
/// `tokenizer.json`. Fails if the metadata are malformed or describe an unsupported kind of tokenizer. `path` names the
/// file in errors.
pub(super) fn tokenizer_json(path: &Path, metadata: &Map<String, Value>) -> Result<Value, LoadError> {
    let file = GgufTokenizer { path, metadata };
    let tokens = file.texts("tokens")?;
    let mut vocabulary = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        vocabulary.insert((*token).to_owned(), id.into());
    }
    let kind = file.get("model").and_then(Value::as_str).unwrap_or_default();
    let model = match kind {
        "gpt2" => file.byte_level(&vocabulary)?,
        "llama" => file.sentence_piece(&tokens, &vocabulary)?,
        _ => {
            return Err(file.error(format!(
                "`tokenizer.ggml.model` is `{kind}`, which is not supported; put a `tokenizer.json` beside the file"
            )));
        }
    };
    let mut json = model;
    json.insert("added_tokens".to_owned(), file.added_tokens(&tokens));
    json.insert("post_processor".to_owned(), file.post_processor(&tokens));
    Ok(Value::Object(json))
}

/// The metadata of a tokenizer.
struct GgufTokenizer<'a> {
    path: &'a Path,
    metadata: &'a Map<String, Value>,
}

impl<'a> GgufTokenizer<'a> {
    /// Returns the error that the file has this problem.
    fn error(&self, problem: String) -> LoadError {
        LoadError::new(self.path, problem)
    }

    /// Returns the field `tokenizer.ggml.{key}` of the metadata.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.metadata.get(&format!("tokenizer.ggml.{key}"))
    }

    /// Returns the Boolean in the field `tokenizer.ggml.{key}`; `None` if it is missing or of another type.
    fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(Value::as_bool)
    }

    /// Returns the list of texts in the field `tokenizer.ggml.{key}` of the metadata. Fails if the field is missing or
    /// not such a list.
    fn texts(&self, key: &str) -> Result<Vec<&'a str>, LoadError> {
        let list = self.get(key).and_then(Value::as_array);
        let texts = list.and_then(|list| list.iter().map(Value::as_str).collect());
        texts.ok_or_else(|| {
            self.error(format!(
                "`tokenizer.ggml.{key}` is not a list of strings; put a `tokenizer.json` beside the file"
            ))
        })
    }

    /// Returns the description of a byte-level BPE tokenizer (the kind of Llama 3 and Qwen) in the form of
    /// `tokenizer.json`. The caller inserts the fields `added_tokens` and `post_processor`. Fails if the file has no
    /// list of merges, or names a division into words that is not in [`WORDS`].
    fn byte_level(&self, vocabulary: &Map<String, Value>) -> Result<Map<String, Value>, LoadError> {
        // The name of the pattern that divides texts into words, before the words are divided into tokens.
        let division = self.get("pre").and_then(Value::as_str).unwrap_or("default");
        let Some((_, pattern)) = WORDS.iter().find(|(names, _)| names.contains(&division)) else {
            return Err(self.error(format!(
                "`tokenizer.ggml.pre` is `{division}`, which is not supported; put a `tokenizer.json` beside the file"
            )));
        };
        // Of the supported tokenizers, only Qwen's normalises texts. Only Llama's does not apply merges to a word that
        // is itself a token (`ignore_merges`).
        let is_qwen = division.starts_with("qwen");
        Ok(object(json!({
            "version": "1.0",
            "normalizer": if is_qwen { json!({"type": "NFC"}) } else { Value::Null },
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            ]},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "model": {
                "type": "BPE",
                "ignore_merges": division.starts_with("llama"),
                "vocab": vocabulary,
                "merges": self.texts("merges")?,
            },
        })))
    }

    /// Returns the description of a SentencePiece tokenizer (the kind of Llama 2) in the form of `tokenizer.json`: as
    /// BPE with merges that are computed from the scores. The caller inserts the fields `added_tokens` and
    /// `post_processor`. Fails if the file does not have one score for each token.
    ///
    /// Such a vocabulary writes a space as `▁`, and by default a space is added before a text.
    fn sentence_piece(
        &self,
        tokens: &[&str],
        vocabulary: &Map<String, Value>,
    ) -> Result<Map<String, Value>, LoadError> {
        let scores: Option<Vec<f64>> = self
            .get("scores")
            .and_then(Value::as_array)
            .and_then(|list| list.iter().map(Value::as_f64).collect())
            .filter(|scores: &Vec<f64>| scores.len() == tokens.len());
        let Some(scores) = scores else {
            return Err(
                self.error("`tokenizer.ggml.scores` does not have one number for each token; put a `tokenizer.json` beside the file".to_owned())
            );
        };
        // The id of the token that replaces text which no other token spells.
        let unknown =
            self.get("unknown_token_id").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
        let adds_space = self.flag("add_space_prefix").unwrap_or(true);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let normalizers = if adds_space {
            vec![json!({"type": "Prepend", "prepend": "▁"}), replace]
        } else {
            vec![replace]
        };
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        // The decoder removes the space that was added before the text.
        if adds_space {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(object(json!({
            "version": "1.0",
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE",
                "unk_token": unknown.and_then(|id| tokens.get(id)),
                "fuse_unk": true,
                "byte_fallback": true,
                "merges": merges(tokens, &scores),
                "vocab": vocabulary,
            },
        })))
    }

    /// Returns the list `added_tokens` of a `tokenizer.json`: the tokens that the tokenizer finds in a text before it
    /// divides the rest into words. These are the control tokens (`special`), and the tokens that the author of the
    /// model added. The list is empty if the file does not state the kinds of its tokens.
    fn added_tokens(&self, tokens: &[&str]) -> Value {
        let kinds = self.get("token_type").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let added = tokens.iter().zip(kinds).enumerate().filter_map(|(id, (content, kind))| {
            let is_special = match kind.as_u64() {
                Some(CONTROL) => true,
                Some(USER_DEFINED) => false,
                _ => return None,
            };
            Some(json!({
                // The flags say that the token is found exactly as it is written, also within a word.
                "id": id, "content": content, "special": is_special,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            }))
        });
        Value::Array(added.collect())
    }

    /// Returns the post-processor that puts the first token (BOS) before a text; null if no such token is added. If the
    /// file does not say whether the token is added, only SentencePiece tokenizers add it.
    fn post_processor(&self, tokens: &[&str]) -> Value {
        let is_sentence_piece = self.get("model").and_then(Value::as_str) == Some("llama");
        if !self.flag("add_bos_token").unwrap_or(is_sentence_piece) {
            return Value::Null;
        }
        let id = self.get("bos_token_id").and_then(Value::as_u64);
        let Some((id, token)) = id.and_then(|id| Some((id, *tokens.get(usize::try_from(id).ok()?)?))) else {
            return Value::Null;
        };
        // The token is added to single texts only; in a pair of texts, the type id is the number of the text.
        json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
        })
    }
}

/// Returns the fields of `value`, which is always an object: the result of the macro `json!`.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns the merges of BPE: all pairs of tokens that together spell a third token. The pairs with the highest score
/// of that third token come first, and pairs for the same token are ordered by their ids. Tokens that are longer than
/// [`LONGEST_PIECE`] have no merges. `scores` has one score for each of `tokens`.
fn merges(tokens: &[&str], scores: &[f64]) -> Vec<[String; 2]> {
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for (token, score) in tokens.iter().zip(scores).filter(|(token, _)| token.len() <= LONGEST_PIECE) {
        let splits = token.char_indices().skip(1).filter_map(|(at, _)| {
            let (left, right) = token.split_at_checked(at)?;
            Some((*score, *ids.get(left)?, *ids.get(right)?))
        });
        let from = pairs.len();
        pairs.extend(splits);
        if let Some(new) = pairs.get_mut(from..) {
            new.sort_unstable_by_key(|(_, left, right)| (*left, *right));
        }
    }
    // The sorting is stable: pairs for the same token stay in the order of their ids.
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let name = |id: usize| tokens.get(id).copied().unwrap_or_default().to_owned();
    pairs.into_iter().map(|(_, left, right)| [name(left), name(right)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_become_merges() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc"];
        let merges = merges(&tokens, &[0.0, 0.0, 0.0, -2.0, -1.0, -3.0]);
        let merges: Vec<String> = merges.iter().map(|pair| pair.join("+")).collect();
        assert_eq!(merges, ["b+c", "a+b", "a+bc", "ab+c"]);
    }
}
