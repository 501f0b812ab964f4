//! Labels a server's answer to a call before any part of it is shown to the client, and decides which fields of it are
//! forwarded. The handler of server messages (`server`) calls this module for each answer to a running call.

use flowgate::label::Label;
use flowgate::monitor::{EventFinding, Monitor, ReasonKind};
use flowgate::policy::Action;
use flowgate::trace::{EventId, Output, TraceEntry};
use flowgate_audit::watch::WatchedSubject;
use serde_json::{Map, Value, json};

use super::failed_requests::{NO_ANSWER, withheld_answer};
use super::initialize::unlabelled_fields;
use super::message::{RequestId, error, result};
use super::session::MonitoredSession;
use super::{Proxy, ProxyAction, ProxyCallKind, REFUSED, RunningCall, ifc};

/// Why an answer must not be shown to the client, with advice for the operator.
pub(super) const NOT_SHOWABLE: &str = "a rule of the policy matches it or its label exceeds the client's clearance; if you \
    trust the server, change the rule, or raise the clearance of `model`";

/// The fields of a tool's result that are forwarded. The others are dropped, since they are not labelled.
const FIELDS: [&str; 4] = ["content", "structuredContent", "isError", "resultType"];

impl Proxy {
    /// Handles the server's answer (a result or an error) to the client's request `id`, which was judged as the call
    /// `running`. Adds the answer to the trace with its label, and forwards the part that may be forwarded. `line` is
    /// the message as it was received, which is forwarded unchanged if nothing has to be removed. An answer that
    /// requests input is handled by [`Proxy::handle_input_required`]. A list that would make tools uncallable, a
    /// malformed answer and one that may not be shown are withheld, and a note reports the reason to the operator.
    ///
    /// In watch mode, every other answer is forwarded, and the reasons are only reported. In either mode, the label is
    /// added to an answer that is recorded as an event and shown, if the client that sent the call receives labels.
    pub(super) fn handle_call_answer(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        running: &RunningCall,
        answer: Result<Value, Value>,
        line: String,
    ) -> Vec<ProxyAction> {
        // The label that the server states in the answer; the bottom for an error, which states none.
        let answer_label =
            answer.as_ref().map_or(Label::BOTTOM, |result| ifc::label_from_result(session.monitor(), result));
        if let Ok(result) = answer.as_ref()
            && requests_input(result)
        {
            return self.handle_input_required(session, id, running, result, answer_label);
        }
        let is_watching = self.is_watching();
        // The output for the trace, and the part of the answer that the client is shown.
        let (output, shown) = match split_answer(running, answer) {
            Ok(split) => split,
            Err(class) if is_watching => {
                self.record_withheld_answer(session, id, running);
                self.watch_text(WatchedSubject::Output, &running.tool, Some(class));
                return vec![ProxyAction::Client(line)];
            }
            Err(class) => return self.end_failed_call(session, id, running, class),
        };
        // Clients request lists before they do anything else. A list that raised the client's label above the
        // requirement of a tool on offer would make that tool uncallable from the beginning, so such a list is hidden.
        if running.kind.is_list() && !self.may_show_list(session.monitor(), &output, &answer_label) {
            let tool = &running.tool;
            if is_watching {
                let why = "the label of the list does not permit showing it in a session that may call every tool; \
                    label the output of the request, if you trust the server";
                self.record_withheld_answer(session, id, running);
                self.watch_text(WatchedSubject::Output, tool, Some(why));
                return vec![ProxyAction::Client(line)];
            }
            let note = ProxyAction::Note(format!(
                "the list that `{tool}` returned is hidden, since its label does not permit showing it \
                in a session that may call every tool; label the output of `{tool}`, if you trust the \
                server"
            ));
            return vec![note, self.record_withheld_answer(session, id, running)];
        }
        // The event of the answer, and whether the client may be shown it; `None` if the trace has no room.
        let labelled = self.record_answer(session.monitor(), output, running, answer_label);
        if labelled.is_none() {
            self.tape.note_divergence();
        }
        // An answer may belong to a repetition of a call: the session knows the call by the ID of its first sending.
        if let Some((event, _)) = labelled {
            session.record_output(running.sent.as_ref().map_or(&running.call_id, |sent| &sent.first), event);
        }
        let objection = match labelled {
            Some((_, true)) => None,
            Some((_, false)) => Some(NOT_SHOWABLE),
            None => Some(
                "the session has reached its size limit; restart the MCP server to begin another session",
            ),
        };
        self.watch_text(WatchedSubject::Output, &running.tool, objection);
        if let Some(why) = objection.filter(|_| !is_watching) {
            let note = format!("an answer of `{}` is not shown to the client, since {why}", running.tool);
            return vec![ProxyAction::Note(note), withheld_answer(id, running.kind)];
        }
        let message = match shown {
            _ if is_watching => line,
            ShownAnswer::Whole => line,
            ShownAnswer::Result(shown) => result(id, &shown),
            ShownAnswer::Failure => error(Some(id), REFUSED, NO_ANSWER, None),
        };
        // `tells_label` says whether the client that sent the call receives the labels of answers.
        let told_label = match labelled {
            Some((event, _)) if running.tells_label => {
                session.monitor().trace().event(event).map(|event| event.label)
            }
            _ => None,
        };
        let message = match told_label {
            Some(label) => with_label(session.monitor(), &label, message),
            None => message,
        };
        vec![ProxyAction::Client(message)]
    }

