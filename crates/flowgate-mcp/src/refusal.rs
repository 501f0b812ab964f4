//! Builds the *refusal*, the machine-readable answer that a client receives for a call that does not run. The handlers
//! of calls, of answers and of questions to people use this module.
//!
//! A refusal contains labels, kinds of statements, parts of the call and the messages of rules. It does not name the
//! regions that the labels come from. A verdict can depend on more than this client was shown; the client's label then
//! rises to the label of the verdict.

use flowgate::monitor::{Judgement, Monitor};
use flowgate::trace::TraceEntry;
use serde_json::{Value, json};

use super::asked_call::AskedCall;
use super::message::{RequestId, error, result};
use super::{Proxy, ProxyAction, ProxyCallKind, REFUSED};

/// The status of a call that waits for a person's decision.
pub const WAITING_STATUS: &str = "waiting";

impl Proxy {
    /// Returns the refusal of a call that a person was to decide on; `verdict` is the outcome in words. If the present
    /// policy has asked, the refusal states the reasons of the question, as [`Self::judgement_refusal`] does. If an
    /// earlier policy has asked, the refusal states no reasons.
    pub(super) fn asked_refusal(&mut self, monitor: &mut Monitor, verdict: &str, asked: &AskedCall) -> Value {
        match asked.open() {
            Some(question) => self.judgement_refusal(monitor, verdict, question.judgement()),
            None => self.earlier_refusal(monitor),
        }
    }

    /// Returns the refusal of a judged call, for the client; `verdict` is the outcome in words. The reasons in the
    /// refusal carry the label of the verdict, `judgement.decided`. Adds an event to the trace that raises the client's
    /// label to this label, unless the client's label is as high already: the client's later calls may depend on the
    /// reasons.
    pub(super) fn judgement_refusal(
        &self,
        monitor: &mut Monitor,
        verdict: &str,
        judgement: &Judgement,
    ) -> Value {
        let reasons = judgement.reasons.iter().map(|reason| {
            let mut shown = json!({"kind": reason.kind.name(), "says": reason.message});
            if let (Some(map), Some(part)) = (shown.as_object_mut(), &reason.part) {
                map.insert("part".to_owned(), part.as_str().into());
                map.insert("carries".to_owned(), json!(reason.label));
                map.insert("may_carry".to_owned(), json!(reason.required));
            }
            shown
        });
        let refusal = refusal(verdict, &reasons.collect::<Vec<_>>());
        let content = Value::String(refusal.to_string());
        let entry = TraceEntry::assistant(content);
        // `position.context` is the client's label: its next event carries at least this.
        if let Ok(position) = monitor.trace().position_of(&entry)
            && !judgement.decided.flows_to(&position.context)
        {
            // If the trace has no room for this event, it has none for another call either.
            let _ = monitor.push_generated(entry, position.context.join(&judgement.decided));
        }
        refusal
    }
}

/// Returns the refusal of a request that was not judged: `kind` is the machine-readable class of the reason, and `says`
/// the reason itself.
pub(super) fn unjudged_refusal(kind: &str, says: &str) -> Value {
    refusal("deny", &[json!({"kind": kind, "says": says})])
}

/// Returns a refusal with this outcome in words and these reasons.
fn refusal(verdict: &str, reasons: &[Value]) -> Value {
    json!({"refused": verdict, "reasons": reasons})
}

/// Returns the answer to a refused request. For a call of a tool, it is a result that the client's model can read; for
/// any other request, it is a JSON-RPC error. `refusal` has the member `question` if a person has not decided yet:
/// `elicitation` adds the name of the question there.
pub(super) fn refusal_answer(id: &RequestId, kind: ProxyCallKind, refusal: &Value) -> ProxyAction {
    ProxyAction::Client(match kind {
        ProxyCallKind::Tool => {
            let text = json!({"type": "text", "text": refusal.to_string()});
            // The revisions without sessions require `resultType`; the others ignore it.
            let mut answer = json!({"resultType": "complete", "content": [text], "isError": true});
            // Programs that wait for a person's decision can read the status here instead of parsing the text.
            if let (Some(question), Some(members)) = (refusal.get("question"), answer.as_object_mut()) {
                let waits = json!({"flowgate/status": WAITING_STATUS, "flowgate/question": question});
                members.insert("_meta".to_owned(), waits);
            }
            result(id, &answer)
        }
        ProxyCallKind::Content | ProxyCallKind::List(_) | ProxyCallKind::WithoutContent => {
            error(Some(id), REFUSED, "the policy does not permit this request", Some(refusal))
        }
    })
}
