//! Remembers the calls that the gateway has handed to its clients, and answers the hooks of coding agents that ask
//! about them. `answer` notes the calls of each turn, and `http::service` serves the questions of hooks.
//!
//! A coding agent can use the gateway and run `flowgate hook` as well. Before a call runs, the hook asks here whether
//! the gateway has handed the call to the agent. A call runs only if both permit it. The answer also has the label at
//! which the gateway has judged the call, and the digest of the gateway's policy. A hook with the same policy judges
//! the call at this label, because only the gateway knows what the model was shown.
//!
//! A call is forgotten at the next turn of its conversation. The calls are in the memory of this process alone: after a
//! restart, and in another process, a call is unknown, so the hook denies it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::EventId;
use flowgate_audit::policy_digest;
use flowgate_guard::conversation::{CallVerdict, HandedOverCall};
use flowgate_lm::chat::{ToolCall, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ModelRoutes;
use super::authentication::Caller;
use crate::http::reply::HttpReply;
use crate::virtual_keys::scope::key_of;

/// The most bytes of the calls of one client. The oldest ones are forgotten first.
pub(crate) const MAX_BYTES: usize = 8 << 20;
/// The bytes that count for each call in addition to its texts.
const BYTES_PER_CALL: usize = 256;

/// The calls of all clients, by the client's name.
#[derive(Debug, Default)]
pub(crate) struct HandedCalls(Mutex<HashMap<String, ClientCalls>>);

/// The calls of one client, the oldest first.
#[derive(Debug, Default)]
struct ClientCalls {
    calls: VecDeque<HandedCall>,
    bytes: usize,
}

/// A call that a client has received.
#[derive(Debug)]
struct HandedCall {
    conversation: String,
    call: ToolCall,
    /// The defaults of its arguments, as the schema of its tool states them.
    defaults: Map<String, Value>,
    /// The label at which the call was judged, if it is known.
    label: Option<HandedLabel>,
}

/// The largest label that is noted, in bytes of JSON.
const MAX_LABEL: usize = 16 << 10;

/// The label at which a call was judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct HandedLabel {
    /// The digest of the policy.
    policy: String,
    /// The label, as names that another session of the policy reads.
    names: Value,
}

impl HandedLabel {
    /// Returns the label of a call that a client receives. `judged` are the calls that were judged in the turn, by
    /// `monitor`. `None` if the call is not among them, as in a turn that continues an earlier one, or if its label is
    /// longer than [`MAX_LABEL`]: the hook then judges the call without a label of the gateway.
    pub(super) fn of(call: &HandedOverCall, judged: &[CallVerdict], monitor: &Monitor) -> Option<Self> {
        let arguments = serde_json::from_str::<Map<String, Value>>(&call.arguments).ok()?;
        let equal = judged.iter().filter(|judged| judged.tool == call.tool && judged.arguments == arguments);
        // Equal calls of one turn share the join of their labels.
        let labels = equal.map(|judged| {
            monitor
                .trace()
                .event(EventId(judged.event))
                .filter(|event| event.tool() == Some(&call.tool))
                .map(|event| event.label)
        });
        let label =
            labels.collect::<Option<Vec<Label>>>()?.into_iter().reduce(|one, other| one.join(&other))?;
        let names = monitor.to_names(&label);
        (names.to_string().len() <= MAX_LABEL)
            .then(|| Self { policy: policy_digest(monitor.policy()), names })
    }
}

/// The calls that a turn hands to its client.
pub(super) struct HandedTurn<'a> {
    pub(super) calls: &'a [ToolCall],
    /// The tools that the client has declared.
    pub(super) tools: &'a [ToolSpec],
    /// The labels of the calls, in their order; a call without an entry has no label.
    pub(super) labels: Vec<Option<HandedLabel>>,
}

/// A question of a hook about a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedCall {
    /// The id of the call. `None` if the agent gives its hook no id: the call is then found by its tool and arguments.
    id: Option<String>,
    tool: String,
    arguments: Map<String, Value>,
}

/// What the gateway says about a call.
#[derive(Debug, Serialize, PartialEq, Eq, Default)]
struct CallReport {
    /// Whether the gateway has handed over the call with this id or, without an id, one that is equal.
    handed_over: bool,
    /// Whether the call that was handed over has this tool and these arguments.
    is_equal: bool,
    /// The label at which the call was judged, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<HandedLabel>,
}

impl HandedCalls {
    /// Notes the calls that a turn of a conversation hands to its client, in place of those of its earlier turns.
    pub(super) fn note(&self, client: &str, conversation: &str, turn: HandedTurn<'_>) {
        let HandedTurn { calls, tools, labels } = turn;
        let mut all = self.lock();
        let of_client = all.entry(client.to_owned()).or_default();
        of_client.calls.retain(|known| known.conversation != conversation);
        let labels = labels.into_iter().chain(std::iter::repeat(None));
        let handed = |(call, label): (&ToolCall, Option<HandedLabel>)| HandedCall {
            conversation: conversation.to_owned(),
            call: call.clone(),
            defaults: tools.iter().find(|tool| tool.name == call.name).map(defaults).unwrap_or_default(),
            label,
        };
        of_client.calls.extend(calls.iter().zip(labels).map(handed));
        of_client.bytes = of_client.calls.iter().map(HandedCall::size).fold(0, usize::saturating_add);
        while of_client.bytes > MAX_BYTES {
            let Some(oldest) = of_client.calls.pop_front() else { break };
            of_client.bytes = of_client.bytes.saturating_sub(oldest.size());
        }
    }

