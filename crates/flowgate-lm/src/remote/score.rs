//! Defines [`Scorer`], which implements [`ScoringModel`] for a remote server: it requests the log-probability of a
//! given text (the continuation of a prompt) by one of the interfaces that servers offer for this ([`ScoreMethod`]).
//! `llama_cpp.rs` implements the interface of llama.cpp. [`RemoteModel::scorer`](super::RemoteModel::scorer) creates a
//! scorer.
//!
//! A request contains the whole text: the prompt and the continuation. The last tokens of the answer must spell the
//! continuation exactly, so that their log-probabilities are those of the continuation. The tokens do not spell it
//! exactly if one of them spans the end of the prompt, if the server cannot write a token with a part of a character as
//! text, or if the server omits spaces. The text then has no score, and the error is [`Error::Unsupported`], since the
//! server works as intended.

mod llama_cpp;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::client::HttpClient;
use super::json_handler::JsonHandler;
use crate::{BoxFuture, Error, Score, ScoreRequest, ScoredToken, ScoringModel};

/// The interface by which a server reports log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScoreMethod {
    /// `prompt_logprobs` of `/v1/completions`, as in vLLM: one request.
    PromptLogprobs,
    /// `echo` with `logprobs` of `/v1/completions`, as in OpenAI's old models, vLLM and llama-cpp-python: one
    /// request, or two if the server requires that at least one token is generated.
    Echo,
    /// `n_probs` of llama.cpp's `/completion`: one request to tokenise the text, and one for each token of
    /// the continuation, or two for a token that is not among the most probable ones. The server caches the
    /// prompt, so each request evaluates only one more token; but the answer for an improbable token lists
    /// the whole vocabulary, several megabytes.
    LlamaCpp,
}

/// A client that obtains the log-probability of texts; created by [`RemoteModel::scorer`](super::RemoteModel::scorer).
#[derive(Debug, Clone)]
pub struct Scorer {
    client: HttpClient,
    /// The name of the model, as the server knows it.
    model: String,
    /// The interface that the server offers.
    by: ScoreMethod,
}

impl Scorer {
    /// Creates a scorer. OpenAI's paths begin with `/v1`; those of llama.cpp's own interface do not.
    pub(super) fn new(client: HttpClient, model: String, by: ScoreMethod) -> Self {
        let client = if by == ScoreMethod::LlamaCpp { client.without_version_path() } else { client };
        Self { client, model, by }
    }

    /// Sends `body` to `path` and returns the answer, which is one JSON text and not a stream. Charges the budget, if
    /// there is one. Fails if the answer describes an error.
    async fn ask(&self, path: &str, body: &Value) -> Result<Value, Error> {
        let body = Bytes::from(body.to_string());
        let mut handler = JsonHandler { client: &self.client, request_bytes: body.len() };
        self.client.ask(path, &body, &mut handler).await
    }

    /// Requests the tokens of the continuation, with their log-probabilities, by the interface that the server offers
    /// (`self.by`). An empty continuation has no tokens, and nothing is sent to the server for it.
    async fn tokens(&self, request: &ScoreRequest<'_>) -> Result<Vec<ScoredToken>, Error> {
        let continuation = request.continuation;
        if continuation.is_empty() {
            return Ok(Vec::new());
        }
        // The text of the prefix, if there is one, the prompt and the continuation.
        let text = request.whole_prompt() + continuation;
        match self.by {
            ScoreMethod::PromptLogprobs => self.prompt_logprobs(&text, continuation).await,
            ScoreMethod::Echo => self.echo(&text, continuation).await,
            ScoreMethod::LlamaCpp => llama_cpp::score(self, &text, continuation).await,
        }
    }

    /// Scores with the field `prompt_logprobs` of vLLM: the answer then has the log-probability of each token of the
    /// field `prompt`. This field is the whole `text`, which ends with `continuation`. The value 0 of `prompt_logprobs`
    /// requests no alternatives to these tokens. The server also generates one token, which is ignored.
    async fn prompt_logprobs(&self, text: &str, continuation: &str) -> Result<Vec<ScoredToken>, Error> {
        let body = json!({
            "model": self.model,
            "prompt": text,
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        });
        let answer = self.ask("/completions", &body).await?;
        let choice = one_choice(&answer)?;
        // Some versions report the field next to the choices.
        let entries = choice.get("prompt_logprobs").or_else(|| answer.get("prompt_logprobs"));
        let entries = entries.and_then(Value::as_array).ok_or(NO_PROMPT_LOGPROBS)?;
        let tokens: Vec<_> = entries.iter().map(token_logprob).collect::<Result<_, Error>>()?;
        continuation_tokens(&tokens, continuation)
    }

