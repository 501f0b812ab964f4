//! Remembers the calls that the gateway has handed to its clients, and answers the hooks of coding agents that ask
//! about them. `answer` notes the calls of each turn, and `http::service` serves the questions of hooks.
//!
//! A coding agent can use the gateway and run `flowgate hook` as well. Before a call runs, the hook asks here whether
//! the gateway has handed the call to the agent. A call runs only if both permit it. The answer also has the label at
//! which the gateway has judged the call, and the digest of the gateway's policy. A hook with the same policy judges
//! the call at this label, because only the gateway knows what the model was shown.
//!
//! A model of Codex can write a program as the argument of one call; the program then makes calls of its own, and Codex
//! runs a hook before each of them. The gateway has judged the call with the program, so `program_call` reads the
//! program, and the calls in it count as handed over together with that call.
//!
//! A call is forgotten at the next turn of its conversation. If that turn waits for a program that still runs, the
//! calls of programs are kept: a program must not lose its calls while it runs. They are not kept longer, because an
//! old call that is equal to a new one would add its label to the answer about the new one. The calls are in the memory
//! of this process alone: after a restart, and in another process, a call is unknown, so the hook denies it.

mod program_call;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::EventId;
use flowgate_audit::policy_digest;
use flowgate_guard::conversation::{CallVerdict, HandedOverCall};
use flowgate_lm::chat::{ToolCall, ToolSpec};
use program_call::{ProgramCall, StatedArguments};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ModelRoutes;
use super::authentication::Caller;
use crate::http::reply::HttpReply;
use crate::virtual_keys::scope::key_of;

/// The most bytes of the calls of one client. Beyond it, the oldest calls are forgotten.
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
    /// The calls that its program makes, if it runs a program. Their label is that of this call.
    program_calls: Vec<ProgramCall>,
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
    /// Returns the label at which `call`, which a client receives, was judged. `judged` are the calls that `monitor`
    /// has judged in the turn. `None` if the call is not among them, as in a turn that continues an earlier one, or if
    /// its label is longer than [`MAX_LABEL`]: the hook then judges the call without a label of the gateway.
    pub(super) fn of(call: &HandedOverCall, judged: &[CallVerdict], monitor: &Monitor) -> Option<Self> {
        let arguments = serde_json::from_str::<Map<String, Value>>(&call.arguments).ok()?;
        let equal = judged.iter().filter(|judged| judged.tool == call.tool && judged.arguments == arguments);
        // A verdict does not have the id of its call, so equal calls of one turn cannot be told apart: each of them has
        // the join of their labels. The label of a call is that of its event in the trace.
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
    /// The id of the call; `None` if the hook does not know it. The call is then found by its tool and arguments.
    id: Option<String>,
    tool: String,
    arguments: Map<String, Value>,
    /// Present if a program makes the call: says whether `arguments` has all arguments of the call or some of them.
    /// Such a call is found by its tool and arguments, since the gateway does not know the id that the agent has given
    /// to it.
    #[serde(default)]
    in_program: Option<StatedArguments>,
}

/// What the gateway says about a call.
#[derive(Debug, Serialize, PartialEq, Eq, Default)]
struct CallReport {
    /// Whether the gateway has handed over the call with this id or, without an id, one that is equal.
    handed_over: bool,
    /// Whether the call that was handed over has this tool and these arguments.
    is_equal: bool,
    /// The label of each call that the question can be about, without repetitions. A hook judges its call at the join
    /// of these labels, since it is not known which of the calls it is. Empty if one of the labels is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<HandedLabel>,
}

