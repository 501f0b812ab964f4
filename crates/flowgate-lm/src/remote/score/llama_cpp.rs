//! Scores a continuation with llama.cpp ([`ScoreMethod::LlamaCpp`](super::ScoreMethod::LlamaCpp)). Its server reports
//! only the probabilities of the next token, so each token of the continuation takes one or two requests.
//! [`Scorer`](super::Scorer) calls [`score`].

use serde_json::{Value, json};

use super::{FIRST_TOKEN, Scorer, continuation_start};
use crate::{Error, ScoredToken};

/// The most tokens of a continuation, which limits the number of requests.
const MAX_TOKENS: usize = 4096;
/// How many of the most probable tokens to request: in the first request, and in the second, which covers any
/// vocabulary.
const LIST_LENGTHS: [u32; 2] = [64, 1 << 18];

/// Returns the tokens of `continuation`, which is the end of `text`, each with its log-probability after the tokens
/// before it. `scorer` sends the requests: first for the tokens of the whole text, then for the log-probability of each
/// token of the continuation.
///
/// Fails if the continuation has more than [`MAX_TOKENS`] tokens, if a token spans its beginning, or if no token
/// precedes it: the first token of a text has no log-probability.
pub(super) async fn score(
    scorer: &Scorer,
    text: &str,
    continuation: &str,
) -> Result<Vec<ScoredToken>, Error> {
    // As for a prompt, the server adds the tokens that begin a text, and reads the names of control tokens in the text
    // as these tokens. `with_pieces` requests the text of each token.
    let body = json!({"content": text, "add_special": true, "parse_special": true, "with_pieces": true});
    let answer = scorer.ask("/tokenize", &body).await?;
    let listed = answer
        .get("tokens")
        .and_then(Value::as_array)
        .ok_or(Error::Unsupported("the server returned no `tokens` from `/tokenize`; update llama.cpp"))?;
    let tokens = listed.iter().map(token).collect::<Option<Vec<_>>>().ok_or(Error::Unsupported(
        "the server did not return the text of each token from `/tokenize`; update llama.cpp",
    ))?;
    let (ids, pieces): (Vec<u64>, Vec<Vec<u8>>) = tokens.into_iter().unzip();
    // The server reports the text of every token, so none is `None` here.
    let spelled: Vec<Option<&[u8]>> = pieces.iter().map(|piece| Some(piece.as_slice())).collect();
    let first = continuation_start(&spelled, continuation.as_bytes())?;
    if first == 0 {
        return Err(FIRST_TOKEN);
    }
    if ids.len() - first > MAX_TOKENS {
        return Err(Error::Unsupported("the continuation has more than 4096 tokens; score a shorter one"));
    }
    let mut scored = Vec::new();
    for (index, (id, piece)) in ids.iter().zip(&pieces).enumerate().skip(first) {
        let before = ids.get(..index).unwrap_or_default();
        // A token may contain only a part of a character.
        let text = String::from_utf8_lossy(piece).into_owned();
        scored.push(ScoredToken { text, logprob: logprob(scorer, before, *id).await? });
    }
    Ok(scored)
}

/// Returns the id and the bytes of a token in the answer of `/tokenize`; `None` if the entry has another form. The
/// server sends the bytes as a list of numbers if they are not valid UTF-8, and as a string otherwise.
fn token(token: &Value) -> Option<(u64, Vec<u8>)> {
    let id = token.get("id")?.as_u64()?;
    let piece = match token.get("piece")? {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(bytes) => bytes
            .iter()
            .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
            .collect::<Option<_>>()?,
        _ => return None,
    };
    Some((id, piece))
}

/// Returns the log-probability of the token `id` after the tokens `before`. The server lists only the likeliest next
/// tokens, so a longer list is requested if the first list does not have the token. Fails if neither list has it. Each
/// request also generates one token, which is ignored.
async fn logprob(scorer: &Scorer, before: &[u64], id: u64) -> Result<f64, Error> {
    for list_length in LIST_LENGTHS {
        // Without `post_sampling_probs`, the probabilities are those of the model, which sampling has not changed.
        let body = json!({
            "prompt": before,
            "n_predict": 1,
            "n_probs": list_length,
            "temperature": 0,
            "cache_prompt": true,
            "post_sampling_probs": false,
            "stream": false,
        });
        let answer = scorer.ask("/completion", &body).await?;
        // One entry for each generated token, of which there is one.
        let entries = answer.get("completion_probabilities").and_then(Value::as_array);
        let next_token = entries.and_then(|list| list.first());
        let listed = next_token.and_then(|entry| entry.get("top_logprobs")).and_then(Value::as_array);
        let listed = listed.ok_or(Error::Unsupported(
            "the answer of the server to `/completion` has no `top_logprobs` in `completion_probabilities`; update llama.cpp",
        ))?;
        let entry = listed.iter().find(|token| token.get("id").and_then(Value::as_u64) == Some(id));
        if let Some(logprob) = entry.and_then(|token| token.get("logprob")).and_then(Value::as_f64) {
            return Ok(logprob);
        }
    }
    Err(Error::Unsupported(
        "the server returned no log-probability for a token of the scored text; update llama.cpp, or choose a method \
        that does not score",
    ))
}
