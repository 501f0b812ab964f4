//! Requests that end without an answer that may be shown: the server fails, is silent, says what cannot be read in one way, or says what
//! the policy withholds.
//!
//! All of these look alike to the client: one constant message, since which of them it was, and at which position of which text, can be
//! chosen by what the server holds. The outcome of a call is an event of the trace all the same, with the label of the tool's
//! answers, so whatever the client does next is judged with it. The operator's log has the class of the failure.

use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Entry, Message};
use serde_json::{Map, Value, json};

use super::message::{Id, error, result};
use super::session::Session;
use super::{Asked, Kind, Out, Proxy, REFUSED, Running};

/// What a client gets in place of every answer that is not shown.
pub(super) const NO_ANSWER: &str =
    "no answer is shown: the server gave none that can be passed on, or the policy withholds it";

/// The kind of this refusal, for programs.
const KIND: &str = "no-answer";

/// The answer that stands for one that is not shown.
pub(super) fn no_answer(id: &Id, kind: Kind) -> Out {
    let refusal = json!({"refused": "deny", "reasons": [{"kind": KIND, "says": NO_ANSWER}]});
    Out::Client(match kind {
        Kind::Tool => {
            let text = json!({"type": "text", "text": refusal.to_string()});
            result(id, &json!({"resultType": "complete", "content": [text], "isError": true}))
        }
        Kind::Content | Kind::List(_) | Kind::Nothing => error(Some(id), REFUSED, NO_ANSWER, None),
    })
}

impl Proxy {
    /// Ends a request that the server did not answer in a way that can be passed on. `class` says why, in our own words, to the operator.
    pub(super) fn unanswered(
        &mut self,
        session: &mut dyn Session,
        id: &Id,
        asked: &Asked,
        class: &str,
    ) -> Vec<Out> {
        let Asked::Call(running) = asked else {
            return vec![Out::Client(error(Some(id), REFUSED, NO_ANSWER, None))];
        };
        self.failed_call(session, id, running, class)
    }

    /// Ends a call whose answer cannot be passed on.
    pub(super) fn failed_call(
        &self,
        session: &mut dyn Session,
        id: &Id,
        running: &Running,
        class: &str,
    ) -> Vec<Out> {
        let note = Out::Note(format!("a call of {} has no answer that is passed on: {class}", running.tool));
        record_failure(session, running);
        vec![note, no_answer(id, running.kind)]
    }

    /// Ends the request of a client that no longer waits: what it does next may depend on how long the server took.
    pub(super) fn cancelled(session: &mut dyn Session, asked: &Asked) {
        if let Asked::Call(running) = asked {
            record_failure(session, running);
        }
    }

    /// The numbers of a notification of progress, once the client has been raised to what the answer may carry: they are the server's.
    pub(super) fn progressed(
        &mut self,
        monitor: &mut Monitor,
        params: &Map<String, Value>,
    ) -> Option<Map<String, Value>> {
        let mut is_awaited = false;
        for running in self.awaiting_progress(params) {
            is_awaited = true;
            if !std::mem::replace(&mut running.has_progressed, true) {
                let label = monitor.failure_carries(&running.call_id);
                let content = Value::from("a call makes progress");
                let entry = Entry::from(Body::Message(Message { role: "assistant".to_owned(), content }));
                let context = monitor.trace().place(&entry).ok()?.context;
                if !label.flows_to(&context) {
                    monitor.push_generated(entry, context.join(&label)).ok()?;
                }
            }
        }
        if !is_awaited {
            return None;
        }
        let fields = ["progressToken", "progress", "total"];
        let told = fields.iter().filter_map(|field| {
            let value = params.get(*field)?;
            (*field == "progressToken" || value.is_number()).then(|| ((*field).to_owned(), value.clone()))
        });
        Some(told.collect())
    }

    /// Whether a notification of progress changes what the client is known to have seen.
    pub(super) fn raises_client(&mut self, params: &Map<String, Value>) -> bool {
        self.awaiting_progress(params).any(|running| !running.has_progressed)
    }

    fn awaiting_progress(&mut self, params: &Map<String, Value>) -> impl Iterator<Item = &mut Running> {
        let token = params.get("progressToken").cloned();
        self.asked.values_mut().filter_map(move |asked| match asked {
            Asked::Call(running) if token.is_some() && running.progress == token => Some(running),
            _ => None,
        })
    }
}

/// Adds the outcome of a call to the trace. If there is no room for it, there is none for another call either.
fn record_failure(session: &mut dyn Session, running: &Running) {
    if let Ok((event, _)) = session.monitor().push_failure(&running.call_id, NO_ANSWER) {
        session.ran(running.sent.as_ref().map_or(&running.call_id, |sent| &sent.first), event);
    }
}
