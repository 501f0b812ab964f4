//! Encodes and decodes answers of Gemini's API. The gateway encodes answers for its clients; `RemoteModel` decodes the
//! answers of a server. An event of a stream has the same form as a whole answer, so [`super::stream`] uses the
//! functions and the [`AnswerReader`] of this module for streamed answers.

use serde_json::{Value, json};

use super::super::assembly::Assembly;
use super::super::fields::{self, called_tool_name};
use super::super::{ResponseHead, correct_stop_reason, put, reported_error};
use super::request::{call_part, text_part};
use crate::Error;
use crate::chat::{Completion, ReasoningPart, Seal, Stop, Usage};
use crate::ignore_deltas;
use crate::model::Listener;

/// Encodes the body of an answer. The reasoning, the text and the calls are parts of one content.
#[must_use]
pub fn encode_response(completion: &Completion, head: ResponseHead<'_>) -> Value {
    // `text_part` and `call_part` look up the signatures of the text and of the calls in the reasoning.
    let thoughts: Vec<&ReasoningPart> = completion.thoughts.iter().collect();
    let text = text_part(&completion.text, &thoughts);
    let calls = completion.calls.iter().enumerate().map(|(index, call)| call_part(call, index, &thoughts));
    let parts: Vec<Value> = thought_part(completion).into_iter().chain(text).chain(calls).collect();
    // Some clients reject a content without parts.
    let parts = if parts.is_empty() { vec![json!({"text": ""})] } else { parts };
    let mut body = event(&parts, head);
    finish(&mut body, completion);
    body
}

/// Returns one part with all readable reasoning of an answer; `None` if no reasoning is readable. The part has no
/// signature: a client need not send the reasoning back, since the gateway has its own copy.
pub(super) fn thought_part(completion: &Completion) -> Option<Value> {
    let texts: Vec<String> = completion.thoughts.iter().map(ReasoningPart::text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| json!({"text": texts.join("\n\n"), "thought": true}))
}

/// Encodes `parts` as one event of a stream, or as a whole answer that is not streamed. For the last event and for a
/// whole answer, the caller then calls [`finish`].
pub(super) fn event(parts: &[Value], head: ResponseHead<'_>) -> Value {
    json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "modelVersion": head.model,
        "responseId": head.id,
    })
}

/// Adds to `event`, the last event of an answer, what ends the answer: the finish reason and the usage.
pub(super) fn finish(event: &mut Value, completion: &Completion) {
    let reason = match completion.stop {
        // The format has no separate reason for calls, which are parts of the content.
        Stop::End | Stop::Calls => "STOP",
        Stop::Length => "MAX_TOKENS",
        Stop::Refused => "SAFETY",
    };
    if let Some(candidate) = event.pointer_mut("/candidates/0") {
        put(candidate, "finishReason", reason);
    }
    let Usage { input, output, .. } = completion.usage;
    let usage = json!({
        "promptTokenCount": input,
        "candidatesTokenCount": output,
        "totalTokenCount": input.saturating_add(output),
    });
    put(event, "usageMetadata", usage);
}

/// Decodes the body of an answer that is not streamed.
///
/// # Errors
/// If the body describes an error, violates the format, or does not contain exactly one complete answer.
pub fn decode_response(body: &Value) -> Result<Completion, Error> {
    let mut reader = AnswerReader::default();
    reader.read(body, &mut ignore_deltas)?;
    let missing = Error::Malformed("the answer has no candidate with a `finishReason`");
    // `finish` returns `None` for an answer that is not complete; otherwise, its result is that of this function.
    reader.finish().ok_or(missing)?
}

/// Decodes the events of one answer; an answer that is not streamed counts as one event.
#[derive(Debug, Default)]
pub(super) struct AnswerReader {
    assembly: Assembly,
    /// The stop reason, after the event that states it.
    stop: Option<Stop>,
    /// The index of the part of the reasoning to which the next piece of reasoning belongs; `None` if the next piece
    /// begins a new part.
    open_thought: Option<usize>,
}

impl AnswerReader {
    /// Returns whether the answer is complete.
    pub(super) fn is_done(&self) -> bool {
        self.stop.is_some()
    }

    /// Returns the answer, or an error if the model stopped for calls but the answer has no call. `None` if the answer
    /// is not complete.
    pub(super) fn finish(mut self) -> Option<Result<Completion, Error>> {
        self.assembly.completion.stop = self.stop?;
        Some(correct_stop_reason(self.assembly.completion))
    }

