//! Tests of the client against a scripted server: valid and invalid answers, errors, retries and limits.

mod connection_reuse;
mod encryption;
mod listening;
mod stream_limits;

use std::ops::ControlFlow;
use std::time::Instant;

use serde_json::{Value, json};

use super::test_server::{ScriptedReply, serve};
use super::*;
use crate::chat::{CitableDocument, Citation, CitedPiece, DocumentKind, Message, Part, Stop};
use crate::wire::{AnswerStorage, ONLY_FUNCTIONS, ResponseHead};

const SECRET: &str = "sk-very-secret";
const QUESTION: &str = "a private question";

/// The completion with this text that the scripted server sends.
fn said(text: &str) -> Completion {
    Completion {
        text: text.to_owned(),
        stop: Stop::End,
        usage: Usage { input: 3, output: 4, cached: 0 },
        ..Completion::default()
    }
}

/// The identity of the answers of these tests.
fn head() -> ResponseHead<'static> {
    let storage = AnswerStorage::NotStored;
    ResponseHead { id: "r", model: "m", created: 1, tools: &ONLY_FUNCTIONS, storage }
}

/// The body of an answer with this text that is not streamed, in the format `api`.
fn body(api: Api, text: &str) -> String {
    api.encode_response(&said(text), head()).to_string()
}

/// The event stream of an answer with this text, in the format `api`.
fn stream(api: Api, text: &str) -> String {
    let events = api.encode_stream(&said(text), head(), true);
    events.iter().map(sse::SseEvent::encode).collect()
}

fn request() -> Request {
    Request { messages: vec![Message::User(vec![Part::from(QUESTION)])].into(), ..Request::default() }
}

/// A limit that is longer than any step of these tests takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(300);
/// The limits for a server that sends nothing: for the whole request, and for the first byte.
const SHORT: [Duration; 2] = [Duration::from_secs(4), Duration::from_millis(300)];

/// A client with a key, long time limits and two quick retries.
fn remote(api: Api, base: &str) -> RemoteModel {
    let times = Timeouts { connect: LONG, first_byte: LONG, whole: LONG };
    let retries =
        RetryPolicy { times: 2, first: Duration::from_millis(20), longest: Duration::from_millis(1100) };
    RemoteModel::new(api, base, "m").unwrap().key(SECRET).unwrap().times(times).retries(retries)
}

/// Sends [`request`]. Returns the result, and the text that the listener received, in which `|` marks each restart.
async fn ask(remote: &RemoteModel) -> (Result<Completion, Error>, String) {
    let mut heard = String::new();
    let answer = remote
        .complete(&request(), &mut |delta: Delta<'_>| {
            match delta {
                Delta::Text(text) => heard += text,
                Delta::Reasoning(text) => heard += text,
                Delta::Restart => heard += "|",
                other => heard += &format!("{other:?}"),
            }
            ControlFlow::Continue(())
        })
        .await;
    (answer, heard)
}

/// Sends [`request`] to a server with these replies, as [`check_within`] does, with long time limits.
async fn check(replies: Vec<ScriptedReply>, expected: &str) {
    check_within(Timeouts { connect: LONG, first_byte: LONG, whole: LONG }, replies, expected).await;
}

/// Sends [`request`] to a server with these replies. Compares `expected` with the result (the text of the answer in
/// quotes, or the error), the word `heard`, and the text that the listener received. Also checks that the client used
/// all replies, and that no error reveals the key or the request.
async fn check_within(times: Timeouts, replies: Vec<ScriptedReply>, expected: &str) {
    let count = replies.len();
    let (base, hears) = serve(replies);
    let (answer, heard) = ask(&remote(Api::ChatCompletions, &base).times(times)).await;
    let shown = match answer {
        Ok(completion) => format!("{:?}", completion.text),
        Err(error) => {
            assert!(!format!("{error} {error:?}").contains(SECRET));
            assert!(!error.to_string().contains(QUESTION));
            error.to_string()
        }
    };
    assert_eq!(format!("{shown} heard {heard}"), expected);
    assert_eq!(hears.try_iter().count(), count, "every reply was asked for: {expected}");
}

const OK: &str = "200 OK";

