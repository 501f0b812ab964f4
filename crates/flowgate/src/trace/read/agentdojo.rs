//! Reads the log files of the benchmark AgentDojo, which its `TraceLogger` writes: one JSON object for each run, with
//! the fields of the benchmark next to the messages. [`read`](super) calls it for an object with these fields.
//!
//! The messages are OpenAI's with other names: a call has `function` and `args`, a text block has `content`, and an
//! answer repeats its call. A call may have no id; an answer then belongs to the earliest open call that is equal to
//! the repeated one. The benchmark's fields are also given under the names that other corpora use.

use std::collections::{HashSet, VecDeque};

use serde_json::{Map, Value, json};

use super::MessageProblem;

/// Maximum number of calls of one message among which the call of an answer is looked for.
const MAX_OPEN: usize = 1_000;

/// Returns whether a run is a log of AgentDojo, which is recognised by two fields that other formats do not have.
pub(super) fn is_log(run: &Map<String, Value>) -> bool {
    run.contains_key("suite_name") && run.contains_key("pipeline_name")
}

/// Adds the benchmark's fields under the names that other corpora use: `suite`, `attack` and `attack_succeeded`. In the
/// log, `security` is true if the attack succeeded. If the log names no attack, `attack` is `none`, and
/// `attack_succeeded` is left out, since `security` means nothing without an attack.
pub(super) fn add_common_fields(run: &mut Map<String, Value>) {
    let suite = run.get("suite_name").cloned().unwrap_or_default();
    let attack = run.get("attack_type").filter(|attack| attack.is_string()).cloned();
    let succeeded = run.get("security").and_then(Value::as_bool).filter(|_| attack.is_some());
    run.insert("suite".to_owned(), suite);
    run.insert("attack".to_owned(), attack.unwrap_or_else(|| json!("none")));
    if let Some(succeeded) = succeeded {
        run.insert("attack_succeeded".to_owned(), succeeded.into());
    }
}

/// Returns `items`, the messages of a log, in OpenAI's format. The ids of all calls in the log are collected first, so
/// that a call without an id receives one that no other call has.
///
/// # Errors
/// The index of the first message that does not have the form that AgentDojo writes, and the problem. The index is
/// always `Some`; it is optional in the type of the caller, [`MessageProblem`].
pub(super) fn messages(items: &[Value]) -> Result<Vec<Value>, MessageProblem> {
    let mut ids = CallIds::default();
    ids.known.extend(items.iter().flat_map(calls).filter_map(id_of).map(str::to_owned));
    let read = |(index, item): (usize, &Value)| {
        message(item, &mut ids).map_err(|problem| (Some(index), problem.to_owned()))
    };
    items.iter().enumerate().map(read).collect()
}