    /// Looks up a call of a client. `key` is the id of the virtual key with which the client asks: only calls that were
    /// handed to the same key are found.
    fn find(&self, client: &str, key: Option<&str>, asked: &AskedCall) -> CallReport {
        let all = self.lock();
        let calls = all.get(client).into_iter().flat_map(|of_client| &of_client.calls);
        let own = calls.filter(|known| key_of(&known.conversation) == key);
        let mut report = CallReport::default();
        let mut labels: Vec<&Option<HandedLabel>> = Vec::new();
        for handed in own {
            let (call, is_equal) = (&handed.call, handed.is_equal_to(asked));
            if asked.id.as_ref().map_or(is_equal, |id| *id == call.id) {
                report.handed_over = true;
                report.is_equal |= is_equal;
                labels.push(&handed.label);
            }
        }
        // Without an id, the question may be about any of several equal calls, so a label is returned only if all of
        // them have it.
        if let Some((first, rest)) = labels.split_first()
            && rest.iter().all(|other| other == first)
        {
            report.label = (*first).clone();
        }
        report
    }

    /// Locks the calls of all clients, also after a panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ClientCalls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the defaults of a tool's arguments, as its schema states them: by name, on the first level.
fn defaults(tool: &ToolSpec) -> Map<String, Value> {
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    let defaults = properties.into_iter().flatten().filter_map(|(name, property)| {
        let default = property.get("default")?;
        Some((name.clone(), default.clone()))
    });
    defaults.collect()
}

impl HandedCall {
    /// Returns whether a hook asks about this call: the tool and the arguments are the same, except that the agent may
    /// have added defaults of arguments that the model left out.
    fn is_equal_to(&self, asked: &AskedCall) -> bool {
        let Ok(handed) = serde_json::from_str::<Map<String, Value>>(&self.call.arguments) else {
            return false;
        };
        let is_added = |name: &String, value: &Value| {
            !handed.contains_key(name) && self.defaults.get(name) == Some(value)
        };
        self.call.name == asked.tool
            && handed.iter().all(|(name, value)| asked.arguments.get(name) == Some(value))
            && asked.arguments.iter().all(|(name, value)| handed.contains_key(name) || is_added(name, value))
    }

