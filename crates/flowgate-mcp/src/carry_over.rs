//! Processes inputs of an earlier conversation again under another policy, with the rulings that the earlier policy
//! gave ([`ProxyRuling`]): what was sent to the server and shown to the client at that time becomes the same events,
//! with the labels of the present policy. The gateway does this after the policy of a client has changed.
//!
//! * A call that ran is recorded as one that ran ([`Monitor::record`]), so that rules over the history and stores take
//!   it into account. The present policy cannot stop it any more; if this policy denies the call, its answer is
//!   labelled top.
//! * What the client was shown becomes an event, even if the present policy would have hidden it. What the client was
//!   not shown becomes no event, even if the present policy would have shown it.
//! * The earlier policy chose the reasons of a refusal, so these reasons may depend on everything before the refusal.
//!   The client's label rises to the join of the labels of all earlier events.
//! * Of the calls that a person approves, only those run that ran under the earlier policy. Questions that are still
//!   open when the inputs of the present conversation begin end without an answer.
//!
//! An input that the proxy cannot follow (the record of its rulings does not fit, or the trace has no room) has
//! *diverged*: the caller must discard the conversation.

use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor};
use flowgate::trace::{Call, EventBody, EventId, TraceEntry};
use serde_json::Value;

use super::asked_call::AskedCall;
use super::refusal::unjudged_refusal;
use super::ruling::{ProxyRuling, RulingTape};
use super::session::MonitoredSession;
use super::{CallRuling, OutgoingRequest, PendingClientRequest, PermittedRequest, Proxy};

/// The reason that the trace states for a call that an earlier policy refused: the reason of that policy is not known.
const EARLIER: &str = "the call was refused under an earlier policy";

impl Proxy {
    /// Records from now on what the policy decides, to be [taken](Self::take_rulings) after each input. Does nothing in
    /// watch mode, in which the policy decides nothing.
    pub fn record_rulings(&mut self) {
        if !self.settings.is_watching && !self.tape.is_following() {
            self.tape = RulingTape::Recording(Vec::new());
        }
    }

    /// Returns and removes what the policy decided since the last call of this method; `None` if that is not recorded.
    pub fn take_rulings(&mut self) -> Option<Vec<ProxyRuling>> {
        match &mut self.tape {
            RulingTape::Recording(rulings) => Some(std::mem::take(rulings)),
            RulingTape::Live | RulingTape::Following { .. } => None,
        }
    }

    /// Begins an input of an earlier conversation, in which the policy decided as `rulings` says. `id_word` is the word
    /// of the generated request IDs in that conversation.
    pub fn begin_earlier_input(&mut self, rulings: &[ProxyRuling], id_word: &str) {
        if self.own_id_word.is_none() {
            // The first input: the word of the present conversation is kept until `end_earlier_conversation`.
            self.own_id_word = Some(self.settings.id_word.take());
        } else if self.settings.id_word.as_deref() != Some(id_word) {
            // The inputs of the next conversation, to which those before it were carried over: what was still open then
            // ended at its beginning.
            self.end_open_questions();
        }
        self.settings.id_word = Some(id_word.to_owned());
        self.tape = RulingTape::Following { left: rulings.iter().copied().collect(), has_diverged: false };
    }

    /// Ends an input of an earlier conversation. Returns whether the proxy could follow all of its rulings.
    pub fn end_earlier_input(&mut self) -> bool {
        match std::mem::take(&mut self.tape) {
            RulingTape::Following { left, has_diverged } => left.is_empty() && !has_diverged,
            RulingTape::Live | RulingTape::Recording(_) => false,
        }
    }

    /// Ends the inputs of an earlier conversation, if there were any: request IDs have the word of the present one
    /// again, and questions to people and requests of the server that are still open end without an answer.
    pub fn end_earlier_conversation(&mut self) {
        let Some(id_word) = self.own_id_word.take() else { return };
        self.settings.id_word = id_word;
        self.record_rulings();
        self.end_open_questions();
    }

    /// Ends what an earlier policy left open: questions to people, and requests of the server to the client, whose
    /// answers the present policy may not let flow to the server. A later answer to one of them is dropped.
    fn end_open_questions(&mut self) {
        self.retries.clear();
        self.outgoing_requests.retain(|_, request| {
            !matches!(request, OutgoingRequest::Person { .. } | OutgoingRequest::Server { .. })
        });
        let client_ids = &mut self.client_ids;
        self.client_requests.retain(|id, pending| {
            let is_kept = !matches!(pending, PendingClientRequest::Waiting);
            if !is_kept {
                client_ids.remove(id);
            }
            is_kept
        });
    }