    /// Scores with the field `echo` of OpenAI's older completions: the answer repeats the field `prompt` with
    /// log-probabilities. This field is the whole `text`, which ends with `continuation`. Some servers require that at
    /// least one token is generated; such a token is left out of the result.
    async fn echo(&self, text: &str, continuation: &str) -> Result<Vec<ScoredToken>, Error> {
        let body = |generated: u8| {
            json!({
                "model": self.model,
                "prompt": text,
                "max_tokens": generated,
                "temperature": 0,
                "echo": true,
                "logprobs": 1,
            })
        };
        // A server that requires a generated token rejects the first request as invalid. Servers give different
        // reasons, so the request is repeated after every such status; a request that is invalid in another way fails
        // again.
        let (mut requested, mut answer) = (0_u64, self.ask("/completions", &body(0)).await);
        if let Err(Error::Rejected { status: 400 | 422, .. }) = answer {
            (requested, answer) = (1, self.ask("/completions", &body(1)).await);
        }
        let answer = answer?;
        let logprobs = one_choice(&answer)?.get("logprobs").ok_or(NO_LOGPROBS)?;
        let list = |key: &str| logprobs.get(key).and_then(Value::as_array);
        let (Some(texts), Some(numbers)) = (list("tokens"), list("token_logprobs")) else {
            return Err(NO_LOGPROBS);
        };
        if texts.len() != numbers.len() {
            return Err(Error::Malformed(
                "the lists `tokens` and `token_logprobs` of the answer have different lengths",
            ));
        }
        // The generated tokens are at the end. The server reports their number; otherwise it is the requested number.
        let reported = answer.get("usage").and_then(|usage| usage.get("completion_tokens"));
        let generated = reported.and_then(Value::as_u64).unwrap_or(requested);
        let prompt_length = texts.len().saturating_sub(usize::try_from(generated).unwrap_or(usize::MAX));
        let tokens: Vec<_> = texts
            .iter()
            .zip(numbers)
            .take(prompt_length)
            .map(|(text, number)| (text.as_str(), number.as_f64()))
            .collect();
        continuation_tokens(&tokens, continuation)
    }
}

impl ScoringModel for Scorer {
    /// Sends the requests one after another. The server decides whether it caches a common prefix. The bounds of
    /// the requests have no effect: every continuation is scored as a whole.
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        Box::pin(async move {
            let mut scores = Vec::with_capacity(requests.len());
            for request in requests {
                let tokens = self.tokens(request).await?;
                scores.push(Score { tokens, is_stopped: false });
            }
            Ok(scores)
        })
    }
}

/// The error of a server that ignores the field `prompt_logprobs`.
const NO_PROMPT_LOGPROBS: Error = Error::Unsupported(
    "the server returned no `prompt_logprobs`; choose another method of scoring that the server supports: `echo` or \
    `llama-cpp` (option `--scores`)",
);

/// The error of a server that ignores the fields `echo` and `logprobs`.
const NO_LOGPROBS: Error = Error::Unsupported(
    "the server returned no `logprobs`; choose another method of scoring that the server supports: `prompt-logprobs` \
    or `llama-cpp` (option `--scores`)",
);

/// The error of a continuation that begins with the first token of the text. This token has no log-probability.
const FIRST_TOKEN: Error = Error::Unsupported(
    "no token precedes the continuation, so its first token has no log-probability; put text before the continuation",
);

/// The error of a continuation that begins within a token.
const CROSSING_TOKEN: Error = Error::Unsupported(
    "one token contains the end of the prompt and the beginning of the continuation; divide the text at another \
    place, such as before a space",
);

/// The error of an answer whose tokens do not spell the continuation.
const OTHER_TEXT: Error = Error::Unsupported(
    "the last tokens that the server returned, joined, differ from the continuation; choose another method of \
    scoring (option `--scores`)",
);