    /// Returns the number of bytes by which the call counts against [`MAX_BYTES`].
    fn size(&self) -> usize {
        let texts = [&self.conversation, &self.call.id, &self.call.name, &self.call.arguments];
        let defaults = Value::from(self.defaults.clone()).to_string().len();
        let label = self.label.as_ref().map_or(0, |label| label.policy.len() + label.names.to_string().len());
        texts
            .into_iter()
            .map(String::len)
            .fold(BYTES_PER_CALL.saturating_add(defaults).saturating_add(label), usize::saturating_add)
    }
}

impl ModelRoutes {
    /// Answers a hook that asks about a call, which `body` describes: whether the gateway has handed it to this client,
    /// and at which label it was judged. For a client in watch mode, to which every call is handed over, the answer has
    /// the same form.
    pub(crate) fn report_call(&self, caller: &Caller, body: &[u8]) -> HttpReply {
        let asked: AskedCall = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => {
                let message = format!(
                    "the body is no question about a call: {error}; send `id`, `tool` and `arguments`, as `flowgate hook` does"
                );
                return HttpReply::detail(StatusCode::BAD_REQUEST, &message);
            }
        };
        let key = caller.virtual_key.as_ref().map(|key| key.id.as_str());
        let report = self.handed_calls.find(&caller.client.spec.name, key, &asked);
        HttpReply::json(StatusCode::OK, &report)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, name: &str, arguments: &Value) -> ToolCall {
        ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_string() }
    }

    /// Notes calls of the client `a`, without labels.
    fn note(of: &HandedCalls, conversation: &str, calls: &[ToolCall], tools: &[ToolSpec]) {
        of.note("a", conversation, HandedTurn { calls, tools, labels: Vec::new() });
    }

    fn found(calls: &HandedCalls, client: &str, key: Option<&str>, asked: &Value) -> (bool, bool) {
        let asked = serde_json::from_value(asked.clone()).unwrap();
        let report = calls.find(client, key, &asked);
        (report.handed_over, report.is_equal)
    }

    #[test]
    fn a_call_is_found_until_its_conversation_continues() {
        let calls = HandedCalls::default();
        let first = [call("1", "send", &json!({"to": "bob", "n": 1})), call("2", "read", &json!({}))];
        note(&calls, "c1", &first, &[]);
        note(&calls, "«fgk:k»c1", &[call("3", "send", &json!({"to": "ann"}))], &[]);
        note(&calls, "c2", &[call("4", "send", &json!({"to": "eve"}))], &[]);
        let rows = [
            ("a", None, json!({"id": "1", "tool": "send", "arguments": {"n": 1, "to": "bob"}}), (true, true)),
            ("a", None, json!({"tool": "send", "arguments": {"n": 1, "to": "bob"}}), (true, true)),
            ("a", None, json!({"id": "1", "tool": "send", "arguments": {"to": "bob"}}), (true, false)),
            (
                "a",
                None,
                json!({"id": "1", "tool": "read", "arguments": {"n": 1, "to": "bob"}}),
                (true, false),
            ),
            ("a", None, json!({"tool": "send", "arguments": {"to": "bob"}}), (false, false)),
            (
                "a",
                None,
                json!({"id": "9", "tool": "send", "arguments": {"n": 1, "to": "bob"}}),
                (false, false),
            ),
            ("a", None, json!({"id": "3", "tool": "send", "arguments": {"to": "ann"}}), (false, false)),
            ("a", Some("k"), json!({"id": "3", "tool": "send", "arguments": {"to": "ann"}}), (true, true)),
            ("a", Some("k"), json!({"id": "2", "tool": "read", "arguments": {}}), (false, false)),
            (
                "b",
                None,
                json!({"id": "1", "tool": "send", "arguments": {"n": 1, "to": "bob"}}),
                (false, false),
            ),
        ];
        for (client, key, asked, expected) in rows {
            assert_eq!(found(&calls, client, key, &asked), expected, "{client} {key:?} {asked}");
        }
        note(&calls, "c1", &[], &[]);
        let asked = json!({"id": "1", "tool": "send", "arguments": {"n": 1, "to": "bob"}});
        assert_eq!(found(&calls, "a", None, &asked), (false, false));
        let other = json!({"id": "4", "tool": "send", "arguments": {"to": "eve"}});
        assert_eq!(found(&calls, "a", None, &other), (true, true));
    }

    /// Agents add defaults of arguments before their hooks see a call.
    #[test]
    fn added_defaults_change_no_call() {
        let calls = HandedCalls::default();
        let parameters = json!({"type": "object", "properties": {
            "path": {"type": "string"}, "all": {"type": "boolean", "default": false}, "n": {"default": 1}}});
        let tool =
            ToolSpec { name: "edit".to_owned(), description: String::new(), parameters: parameters.into() };
        note(&calls, "c", &[call("1", "edit", &json!({"path": "x", "n": 2}))], &[tool]);
        for (arguments, expected) in [
            (json!({"path": "x", "n": 2}), true),
            (json!({"path": "x", "n": 2, "all": false}), true),
            (json!({"path": "x", "n": 2, "all": true}), false),
            (json!({"path": "x", "n": 1}), false),
            (json!({"path": "x"}), false),
            (json!({"path": "x", "n": 2, "more": false}), false),
        ] {
            let asked = json!({"id": "1", "tool": "edit", "arguments": arguments});
            assert_eq!(found(&calls, "a", None, &asked), (true, expected), "{asked}");
        }
    }

    #[test]
    fn the_oldest_calls_give_way() {
        let calls = HandedCalls::default();
        let text = "x".repeat(MAX_BYTES / 2);
        for id in ["1", "2", "3"] {
            note(&calls, id, &[call(id, "send", &json!({"text": text}))], &[]);
        }
        for (id, expected) in [("1", false), ("2", false), ("3", true)] {
            let asked = json!({"id": id, "tool": "send", "arguments": {}});
            assert_eq!(found(&calls, "a", None, &asked).0, expected, "{id}");
        }
    }

    /// A question without an id may be about any of several equal calls: a label is one that all of them have.
    #[test]
    fn a_label_is_that_of_the_call() {
        let label =
            |name: &str| Some(HandedLabel { policy: "p".to_owned(), names: json!({"integrity": name}) });
        let one = call("1", "send", &json!({}));
        let reported = |labels: [Option<HandedLabel>; 2], id: Option<&str>| {
            let calls = HandedCalls::default();
            for (conversation, label) in ["c1", "c2"].into_iter().zip(labels) {
                let handed = [ToolCall { id: conversation.to_owned(), ..one.clone() }];
                calls.note("a", conversation, HandedTurn { calls: &handed, tools: &[], labels: vec![label] });
            }
            let asked = serde_json::from_value(json!({"id": id, "tool": "send", "arguments": {}})).unwrap();
            calls.find("a", None, &asked).label
        };
        let (low, high) = (label("trusted"), label("untrusted"));
        assert_eq!(reported([low.clone(), high.clone()], Some("c1")), low);
        assert_eq!(reported([low.clone(), high.clone()], Some("c2")), high);
        assert_eq!(reported([low.clone(), high], None), None);
        assert_eq!(reported([low.clone(), None], None), None);
        assert_eq!(reported([low.clone(), low.clone()], None), low);
        assert_eq!(reported([None, None], Some("c1")), None);
    }
}