    /// Decodes an event (`body`): adds its content to the completion, and passes the pieces to the listener. An event
    /// without a candidate contains only the usage, or reports that the provider has blocked the prompt, which counts
    /// as a refusal. Fails if the event reports an error or violates the format, or if the listener cancels.
    pub(super) fn read(&mut self, body: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        // Some servers send an error as the only item of a list.
        let body = body.as_array().and_then(|items| items.first()).unwrap_or(body);
        if let Some(error) = fields::non_null_child(body, "error") {
            return Err(reported_error(error));
        }
        self.assembly.completion.usage =
            read_usage(body.get("usageMetadata"), self.assembly.completion.usage);
        let is_blocked =
            body.get("promptFeedback").is_some_and(|feedback| feedback.get("blockReason").is_some());
        let candidate = match fields::list(body, "candidates").unwrap_or_default() {
            [] if is_blocked => {
                self.stop = Some(Stop::Refused);
                return Ok(());
            }
            // The event contains only the usage.
            [] => return Ok(()),
            [candidate] if fields::count(candidate, "index").unwrap_or_default() == 0 => candidate,
            _ => {
                return Err(Error::Malformed(
                    "`candidates` has several items, or one whose `index` is not 0",
                ));
            }
        };
        let content = candidate.get("content").unwrap_or(&Value::Null);
        for part in fields::list(content, "parts").unwrap_or_default() {
            self.read_part(part, listener)?;
        }
        if let Some(reason) = fields::non_null_child(candidate, "finishReason") {
            self.stop = read_finish_reason(reason.as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Decodes a part: a piece of the text or of the reasoning, or a call, each of which can have a signature. Fails
    /// for any other kind of part: it would come from a tool of the provider, although the request offered none.
    fn read_part(&mut self, part: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        let signature = fields::text(part, "thoughtSignature");
        let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        let call = fields::non_null_child(part, "functionCall");
        // The index of the call that the signature signs. `None` if the part has no call: the signature then signs the
        // text.
        let mut signed_call = None;
        match (call, fields::non_null_child(part, "text")) {
            (None, Some(_)) if is_thought => {
                return self.read_thought(fields::text(part, "text"), signature, listener);
            }
            (None, Some(_)) => self.assembly.text(fields::text(part, "text"), listener)?,
            (Some(call), None) => {
                let index =
                    self.assembly.call(fields::text(call, "id"), called_tool_name(call)?, listener)?;
                let arguments = match fields::non_null_child(call, "args") {
                    None => "{}".to_owned(),
                    Some(arguments @ Value::Object(_)) => arguments.to_string(),
                    Some(_) => {
                        return Err(Error::Malformed("the `args` of a function call are not an object"));
                    }
                };
                self.assembly.arguments(index, &arguments, listener)?;
                signed_call = Some(index);
            }
            // The part has only a signature.
            (None, None) if !signature.is_empty() => {}
            _ => {
                return Err(Error::Malformed(
                    "a part of the answer is neither a text nor a function call, or is both",
                ));
            }
        }
        // Any part that is not reasoning ends the open part of the reasoning. The signature of a text or a call is
        // recorded as a part of the reasoning of its own, since the server wants it back.
        self.open_thought = None;
        if !signature.is_empty() {
            let seal = Seal::Part { signature: signature.to_owned(), call: signed_call };
            self.assembly.thought(ReasoningPart { seal, ..ReasoningPart::default() }, listener)?;
        }
        Ok(())
    }

    /// Decodes a piece of the reasoning. Consecutive pieces become one part of the reasoning, so that rules judge them
    /// as a whole. `signature` is empty, or signs the part and ends it.
    fn read_thought(
        &mut self,
        text: &str,
        signature: &str,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        if text.is_empty() && signature.is_empty() {
            return Ok(());
        }
        let index = match self.open_thought {
            Some(index) => index,
            None => self.assembly.thought(ReasoningPart::default(), listener)?,
        };
        self.assembly.thought_text(index, text, listener)?;
        self.open_thought = Some(index);
        if !signature.is_empty() {
            self.assembly.sign_thought(index, signature)?;
            self.open_thought = None;
        }
        Ok(())
    }
}

/// Decodes a finish reason; `None` for the name that states no reason, with which the answer continues. An unknown
/// reason is an error, since the answer may then be incomplete.
fn read_finish_reason(reason: &str) -> Result<Option<Stop>, Error> {
    match reason {
        "FINISH_REASON_UNSPECIFIED" => Ok(None),
        "STOP" => Ok(Some(Stop::End)),
        "MAX_TOKENS" => Ok(Some(Stop::Length)),
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => {
            Ok(Some(Stop::Refused))
        }
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            Err(Error::Incomplete("the model wrote a call that its server cannot read"))
        }
        _ => Err(Error::Malformed("the `finishReason` is one that Flowgate does not know")),
    }
}

/// Decodes the token usage of an event, the field `usageMetadata`. The output is the sum of the tokens of the text and
/// of the reasoning; if the event has only one of these two counts, the other is 0. A number that the event does not
/// have is taken from `before`, the usage of earlier events.
fn read_usage(usage: Option<&Value>, before: Usage) -> Usage {
    let count = |key: &str| usage.and_then(|usage| fields::count(usage, key));
    let output = match (count("candidatesTokenCount"), count("thoughtsTokenCount")) {
        (None, None) => before.output,
        (text, thoughts) => text.unwrap_or_default().saturating_add(thoughts.unwrap_or_default()),
    };
    let cached = count("cachedContentTokenCount").unwrap_or(before.cached);
    Usage { input: count("promptTokenCount").unwrap_or(before.input), output, cached }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Summarises an answer: the stop reason, text, usage, calls and reasoning, or the error.
    #[expect(clippy::needless_pass_by_value, reason = "the rows of the test are literals")]
    fn check(body: Value, expected: &str) {
        let shown = match decode_response(&body) {
            Ok(answer) => {
                let Usage { input, output, .. } = answer.usage;
                let calls =
                    answer.calls.iter().map(|call| format!(" {}={}{}", call.id, call.name, call.arguments));
                let thoughts =
                    answer.thoughts.iter().map(|thought| format!(" {:?} {:?}", thought.texts, thought.seal));
                let (calls, thoughts): (String, String) = (calls.collect(), thoughts.collect());
                format!("{:?} {:?} {input}+{output}{calls}{thoughts}", answer.stop, answer.text)
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{body}");
    }

    #[expect(clippy::needless_pass_by_value, reason = "the rows of the test are literals")]
    fn answer(parts: Value, reason: &str) -> Value {
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]})
    }

    #[test]
    fn answers_are_decoded_or_refused() {
        let bad = |why: &str| {
            format!(
                "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server"
            )
        };
        let mut whole = answer(json!([{"text": "a"}, {"text": "b"}]), "STOP");
        let usage = json!({"promptTokenCount": 3, "candidatesTokenCount": 5, "thoughtsTokenCount": 10, "totalTokenCount": 18});
        put(&mut whole, "usageMetadata", usage);
        check(whole, "End \"ab\" 3+15");
        check(
            answer(
                json!([{"functionCall": {"name": "f", "args": {"a": 1}}}, {"functionCall": {"id": "x", "name": "g"}}]),
                "STOP",
            ),
            r#"Calls "" 0+0 call_0=f{"a":1} x=g{}"#,
        );
        // Pieces of the reasoning are one part until it is signed; a signature of a call or a text is a part of its
        // own.
        check(
            answer(
                json!([
                    {"text": "I ", "thought": true},
                    {"text": "think.", "thought": true},
                    {"text": "a", "thoughtSignature": "s1"},
                    {"text": "More.", "thought": true, "thoughtSignature": "s2"},
                    {"text": "Again.", "thought": true},
                    {"functionCall": {"id": "x", "name": "f", "args": {}}, "thoughtSignature": "s3"},
                ]),
                "STOP",
            ),
            "Calls \"a\" 0+0 x=f{} [\"I think.\"] None [] Part { signature: \"s1\", call: None } [\"More.\"] Signature(\"s2\") \
            [\"Again.\"] None [] Part { signature: \"s3\", call: Some(0) }",
        );
        check(answer(json!([]), "MAX_TOKENS"), "Length \"\" 0+0");
        check(json!({"candidates": [{"finishReason": "SAFETY"}]}), "Refused \"\" 0+0");
        check(json!({"promptFeedback": {"blockReason": "OTHER"}}), "Refused \"\" 0+0");
        check(answer(json!([]), "OTHER"), &bad("the `finishReason` is one that Flowgate does not know"));
        check(
            answer(json!([]), "MALFORMED_FUNCTION_CALL"),
            "the model's answer is not complete: the model wrote a call that its server cannot read; try again",
        );
        let other = "a part of the answer is neither a text nor a function call, or is both";
        check(answer(json!([{"executableCode": {"code": "1"}}]), "STOP"), &bad(other));
        check(answer(json!([{"inlineData": {}}]), "STOP"), &bad(other));
        check(answer(json!([{"text": "a", "functionCall": {"name": "f"}}]), "STOP"), &bad(other));
        check(
            answer(json!([{"functionCall": {"name": "f", "args": "x"}}]), "STOP"),
            &bad("the `args` of a function call are not an object"),
        );
        check(answer(json!([{"functionCall": {}}]), "STOP"), &bad("a tool call of the answer has no `name`"));
        check(
            json!({"candidates": [{"index": 1}]}),
            &bad("`candidates` has several items, or one whose `index` is not 0"),
        );
        check(
            json!({"candidates": [{}, {}]}),
            &bad("`candidates` has several items, or one whose `index` is not 0"),
        );
        check(json!(3), &bad("the answer has no candidate with a `finishReason`"));
        let error = json!({"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "secret"}});
        check(
            error.clone(),
            "the model's server rejected the request with the HTTP status 403 (PERMISSION_DENIED); see the documentation of its API",
        );
        check(
            json!([error]),
            "the model's server rejected the request with the HTTP status 403 (PERMISSION_DENIED); see the documentation of its API",
        );
    }
}