    /// Decides whether the client may be shown a list: whether it can still call every tool on offer when its label has
    /// risen to that of the list. `output` is the list as an event, and `answer_label` the label that the server states
    /// for it.
    fn may_show_list(&mut self, monitor: &Monitor, output: &Output, answer_label: &Label) -> bool {
        let labels = monitor.labels_if_pushed([TraceEntry::from(output.clone())]);
        // `&[]`: no further tools are about to be offered.
        let max_label = self.greatest_showable_label(monitor, &[]);
        let may_show = labels.iter().all(|label| label.join(answer_label).flows_to(&max_label));
        // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
        self.tape.rule(may_show)
    }

    /// Adds an answer to the trace. Its label is at least `answer_label`, which the server states for it, and at least
    /// the floor of the tool's outputs: whether a rule stops an output reveals what the rule has read. Returns the
    /// event, and whether the client may be shown the answer: no rule forbids it, and the client's model is cleared for
    /// it. Returns `None` if the trace has no room.
    pub(super) fn record_answer(
        &self,
        monitor: &mut Monitor,
        output: Output,
        running: &RunningCall,
        answer_label: Label,
    ) -> Option<(EventId, bool)> {
        let floor = monitor.output_floor(&running.tool).join(&answer_label);
        let (event, findings) = monitor.push_with_floors(TraceEntry::from(output), &floor.into()).ok()?;
        Some((event, !has_objection(&findings) && is_cleared(monitor, event)))
    }

    /// Returns the greatest label that the client may be shown such that every tool can still be called: the tools that
    /// the client is offered, and the tools named in `more`, which are about to be offered. Without any tools, the
    /// label is bottom, since the requirements of the tools that will be offered are not known yet.
    pub(super) fn greatest_showable_label(&self, monitor: &Monitor, more: &[String]) -> Label {
        let offered = self.listing.offered_names().chain(more.iter().map(String::as_str));
        let tools: Vec<_> = offered.map(|name| self.tool(name)).collect();
        match tools.is_empty() {
            true => Label::BOTTOM,
            false => monitor.strictest_requirement(&tools),
        }
    }
}

/// Adds `label` to the serialized answer `answer`, as `_meta.ifc` of its result, in place of any other `_meta`. An
/// answer without a result that is an object is returned unchanged, and so is a text that is not JSON.
pub(super) fn with_label(monitor: &Monitor, label: &Label, answer: String) -> String {
    let Ok(mut message) = serde_json::from_str::<Value>(&answer) else { return answer };
    let Some(result) = message.get_mut("result").and_then(Value::as_object_mut) else { return answer };
    result.insert("_meta".to_owned(), json!({"ifc": ifc::label_to_json(monitor, label)}));
    message.to_string()
}

/// The part of an answer that the client is shown.
enum ShownAnswer {
    /// The whole message, unchanged.
    Whole,
    /// The remaining part of the result.
    Result(Value),
    /// The fact that there was an error.
    Failure,
}

