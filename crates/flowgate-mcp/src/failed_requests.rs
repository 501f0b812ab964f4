//! Answers the client's requests for which no answer of the server can be forwarded: the server ended, did not answer,
//! sent a message that cannot be parsed unambiguously, or sent content that the policy withholds. Also raises the
//! client's label before a server's message reaches the client while a call runs. The handlers of the server's messages
//! and answers call this module.
//!
//! The client receives the same constant message in all these cases. A message with the cause would be a channel for
//! data of the server: the server can choose the cause and its details, such as the position of an error in a text.
//! The outcome of a call is nevertheless an event of the trace with the label of the tool's answers, so it taints what
//! the client does next. The operator's log contains the class of the failure.

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::TraceEntry;
use serde_json::{Map, Value, json};

use super::message::{RequestId, error, result};
use super::session::MonitoredSession;
use super::{PendingClientRequest, Proxy, ProxyAction, ProxyCallKind, REFUSED, RunningCall};

/// The message that the client receives in place of every answer that is not shown.
pub(super) const NO_ANSWER: &str =
    "no answer is shown: the server sent none that can be forwarded, or the policy withholds it";

/// The machine-readable kind of the refusal that says [`NO_ANSWER`].
const KIND: &str = "no-answer";

/// Returns the constant answer in place of one that is not shown: for a tool a failed result, which the client's model
/// reads, and otherwise an error.
pub(super) fn withheld_answer(id: &RequestId, kind: ProxyCallKind) -> ProxyAction {
    let refusal = json!({"refused": "deny", "reasons": [{"kind": KIND, "says": NO_ANSWER}]});
    ProxyAction::Client(match kind {
        ProxyCallKind::Tool => {
            let text = json!({"type": "text", "text": refusal.to_string()});
            result(id, &json!({"resultType": "complete", "content": [text], "isError": true}))
        }
        ProxyCallKind::Content | ProxyCallKind::List(_) | ProxyCallKind::WithoutContent => {
            error(Some(id), REFUSED, NO_ANSWER, None)
        }
    })
}

impl Proxy {
    /// Ends a request whose answer is missing or cannot be forwarded. A running call ends as in
    /// [`Self::end_failed_call`], with `class`, which names the failure for the operator without content of the server.
    /// Any other request is answered with an error, and nothing is recorded.
    pub(super) fn end_without_answer(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        pending: &PendingClientRequest,
        class: &str,
    ) -> Vec<ProxyAction> {
        let PendingClientRequest::Call(running) = pending else {
            return vec![ProxyAction::Client(error(Some(id), REFUSED, NO_ANSWER, None))];
        };
        self.end_failed_call(session, id, running, class)
    }

    /// Ends a call whose answer cannot be forwarded: reports the kind of the failure (`class`) to the operator, records
    /// the outcome, and answers the client without saying why.
    pub(super) fn end_failed_call(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        running: &RunningCall,
        class: &str,
    ) -> Vec<ProxyAction> {
        let note = ProxyAction::Note(format!(
            "the answer to a call of `{}` is not forwarded: {class}",
            running.tool
        ));
        vec![note, self.record_withheld_answer(session, id, running)]
    }

    /// Records that a call has an outcome that is not shown, and returns the answer that the client receives in its
    /// place. If the call requests a list that would be hidden in any case because of its label, the answer is an empty
    /// list, and nothing is recorded: the client cannot distinguish a failure from a hidden list, so the answer
    /// contains nothing that needs a label.
    pub(super) fn record_withheld_answer(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        running: &RunningCall,
    ) -> ProxyAction {
        if let ProxyCallKind::List(key) = running.kind {
            let monitor = session.monitor();
            // `&[]`: no further tools are about to be offered.
            let max_label = self.greatest_showable_label(monitor, &[]);
            let may_show = monitor.failure_label(&running.call_id).flows_to(&max_label);
            // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
            if !self.tape.rule(may_show) {
                return ProxyAction::Client(result(id, &json!({"resultType": "complete", key: []})));
            }
        }
        self.record_failure(session, running);
        withheld_answer(id, running.kind)
    }

