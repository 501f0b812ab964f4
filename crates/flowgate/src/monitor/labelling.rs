//! Labels events. The parts of an event carry the labels that the policy declares, joined with the labels of what the
//! event depends on, such as the call that an output answers (Algorithm 4 of the paper RTBAS). The monitor calls
//! [`Monitor::label_and_append`] for each event that is pushed. `label_statements` applies the statements of the policy,
//! and `call_labels` labels calls.

use std::sync::Arc;

use super::label_statements::LabelledEvent;
use super::{ApplicableStatements, EventFinding, Floors, Monitor, Reason, ReasonKind};
use crate::label::Label;
use crate::policy::Action;
use crate::trace::{
    ArgumentSet, Document, Event, EventBody, EventId, EventPosition, PossibleInfluence, Status, Tool,
    TraceEntry,
};

/// What an event depends on, and what follows from it before any statement applies.
struct EventSource {
    /// The label of a part that no statement mentions. A statement can lower it.
    base: Label,
    /// The least label of every part: the label of what the model had seen, or the label of the call joined with the
    /// stores that the tool has read.
    floor: Label,
    /// The call that an output answers, if the output is the first one of a call that is running.
    call: Option<EventId>,
    /// The tool of that call.
    tool: Option<Tool>,
    /// The stores that the tool has read, by number.
    read_stores: Vec<usize>,
    /// The join of the labels of these stores.
    read_label: Label,
    /// What the event may depend on: of a message of the client or a description of a tool, nothing in the trace.
    influence: PossibleInfluence,
    /// The statements for events of its kind.
    applicable: Arc<ApplicableStatements>,
    /// The event is an output that answers no call which was running and permitted.
    is_unsolicited: bool,
}

impl Monitor {
    /// Labels a message, an output or a tool description, and appends it at `position`. `view` is set for a message of
    /// a model that was shown a view. `caller_floors` are lower bounds from the caller. `is_failure` means that the
    /// event is the outcome of a failed call, which no statement labels. Returns the event and the findings about it.
    ///
    /// Statements label the parts of the event, and no part ends below the floor of the event's source. For a part that
    /// the policy declares independent of the arguments of the call, or of some of them, the labels of these arguments
    /// are left out of the floor.
    pub(super) fn label_and_append(
        &mut self,
        entry: TraceEntry,
        position: EventPosition,
        view: Option<Label>,
        caller_floors: &Floors,
        is_failure: bool,
        fuel: &mut u64,
    ) -> (EventId, Vec<EventFinding>) {
        let policy = Arc::clone(&self.policy);
        let plan = &policy.plan;
        // What the agent had seen before this event.
        let seen = position.context;
        let mut reasons = Vec::new();
        let mut source = self.source_of(&entry.body, view, seen, &mut reasons);
        let is_error = matches!(&entry.body, EventBody::Output(output) if output.is_error == Some(true));
        if is_error {
            // A tool's error text is top unless a statement mentions errors, whatever the default is.
            source.base = plan.space.top();
        }
        if is_failure && source.call.is_some() {
            // There is no answer that statements could label; the floors of the caller cover what it might have
            // contained.
            source.base = Label::BOTTOM;
        }
        // Whether label statements apply to the event.
        let is_declared = !is_failure
            && (source.call.is_some() || matches!(entry.body, EventBody::Message(_) | EventBody::Tool(_)));
        let document = unlabelled_document(&entry.body, &source, &mut reasons);
        let ambiguous = self.ambiguous_dimensions(plan, &source.applicable, source.tool.as_ref());
        // The event is appended before the statements apply, since their conditions read it in the trace.
        // The influence is moved out of `source`, where nobody reads it any more.
        let influence = std::mem::replace(&mut source.influence, PossibleInfluence::All);
        let id = self.trace.append(entry, position, document, Status::Done, source.call, influence);
        self.trace.record_store_read(id, &source.read_stores);
        if let Some(event) = self.trace.event_mut(id) {
            caller_floors.raise_blocks(&mut event.document);
            event.document.origin.is_irregular = source.is_unsolicited;
            event.document.origin.ambiguous = ambiguous;
            event.document.origin.has_block_floors = !caller_floors.blocks.is_empty();
        }
        let labelled =
            LabelledEvent { id, applicable: &source.applicable, tool: source.tool.as_ref(), is_error };
        if is_declared && self.apply_statements(plan, &labelled, &mut reasons, fuel).is_err() {
            let message = "the evaluation of the statements for this event exceeded its fuel, so the event \
                is labelled top; simplify the statements";
            reasons.push(Reason::new(ReasonKind::Limit, Action::Deny, message));
            if let Some(event) = self.trace.event_mut(id) {
                // Node 0 is the root of the event. Its label now follows from no statement.
                event.document.set_subtree(0, plan.space.top());
                event.document.origin.is_irregular = true;
            }
        }
        self.raise_to_floors(id, &source, caller_floors, is_failure);
        self.trace.update_labels(id, &seen);
        (id, reasons.into_iter().map(|reason| EventFinding { event: id, reason }).collect())
    }

