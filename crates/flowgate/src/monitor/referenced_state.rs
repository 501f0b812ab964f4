//! Determines the external state to which the call in a question refers. An approval of the call becomes stale if this
//! state changes after the question was asked. `permits` calls [`Monitor::referenced_versions`] for each question.
//!
//! A person approves a call as it was shown. A later write of another session to a store makes the approval stale only
//! if the call refers to the state of the store. A call does so if the policy declares that the tool reads the store,
//! or if an argument contains a value that this session read from the store, such as the id of a draft. A store that
//! no `store` statement declares is shared by all tools of a server, so a write to it alone does not make the approval
//! stale. A write of the session itself to any store that the tool reads or writes always makes the approval stale.

use std::collections::HashSet;

use serde_json::{Number, Value};

use super::Monitor;
use super::stores::StoreAccess;
use crate::trace::{Call, Event, EventBody, NodeContent, PathStep};

/// The most values of one call that are compared. A call with more refers to every store that it touches.
const MAX_VALUES: usize = 64;
/// The greatest length, in bytes, of a value that is searched for inside a text.
const MAX_IDENTIFIER: usize = 128;

/// Stores by index, each with the number of writes to it.
pub(super) type StoreVersions = Vec<(usize, u64)>;

/// The scalar values in a call's arguments.
#[derive(Debug, Default)]
struct ArgumentValues {
    /// The values as texts.
    all: HashSet<String>,
    /// The values that are also recognised inside a text: they contain a digit and no white space.
    identifiers: Vec<String>,
}

impl Monitor {
    /// Returns the stores to whose state a call refers, each with the number of writes of other sessions to it. Only
    /// stores that the call reads or writes are among them. A call refers to a store if an argument occurs in what this
    /// session has read from the store, or if the policy declares that the tool reads it. A call without valid
    /// arguments, or with too many values, refers to every store that it touches.
    pub(super) fn referenced_versions(&self, call: &Call, access: &StoreAccess) -> StoreVersions {
        let values = call
            .arguments
            .as_ref()
            .map_or(None, |arguments| ArgumentValues::from_arguments(arguments.values()));
        let mut touched: Vec<usize> = access.reads.iter().chain(&access.writes).copied().collect();
        touched.sort_unstable();
        touched.dedup();
        touched.retain(|store| {
            let reads_by_declaration = self.stores.is_declared(*store) && access.reads.contains(store);
            reads_by_declaration || values.as_ref().is_none_or(|values| self.was_read(*store, values))
        });
        self.stores.versions_of_others(&touched)
    }

    /// Returns whether this session has read one of `values` from a store: whether an output of a call that reads the
    /// store contains one of them, as a key of a map or in a scalar ([`ArgumentValues::occur_in`]). False if there are
    /// no values.
    fn was_read(&self, store: usize, values: &ArgumentValues) -> bool {
        if values.all.is_empty() {
            return false;
        }
        let is_read = |event: &&Event| {
            let access = event.call.and_then(|call| self.accesses.get(&call));
            matches!(event.body, EventBody::Output(_))
                && access.is_some_and(|access| access.reads.contains(&store))
        };
        self.trace.events().iter().filter(is_read).any(|event| {
            event.document.nodes().iter().any(|node| {
                let is_key = matches!(&node.step, PathStep::Key(key) if values.all.contains(&**key));
                is_key || matches!(&node.content, NodeContent::Scalar(value) if values.occur_in(value))
            })
        })
    }
}

