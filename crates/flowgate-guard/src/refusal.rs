//! Builds the refusal that a model receives for a call that does not run: machine-readable reasons, and what to try
//! instead.
//!
//! A refusal contains labels, the kinds of statements, parts of the call, and the messages of rules. It contains no
//! region and no hidden text. It carries the label of the verdict, and is hidden from views below that label.
//! [`crate::conversation`] adds it to the chat as the answer to the call.

use flowgate::monitor::{Judgement, ReasonKind};
use serde_json::{Value, json};

/// Returns the refusal of a call that was judged: the reasons of the judgement, with advice that depends on their
/// kinds. `slots` are the arguments of the tool that may be slots. `verdict` is the word by which the refusal names
/// the outcome.
pub(crate) fn judged_refusal(judgement: &Judgement, verdict: &str, slots: &[String]) -> String {
    let reasons: Vec<Value> = judgement
        .reasons
        .iter()
        .map(|reason| {
            let mut shown = json!({"kind": reason.kind.name(), "says": reason.message});
            if let (Some(map), Some(part)) = (shown.as_object_mut(), &reason.part) {
                map.insert("part".to_owned(), part.as_str().into());
                map.insert("carries".to_owned(), json!(reason.label));
                map.insert("may_carry".to_owned(), json!(reason.required));
            }
            shown
        })
        .collect();
    // Whether the reason is about the label of a part of the call: a lower label of this part would remove the reason.
    let is_flow = |kind: ReasonKind| matches!(kind, ReasonKind::Requirement | ReasonKind::Undeclared);
    let mut advice: Vec<String> = Vec::new();
    if judgement.reasons.iter().any(|reason| is_flow(reason.kind)) {
        advice.push("call the tool before looking at hidden text, with what the user said".to_owned());
        if !slots.is_empty() {
            advice.push(format!(
                "to pass on hidden text without reading it, write a $slot as the value of {}",
                slots.join(", ")
            ));
        }
    }
    if judgement.reasons.iter().any(|reason| reason.kind == ReasonKind::Rule) {
        advice.push("do without this call, and tell the user which rule forbids it".to_owned());
    }
    refusal_json(verdict, &reasons, &advice)
}

/// Returns the refusal of a call or an answer for a reason that no judgement of the policy states: `message` says what
/// is wrong, and `advice` what to try instead.
pub(crate) fn malformed_refusal(message: &str, advice: &str) -> String {
    refusal_json("deny", &[json!({"kind": "malformed", "says": message})], &[advice.to_owned()])
}

/// Formats a refusal as the JSON text that the model receives. `verdict` is the word for the outcome.
fn refusal_json(verdict: &str, reasons: &[Value], advice: &[String]) -> String {
    json!({"refused": verdict, "reasons": reasons, "try": advice}).to_string()
}