    /// Returns the source of an event: its base, its floor, and the statements that apply to its kind. For a message
    /// that a model wrote from a view, `view` is the label of this view; `seen` is the label of everything that the
    /// agent had seen. If the event is an output that [`Self::answered_call`] rejects, `reasons` receives the reason.
    fn source_of(
        &mut self,
        body: &EventBody,
        view: Option<Label>,
        seen: Label,
        reasons: &mut Vec<Reason>,
    ) -> EventSource {
        let plan = &self.policy.plan;
        let mut source = EventSource {
            base: plan.default.unwrap_or_else(|| plan.space.top()),
            floor: Label::BOTTOM,
            call: None,
            tool: None,
            read_stores: Vec::new(),
            read_label: Label::BOTTOM,
            influence: PossibleInfluence::Of(Vec::new()),
            applicable: Arc::clone(&self.messages),
            is_unsolicited: false,
        };
        match body {
            EventBody::Message(message) if matches!(message.role.as_str(), "assistant" | "model") => {
                // A message of the model carries the label of what the model saw, and no less.
                (source.base, source.floor) = (Label::BOTTOM, view.unwrap_or(seen));
                source.influence =
                    view.map_or(PossibleInfluence::All, |view| PossibleInfluence::View(view, Vec::new()));
            }
            EventBody::Output(output) => match self.answered_call(&output.call_id) {
                // Anybody can have written an output that is not the answer to a permitted call, so it is top.
                Err(problem) => {
                    let top = self.policy.plan.space.top();
                    source.is_unsolicited = true;
                    reasons.push(Reason::new(ReasonKind::Unsolicited, Action::Log, problem));
                    (source.base, source.floor) = (top, top);
                    source.influence = PossibleInfluence::All;
                }
                Ok(call) => {
                    if let Some(access) = self.accesses.get(&call) {
                        source.read_label = self.stores.label(&access.reads);
                        source.read_stores.clone_from(&access.reads);
                    }
                    let called = self.trace.event(call);
                    // The labels of the call and of its verdict: that there is an output reveals that the call ran.
                    let of_call = called.map_or(Label::BOTTOM, |event| event.label.join(&event.decided));
                    source.floor = of_call.join(&source.read_label);
                    source.influence = PossibleInfluence::Of(vec![call]);
                    source.tool = called.and_then(|event| event.tool()).cloned();
                    source.call = Some(call);
                    if let Some(tool) = &source.tool {
                        source.applicable = self.applicable(tool);
                    }
                }
            },
            EventBody::Tool(_) => source.applicable = Arc::clone(&self.tools),
            // Any other message keeps the values above. A call does not occur here, since it is judged, not pushed.
            EventBody::Message(_) | EventBody::Call(_) => {}
        }
        source
    }