    /// Returns whether the proxy only watches. It enforces the rulings of an earlier policy that was enforced.
    pub(super) fn is_watching(&self) -> bool {
        self.settings.is_watching && !self.tape.is_following()
    }

    /// Returns the ruling of an earlier policy on a call; the tape has this ruling. A call that ran under that policy
    /// is recorded as one that ran. A call about which that policy asked a person waits for the decision. A refused one
    /// gets a refusal without the reasons of that policy.
    pub(super) fn follow_ruling(&mut self, monitor: &mut Monitor, entry: TraceEntry) -> CallRuling {
        // The tape returns the earlier policy's ruling and ignores the argument, which is that of the present policy.
        match self.tape.choose(ProxyRuling::No) {
            ProxyRuling::Yes => match self.record_earlier_call(monitor, entry) {
                Some(permitted) => CallRuling::Run(permitted),
                None => CallRuling::No(self.earlier_refusal(monitor)),
            },
            ProxyRuling::Ask => CallRuling::Ask(AskedCall::Earlier(Box::new(entry))),
            ProxyRuling::No => CallRuling::No(self.earlier_refusal(monitor)),
            // A ruling of another kind: the record does not fit this input.
            _ => {
                self.tape.note_divergence();
                CallRuling::No(self.earlier_refusal(monitor))
            }
        }
    }

    /// Records a call that ran under an earlier policy. Returns the call as it was sent then. If the trace has no room,
    /// notes the divergence and returns `None`.
    pub(super) fn record_earlier_call(
        &mut self,
        monitor: &mut Monitor,
        entry: TraceEntry,
    ) -> Option<PermittedRequest> {
        let EventBody::Call(call) = &entry.body else { return None };
        let (call_id, arguments) = (call.id.clone(), call.arguments.clone().unwrap_or_default());
        // `Monitor::record` and not `record_earlier`: a fresh conversation under the present policy would have written
        // to the stores with the labels of this policy. The record of the stores already has the labels of the earlier
        // policy.
        let recorded = monitor.record(entry, &Attribution::everything());
        if recorded.event.is_none() {
            self.tape.note_divergence();
            return None;
        }
        Some(PermittedRequest { call_id, arguments })
    }

    /// Takes the call that the chat handed over to the client under an earlier policy, and that ran on this connection.
    /// Returns `None`, and notes the divergence, if the chat has no such call.
    pub(super) fn take_earlier_call_of_chat(
        &mut self,
        session: &mut dyn MonitoredSession,
        tool: &flowgate::trace::Tool,
        arguments: &serde_json::Map<String, Value>,
    ) -> Option<Call> {
        let call = session.take_earlier_handed_over_call(tool, arguments);
        if call.is_none() {
            self.tape.note_divergence();
        }
        call
    }

    /// Returns the refusal of a call that did not run under an earlier policy. The reasons of that policy may depend on
    /// everything in the session, and the client learns of the refusal. So an event is added that raises the client's
    /// label to the join of all labels in the session, unless the client's label is as high already.
    pub(super) fn earlier_refusal(&mut self, monitor: &mut Monitor) -> Value {
        let label = label_of_everything(monitor);
        let entry = TraceEntry::assistant(Value::from(EARLIER));
        match monitor.trace().position_of(&entry) {
            Ok(position) if label.flows_to(&position.context) => {}
            Ok(position) => {
                if monitor.push_generated(entry, position.context.join(&label)).is_err() {
                    self.tape.note_divergence();
                }
            }
            Err(_) => self.tape.note_divergence(),
        }
        unjudged_refusal("earlier", EARLIER)
    }
}

/// Returns the join of the labels of everything in the session: of each event, of the fact that the event exists, and
/// of what rules read to decide about it.
fn label_of_everything(monitor: &Monitor) -> Label {
    let trace = monitor.trace();
    let labels =
        trace.events().iter().enumerate().map(|(index, event)| {
            event.label.join(&event.decided).join(&trace.existence_label(EventId(index)))
        });
    labels.fold(Label::BOTTOM, |all, label| all.join(&label))
}