    /// Records the failure of a call that the client has cancelled: how long the server took may have influenced the
    /// cancellation, and with it what the client does next. Does nothing for a request that is no running call.
    pub(super) fn record_cancelled(
        &mut self,
        session: &mut dyn MonitoredSession,
        request: &PendingClientRequest,
    ) {
        if let PendingClientRequest::Call(running) = request {
            self.record_failure(session, running);
        }
    }

    /// Adds the failure of a call to the trace, with the label of the tool's answers. If the trace has no room, nothing
    /// is lost: then it has no room for another call either.
    fn record_failure(&mut self, session: &mut dyn MonitoredSession, running: &RunningCall) {
        match session.monitor().push_failure(&running.call_id, NO_ANSWER) {
            // The session knows a repeated call by the ID of its first sending.
            Ok((event, _)) => session
                .record_output(running.sent.as_ref().map_or(&running.call_id, |sent| &sent.first), event),
            // A proxy that follows the rulings of an earlier policy cannot follow them, since the trace has no room.
            // For any other proxy, this does nothing.
            Err(_) => self.tape.note_divergence(),
        }
    }

    /// Returns the join of the labels that answers of the running calls may carry. While a call runs, the server
    /// already knows its answer: it can influence everything that the server sends, and whether the server sends
    /// anything. The bound for an answer is the label that it would have as an error. A request for a list, such as
    /// `tools/list`, does not count if its answer would be hidden anyway.
    pub(super) fn running_calls_label(&mut self, monitor: &Monitor) -> Label {
        // The label above which a list is hidden. `&[]`: no further tools are about to be offered.
        let max_list_label = self.greatest_showable_label(monitor, &[]);
        let label_of = |running: &RunningCall| (running.kind, monitor.failure_label(&running.call_id));
        let labelled: Vec<(ProxyCallKind, Label)> = self.running_calls().map(label_of).collect();
        // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
        let counted = labelled
            .into_iter()
            .filter(|(kind, label)| !kind.is_list() || self.tape.rule(label.flows_to(&max_list_label)));
        counted.fold(Label::BOTTOM, |joined, (_, label)| joined.join(&label))
    }

    /// Raises the client's label to the label of the running calls, before the client receives a message of the server
    /// that is not an answer. Returns whether the trace had room for that; otherwise the message must not be sent.
    pub(super) fn raise_client_label(&mut self, monitor: &mut Monitor) -> bool {
        let label = self.running_calls_label(monitor);
        for pending in self.client_requests.values_mut() {
            if let PendingClientRequest::Call(running) = pending {
                // A further message while the same calls run needs no further raise.
                running.has_raised = true;
            }
        }
        // An event raises the label, since everything that the client does later depends on all events.
        let content = Value::from("the server says something while a call runs");
        let entry = TraceEntry::assistant(content);
        // The label that the client's next event carries in any case.
        let Some(context) = monitor.trace().position_of(&entry).ok().map(|position| position.context) else {
            return false;
        };
        let is_raised =
            label.flows_to(&context) || monitor.push_generated(entry, context.join(&label)).is_ok();
        if !is_raised {
            self.tape.note_divergence();
        }
        is_raised
    }

    /// Returns whether the next message of the server to the client may raise the client's label: whether a call runs,
    /// and the label was not raised since that call started.
    pub(super) fn would_raise_client_label(&self) -> bool {
        self.running_calls().any(|running| !running.has_raised)
    }

    /// Returns the forwarded part of a progress notification: its numbers and the client's token; `None` if no running
    /// call has this token. The server's text about the progress is not forwarded.
    pub(super) fn forwarded_progress(&self, params: &Map<String, Value>) -> Option<Map<String, Value>> {
        let token = params.get("progressToken");
        if token.is_none() || !self.running_calls().any(|running| running.progress.as_ref() == token) {
            return None;
        }
        let fields = ["progressToken", "progress", "total"];
        let forwarded = fields.iter().filter_map(|field| {
            let value = params.get(*field)?;
            (*field == "progressToken" || value.is_number()).then(|| ((*field).to_owned(), value.clone()))
        });
        Some(forwarded.collect())
    }

    /// Returns the calls that the server has received and not answered.
    fn running_calls(&self) -> impl Iterator<Item = &RunningCall> {
        self.client_requests.values().filter_map(|pending| match pending {
            PendingClientRequest::Call(running) => Some(running),
            _ => None,
        })
    }
}