impl HandedCalls {
    /// Notes the calls that a turn of a conversation hands to its client, and forgets those of earlier turns. If the
    /// turn waits for a program of an earlier turn, the earlier calls that have programs are kept.
    pub(super) fn note(&self, client: &str, conversation: &str, turn: HandedTurn<'_>) {
        let HandedTurn { calls, tools, labels } = turn;
        // Calls without an entry in `labels` have no label.
        let labels = labels.into_iter().chain(std::iter::repeat(None));
        let handed = |(call, label): (&ToolCall, Option<HandedLabel>)| HandedCall {
            conversation: conversation.to_owned(),
            call: call.clone(),
            defaults: tools.iter().find(|tool| tool.name == call.name).map(defaults).unwrap_or_default(),
            program_calls: program_call::program_calls(call),
            label,
        };
        // Programs are read before the lock is taken.
        let handed: Vec<HandedCall> = calls.iter().zip(labels).map(handed).collect();
        let waits = calls.iter().any(program_call::waits_for_program);
        let mut all = self.lock();
        let of_client = all.entry(client.to_owned()).or_default();
        of_client
            .calls
            .retain(|known| known.conversation != conversation || (waits && !known.program_calls.is_empty()));
        of_client.calls.extend(handed);
        // Forgets the oldest calls of the client until the others fit.
        of_client.bytes = of_client.calls.iter().map(HandedCall::size).fold(0, usize::saturating_add);
        while of_client.bytes > MAX_BYTES {
            let Some(oldest) = of_client.calls.pop_front() else { break };
            of_client.bytes = of_client.bytes.saturating_sub(oldest.size());
        }
    }

    /// Looks up the call that a hook of a client asks about, and reports whether it was handed over, whether it is
    /// unchanged, and its labels. `key` is the id of the virtual key with which the hook asks: only calls that were
    /// handed to the same key are found. `None`: the hook asks with the client's own key.
    fn find(&self, client: &str, key: Option<&str>, asked: &AskedCall) -> CallReport {
        let all = self.lock();
        let calls = all.get(client).into_iter().flat_map(|of_client| &of_client.calls);
        let own = calls.filter(|known| key_of(&known.conversation) == key);
        let mut report = CallReport::default();
        let mut labels: Vec<Option<&HandedLabel>> = Vec::new();
        for handed in own {
            let is_equal = handed.is_equal_to(asked);
            // With an id, the question is about the call that has this id, even if the agent has changed the call. The
            // id of a call in a program says nothing, since the agent has chosen it.
            let is_asked = match &asked.id {
                Some(id) if asked.in_program.is_none() => *id == handed.call.id,
                _ => is_equal,
            };
            if is_asked {
                report.handed_over = true;
                report.is_equal |= is_equal;
                labels.push(handed.label.as_ref());
            }
        }
        // If one label is not known, neither is the join.
        for label in labels.into_iter().collect::<Option<Vec<&HandedLabel>>>().unwrap_or_default() {
            if !report.labels.contains(label) {
                report.labels.push(label.clone());
            }
        }
        report
    }

