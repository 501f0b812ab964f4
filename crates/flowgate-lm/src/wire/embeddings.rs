//! Encodes and decodes requests for embeddings in OpenAI's format, `POST /embeddings`, and the answers to them. The
//! gateway decodes requests and encodes answers; `RemoteModel` encodes requests and decodes answers.
//!
//! An embedding is a list of numbers that represents a text, and reveals much of the text. The format also permits
//! tokens (numbers) instead of texts. Requests with tokens are refused, because no rule can judge tokens.

use serde_json::{Number, Value, json};

use super::WireError;
use super::fields::{ObjectFields, count};
use super::known_fields::FieldRule::{Dropped, Read};
use super::known_fields::{DecodeOptions, KnownFields, ListedField, known_fields, listed_rows};
use crate::Error;
use crate::chat::Usage;
use crate::json::Json;

/// The most texts of one request; OpenAI's servers accept no more.
pub const MAX_TEXTS: usize = 2048;

/// The problem of an input that consists of tokens.
const TOKENS: &str = "is neither a string nor a list of strings; tokens cannot be judged, so send strings";

known_fields! {
    REQUEST = "request" {
        "model": Read("the model, if the client may ask for it"),
        "input": Read("a text, or a list of texts: labelled and judged; tokens are refused"),
        "encoding_format": Read("`float` or `base64`"),
        "dimensions": Read("passed on"),
        "user": Dropped("identifies the end user to the provider"),
    }
}

/// Returns the known fields of requests for embeddings, in order: the rows of their table in `docs/wire-forms.md`. The
/// rows name the format of chat completions, because embeddings belong to the same API of OpenAI.
#[must_use]
pub fn listed() -> Vec<ListedField> {
    listed_rows(super::Api::ChatCompletions, OBJECTS)
}

/// How an embedding is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddingFormat {
    /// As a list of numbers.
    #[default]
    Float,
    /// As the bytes of 32-bit numbers, in base64.
    Base64,
}

/// A request for the embeddings of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingsRequest {
    /// The name of the model.
    pub model: String,
    /// The texts, of which there is at least one.
    pub texts: Vec<String>,
    /// How embeddings are written.
    pub format: EmbeddingFormat,
    /// How many numbers an embedding has; `None` leaves it to the model.
    pub dimensions: Option<u64>,
}

/// An embedding, as its server wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Embedding {
    /// A list of numbers.
    Numbers(Vec<Number>),
    /// The bytes of 32-bit numbers, in base64.
    Base64(String),
}

/// The embeddings of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingsResponse {
    /// One embedding for each text, in the order of the texts.
    pub embeddings: Vec<Embedding>,
    /// The name of the model, as the server reports it.
    pub model: String,
    /// The tokens of the texts.
    pub usage: Usage,
}

impl EmbeddingsRequest {
    /// Decodes the body of a request. `options` lists the unknown fields that are dropped instead of being rejected.
    ///
    /// # Errors
    /// If the body violates the format, has an empty text, no text or more than [`MAX_TEXTS`], or has tokens.
    pub fn decode(body: &Json<'_>, options: &DecodeOptions) -> Result<Self, WireError> {
        let body = ObjectFields::of_body(body, options)?;
        body.reject_unsupported(&REQUEST)?;
        // The input is a text or a list of texts. The error about anything else names tokens, since they are what the
        // format permits in addition.
        let texts: Vec<String> = match body.get("input") {
            Some(Json::Text(text)) => vec![text.clone().into_owned()],
            Some(Json::List(list)) => {
                let text = |item: &Json<'_>| match item {
                    Json::Text(text) => Some(text.clone().into_owned()),
                    _ => None,
                };
                match list.iter().map(text).collect() {
                    Some(texts) => texts,
                    None => return body.field_error("input", TOKENS),
                }
            }
            None => return body.field_error("input", "is missing"),
            Some(_) => return body.field_error("input", TOKENS),
        };
        if texts.is_empty() || texts.iter().any(String::is_empty) {
            return body.field_error(
                "input",
                "has an empty text, or no text; send at least one text, and no empty one",
            );
        }
        if texts.len() > MAX_TEXTS {
            return body.field_error("input", "has more than 2048 texts; send several requests");
        }
        let format = match body.optional_text("encoding_format")? {
            None | Some("float") => EmbeddingFormat::Float,
            Some("base64") => EmbeddingFormat::Base64,
            Some(_) => return body.field_error("encoding_format", "is not `float` or `base64`"),
        };
        let (model, dimensions) = (body.text("model")?.to_owned(), body.whole_number("dimensions")?);
        Ok(Self { model, texts, format, dimensions })
    }

    /// Encodes the body of the request.
    pub fn encode(&self) -> Value {
        let mut body = json!({"model": self.model, "input": self.texts});
        if let Some(body) = body.as_object_mut() {
            let format = match self.format {
                EmbeddingFormat::Float => "float",
                EmbeddingFormat::Base64 => "base64",
            };
            body.insert("encoding_format".to_owned(), format.into());
            body.extend(self.dimensions.map(|number| ("dimensions".to_owned(), number.into())));
        }
        body
    }
}