/// Returns the only item of the answer's list `choices`. Fails if the list does not have exactly one item.
fn one_choice(answer: &Value) -> Result<&Value, Error> {
    match answer.get("choices").and_then(Value::as_array).map(Vec::as_slice) {
        Some([choice]) => Ok(choice),
        _ => Err(Error::Malformed("the list `choices` of the answer does not have exactly one item")),
    }
}

/// Reads the text and the log-probability of a token from `entry`, the item of vLLM's list `prompt_logprobs` for this
/// token; each is `None` if it is missing. Both are missing for the first token, whose entry is null because no token
/// precedes it. Any other entry is an object with one field, which is named by the id of the token.
fn token_logprob(entry: &Value) -> Result<(Option<&str>, Option<f64>), Error> {
    let Some(entry) = entry.as_object() else { return Ok((None, None)) };
    let mut tokens = entry.values();
    let (Some(token), None) = (tokens.next(), tokens.next()) else {
        return Err(Error::Malformed(
            "an entry of `prompt_logprobs` does not have exactly one token, so the server does not score prompts \
            as vLLM does; choose another method of scoring (option `--scores`)",
        ));
    };
    let text = token.get("decoded_token").and_then(Value::as_str);
    Ok((text, token.get("logprob").and_then(Value::as_f64)))
}

/// Returns the tokens of the continuation, which are the last of `tokens`. A token is a text and its log-probability;
/// both can be missing for a token of the prompt. Fails if the text or the log-probability of a token of the
/// continuation is missing, or if the last tokens do not spell the continuation exactly.
fn continuation_tokens(
    tokens: &[(Option<&str>, Option<f64>)],
    continuation: &str,
) -> Result<Vec<ScoredToken>, Error> {
    let texts: Vec<Option<&[u8]>> = tokens.iter().map(|(text, _)| text.map(str::as_bytes)).collect();
    let first = continuation_start(&texts, continuation.as_bytes())?;
    let scored_token = |(text, logprob): &(Option<&str>, Option<f64>)| {
        let logprob = logprob.ok_or(Error::Malformed(
            "the log-probability of a token of the scored text is missing or not a number",
        ))?;
        Ok(ScoredToken { text: text.unwrap_or_default().to_owned(), logprob })
    };
    tokens.iter().skip(first).map(scored_token).collect()
}

/// Returns the index of the first token of the continuation. `tokens` are the texts of the tokens of the prompt and
/// then of the continuation; `None` for a token whose text the server does not report, such as the first token of vLLM.
/// Reads the tokens backwards, because the number of tokens of the prompt is not known. Fails if the last tokens do not
/// spell the continuation exactly.
fn continuation_start(tokens: &[Option<&[u8]>], continuation: &[u8]) -> Result<usize, Error> {
    // The beginning of the continuation that the tokens so far do not spell.
    let mut unspelled = continuation;
    for (index, token) in tokens.iter().enumerate().rev() {
        let token = token.ok_or(FIRST_TOKEN)?;
        match unspelled.strip_suffix(token) {
            Some(rest) => unspelled = rest,
            // The token contains the rest of the continuation, and before it a part of the prompt.
            None if token.ends_with(unspelled) => return Err(CROSSING_TOKEN),
            None => break,
        }
        if unspelled.is_empty() {
            return Ok(index);
        }
    }
    Err(OTHER_TEXT)
}

#[cfg(test)]
mod tests {
    use super::super::test_server::{ScriptedReply, serve};
    use super::super::{RemoteModel, RequestBudget};
    use super::*;
    use crate::wire::Api;