#[tokio::test]
async fn answers_are_decoded_or_refused() {
    let api = Api::ChatCompletions;
    let good = || ScriptedReply::json(OK, "", &body(api, "hello"));
    check(vec![good()], "\"hello\" heard hello").await;
    check(vec![ScriptedReply::stream(&stream(api, "hello"))], "\"hello\" heard hello").await;
    let chunked = |text: &str| {
        let pieces: String = text
            .as_bytes()
            .chunks(7)
            .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)))
            .collect();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        format!("{head}{pieces}0\r\n\r\n")
    };
    check(vec![ScriptedReply::Say(chunked(&stream(api, "hello")))], "\"hello\" heard hello").await;
    // The client does not wait for the connection to close after a complete answer.
    check(
        vec![ScriptedReply::Stall(ScriptedReply::streaming(&stream(api, "hello")))],
        "\"hello\" heard hello",
    )
    .await;
}

/// Only a request in Anthropic's form marks what the server may cache, and only if the caller has turned it on.
#[tokio::test]
async fn the_beginning_of_a_request_is_marked_for_the_cache() {
    for (api, caching, expected) in [
        (Api::Messages, true, true),
        (Api::Messages, false, false),
        (Api::ChatCompletions, true, false),
        (Api::Responses, true, false),
        (Api::GenerateContent, true, false),
    ] {
        let (base, hears) = serve(vec![ScriptedReply::json(OK, "", &body(api, "hello"))]);
        let remote = remote(api, &base).streaming(false).prompt_caching(caching);
        remote.complete(&request(), &mut crate::ignore_deltas).await.unwrap();
        let (_, sent) = hears.recv().unwrap();
        assert!(sent.contains(QUESTION), "{api:?}: {sent}");
        assert_eq!(sent.contains(r#""cache_control":{"type":"ephemeral"}"#), expected, "{api:?}: {sent}");
    }
}

/// Only a model that was given the documents of a client cites them, in the one form that has citations. Without them,
/// what a server reports is dropped.
#[tokio::test]
async fn only_a_model_with_documents_cites() {
    let (kind, text) = (DocumentKind::Text, QUESTION.to_owned());
    let citable =
        || CitableDocument { kind, index: 3, title: None, context: None, texts: vec![text.clone()] };
    let citing = |index| {
        let (text, end) = (text.clone(), text.len());
        let citation = Citation { kind, index, title: None, source: None, text, start: 0, end };
        vec![CitedPiece { start: 0, end: 5, citations: vec![citation] }]
    };
    for (api, cites, expected) in [
        (Api::Messages, true, citing(3)),
        (Api::Messages, false, Vec::new()),
        (Api::ChatCompletions, true, Vec::new()),
        (Api::Responses, true, Vec::new()),
        (Api::GenerateContent, true, Vec::new()),
    ] {
        let reported = Completion { citations: citing(0), ..said("hello") };
        let events = api.encode_stream(&reported, head(), true);
        let events: String = events.iter().map(sse::SseEvent::encode).collect();
        for reply in [
            ScriptedReply::json(OK, "", &api.encode_response(&reported, head()).to_string()),
            ScriptedReply::stream(&events),
        ] {
            let (base, hears) = serve(vec![ScriptedReply::json("500 Oops", "", "{}"), reply]);
            let remote = remote(api, &base).citing(cites.then(citable).into_iter().collect());
            let answer = remote.complete(&request(), &mut crate::ignore_deltas).await.unwrap();
            assert_eq!((answer.text.as_str(), &answer.citations), ("hello", &expected), "{api:?} {cites}");
            let (_, sent) = hears.recv().unwrap();
            assert_eq!(sent.contains("citations"), !expected.is_empty(), "{api:?} {cites}: {sent}");
        }
    }
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let api = Api::ChatCompletions;
    let good = || ScriptedReply::json(OK, "", &body(api, "hello"));
    let no = |status: &str| {
        ScriptedReply::json(status, "", r#"{"error":{"message":"a private question","type":"server_error"}}"#)
    };
    check(vec![no("500 Oops"), good()], "\"hello\" heard hello").await;
    check(vec![no("429 Slow Down"), no("503 Busy"), good()], "\"hello\" heard hello").await;
    check(
        vec![no("502 Bad"), no("502 Bad"), no("502 Bad")],
        "the model's server rejected the request with the HTTP status 502 (server_error); see the documentation of its API heard ",
    )
    .await;
    check(vec![no("429 No"), no("429 No"), no("429 No")], "the model server is busy; try again later heard ")
        .await;
    check(
        vec![ScriptedReply::json("429 Slow Down", "retry-after: 120\r\n", "{}")],
        "the model server is busy; try again in 120 s heard ",
    )
    .await;
    let whole = stream(api, "hello, this is a long answer in pieces");
    let early = whole.split_once("swer").unwrap().0.rsplit_once("\n\n").unwrap().0.to_owned() + "\n\n";
    check(
        vec![ScriptedReply::stream(&early), ScriptedReply::stream(&whole)],
        "\"hello, this is a long answer in pieces\" heard hello, this is a long an|hello, this is a long answer in pieces",
    ).await;
    let ends = |heard: &str| {
        format!(
            "the model's answer is not complete: the stream of its server ended too early; try again heard {heard}"
        )
    };
    let a = "hello, this is a long an";
    check(
        vec![ScriptedReply::stream(&early), ScriptedReply::stream(&early), ScriptedReply::stream(&early)],
        &ends(&format!("{a}|{a}|{a}")),
    )
    .await;
    let busy = format!("{early}data: {}\n\n", json!({"error": {"code": 503, "message": QUESTION}}));
    check(vec![ScriptedReply::stream(&busy), good()], "\"hello\" heard hello, this is a long an|hello").await;
    // A connection that closes in the middle of an answer.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let cut = |rest: &str| ScriptedReply::Say(format!("{head}{rest}"));
    check(vec![cut("content-length: 100\r\n\r\n{"), good()], "\"hello\" heard hello").await;
    check(vec![cut("transfer-encoding: chunked\r\n\r\n5\r\n{"), good()], "\"hello\" heard hello").await;
    check(vec![cut(""), cut(""), cut("")], "the model cannot be reached: unexpected end of file; check the address, and that the server runs heard ")
        .await;
    // A connection that closes without an answer.
    check(vec![ScriptedReply::Say(String::new()), good()], "\"hello\" heard hello").await;
}

#[tokio::test]
async fn a_server_that_asks_to_wait_is_given_its_time() {
    let good = ScriptedReply::json(OK, "", &body(Api::ChatCompletions, "hello"));
    let begun = Instant::now();
    check(
        vec![ScriptedReply::json("429 No", "retry-after-ms: 300\r\n", "{}"), good],
        "\"hello\" heard hello",
    )
    .await;
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

/// An observer receives the error of each attempt that is repeated, and the server receives the place in the trace.
#[tokio::test]
async fn retries_are_reported() {
    let api = Api::ChatCompletions;
    let good = ScriptedReply::json(OK, "", &body(api, "hello"));
    let bad = || ScriptedReply::json("500 Oops", "", "{}");
    let (base, hears) = serve(vec![bad(), bad(), good]);
    let reported = Arc::new(std::sync::Mutex::new(Vec::new()));
    let errors = Arc::clone(&reported);
    let observer: RetryObserver = Arc::new(move |error| errors.lock().unwrap().push(error.to_string()));
    let remote = remote(api, &base).on_retry(observer).trace_parent("00-a-b-01").trace_parent("a\nb");
    assert!(ask(&remote).await.0.is_ok());
    assert_eq!(reported.lock().unwrap().len(), 2);
    let heads: Vec<String> = hears.iter().take(3).map(|(head, _)| head).collect();
    assert!(heads.iter().all(|head| head.matches("traceparent: 00-a-b-01\r\n").count() == 1), "{heads:?}");
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    let bad = |why: &str| {
        format!(
            "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server heard "
        )
    };
    let no = |status: u16, name: &str| {
        format!(
            "the model's server rejected the request with the HTTP status {status} ({name}); see the documentation of its API heard "
        )
    };
    let error = r#"{"error":{"message":"a private question","type":"invalid_request_error","code":null}}"#;
    check(vec![ScriptedReply::json("400 Bad", "", error)], &no(400, "invalid_request_error")).await;
    check(vec![ScriptedReply::json("401 No", "", "a private question")], &no(401, "no reason given")).await;
    check(
        vec![ScriptedReply::json("302 Found", "location: http://127.0.0.1:1/\r\n", "")],
        &no(302, "no reason given"),
    )
    .await;
    check(vec![ScriptedReply::json("204 Nothing", "", "")], &no(204, "no reason given")).await;
    check(vec![ScriptedReply::json(OK, "", "no JSON")], &bad("the answer is not valid JSON")).await;
    check(
        vec![ScriptedReply::json(OK, "", "{}")],
        &bad("the field `choices` of the answer is missing or is not a list"),
    )
    .await;
    check(
        vec![ScriptedReply::Say("no HTTP at all\r\n\r\n".to_owned())],
        &bad("the answer is not valid HTTP"),
    )
    .await;
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno length\r\n{}\r\n";
    check(vec![ScriptedReply::Say(chunked.to_owned())], &bad("the answer is not valid HTTP")).await;
    check(
        vec![ScriptedReply::stream("data: no JSON\n\n")],
        &bad("the `data` of a server-sent event is not valid JSON, or has a key twice"),
    )
    .await;
    check(
        vec![ScriptedReply::stream("data: \u{1}\n\ndata: {}\n\n")],
        &bad("the `data` of a server-sent event is not valid JSON, or has a key twice"),
    )
    .await;
}

#[tokio::test]
async fn timeouts_are_not_retried() {
    let late = "the model did not answer in time; see the log of its server, and try again heard ";
    let [whole, first_byte] = SHORT;
    let times = Timeouts { connect: LONG, first_byte, whole: LONG };
    check_within(times, vec![ScriptedReply::Stall(String::new())], late).await;
    check_within(times, vec![ScriptedReply::Stall("HTTP/1.1 200 OK\r\n".to_owned())], late).await;
    let times = Timeouts { connect: LONG, first_byte: LONG, whole };
    check_within(times, vec![ScriptedReply::Stall(ScriptedReply::streaming(": hello\n\n"))], late).await;
    let part = stream(Api::ChatCompletions, "hello");
    let part = part.split_inclusive("\n\n").take(2).collect::<String>();
    check_within(times, vec![ScriptedReply::Stall(ScriptedReply::streaming(&part))], &format!("{late}hello"))
        .await;
}

#[tokio::test]
async fn answers_that_are_too_long() {
    let line = format!("data: {}\n", "x".repeat(1 << 20)).repeat(17);
    check(
        vec![ScriptedReply::stream(&line)],
        "the model's answer is longer than 16777216 bytes; ask for a shorter one heard ",
    )
    .await;
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    let budget = Arc::new(RequestBudget::new(None, None));
    let (answer, _) = ask(&remote(Api::Messages, "http://127.0.0.1:1").budget(budget.clone())).await;
    assert_eq!(
        answer.unwrap_err().to_string(),
        "the model cannot be reached: connection refused; check the address, and that the server runs"
    );
    assert_eq!(budget.request_count(), 3, "tried again");
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let (base, hears) = serve(vec![ScriptedReply::json(OK, "", &body(Api::Responses, "a"))]);
    let remote = remote(Api::Responses, &base.replace("http:", "https:"));
    let error = ask(&remote).await.0.unwrap_err().to_string();
    assert_eq!(
        error,
        "the model cannot be reached: the certificate of the model server is not trusted: its issuer is unknown, it has expired, or it names another host; check the address and the certificate"
    );
    let (heard, _) = hears.recv().unwrap();
    assert!(!heard.contains(SECRET) && !heard.contains(QUESTION));
}

#[tokio::test]
async fn requests_have_the_address_and_key_of_their_form() {
    let sampling = Sampling { max_tokens: Some(7), ..Sampling::default() };
    let check = async |api: Api, streaming: bool, old: bool, path: &str, key: &str, limit: &str| {
        let (base, hears) = serve(vec![ScriptedReply::json(OK, "", &body(api, "a"))]);
        let remote = remote(api, &base).streaming(streaming).sampling(sampling.clone()).old_max_tokens(old);
        assert_eq!(ask(&remote).await.0.unwrap(), said("a"));
        let (head, body) = hears.recv().unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with(&format!("post {path} ")), "{head}");
        assert!(head.contains(key), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body[limit], body.get("stream").is_some()), (&json!(7), streaming), "{body}");
        assert_eq!(remote.name(), "m at 127.0.0.1");
        assert!(!format!("{remote:?} {:?}", remote.client).contains(SECRET));
    };
    let bearer = "authorization: bearer sk-very-secret";
    check(Api::ChatCompletions, true, true, "/v1/chat/completions", bearer, "max_tokens").await;
    check(Api::ChatCompletions, false, false, "/v1/chat/completions", bearer, "max_completion_tokens").await;
    check(Api::Responses, true, true, "/v1/responses", bearer, "max_output_tokens").await;
    check(Api::Messages, true, true, "/v1/messages", "x-api-key: sk-very-secret", "max_tokens").await;
    check(Api::Messages, false, true, "/v1/messages", "anthropic-version: 2023-06-01", "max_tokens").await;
}

/// In Gemini's format, the address names the model and the method.
#[tokio::test]
async fn the_address_names_the_model() {
    for (streaming, path) in
        [(true, "/v1/models/m:streamGenerateContent?alt=sse"), (false, "/v1/models/m:generateContent")]
    {
        let api = Api::GenerateContent;
        let (base, hears) = serve(vec![ScriptedReply::json(OK, "", &body(api, "a"))]);
        let sampling = Sampling { max_tokens: Some(7), ..Sampling::default() };
        let remote = remote(api, &base).streaming(streaming).sampling(sampling);
        assert_eq!(ask(&remote).await.0.unwrap(), said("a"));
        let (head, body) = hears.recv().unwrap();
        assert!(head.starts_with(&format!("POST {path} ")), "{head}");
        assert!(head.to_ascii_lowercase().contains("x-goog-api-key: sk-very-secret"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["generationConfig"]["maxOutputTokens"], 7, "{body}");
        assert!(body.get("model").is_none() && body.get("stream").is_none(), "{body}");
    }
}

#[tokio::test]
async fn an_option_that_the_api_lacks_is_refused() {
    let remote = remote(Api::Responses, "http://127.0.0.1:1")
        .sampling(Sampling { stop: vec!["x".to_owned()], ..Sampling::default() });
    let why =
        "the model cannot answer this request: the Responses API has no stop sequences; leave out `stop`";
    assert_eq!(ask(&remote).await.0.unwrap_err().to_string(), why);
}

#[tokio::test]
async fn requests_beyond_the_budget_are_refused() {
    let answers = || (0..3).map(|_| ScriptedReply::json(OK, "", &body(Api::ChatCompletions, "a"))).collect();
    let check = async |requests: Option<u64>, tokens: Option<u64>, served: usize, why: &str| {
        let budget = Arc::new(RequestBudget::new(requests, tokens));
        let (base, _hears) = serve(answers());
        let remote = remote(Api::ChatCompletions, &base).budget(budget.clone());
        let mut results = Vec::new();
        for _ in 0..3 {
            results.push(ask(&remote).await.0);
        }
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), served);
        assert_eq!(results[2].as_ref().unwrap_err().to_string(), why);
        assert_eq!(budget.token_count(), 7 * served as u64);
    };
    check(
        Some(2),
        None,
        2,
        "the request was not sent, since the budget for the model is spent: the limit for requests is reached; raise the limit that the program passes to `RequestBudget::new`",
    )
    .await;
    check(
        None,
        Some(7),
        1,
        "the request was not sent, since the budget for the model is spent: the limit for tokens is reached; raise the limit that the program passes to `RequestBudget::new`",
    )
    .await;
}

#[tokio::test]
async fn listeners_stop_it() {
    let api = Api::ChatCompletions;
    let (base, _hears) = serve(vec![ScriptedReply::stream(&stream(api, "hello"))]);
    let mut stop = |_: Delta<'_>| ControlFlow::Break(());
    assert_eq!(remote(api, &base).complete(&request(), &mut stop).await, Err(Error::Cancelled));
}

#[test]
fn addresses_and_keys() {
    let check = |base: &str, fine: bool| {
        assert_eq!(RemoteModel::new(Api::Messages, base, "m").is_ok(), fine, "{base}");
    };
    check("https://api.anthropic.com/v1", true);
    check("http://[::1]:8080/v1/", true);
    check("ftp://example.org", false);
    check("example.org/v1", false);
    check("https://user:secret@example.org/v1", false);
    check("https://example.org/v1?key=secret", false);
    check("", false);
    let error = RemoteModel::new(Api::Messages, "http://a", "m").unwrap().key("sk\nsecret").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model cannot be reached: the key contains characters that an HTTP header cannot contain, such \
        as a line break; check the key"
    );
}

/// The messages that the last request serialised are not serialised again, even if the model has default sampling
/// parameters, which are filled into a copy of the request.
#[tokio::test]
async fn serialized_messages_are_reused_with_and_without_defaults() {
    for sampling in [Sampling::default(), Sampling { max_tokens: Some(7), ..Sampling::default() }] {
        let (base, hears) = serve(vec![ScriptedReply::json("200 OK", "", &body(Api::ChatCompletions, "hi"))]);
        let remote = remote(Api::ChatCompletions, &base).streaming(false).sampling(sampling.clone());
        let request = request();
        // The stored text differs from the message in the chat, which shows that the stored text is sent.
        let stored = r#"{"model":"m","messages":[{"role":"user","content":"stored"}"#;
        let text = stored.as_bytes().to_vec();
        request.messages.store_serialized_prefix(SerializedPrefix { text, messages: 1 });
        remote.complete(&request, &mut crate::ignore_deltas).await.unwrap();
        let (_, sent) = hears.recv().unwrap();
        assert!(sent.starts_with(stored), "{sampling:?}: {sent}");
        let kept = request.messages.take_serialized_prefix().map(|kept| kept.text);
        assert_eq!(kept.as_deref(), Some(stored.as_bytes()), "{sampling:?}");
    }
}