/// Splits an answer (a result or an error) into the output to be added to the trace, and the part that the client is
/// shown: the whole message, a reduced result, or only that the request failed. The kind of the call determines how.
/// Whatever is shown is also in the output, and so has a label. The caller has already handled results that request
/// input.
///
/// # Errors
/// The reason, for the operator's log, if the answer is malformed.
fn split_answer(
    running: &RunningCall,
    answer: Result<Value, Value>,
) -> Result<(Output, ShownAnswer), &'static str> {
    let output = |content: Value, structured: Option<Value>, is_error: bool| Output {
        call_id: running.call_id.clone(),
        // The trace finds the tool by the ID of the call.
        tool: None,
        content,
        structured,
        is_error: Some(is_error),
    };
    let fields = match answer {
        // A result of this kind is shown without any text of the server, and so is an error.
        Err(error) if running.kind == ProxyCallKind::WithoutContent => {
            return Ok((output(error, None, true), ShownAnswer::Failure));
        }
        Err(error) => return Ok((output(error, None, true), ShownAnswer::Whole)),
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err("the server's answer is not a JSON object; correct or update that server"),
    };
    if fields.get("resultType").is_some_and(|kind| *kind != json!("complete")) {
        return Err(
            "the server's answer has a `resultType` other than `complete` and `input_required`; correct or update \
            that server",
        );
    }
    match running.kind {
        ProxyCallKind::Tool => {
            let (shown_fields, is_whole) = labelled_fields(fields);
            let is_error = match shown_fields.get("isError") {
                None => false,
                Some(Value::Bool(is_error)) => *is_error,
                Some(_) => {
                    return Err(
                        "`isError` in the server's answer is neither true nor false; correct or update that server",
                    );
                }
            };
            let content = shown_fields.get("content").cloned().unwrap_or_else(|| json!([]));
            let output = output(content, shown_fields.get("structuredContent").cloned(), is_error);
            Ok((
                output,
                if is_whole { ShownAnswer::Whole } else { ShownAnswer::Result(Value::Object(shown_fields)) },
            ))
        }
        ProxyCallKind::Content | ProxyCallKind::List(_) => {
            // As in the result of a tool, no statement labels `_meta`, so it is removed. The output has all other
            // fields.
            let mut fields = fields;
            let is_whole = fields.shift_remove("_meta").is_none();
            let shown_fields = Value::Object(fields);
            Ok((
                output(shown_fields.clone(), None, false),
                if is_whole { ShownAnswer::Whole } else { ShownAnswer::Result(shown_fields) },
            ))
        }
        ProxyCallKind::WithoutContent => {
            let shown_fields = Value::Object(unlabelled_fields(&fields));
            Ok((output(shown_fields.clone(), None, false), ShownAnswer::Result(shown_fields)))
        }
    }
}

/// Removes the fields of a tool's result that would be shown without a label. Returns the remaining fields, and whether
/// these are all.
fn labelled_fields(fields: Map<String, Value>) -> (Map<String, Value>, bool) {
    let count = fields.len();
    // The output does not contain other fields.
    let mut shown_fields: Map<String, Value> =
        fields.into_iter().filter(|(name, _)| FIELDS.contains(&name.as_str())).collect();
    let mut is_whole = shown_fields.len() == count;
    // A single text block is labelled by its text alone, so its other fields are removed.
    if let Some([Value::Object(block)]) =
        shown_fields.get_mut("content").and_then(Value::as_array_mut).map(Vec::as_mut_slice)
        && block.get("type") == Some(&json!("text"))
    {
        let field_count = block.len();
        block.retain(|key, _| matches!(key.as_str(), "type" | "text"));
        is_whole &= block.len() == field_count;
    }
    (shown_fields, is_whole)
}

/// Returns whether a rule forbids a pushed event, or cannot be evaluated over it.
pub(super) fn has_objection(findings: &[EventFinding]) -> bool {
    first_objection(findings).is_some()
}

/// Returns the message of the first rule that forbids a pushed event, or cannot be evaluated over it. Rules that only
/// log are left out.
pub(super) fn first_objection(findings: &[EventFinding]) -> Option<&str> {
    let kinds = [ReasonKind::Rule, ReasonKind::RuleError, ReasonKind::Limit];
    let mut reasons = findings.iter().map(|finding| &finding.reason);
    let objection = reasons.find(|reason| kinds.contains(&reason.kind) && reason.action != Action::Log);
    objection.map(|reason| reason.message.as_str())
}

/// Returns whether the event is within the clearance of the client's model, if the policy declares one.
pub(super) fn is_cleared(monitor: &Monitor, event: EventId) -> bool {
    let label = monitor.trace().event(event).map(|event| event.label);
    monitor.clearance("model").is_none_or(|clearance| label.is_some_and(|label| label.flows_to(&clearance)))
}

/// Returns whether an answer requests input from the client before the call can be completed.
fn requests_input(result: &Value) -> bool {
    result.get("resultType") == Some(&json!("input_required"))
}