    /// Returns the score of ` world` after `hello` as text, and the bodies that the server received.
    async fn ask(by: ScoreMethod, replies: &[(&str, &str)]) -> (String, Vec<Value>) {
        let answered = replies.iter().any(|(status, _)| *status == "200 OK");
        let replies: Vec<ScriptedReply> =
            replies.iter().map(|(status, body)| ScriptedReply::json(status, "", body)).collect();
        let (base, hears) = serve(replies);
        let budget = std::sync::Arc::new(RequestBudget::new(None, None));
        let remote = RemoteModel::new(Api::ChatCompletions, &base, "m").unwrap().budget(budget.clone());
        let scored = remote.scorer(by).score("hello", " world").await;
        let heard: Vec<(String, String)> = hears.try_iter().collect();
        assert_eq!(budget.request_count(), heard.len() as u64);
        assert_eq!(budget.token_count() > 0, answered);
        let heard = heard.iter().map(|(head, body)| {
            let path = head.split(' ').nth(1).unwrap();
            json!([path, serde_json::from_str::<Value>(body).unwrap()])
        });
        let shown = match scored {
            Ok(tokens) => tokens.iter().map(|token| format!("{}:{} ", token.text, token.logprob)).collect(),
            Err(error) => error.to_string(),
        };
        (shown.trim_end().to_owned(), heard.collect())
    }

    async fn check(by: ScoreMethod, replies: &[(&str, &str)], expected: &str) {
        assert_eq!(ask(by, replies).await.0, expected, "{replies:?}");
    }

    /// The text decides whether it can be scored, so no advice is about the server's address.
    const CROSSING: &str = "the model cannot answer this request: one token contains the end of the prompt and the \
        beginning of the continuation; divide the text at another place, such as before a space";
    const FIRST: &str = "the model cannot answer this request: no token precedes the continuation, so its first token \
        has no log-probability; put text before the continuation";

    fn bad(why: &str) -> String {
        format!(
            "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server"
        )
    }