impl ArgumentValues {
    /// Collects the scalar values in the arguments; `None` if there are too many to compare.
    fn from_arguments<'v>(arguments: impl Iterator<Item = &'v Value>) -> Option<Self> {
        let (mut values, mut pending) = (Self::default(), arguments.collect::<Vec<_>>());
        while let Some(value) = pending.pop() {
            let text_of_value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number_text(number),
                Value::Array(list) => {
                    pending.extend(list);
                    continue;
                }
                Value::Object(object) => {
                    pending.extend(object.values());
                    continue;
                }
                // These values occur in almost every output, so they identify nothing.
                Value::Null | Value::Bool(_) => continue,
            };
            if !text_of_value.is_empty() {
                values.all.insert(text_of_value);
            }
            if values.all.len() > MAX_VALUES {
                return None;
            }
        }
        // A short value with a digit and without white space is probably an id, so it is also recognised within a
        // longer text that was read.
        let is_identifier = |value: &&String| {
            value.len() <= MAX_IDENTIFIER
                && value.chars().any(|c| c.is_ascii_digit())
                && !value.chars().any(char::is_whitespace)
        };
        values.identifiers = values.all.iter().filter(is_identifier).cloned().collect();
        Some(values)
    }

    /// Returns whether one of these argument values occurs in `value`, a scalar that was read: it is equal, or `value`
    /// is a text that contains it as an identifier.
    fn occur_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => {
                self.all.contains(text)
                    || self.identifiers.iter().any(|identifier| is_word_of(identifier, text))
            }
            Value::Number(number) => self.all.contains(&number_text(number)),
            _ => false,
        }
    }
}

/// Returns a number as text. The numbers 20.0 and 20 give the same text, since they are equal to most tools.
fn number_text(number: &Number) -> String {
    number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), |float| float.to_string())
}