    /// Returns the call that an output answers, and records that it has an output. An output must be the first one of
    /// the only call with this id, which must be running and must have been permitted.
    ///
    /// # Errors
    /// Returns what is wrong with the output.
    fn answered_call(&mut self, call_id: &str) -> Result<EventId, &'static str> {
        let calls: Vec<EventId> = self.trace.calls_with_id(call_id).collect();
        // A call has the status `Done` as soon as it is redeemed: its tool runs, or has run.
        match calls.as_slice() {
            [] => Err("no call of the session has the id that the output names, so the output is labelled \
                top; send the output with the id of its call"),
            [only] if self.trace.event(*only).is_none_or(|e| e.status != Status::Done) => {
                Err("the call that the output answers was not running, so the output is labelled top; send \
                    outputs only of calls that ran")
            }
            // `insert` returns false if the call has an output already.
            [only] if !self.answered.insert(*only) => {
                Err("the call that the output answers already has an output, so this one is labelled top; \
                    send one output for each call")
            }
            [only] if self.unpermitted.contains(only) => {
                Err("the call that the output answers was not permitted, so the output is labelled top; run \
                    only calls that are permitted")
            }
            [only] => Ok(*only),
            _ => Err("several calls have the id that the output names, so the output is labelled top; give \
                each call its own id"),
        }
    }

    /// Raises the labels of an event to its floors: those of its `source`, and those that the program which pushed the
    /// event gave (`caller_floors`). Must be called after all statements were applied, since none may lower a label
    /// below a floor. `is_failure` states whether the event is the outcome of a failed call.
    fn raise_to_floors(
        &mut self,
        id: EventId,
        source: &EventSource,
        caller_floors: &Floors,
        is_failure: bool,
    ) {
        let policy = Arc::clone(&self.policy);
        let plan = &policy.plan;
        let tool = source.tool.as_ref();
        // For the outcome of a failed call, `origin.raised` records only the label that every answer of the tool
        // carries because of rules. The caller's floor includes this label, but also covers the content of a possible
        // answer.
        let of_any_answer = tool.filter(|_| is_failure).map(|tool| self.output_floor(tool));
        // The call, if a part of its output may be independent of arguments.
        let is_independent = tool.is_some_and(|tool| self.has_independent_output(tool));
        let called = source.call.filter(|_| is_independent).and_then(|call| self.trace.event(call)).cloned();
        // The floor of a part that does not depend on `arguments`.
        let floor_of_part = |arguments: ArgumentSet| {
            let floor = match &called {
                Some(called) if arguments != ArgumentSet::NONE => {
                    floor_without(called, arguments, &plan.independent_arguments).join(&source.read_label)
                }
                _ => source.floor,
            };
            floor.join(&caller_floors.whole)
        };
        let Some(event) = self.trace.event_mut(id) else { return };
        // A statement that labels the content labels the existence of the event as well.
        event.document.label_frame_by_content(&plan.space);
        // The structured form of an output may repeat its text, so it carries the label of the text.
        event.document.join_twins();
        event.document.raise_outcome(floor_of_part);
        event.document.origin.raised = source.floor.join(&of_any_answer.unwrap_or(caller_floors.whole));
    }
}

/// Returns the tree of an event, in which each part carries the base label of the event's source. `reasons` receives
/// findings about the form of the event.
fn unlabelled_document(body: &EventBody, source: &EventSource, reasons: &mut Vec<Reason>) -> Document {
    let mut document = Document::new(body, source.base);
    if source.applicable.captures_content {
        // A statement captures parts of the content by a pattern, so the content stays one text even if it is JSON.
        document.keep_content_undivided();
    }
    let mut report = |kind, message: &'static str| reasons.push(Reason::new(kind, Action::Log, message));
    if document.defect.is_some() {
        report(
            ReasonKind::Malformed,
            "the output looks like JSON or YAML, but parsers could read it differently, so its parts are not \
            labelled separately; change the tool so that it answers in strict JSON",
        );
    }
    if document.is_oversize {
        report(
            ReasonKind::Limit,
            "the event has more than 200000 values, or lists and maps nested more than 64 deep, so the whole \
            event carries one label; send or return less at once",
        );
    }
    if document.twins_differ {
        report(
            ReasonKind::Malformed,
            "the text and the `structuredContent` of the answer differ, so its parts are not labelled \
            separately; change the tool so that both have the same value",
        );
    }
    document
}

/// Returns the least label of a part of a call's answer. The policy declares that this part does not depend on
/// `arguments`. The label is the join of the label of the decision to call, of what the verdict has observed, and of
/// the labels of all other arguments. `names` lists all arguments that are named in such declarations; the position of
/// a name in it is the argument's number in an [`ArgumentSet`].
fn floor_without(call: &Event, arguments: ArgumentSet, names: &[String]) -> Label {
    let label = if arguments.contains(ArgumentSet::ALL) {
        call.document.frame_label()
    } else {
        let set_of = |name: &str| ArgumentSet::of_name(names.iter().position(|other| other == name)?);
        call.document
            .label_without_arguments(|name| set_of(name).is_some_and(|argument| arguments.contains(argument)))
    };
    label.join(&call.observed)
}
