//! Converts a question to JSON: in the form that the database stores, and in the form that a person is shown.
//! `ApprovalService` calls it to store a question and to compare two questions.

use flowgate_guard::approve::{ApprovalRequest, Excerpt};
use serde_json::{Value, json};

use super::lasting_grants::OFFER;
use crate::database::{APPROVERS, HIDDEN_MEMBER};

/// The member of a question's content with the number of equal calls that the question is about, if there are several.
pub(super) const TIMES: &str = "times";
/// The members in which a question about several equal calls differs from a question about one such call: the number,
/// and the summary, which mentions it.
const WITH_TIMES: [&str; 2] = [TIMES, "summary"];

/// Removes the members in which questions about equal calls may differ, so that their contents compare as equal:
/// [`WITH_TIMES`], and the offer of lasting grants, which also counts the calls.
pub(super) fn remove_variable_members(content: &mut Value) {
    if let Some(members) = content.as_object_mut() {
        WITH_TIMES.iter().for_each(|name| drop(members.remove(*name)));
        if let Some(Value::Object(hidden)) = members.get_mut(HIDDEN_MEMBER) {
            hidden.remove(OFFER);
        }
    }
}

/// Returns a question in the form in which the database stores it: [`shown_content`], which a person sees, and under
/// [`HIDDEN_MEMBER`] the values that only the gateway reads:
///
/// * `state`: the digest of the external state in which the call is approved;
/// * `carries`: the label of the whole question, and `reasons`: the text of each reason with its label; by these labels,
///   parts of the question are withheld from people with a lower clearance;
/// * `may_grant`: whether a person may answer for the rest of the conversation (the parameter of the same name), and
///   `changeable`: the arguments whose values may then differ.
pub(super) fn stored_content(ask: &ApprovalRequest, may_grant: bool) -> Value {
    let mut stored = shown_content(ask);
    if let Some(stored) = stored.as_object_mut() {
        let reasons = ask.reasons.iter().zip(&ask.reasons_carry);
        let reasons: Vec<Value> =
            reasons.map(|(reason, carries)| json!({"text": reason.message, "carries": carries})).collect();
        let hidden = json!({
            "state": ask.state,
            "carries": ask.carries,
            "reasons": reasons,
            "may_grant": may_grant,
            "changeable": ask.changeable,
        });
        stored.insert(HIDDEN_MEMBER.to_owned(), hidden);
    }
    stored
}

/// Returns a question in the form that is shown to a person who may read all of it: everything on which the decision
/// depends.
pub(crate) fn shown_content(ask: &ApprovalRequest) -> Value {
    let mut reasons: Vec<&str> = ask.reasons.iter().map(|reason| reason.message.as_str()).collect();
    // Compares neighbours only: a repetition elsewhere in the list does no harm.
    reasons.dedup();
    let summary = match ask.times {
        ..=1 => ask.summary.clone(),
        times => {
            format!("{} The model makes this call {times} times; the answer is for all of them.", ask.summary)
        }
    };
    // An excerpt is text that influenced the call, or that would leave with it.
    let excerpt = |Excerpt { region, source, label, text }: &Excerpt| json!({"place": region.to_string(), "source": source, "label": label, "text": text});
    let mut shown = json!({
        "tool": ask.tool.to_string(),
        "arguments": ask.arguments,
        "summary": summary,
        "evidence": ask.evidence,
        "label": ask.label,
        "reasons": reasons,
        "excerpts": ask.excerpts.iter().map(excerpt).collect::<Vec<_>>(),
    });
    // The people who must all approve, if any person does not suffice.
    if let (Some(shown), false) = (shown.as_object_mut(), ask.approvers.is_empty()) {
        shown.insert(APPROVERS.to_owned(), ask.approvers.clone().into());
    }
    // The number of equal calls that the answer is for, if there are several.
    if let (Some(shown), 2..) = (shown.as_object_mut(), ask.times) {
        shown.insert(TIMES.to_owned(), ask.times.into());
    }
    shown
}