/// Returns whether a text contains a value as a word: at one of its places, no letter or digit is directly before or
/// after the value.
fn is_word_of(value: &str, text: &str) -> bool {
    text.match_indices(value).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + value.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::monitor::{Question, Verdict};
    use crate::policy::Policy;
    use crate::trace::{Tool, TraceEntry};

    const LATTICE: &str = "lattice integrity: trusted < untrusted < unknown\n";
    const RULES: &str = r#"
label out.content as trusted if:
    (out: ToolOutput)
require top if:
    (call: ToolCall) is tool:bank/list
ask "a person decides" if:
    (call: ToolCall)
    call is tool:r"bank/send|mail/send|bank/edit"
require untrusted if:
    (call: ToolCall) is tool:r"bank/send|mail/send|bank/edit"
"#;

    fn call(tool: &str, arguments: &Value) -> Call {
        let (server, name) = tool.split_once('/').unwrap();
        Call::from_json(format!("{tool} {arguments}"), Tool::of(server, name), &arguments.to_string())
    }

    /// Returns a session in which `bank/list` has answered `listed`, and its question whether a call of `tool` may run.
    fn asked(policy: &Arc<Policy>, listed: &Value, tool: &str, arguments: &Value) -> (Monitor, Question) {
        let mut monitor = Monitor::new(Arc::clone(policy));
        let list = call("bank/list", &json!({}));
        let id = list.id.clone();
        let Verdict::Permit(permit) = monitor.judge(list) else { panic!("{tool}") };
        monitor.redeem(permit).unwrap();
        monitor.push(TraceEntry::tool_output(id, listed.clone())).unwrap();
        // The stamp keeps the reservation of this session from counting as a write of another one.
        monitor.stamp_writes("own");
        let Verdict::Confirm(question) = monitor.judge(call(tool, arguments)) else { panic!("{tool}") };
        (monitor, question)
    }

    /// Returns the record of external state that another session leaves, in which a call of `tool` has run. `before` is
    /// the record with which that session began.
    fn elsewhere(policy: &Arc<Policy>, before: &Value, tool: &str) -> Value {
        let mut monitor = Monitor::new(Arc::clone(policy));
        monitor.join_external_state(before).unwrap();
        match monitor.judge(call(tool, &json!({}))) {
            Verdict::Permit(permit) => drop(monitor.redeem(permit).unwrap()),
            Verdict::Confirm(question) => {
                let permit = monitor.approve(question).unwrap();
                monitor.redeem(permit).unwrap();
            }
            Verdict::Deny(denial) => panic!("{denial:?}"),
        }
        monitor.stamp_writes("other");
        monitor.external_state_record()
    }

    /// A permit or a question of one session is invalid in another one, whose trace differs.
    #[test]
    fn permits_and_questions_are_valid_in_their_session_only() {
        let policy = Arc::new(Policy::parse(&format!("{LATTICE}{RULES}")).unwrap());
        let (mut one, mut other) = (Monitor::new(Arc::clone(&policy)), Monitor::new(Arc::clone(&policy)));
        let why =
            |denial: &crate::monitor::Denial| denial.judgement().reasons.last().unwrap().message.clone();
        for _ in 0..2 {
            let Verdict::Permit(permit) = one.judge(call("bank/list", &json!({}))) else { panic!() };
            assert!(why(&other.redeem(permit).unwrap_err()).contains("another session"));
        }
        let pay = json!({"to": "bob"});
        let Verdict::Confirm(question) = one.judge(call("bank/send", &pay)) else { panic!() };
        assert!(why(&other.approve(question).unwrap_err()).contains("another session"));
        // Each is valid where it was made.
        let Verdict::Permit(permit) = one.judge(call("bank/list", &json!({}))) else { panic!() };
        assert!(one.redeem(permit).is_ok());
        let Verdict::Confirm(question) = other.judge(call("bank/send", &pay)) else { panic!() };
        assert!(other.approve(question).is_ok());
    }

    /// A question kept elsewhere is identified by its call and by the state that the call refers to.
    #[test]
    fn a_question_names_its_call_and_the_state_that_it_refers_to() {
        let policy = Arc::new(Policy::parse(&format!("{LATTICE}{RULES}")).unwrap());
        let (listed, draft, pay) = (json!([{"id": 7}]), json!({"id": 7}), json!({"to": "bob"}));
        let (_, question) = asked(&policy, &listed, "bank/send", &pay);
        assert_eq!(question.state(), "");
        assert_eq!(question.call(), Some(&call("bank/send", &pay)));
        let (mut monitor, question) = asked(&policy, &listed, "bank/send", &draft);
        assert_eq!(question.call(), Some(&call("bank/send", &draft)));
        let before = question.state();
        assert!(!before.is_empty());
        let record = elsewhere(&policy, &monitor.external_state_record(), "bank/edit");
        monitor.join_external_state(&record).unwrap();
        let again = call("bank/send", &json!({"id": 7.0}));
        let Verdict::Confirm(question) = monitor.judge(again) else { panic!() };
        assert_ne!(question.state(), before);
    }

    #[test]
    fn only_what_a_question_refers_to_makes_it_stale() {
        let undeclared = "";
        let written = "store money: written by bank/send, bank/edit\n";
        let read = "store drafts: written by bank/edit, read by bank/send, bank/list\n";
        let listed = "store drafts: written by bank/edit, bank/send, read by bank/list\n";
        let (ids, text) = (json!([{"id": 7, "for": "ann"}]), json!("draft 7 is for Ann"));
        let (pay, draft) = (json!({"to": "bob", "amount": 20}), json!({"id": 7}));
        // The declarations, the listed output, the call in question, the call of another session, and whether
        // the question is stale.
        let rows = [
            (undeclared, &ids, "bank/send", &pay, "bank/send", false),
            (undeclared, &ids, "bank/send", &pay, "bank/edit", false),
            (undeclared, &text, "bank/send", &pay, "bank/list", false),
            (undeclared, &ids, "bank/send", &draft, "bank/edit", true),
            (undeclared, &text, "bank/send", &draft, "bank/edit", true),
            (undeclared, &ids, "bank/send", &json!({"id": "7"}), "bank/edit", true),
            (undeclared, &ids, "bank/send", &json!({"all": [{"id": 7.0}]}), "bank/edit", true),
            (undeclared, &ids, "bank/send", &json!({"to": "ann"}), "bank/edit", true),
            (undeclared, &json!({"d-1": {}}), "bank/send", &json!({"id": "d-1"}), "bank/edit", true),
            (undeclared, &json!("draft 77, v7, 7th"), "bank/send", &draft, "bank/edit", false),
            // Another server has another store.
            (undeclared, &ids, "mail/send", &draft, "bank/edit", false),
            (undeclared, &ids, "bank/send", &draft, "mail/send", false),
            (undeclared, &ids, "mail/send", &draft, "mail/send", false),
            // No tool reads a store that is only written to.
            (written, &ids, "bank/send", &pay, "bank/send", false),
            (read, &ids, "bank/send", &pay, "bank/edit", true),
            (read, &ids, "bank/edit", &pay, "bank/edit", false),
            (listed, &ids, "bank/send", &pay, "bank/edit", false),
            (listed, &ids, "bank/send", &draft, "bank/edit", true),
        ];
        for (number, (stores, output, tool, arguments, other, is_stale)) in rows.into_iter().enumerate() {
            let policy = Arc::new(Policy::parse(&format!("{LATTICE}{stores}{RULES}")).unwrap());
            let (mut monitor, question) = asked(&policy, output, tool, arguments);
            let record = elsewhere(&policy, &monitor.external_state_record(), other);
            monitor.join_external_state(&record).unwrap();
            let approved = monitor.approve(question);
            let why = approved
                .as_ref()
                .err()
                .map(|denial| denial.judgement().reasons.last().unwrap().message.clone());
            assert_eq!(why.is_some(), is_stale, "{number}: {why:?}");
            assert!(why.is_none_or(|why| why.contains("has changed since the question")), "{number}");
        }
        // With too many values to compare, every store that the call touches counts.
        let policy = Arc::new(Policy::parse(&format!("{LATTICE}{RULES}")).unwrap());
        for (count, is_stale) in [(MAX_VALUES, false), (MAX_VALUES + 1, true), (MAX_VALUES + 2, true)] {
            let many: Value = (0..count).map(|number| json!(format!("v-{number}"))).collect();
            let (mut monitor, question) = asked(&policy, &ids, "bank/send", &json!({"all": many}));
            let record = elsewhere(&policy, &monitor.external_state_record(), "bank/edit");
            monitor.join_external_state(&record).unwrap();
            assert_eq!(monitor.approve(question).is_err(), is_stale, "{count}");
        }
    }

    /// A write of another session to a store that this policy does not know may have been to any store: a question that
    /// refers to one is stale, and later sessions learn of the write.
    #[test]
    fn a_write_to_an_unknown_store_makes_questions_stale() {
        let policy = Arc::new(Policy::parse(&format!("{LATTICE}{RULES}")).unwrap());
        for (arguments, is_stale) in [(json!({"id": 7}), true), (json!({"to": "bob"}), false)] {
            let (mut monitor, question) = asked(&policy, &json!([{"id": 7}]), "bank/send", &arguments);
            let mut record = monitor.external_state_record();
            record["floor"] = monitor.to_names(&policy.space().top());
            monitor.join_external_state(&record).unwrap();
            assert_eq!(monitor.external_state_record()["floor"], record["floor"]);
            assert_eq!(monitor.approve(question).is_err(), is_stale, "{arguments}");
        }
    }

    /// Inside a text, only what looks like an identifier is recognised.
    #[test]
    fn a_value_inside_a_text_is_an_identifier() {
        let long = format!("7{}", "x".repeat(MAX_IDENTIFIER));
        let longest = &format!("7{}", "x".repeat(MAX_IDENTIFIER - 1));
        for (value, stands) in [
            ("7", true),
            ("d-7", true),
            ("draft", false),
            ("draft 7", false),
            (&long, false),
            (longest, true),
            ("", false),
        ] {
            let text = format!("This is draft 7 of {value} for Ann.");
            let values = ArgumentValues::from_arguments([json!(value)].iter()).unwrap();
            assert_eq!(values.occur_in(&json!(text)), stands, "{value}");
            // As a whole it is the same, whatever it looks like.
            assert_eq!(values.occur_in(&json!(value)), !value.is_empty(), "{value}");
        }
    }
}