    /// Locks the calls of all clients, also after a panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ClientCalls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the defaults of a tool's arguments by the names of the arguments, as the tool's schema states them. Defaults
/// of nested fields are left out.
fn defaults(tool: &ToolSpec) -> Map<String, Value> {
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    let defaults = properties.into_iter().flatten().filter_map(|(name, property)| {
        let default = property.get("default")?;
        Some((name.clone(), default.clone()))
    });
    defaults.collect()
}

impl HandedCall {
    /// Returns whether the call that a hook asks about has the tool and the arguments of this call; the agent may have
    /// added defaults of arguments that the model left out. If the hook asks about a call that a program makes, returns
    /// instead whether the program of this call makes it.
    fn is_equal_to(&self, asked: &AskedCall) -> bool {
        if let Some(stated) = asked.in_program {
            return self
                .program_calls
                .iter()
                .any(|call| call.is_equal_to(&asked.tool, &asked.arguments, stated));
        }
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
        let program_calls = self.program_calls.iter().map(ProgramCall::size);
        texts
            .into_iter()
            .map(String::len)
            .chain(program_calls)
            .fold(BYTES_PER_CALL.saturating_add(defaults).saturating_add(label), usize::saturating_add)
    }
}

impl ModelRoutes {
    /// Answers a coding agent's hook (`flowgate hook`) that asks about the call in `body`: whether the gateway has
    /// handed the call to this client, and at which label the call was judged. The answer has the same form for a
    /// client in watch mode, to which the gateway hands over every call.
    pub(crate) fn report_call(&self, caller: &Caller, body: &[u8]) -> HttpReply {
        let asked: AskedCall = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => {
                let message = format!(
                    "the body of the request is not a question about a call: {error}; send `id`, `tool` and `arguments`, as `flowgate hook` does"
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

    /// Returns whether the call in the question `asked` was handed over, and whether it is equal to the call that was.
    fn found(calls: &HandedCalls, client: &str, key: Option<&str>, asked: &Value) -> (bool, bool) {
        let asked = serde_json::from_value(asked.clone()).unwrap();
        let report = calls.find(client, key, &asked);
        (report.handed_over, report.is_equal)
    }

    /// A row has the client and the virtual key with which a hook asks, its question, and whether the call was handed
    /// over and is equal.
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

    /// A question without an id may be about any of several equal calls, so the hook receives the labels of all of
    /// them.
    #[test]
    fn the_labels_are_those_of_the_calls() {
        let label =
            |name: &str| Some(HandedLabel { policy: "p".to_owned(), names: json!({"integrity": name}) });
        let one = call("1", "send", &json!({}));
        // Notes the same call in two conversations with these labels. Its id is the name of the conversation. Returns
        // the integrity in the labels that a question with this id receives.
        let reported = |labels: [Option<HandedLabel>; 2], id: Option<&str>| {
            let calls = HandedCalls::default();
            for (conversation, label) in ["c1", "c2"].into_iter().zip(labels) {
                let handed = [ToolCall { id: conversation.to_owned(), ..one.clone() }];
                calls.note("a", conversation, HandedTurn { calls: &handed, tools: &[], labels: vec![label] });
            }
            let asked = serde_json::from_value(json!({"id": id, "tool": "send", "arguments": {}})).unwrap();
            let labels = calls.find("a", None, &asked).labels;
            labels
                .iter()
                .map(|label| label.names["integrity"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let (low, high) = (label("trusted"), label("untrusted"));
        assert_eq!(reported([low.clone(), high.clone()], Some("c1")), ["trusted"]);
        assert_eq!(reported([low.clone(), high.clone()], Some("c2")), ["untrusted"]);
        assert_eq!(reported([low.clone(), high], None), ["trusted", "untrusted"]);
        assert_eq!(reported([low.clone(), None], None), [""; 0]);
        assert_eq!(reported([low.clone(), low], None), ["trusted"]);
        assert_eq!(reported([None, None], Some("c1")), [""; 0]);
    }

    /// A call that a program makes is found only by a question about a call in a program, only with the virtual key of
    /// its conversation, and only while the program can run.
    #[test]
    fn calls_of_programs_are_found_while_the_program_can_run() {
        let calls = HandedCalls::default();
        let program = |id: &str, cmd: &str| {
            let text = format!("text(await tools.exec_command({{cmd: '{cmd}', workdir: '/'}}))");
            call(id, "functions__exec", &json!({"input": text}))
        };
        let asked =
            |cmd: &str| json!({"tool": "exec_command", "arguments": {"cmd": cmd}, "in_program": "some"});
        let check = |key: Option<&str>, asked: &Value, expected: bool| {
            assert_eq!(found(&calls, "a", key, asked), (expected, expected), "{key:?} {asked}");
        };
        note(&calls, "c1", &[program("1", "ls"), program("2", "ls"), program("3", "pwd")], &[]);
        note(&calls, "«fgk:k»c1", &[program("1", "id")], &[]);
        check(None, &asked("ls"), true);
        check(None, &asked("pwd"), true);
        check(None, &asked("id"), false);
        check(Some("k"), &asked("id"), true);
        check(Some("k"), &asked("ls"), false);
        // The id of a call in a program is the agent's own, and says nothing.
        let mut with_id = asked("ls");
        with_id["id"] = json!("exec-1");
        check(None, &with_id, true);
        with_id["id"] = json!("1");
        with_id["arguments"] = json!({"cmd": "rm"});
        check(None, &with_id, false);
        // A call in a program is not one of the model's own, and the other way round.
        check(None, &json!({"tool": "exec_command", "arguments": {"cmd": "ls", "workdir": "/"}}), false);
        let own = json!({"tool": "functions__exec", "arguments": {"input": ""}, "in_program": "some"});
        check(None, &own, false);
        // Another conversation changes nothing, and neither does waiting for the program, however often.
        note(&calls, "c2", &[call("4", "look", &json!({}))], &[]);
        for id in ["5", "6"] {
            note(&calls, "c1", &[call(id, "functions__wait", &json!({"cell_id": "1"}))], &[]);
            check(None, &asked("ls"), true);
        }
        // The program that was last waited for may still run, and a new one does.
        note(
            &calls,
            "c1",
            &[program("7", "date"), call("8", "functions__wait", &json!({"cell_id": "1"}))],
            &[],
        );
        check(None, &asked("ls"), true);
        check(None, &asked("date"), true);
        note(&calls, "c1", &[program("9", "pwd")], &[]);
        for (cmd, expected) in [("ls", false), ("date", false), ("pwd", true)] {
            check(None, &asked(cmd), expected);
        }
        // A program that cannot be read makes no call that is known.
        let loops = json!({"input": "while (true) await tools.exec_command({cmd: 'pwd'})"});
        note(&calls, "c1", &[call("10", "functions__exec", &loops)], &[]);
        check(None, &asked("pwd"), false);
    }

    /// A call that a program makes can be equal to one of an earlier program. The hook receives the labels of the
    /// programs that can still run, and of no other.
    #[test]
    fn equal_calls_of_programs_have_the_labels_of_those_that_can_run() {
        let calls = HandedCalls::default();
        let handed = call("1", "functions__exec", &json!({"input": "await tools.exec_command({cmd: 'ls'})"}));
        let wait = call("2", "functions__wait", &json!({"cell_id": "1"}));
        let note = |turn: &[ToolCall], label: &str| {
            let label = HandedLabel { policy: "p".to_owned(), names: json!(label) };
            let labels = vec![Some(label); turn.len()];
            calls.note("a", "c", HandedTurn { calls: turn, tools: &[], labels });
        };
        let check = |expected: &[&str]| {
            let asked = json!({"tool": "exec_command", "arguments": {"cmd": "ls"}, "in_program": "some"});
            let report = calls.find("a", None, &serde_json::from_value(asked).unwrap());
            let labels: Vec<&str> = report.labels.iter().map(|label| label.names.as_str().unwrap()).collect();
            assert_eq!(labels, expected);
        };
        note(std::slice::from_ref(&handed), "untrusted");
        check(&["untrusted"]);
        note(&[wait, handed.clone()], "trusted");
        check(&["untrusted", "trusted"]);
        note(std::slice::from_ref(&handed), "trusted");
        check(&["trusted"]);
    }

    /// The calls that a program makes count against the limit on memory, so a loop cannot exceed this limit.
    #[test]
    fn calls_of_programs_take_no_more_memory_than_others() {
        let calls = HandedCalls::default();
        let items = "'',".repeat(100);
        let text = "x".repeat(1 << 12);
        let program = format!("for (const s of [{items}]) await tools.f({{t: '{text}', s}})");
        let input = json!({"input": program});
        for number in 0..100 {
            note(&calls, &format!("c{number}"), &[call("1", "exec", &input)], &[]);
        }
        let all = calls.lock();
        let of_client = all.get("a").unwrap();
        assert!(of_client.bytes <= MAX_BYTES && of_client.calls.len() < 25, "{}", of_client.calls.len());
    }
}
