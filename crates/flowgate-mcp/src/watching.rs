//! Implements watch mode, in which the proxy stops, asks about and hides nothing, and only reports what enforcement
//! would stop, ask about or hide. The handlers of calls, lists and answers call this module to judge calls and to
//! report texts that would be hidden; the gateway and `flowgate mcp` fetch the reports with [`Proxy::take_watched`].
//!
//! Calls are judged and labelled as usual, but run whatever the verdict is. Answers, descriptions of tools, lists and
//! the server's instructions reach the client as the server sent them. What enforcement would hide before any call
//! (descriptions, lists, instructions) does not become an event: with enforcement, the client would not see it, so the
//! later verdicts are those that enforcement would give.
//!
//! Messages that cannot be read in exactly one way, and methods that the proxy does not know, are not forwarded in
//! watch mode either.

use flowgate::monitor::{Attribution, Outcome};
use flowgate::trace::{Call, Tool, TraceEntry};
use flowgate_audit::watch::{WatchedSubject, WatchedVerdict};
use flowgate_guard::conversation::CallVerdict;
use serde_json::{Map, Value};

use super::session::MonitoredSession;
use super::{PermittedRequest, Proxy};

impl Proxy {
    /// Returns and removes the verdicts that were not enforced since the last call; none unless the proxy
    /// [only watches](super::ProxySettings::is_watching).
    pub fn take_watched(&mut self) -> Vec<WatchedVerdict> {
        std::mem::take(&mut self.watched)
    }

    /// Judges a call as influenced by everything that this client was shown, reports the verdict, and records the call
    /// as one that runs. `rest` are the parameters of the request besides the arguments. `objection` is the reason, if
    /// any, why the call would have been refused without being judged; it is then reported in place of the verdict.
    pub(super) fn judge_without_effect(
        &mut self,
        session: &mut dyn MonitoredSession,
        call: Call,
        rest: Map<String, Value>,
        objection: Option<&str>,
    ) -> PermittedRequest {
        let digest = session.digest_of(&call);
        let (tool, call_id) = (call.tool.clone(), call.id.clone());
        let arguments = call.arguments.clone().unwrap_or_default();
        let monitor = session.monitor();
        // The index that the call gets in the trace.
        let event = monitor.trace().len();
        let entry = TraceEntry { extra: rest, ..TraceEntry::from(call) };
        let judgement = monitor.record(entry, &Attribution::everything()).judgement;
        let verdict = WatchedVerdict::of_call(&tool.to_string(), &judgement);
        self.watched.push(match objection {
            Some(why) => WatchedVerdict { outcome: Outcome::Deny, reason: why.to_owned(), ..verdict },
            None => verdict,
        });
        self.judged.push(CallVerdict {
            tool,
            arguments: arguments.clone(),
            outcome: judgement.outcome(),
            reasons: judgement.reasons,
            label: judgement.label,
            decided: judgement.decided,
            digest,
            event,
        });
        PermittedRequest { call_id, arguments }
    }

    /// In watch mode, reports whether enforcement would have shown a text of this tool to the client: `objection` is
    /// the reason for withholding it, or `None` if it would have been shown. Does nothing outside of watch mode.
    pub(super) fn watch_text(&mut self, subject: WatchedSubject, tool: &Tool, objection: Option<&str>) {
        if self.is_watching() {
            self.watched.push(WatchedVerdict::of_text(subject, Some(&tool.to_string()), objection));
        }
    }
}