    #[tokio::test]
    async fn prompt_logprobs() {
        let by = ScoreMethod::PromptLogprobs;
        let listed = |tokens: &str| format!(r#"{{"choices":[{{"prompt_logprobs":[null,{tokens}]}}]}}"#);
        let token = |text: &str, logprob: &str| {
            format!(r#"{{"7":{{"logprob":{logprob},"rank":1,"decoded_token":"{text}"}}}}"#)
        };
        let good = listed(&[token("hello", "-3"), token(" wor", "-0.5"), token("ld", "-1.25")].join(","));
        let (shown, heard) = ask(by, &[("200 OK", &good)]).await;
        assert_eq!(shown, " wor:-0.5 ld:-1.25");
        let body = json!({"model": "m", "prompt": "hello world", "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0});
        assert_eq!(heard, [json!(["/v1/completions", body])]);
        let crossing = listed(&[token("hel", "-3"), token("lo wor", "-0.5"), token("ld", "-1.25")].join(","));
        check(by, &[("200 OK", &crossing)], CROSSING).await;
        let other = listed(&[token("hello", "-3"), token(" earth", "-0.5")].join(","));
        check(
            by,
            &[("200 OK", &other)],
            "the model cannot answer this request: the last tokens that the server returned, joined, differ from \
            the continuation; choose another method of scoring (option `--scores`)",
        )
        .await;
        check(by, &[("200 OK", &listed(&token("ld", "-1")))], FIRST).await;
        let two = listed(&token(" world", "-1").replace("}}", r#"},"8":{}}"#));
        check(
            by,
            &[("200 OK", &two)],
            &bad(
                "an entry of `prompt_logprobs` does not have exactly one token, so the server does not score prompts \
                as vLLM does; choose another method of scoring (option `--scores`)",
            ),
        )
        .await;
        let null = listed(&[token("hello", "-3"), token(" world", "null")].join(","));
        check(
            by,
            &[("200 OK", &null)],
            &bad("the log-probability of a token of the scored text is missing or not a number"),
        )
        .await;
        let none = r#"{"choices":[{"text":"a"}]}"#;
        check(
            by,
            &[("200 OK", none)],
            "the model cannot answer this request: the server returned no `prompt_logprobs`; choose another \
            method of scoring that the server supports: `echo` or `llama-cpp` (option `--scores`)",
        )
        .await;
        check(
            by,
            &[("200 OK", "{}")],
            &bad("the list `choices` of the answer does not have exactly one item"),
        )
        .await;
    }

    #[tokio::test]
    async fn echoed_prompts_are_scored() {
        let by = ScoreMethod::Echo;
        let listed = |tokens: &str, numbers: &str, written: u8| {
            let logprobs = format!(r#"{{"tokens":[{tokens}],"token_logprobs":[{numbers}]}}"#);
            let usage = format!(r#"{{"prompt_tokens":3,"completion_tokens":{written}}}"#);
            format!(r#"{{"choices":[{{"logprobs":{logprobs}}}],"usage":{usage}}}"#)
        };
        let good = listed(r#""hello"," world""#, "null,-0.5", 0);
        check(by, &[("200 OK", &good)], " world:-0.5").await;
        let more = listed(r#""hello"," world","!""#, "null,-0.5,-2", 1);
        let (shown, heard) = ask(by, &[("400 Bad Request", "{}"), ("200 OK", &more)]).await;
        assert_eq!(shown, " world:-0.5");
        let asked: Vec<&Value> = heard.iter().map(|heard| &heard[1]["max_tokens"]).collect();
        assert_eq!(asked, [0, 1]);
        let uneven = listed(r#""hello"," world""#, "-0.5", 0);
        check(
            by,
            &[("200 OK", &uneven)],
            &bad("the lists `tokens` and `token_logprobs` of the answer have different lengths"),
        )
        .await;
        check(
            by,
            &[("200 OK", r#"{"choices":[{}]}"#)],
            "the model cannot answer this request: the server returned no `logprobs`; choose another method of \
            scoring that the server supports: `prompt-logprobs` or `llama-cpp` (option `--scores`)",
        )
        .await;
        let no = "the model's server rejected the request with the HTTP status 401 (invalid_api_key); see the documentation of its API";
        check(by, &[("401 No", r#"{"error":{"code":"invalid_api_key"}}"#)], no).await;
    }

    #[tokio::test]
    async fn llama_cpp() {
        let by = ScoreMethod::LlamaCpp;
        let cut = r#"{"tokens":[{"id":1,"piece":""},{"id":5,"piece":"hello"},{"id":6,"piece":" wo"},{"id":7,"piece":[114,108,100]}]}"#;
        let likely = |id: u8, logprob: &str| {
            format!(
                r#"{{"completion_probabilities":[{{"id":9,"top_logprobs":[{{"id":{id},"logprob":{logprob}}}]}}]}}"#
            )
        };
        let (six, seven) = (likely(6, "-0.5"), likely(7, "-2"));
        let (shown, heard) =
            ask(by, &[("200 OK", cut), ("200 OK", &six), ("200 OK", &likely(9, "0")), ("200 OK", &seven)])
                .await;
        assert_eq!(shown, " wo:-0.5 rld:-2");
        let asked: Vec<Value> =
            heard.iter().map(|heard| json!([heard[0], heard[1]["prompt"], heard[1]["n_probs"]])).collect();
        assert_eq!(
            asked,
            [
                json!(["/tokenize", null, null]),
                json!(["/completion", [1, 5], 64]),
                json!(["/completion", [1, 5, 6], 64]),
                json!(["/completion", [1, 5, 6], 262_144]),
            ]
        );
        let crossing = r#"{"tokens":[{"id":5,"piece":"hello w"},{"id":6,"piece":"orld"}]}"#;
        check(by, &[("200 OK", crossing)], CROSSING).await;
        let all = r#"{"tokens":[{"id":6,"piece":" world"}]}"#;
        check(by, &[("200 OK", all)], FIRST).await;
        let none = likely(9, "0");
        check(
            by,
            &[("200 OK", cut), ("200 OK", &none), ("200 OK", &none)],
            "the model cannot answer this request: the server returned no log-probability for a token of the \
            scored text; update llama.cpp, or choose a method that does not score",
        )
        .await;
        check(
            by,
            &[("200 OK", "{}")],
            "the model cannot answer this request: the server returned no `tokens` from `/tokenize`; update llama.cpp",
        )
        .await;
        check(
            by,
            &[("200 OK", cut), ("200 OK", "{}")],
            "the model cannot answer this request: the answer of the server to `/completion` has no \
            `top_logprobs` in `completion_probabilities`; update llama.cpp",
        )
        .await;
    }

    #[tokio::test]
    async fn nothing_costs_nothing() {
        let remote = RemoteModel::new(Api::ChatCompletions, "http://127.0.0.1:1", "m").unwrap();
        assert_eq!(remote.scorer(ScoreMethod::Echo).score("a", "").await.unwrap(), []);
    }
}