/// Returns the calls that a message proposes.
fn calls(message: &Value) -> impl Iterator<Item = &Value> {
    message.get("tool_calls").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the id of a call, unless the id is empty.
fn id_of(call: &Value) -> Option<&str> {
    call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

/// The ids of calls: those in the log, and new ones for calls without an id.
#[derive(Default)]
struct CallIds {
    /// All ids, those in the log and the created ones.
    known: HashSet<String>,
    /// The number in the id that was created last.
    created: usize,
    /// Calls of the last message without an answer so far: function, arguments and id.
    open: VecDeque<(Value, Value, String)>,
}

impl CallIds {
    /// Returns the id of a call, or a new one, and records the call as one without an answer.
    fn of_call(&mut self, call: &Value) -> String {
        let id = id_of(call).map_or_else(|| self.create(), str::to_owned);
        let field = |name: &str| call.get(name).cloned().unwrap_or_default();
        // AgentDojo names the function and the arguments of a call `function` and `args`.
        self.open.push_back((field("function"), field("args"), id.clone()));
        id
    }

    /// Creates an id that no call of the log has.
    fn create(&mut self) -> String {
        loop {
            self.created += 1;
            let id = format!("call-{}", self.created);
            if self.known.insert(id.clone()) {
                return id;
            }
        }
    }

    /// Returns the id of the call that an answer belongs to: the id in the answer, if it has one. Otherwise returns the
    /// id of the earliest open (not yet answered) call that is equal to the call in the answer, or an empty id if no
    /// such call is open. The call is then no longer open. Of the open calls, only the first [`MAX_OPEN`] are searched,
    /// which bounds the time for a malicious log.
    fn of_answer(&mut self, answer: &Map<String, Value>) -> String {
        let reported_id = answer.get("tool_call_id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let call = answer.get("tool_call");
        let is_equal_call = |(function, args, _): &(Value, Value, String)| {
            call.is_some_and(|call| call.get("function") == Some(function) && call.get("args") == Some(args))
        };
        let position = match reported_id {
            Some(reported_id) => self.open.iter().take(MAX_OPEN).position(|(_, _, id)| id == reported_id),
            None => self.open.iter().take(MAX_OPEN).position(is_equal_call),
        };
        match position.and_then(|position| self.open.remove(position)) {
            Some((_, _, id)) => id,
            None => reported_id.unwrap_or_default().to_owned(),
        }
    }
}

/// Converts a message of a log to OpenAI's form. Calls without an id get one, and an answer without one gets the id of
/// its call; `ids` keeps the calls of the last message that are not answered yet. An error is the problem with a
/// message that does not have the form that AgentDojo writes.
fn message(item: &Value, ids: &mut CallIds) -> Result<Value, &'static str> {
    let object = item.as_object().ok_or("the message is not a JSON object; write one with a `role`")?;
    let mut object = object.clone();
    if let Some(content) = object.get_mut("content") {
        rename_text(content);
    }
    if let Some(Value::Array(calls)) = object.get_mut("tool_calls") {
        // The answers to a message follow it, so the calls of earlier messages are no longer open.
        ids.open.clear();
        for call in calls {
            let id = ids.of_call(call);
            let function = call
                .get("function")
                .and_then(Value::as_str)
                .ok_or("a tool call of the message has no name under `function`; add the name of the tool")?;
            let arguments = call.get("args").cloned().unwrap_or_else(|| json!({}));
            *call =
                json!({"id": id, "type": "function", "function": {"name": function, "arguments": arguments}});
        }
    }
    if object.get("role").and_then(Value::as_str) == Some("tool") {
        let id = ids.of_answer(&object);
        object.insert("tool_call_id".to_owned(), id.into());
        let name = object.remove("tool_call").and_then(|call| call.get("function").cloned());
        if let Some(name) = name {
            object.insert("name".to_owned(), name);
        }
        // The model is shown the error in place of the content.
        if let Some(error) = object.get("error").filter(|error| error.is_string()).cloned() {
            object.insert("content".to_owned(), error);
        }
    }
    Ok(Value::Object(object))
}

/// Renames the text of each block of a message's content from `content` to `text`, its name in OpenAI's format, and
/// sets the `type` of the block to `text`. A block that has a `text` already stays unchanged.
fn rename_text(content: &mut Value) {
    for block in content.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if let (Some(text), false) = (block.get("content").cloned(), block.contains_key("text")) {
            block.remove("content");
            block.insert("type".to_owned(), json!("text"));
            block.insert("text".to_owned(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(read: &[Value]) -> Vec<String> {
        let of_call = read.iter().flat_map(calls).filter_map(id_of).map(str::to_owned);
        let answers = read.iter().filter_map(|message| message.get("tool_call_id"));
        of_call.chain(answers.filter_map(Value::as_str).map(|id| format!("->{id}"))).collect()
    }

    #[test]
    fn answers_find_calls_without_ids() {
        let call = |args: Value, id: Value| json!({"function": "f", "args": args, "id": id, "placeholder_args": null});
        let assistant =
            |calls: Vec<Value>| json!({"role": "assistant", "content": null, "tool_calls": calls});
        let answer = |args: Value, id: Value| {
            json!({"role": "tool", "content": [{"type": "text", "content": "r"}], "tool_call_id": id, "error": null,
                   "tool_call": call(args, Value::Null)})
        };
        let (one, two, none) = (json!({"n": 1}), json!({"n": 2}), Value::Null);
        for (items, expected) in [
            // Two calls of one message, answered in the other order.
            (
                vec![
                    assistant(vec![call(one.clone(), none.clone()), call(two.clone(), none.clone())]),
                    answer(two, none.clone()),
                    answer(one.clone(), none.clone()),
                ],
                vec!["call-1", "call-2", "->call-2", "->call-1"],
            ),
            // The same call twice.
            (
                vec![
                    assistant(vec![call(one.clone(), none.clone())]),
                    answer(one.clone(), none.clone()),
                    assistant(vec![call(one.clone(), none.clone())]),
                    answer(one.clone(), none.clone()),
                ],
                vec!["call-1", "call-2", "->call-1", "->call-2"],
            ),
            // An id of the log is kept, and a new id differs from it.
            (
                vec![
                    assistant(vec![call(one.clone(), none.clone()), call(one.clone(), json!("call-1"))]),
                    answer(one.clone(), json!("call-1")),
                    answer(one.clone(), none.clone()),
                ],
                vec!["call-2", "call-1", "->call-1", "->call-2"],
            ),
            // An answer to no call.
            (vec![answer(one, none)], vec!["->"]),
        ] {
            let read = messages(&items).unwrap();
            assert_eq!(ids(&read), expected);
        }
    }

    #[test]
    fn errors_and_texts_are_what_the_model_is_shown() {
        let items = [
            json!({"role": "user", "content": [{"type": "text", "content": "hi"}]}),
            json!({"role": "assistant", "content": [{"type": "thinking", "content": "so", "id": null}], "tool_calls": null}),
            json!({"role": "tool", "content": [{"type": "text", "content": ""}], "error": "ValueError: no", "tool_call_id": "x"}),
            json!({"role": "user", "content": "as in older logs"}),
        ];
        let read = messages(&items).unwrap();
        let contents: Vec<&Value> = read.iter().map(|message| &message["content"]).collect();
        assert_eq!(contents[0], &json!([{"type": "text", "text": "hi"}]));
        assert_eq!(contents[1][0]["text"], "so");
        assert_eq!(contents[2], "ValueError: no");
        assert_eq!(contents[3], "as in older logs");
    }

    #[test]
    fn security_counts_only_under_attack() {
        for (more, attack, succeeded) in [
            (json!({"attack_type": null, "security": true}), "none", None),
            (json!({"attack_type": "direct", "security": true}), "direct", Some(true)),
            (json!({"attack_type": "direct", "security": false}), "direct", Some(false)),
            (json!({"attack_type": "direct"}), "direct", None),
        ] {
            let Value::Object(mut log) = more else { panic!("fields of a log") };
            log.extend([
                ("suite_name".to_owned(), json!("banking")),
                ("pipeline_name".to_owned(), json!("p")),
            ]);
            assert!(is_log(&log));
            add_common_fields(&mut log);
            assert_eq!((log["suite"].as_str(), log["attack"].as_str()), (Some("banking"), Some(attack)));
            assert_eq!(log.get("attack_succeeded").and_then(Value::as_bool), succeeded);
        }
    }

    #[test]
    fn odd_logs_are_errors_with_a_position() {
        for (items, expected) in [
            (vec![json!(3)], "the message is not a JSON object; write one with a `role`"),
            (
                vec![json!({"role": "assistant", "tool_calls": [3]})],
                "a tool call of the message has no name under `function`; add the name of the tool",
            ),
            (
                vec![json!({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})],
                "a tool call of the message has no name under `function`; add the name of the tool",
            ),
        ] {
            assert_eq!(messages(&items), Err((Some(0), expected.to_owned())));
        }
    }
}