impl EmbeddingsResponse {
    /// Decodes the answer to a request for embeddings; `texts` is the number of texts in the request. The answer may
    /// list the embeddings in any order: `index` says to which text an embedding belongs. An embedding without an index
    /// belongs to the text at the same position in the request.
    ///
    /// # Errors
    /// If the answer does not have exactly one embedding for each text.
    pub fn decode(body: &Value, texts: usize) -> Result<Self, Error> {
        const WRONG: Error = Error::Malformed(
            "the answer does not have exactly one embedding, as a list of numbers or in base64, for each text",
        );
        let data = body.get("data").and_then(Value::as_array).ok_or(WRONG)?;
        // The embedding of each text, by the index of the text; `None` as long as the answer has shown none.
        let mut embeddings: Vec<Option<Embedding>> = vec![None; texts];
        for (position, item) in data.iter().enumerate() {
            let index = count(item, "index").map_or(Some(position), |index| usize::try_from(index).ok());
            let entry = index.and_then(|index| embeddings.get_mut(index)).ok_or(WRONG)?;
            let embedding = match item.get("embedding") {
                Some(Value::String(text)) => Embedding::Base64(text.clone()),
                Some(Value::Array(numbers)) => {
                    let number = |value: &Value| match value {
                        Value::Number(number) => Some(number.clone()),
                        _ => None,
                    };
                    Embedding::Numbers(numbers.iter().map(number).collect::<Option<_>>().ok_or(WRONG)?)
                }
                _ => return Err(WRONG),
            };
            // `replace` returns an earlier embedding: the answer has two for the same text.
            if entry.replace(embedding).is_some() {
                return Err(WRONG);
            }
        }
        // Fails if a text has no embedding.
        let embeddings = embeddings.into_iter().collect::<Option<Vec<_>>>().ok_or(WRONG)?;
        let tokens = body.get("usage").and_then(|usage| count(usage, "prompt_tokens"));
        let model = body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { embeddings, model, usage: Usage { input: tokens.unwrap_or(0), output: 0, cached: 0 } })
    }

    /// Encodes the body of the answer, with the embeddings in the order of the texts.
    pub fn encode(&self) -> Value {
        let embedding = |(index, embedding): (usize, &Embedding)| {
            let value = match embedding {
                Embedding::Numbers(numbers) => json!(numbers),
                Embedding::Base64(text) => json!(text),
            };
            json!({"object": "embedding", "index": index, "embedding": value})
        };
        let data: Vec<Value> = self.embeddings.iter().enumerate().map(embedding).collect();
        let tokens = self.usage.input;
        json!({"object": "list", "data": data, "model": self.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_or_refused() {
        let check = |text: &str, expected: Result<Value, &str>| {
            let body = Json::parse(text).unwrap();
            let decoded = EmbeddingsRequest::decode(&body, &DecodeOptions::default());
            let found = decoded.map(|request| request.encode()).map_err(|error| error.to_string());
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        };
        check(
            r#"{"model": "e", "input": "a", "user": "u"}"#,
            Ok(json!({"model": "e", "input": ["a"], "encoding_format": "float"})),
        );
        check(
            r#"{"model": "e", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}"#,
            Ok(json!({"model": "e", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 4})),
        );
        check(r#"{"model": "e"}"#, Err("`input` is missing"));
        check(r#"{"model": "e", "input": []}"#, Err("has an empty text, or no text"));
        check(r#"{"model": "e", "input": ["a", ""]}"#, Err("has an empty text, or no text"));
        check(r#"{"model": "e", "input": [1, 2]}"#, Err("tokens cannot be judged"));
        check(r#"{"model": "e", "input": [[1, 2]]}"#, Err("tokens cannot be judged"));
        check(r#"{"model": "e", "input": {"a": 1}}"#, Err("tokens cannot be judged"));
        check(r#"{"input": "a"}"#, Err("model"));
        check(
            r#"{"model": "e", "input": "a", "encoding_format": "int8"}"#,
            Err("`encoding_format` is not `float` or `base64`"),
        );
        check(r#"{"model": "e", "input": "a", "more": 1}"#, Err("`more` is not known"));
        let many = vec!["a"; MAX_TEXTS + 1];
        check(&json!({"model": "e", "input": many}).to_string(), Err("more than 2048 texts"));
    }

    #[test]
    fn responses_are_decoded_or_refused() {
        let item = |index: Value, embedding: Value| json!({"object": "embedding", "index": index, "embedding": embedding, "more": 1});
        let check = |data: Value, texts: usize, expected: Option<Value>| {
            let body = json!({"object": "list", "data": data, "model": "e", "usage": {"prompt_tokens": 3, "total_tokens": 3}, "more": 1});
            let found = EmbeddingsResponse::decode(&body, texts)
                .ok()
                .map(|response| response.encode()["data"].clone());
            assert_eq!(found, expected, "{body}");
        };
        let plain = |index: usize, embedding: Value| json!({"object": "embedding", "index": index, "embedding": embedding});
        let (numbers, text) = (json!([0.25, -1, 1e-9]), json!("AAAA"));
        check(json!([item(json!(0), numbers.clone())]), 1, Some(json!([plain(0, numbers.clone())])));
        // The order is that of the texts.
        check(
            json!([item(json!(1), text.clone()), item(json!(0), numbers.clone())]),
            2,
            Some(json!([plain(0, numbers), plain(1, text.clone())])),
        );
        check(json!([item(Value::Null, text.clone())]), 1, Some(json!([plain(0, text.clone())])));
        for (data, texts) in [
            (json!([]), 1),
            (json!([item(json!(0), text.clone())]), 2),
            (json!([item(json!(1), text.clone())]), 1),
            (json!([item(json!(0), text.clone()), item(json!(0), text)]), 2),
            (json!([item(json!(0), json!(["a"]))]), 1),
            (json!([item(json!(0), json!(1))]), 1),
            (json!("data"), 1),
        ] {
            check(data, texts, None);
        }
    }
}
