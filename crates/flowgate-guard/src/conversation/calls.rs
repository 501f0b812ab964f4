//! Processes the calls of a step, one after the other: parses a call, executes a `look`, [fills](super::slot_filling)
//! slots, has the monitor judge the call, asks a person where the policy requires that, and then releases or refuses
//! the call. [`super`] calls this module in each phase of a call.
//!
//! Invariant: a call is released only by `redeem_permit`, after the monitor has permitted it.

use flowgate::label::Label;
use flowgate::monitor::{
    Attribution, CallDependency, Judgement, Outcome, Permit, Question, Reason, ReasonKind, Verdict,
};
use flowgate::trace::{Call, EventBody, EventId, Output, Tool, TraceEntry};
use serde_json::{Map, Value};

use super::phase::{ConversationPhase, SlotFillState};
use super::{CallVerdict, Conversation, Need, ToolAnswer, TurnEnd, blocking_messages};
use crate::approve::Decision;
use crate::arguments;
use crate::links;
use crate::placeholder;
use crate::redact::HiddenRegions;
use crate::refusal;
use crate::slot;
use crate::view::{CallOutcome, ConversationItem};

impl Conversation {
    /// Sets the outcome of a call of the last step, and continues with the next call of that step.
    pub(super) fn set_outcome(&mut self, index: usize, outcome: CallOutcome) {
        if let Some(ConversationItem::Step(step)) = self.items.last_mut()
            && let Some(step_call) = step.calls.get_mut(index)
        {
            step_call.answer = outcome;
        }
        self.phase = ConversationPhase::Calls(index + 1);
    }

    /// Refuses the call with this index in the last step, without judging it. Reports to the model, at the label of the
    /// step, the problem (`message`) and how to avoid it (`advice`).
    pub(super) fn refuse_malformed(&mut self, index: usize, message: &str, advice: &str) {
        let label = self.last_step().map_or(*self.labels.base(), |step| step.label);
        self.turn.outcome.spent.refused += 1;
        let text = refusal::malformed_refusal(message, advice);
        // The tool is needed only for the placeholder of a refusal that a view hides. A view that shows the step also
        // shows this refusal, because the refusal has the label of the step.
        self.set_outcome(index, CallOutcome::Refused { text, label, tool: None, stopped: None });
    }

    /// Processes one call of the last step: refuses one that is malformed or of an unknown tool, executes a `look`, and
    /// begins to fill the slots of any other. After the last call, the conversation continues with the next step, or
    /// ends the turn if a call was handed over. Needs no input itself, so it returns `None`.
    pub(super) fn process_call(&mut self, index: usize) -> Option<Need> {
        let step = self.last_step()?;
        let Some(step_call) = step.calls.get(index) else {
            // All calls are processed, so no call refers to the hidden regions of this step's view any more.
            if let Some(ConversationItem::Step(step)) = self.items.last_mut() {
                step.names = HiddenRegions::default();
            }
            self.phase =
                if self.waits_for_answers() { ConversationPhase::User } else { ConversationPhase::Generate };
            return None;
        };
        let (bound, call) = (step.bound, step_call.call.clone());
        if index >= self.settings.calls {
            let message = format!("the message has more calls than the limit of {}", self.settings.calls);
            self.refuse_malformed(index, &message, "make fewer calls at once");
            return None;
        }
        // Only the arguments are read here: the id and the tool are not determined yet.
        let parsed = Call::from_json(String::new(), Tool::local(""), &call.arguments);
        let arguments = match parsed.arguments {
            Ok(arguments) => arguments,
            Err(error) => {
                self.refuse_malformed(index, &error.to_string(), "write the arguments as one JSON object");
                return None;
            }
        };
        if call.name == slot::LOOK && self.settings.method.has_look() {
            self.process_look(index, &arguments);
            return None;
        }
        let is_offered = self
            .turn
            .selected_tools
            .as_ref()
            .is_none_or(|selected_tools| selected_tools.contains(&call.name));
        let entry = self.tools.catalogue().find(&self.monitor, &bound, &call.name).filter(|_| is_offered);
        let Some(entry) = entry else {
            self.refuse_malformed(index, "there is no tool of this name", "call one of the tools on offer");
            return None;
        };
        if let Err(ambiguous) = arguments::check(&arguments, &entry.offered.parameters) {
            self.refuse_malformed(index, ambiguous.message, ambiguous.advice);
            return None;
        }
        let (tool, slots) = (entry.offered.tool.clone(), entry.slots.clone());
        let hidden = self.last_step().map_or(0, |step| step.names.len());
        let mut open_slots = Vec::new();
        // The first loop finds the placeholders of hidden regions that the model wrote as text: each becomes a slot
        // where one is allowed, and refuses the call elsewhere. The second loop finds the slots that the model wrote in
        // their own form.
        for (name, value) in &arguments {
            let can_refer = self.settings.method.has_slots() && slots.contains(name);
            let is_slot = self.settings.method.has_slots() && slot::has_slot(value);
            match slot::slot_from_placeholders(value, hidden) {
                // A slot's instruction may name the regions that it is filled from.
                _ if is_slot => {}
                // Neither the value nor the name of the argument contains a placeholder.
                Ok(None) if placeholder::find(name, hidden).is_empty() => {}
                Ok(Some(slot)) if can_refer => open_slots.push((name.clone(), slot)),
                // The placeholder is in the name, or in the value of an argument that may not be a slot.
                Ok(_) => {
                    let advice = if self.settings.method.has_slots() {
                        "a slot cannot fill this argument: write the value, or look at the region first"
                    } else {
                        "its text is not available: write the value, or omit the argument"
                    };
                    self.refuse_malformed(
                        index,
                        "an argument contains the placeholder of a hidden region",
                        advice,
                    );
                    return None;
                }
                Err((problem, advice)) => {
                    self.refuse_malformed(index, problem, advice);
                    return None;
                }
            }
        }
        if self.settings.method.has_slots() {
            for (name, value) in &arguments {
                match slot::parse_slot(value) {
                    Ok(None) if slot::has_slot(value) => {
                        self.refuse_malformed(
                            index,
                            "a slot is part of a longer value",
                            "make the slot the whole argument",
                        );
                        return None;
                    }
                    Ok(None) => {}
                    Ok(Some(_)) if !slots.contains(name) => {
                        let advice = "write the value, or look at the region first";
                        self.refuse_malformed(index, "this argument cannot be filled by a slot", advice);
                        return None;
                    }
                    Ok(Some(slot)) => open_slots.push((name.clone(), slot)),
                    Err(error) => {
                        let advice = "write the slot as the schema of the argument says";
                        self.refuse_malformed(index, error, advice);
                        return None;
                    }
                }
            }
        }
        let written = arguments.clone();
        let filling = SlotFillState {
            index,
            tool,
            written,
            arguments,
            open: open_slots,
            sources: Vec::new(),
            failed: None,
        };
        self.phase = ConversationPhase::Filling(Box::new(filling));
        None
    }

    /// Executes `look`: joins the labels of the named regions to the label of the following steps. First raises the
    /// labels of the stores to which a step on the new level could write: a reader of a store who is not cleared for
    /// that level must not learn whether the step wrote. Refuses a call that is malformed, names an unknown region, or
    /// exceeds the limit on levels.
    fn process_look(&mut self, index: usize, arguments: &Map<String, Value>) {
        let Some(step) = self.last_step() else { return };
        let (below, mut label, look) = (step.bound, step.bound, slot::parse_look(arguments));
        let malformed = |problem: &str| (problem.to_owned(), "follow the schema of `look`");
        let unknown =
            |name: &str| (slot::unknown_region(name), "name only regions that the chat shows as hidden");
        let resolved = look.map_err(malformed).and_then(|look| {
            for name in &look.names {
                let hidden = step.names.get(name).ok_or_else(|| unknown(name))?;
                label = label.join(&hidden.label);
            }
            Ok(look)
        });
        let look = match resolved {
            Ok(look) => look,
            Err((problem, advice)) => return self.refuse_malformed(index, &problem, advice),
        };
        if !self.labels.has_room_for_look(self.settings.levels) {
            let advice = "write a message without calls, which ends the last look";
            return self.refuse_malformed(index, "too many looks are open at once", advice);
        }
        self.turn.outcome.spent.looks += 1;
        self.set_outcome(index, CallOutcome::Looked(label));
        self.monitor.raise_stores_for_view(&below, &label);
        // The steps of the new level could produce output, whether or not they do.
        self.labels.add_output(&label);
        self.labels.add_look(label, look.then_return);
    }

    /// Judges a call whose slots are filled, and runs it, asks a person or refuses it. It is refused if a slot could
    /// not be filled, if its arguments are ambiguous, or if a slot that needs an endorsement has a text that is not
    /// endorsed. Returns the need to run the call or to ask the person; `None` if the call was refused.
    pub(super) fn judge_filled_call(&mut self, filling: SlotFillState) -> Option<Need> {
        let SlotFillState { index, tool, mut arguments, sources, failed, .. } = filling;
        let mut endorsed = self.tools.catalogue().endorsed_slots(&tool);
        // Only the slots that this call fills count.
        endorsed.retain(|argument, _| sources.iter().any(|(filled, ..)| filled == argument));
        let filled: Vec<&str> = sources.iter().map(|(argument, ..)| argument.as_str()).collect();
        self.turn.outcome.spent.bits += self.released_bits(&tool, &filled, &arguments);
        if !sources.is_empty() && self.monitor.has_independent_output(&tool) {
            // The part of the answer that depends on no argument reveals that the slots could be filled.
            self.turn.outcome.spent.bits += 1;
        }
        let slots_label = sources.iter().fold(Label::BOTTOM, |joined, (.., label)| joined.join(label));
        // A slot can copy a whole object. If the names in this object are ambiguous, that fact must not be revealed
        // below the label of the slot.
        let schema = self.tools.catalogue().schema_of(&tool).unwrap_or(&Value::Null);
        let ambiguous = || {
            let ambiguous = arguments::check(&arguments, schema).err()?;
            Some((ambiguous.message, ambiguous.advice))
        };
        let unfilled = failed.map(|message| (message, "leave out `fill`, to copy the region"));
        let slot_problem = unfilled.or_else(ambiguous);
        // Before the call is judged, so that it runs with exactly the arguments that were judged.
        self.disarm(&tool, &mut arguments, &sources);
        let step = self.last_step()?;
        let (label, bound, hidden) = (step.label, step.bound, step.names.all().len());
        let judged_arguments = arguments.clone();
        let call = Call { id: self.next_id(&label), tool: tool.clone(), arguments: Ok(arguments) };
        let mut attribution = Attribution::view(self.settings.method.name(), label, hidden);
        let slot_labels: Vec<(String, Label)> =
            sources.iter().map(|(argument, _, label)| (argument.clone(), *label)).collect();
        attribution.arguments = sources.into_iter().map(|(argument, source, _)| (argument, source)).collect();
        // The monitor appends the call to the trace, so its event has the next index.
        let (digest, event) = (self.settings.key.digest_of(&call), self.monitor.trace().len());
        let verdict = self.monitor.judge_entry(TraceEntry::from(call), attribution);
        let judgement = verdict.judgement();
        // No person is asked about a reason that concerns an endorsed slot. Otherwise the author of a text that is not
        // of the endorsed kind could provoke any number of questions, and a question about a value that is too
        // confidential would show which regions of the text are confidential.
        let endorsed_argument = |reason: &Reason| {
            // An endorsement can also lower the label of a slot that the policy permits without an endorsement, and
            // that is therefore not in `endorsed`. The label of the slot's regions is then not part of the label of the
            // verdict.
            let lowered = slot_labels.iter().filter(|(_, label)| !label.flows_to(&judgement.decided));
            let mut names = lowered.map(|(name, _)| name).chain(endorsed.keys());
            names.find(|name| reason.is_about_argument(name)).cloned()
        };
        let slot_problem = slot_problem.map(|(message, advice)| (message.to_owned(), advice)).or_else(|| {
            let argument = judgement.reasons.iter().find_map(endorsed_argument)?;
            let message = format!(
                "the text for the slot `{argument}` does not have the form that the policy requires there, or is too confidential"
            );
            let advice = "ask in `fill` for the bare value, or look at the region and write the value";
            Some((message, advice))
        });
        let outcome = if slot_problem.is_some() { Outcome::Deny } else { judgement.outcome() };
        // The label of everything that a refusal depends on. A refusal because of a slot depends on the slot's text,
        // too.
        let refusal_label = match slot_problem {
            Some(_) => Some(judgement.decided.join(&slots_label)),
            None => Some(judgement.decided).filter(|_| outcome == Outcome::Deny),
        };
        self.labels.count_from_call(&label, refusal_label.as_ref());
        let granted = judgement.notes.iter().filter(|note| note.kind == ReasonKind::Granted);
        self.turn.outcome.judged.push(CallVerdict {
            tool: tool.clone(),
            arguments: judged_arguments,
            outcome,
            reasons: judgement.reasons.iter().chain(granted).cloned().collect(),
            label: judgement.label.clone(),
            decided: refusal_label.unwrap_or(judgement.decided),
            digest,
            event,
        });
        if let Some((problem, advice)) = slot_problem {
            let label = verdict.judgement().decided.join(&label).join(&slots_label);
            let text = refusal::malformed_refusal(&problem, advice);
            self.turn.outcome.spent.refused += 1;
            self.set_outcome(index, CallOutcome::Refused { text, label, tool: Some(tool), stopped: None });
            return None;
        }
        match verdict {
            Verdict::Permit(permit) if self.settings.method.confirms(permit.judgement()) => {
                let question = self.monitor.require_approval(permit);
                Some(self.ask_person(index, question))
            }
            Verdict::Permit(permit) => self.redeem_permit(index, permit),
            Verdict::Confirm(question) => {
                // Whether a step above the base label leads to a question may depend on hidden text.
                if bound != *self.labels.base() {
                    self.turn.outcome.spent.bits += self.settings.method.question_bits();
                }
                Some(self.ask_person(index, question))
            }
            Verdict::Deny(denial) => {
                self.refuse(index, denial.judgement(), "deny");
                None
            }
        }
    }

    /// Returns an upper bound on the bits that the arguments `filled`, which hidden text fills, release if endorsements
    /// lower their labels: the value of each, and whether it is endorsed. Arguments that may be slots without an
    /// endorsement count as well, because an endorsement lowers their labels all the same.
    fn released_bits(&self, tool: &Tool, filled: &[&str], arguments: &Map<String, Value>) -> usize {
        let bounds = self.tools.catalogue().endorsement_bounds(tool);
        let bits_of = |(argument, bound): (&String, &Option<u32>)| {
            // Without a bound, 8 bits for each byte of the value, and 64 bits for its length.
            let length = arguments.get(argument).map_or(0, |value| value.to_string().len());
            let unbounded = length.saturating_mul(8).saturating_add(64);
            let bits = bound.map_or(unbounded, |bits| usize::try_from(bits).unwrap_or(usize::MAX));
            bits.saturating_add(1)
        };
        let of_filled = bounds.iter().filter(|(argument, _)| filled.contains(&argument.as_str()));
        of_filled.map(bits_of).fold(0, usize::saturating_add)
    }

    /// Disarms the addresses in filled slots that the policy does not let a reader of the argument follow, and reports
    /// them with the turn. `sources` has one entry for each filled slot: the argument, the regions that it was filled
    /// from, and the label of its text. Each address is judged as a call that never runs, whose id contains the number
    /// of the address.
    fn disarm(
        &mut self,
        tool: &Tool,
        arguments: &mut Map<String, Value>,
        sources: &[(String, CallDependency, Label)],
    ) {
        let method = self.settings.method.name();
        for (argument, _, label) in sources {
            let Some(value) = arguments.get_mut(argument) else { continue };
            let address_count = self.numbers.addresses_mut();
            let disarmed = links::disarm_value(&mut self.monitor, method, value, *label, address_count);
            let links = disarmed.into_iter().map(|url| (tool.to_string(), argument.clone(), url));
            self.turn.outcome.disarmed.extend(links);
        }
    }

    /// Returns a unique id for a call of a step at `label`. It does not depend on the number of calls at other labels,
    /// which a reader of the id may not be cleared for.
    pub(super) fn next_id(&mut self, label: &Label) -> String {
        let count = self.numbers.count_call(label);
        let label_digest = self.settings.key.text_digest(&self.monitor.to_names(label).to_string());
        format!("c{count}-{label_digest}")
    }

    /// Returns the need to ask a person about a call, and makes the conversation wait for the decision. The request
    /// also announces the questions about the later calls of the step.
    fn ask_person(&mut self, index: usize, question: Question) -> Need {
        let request = self.request_with_upcoming(index, &question);
        self.turn.outcome.spent.questions += 1;
        self.phase = ConversationPhase::Asking { index, question: Box::new(question) };
        Need::Approve(Box::new(request))
    }

    /// Redeems a permit: the monitor judges the call once more. Returns the need to run it. If the call may not run any
    /// more, refuses it, records a person's approval of it as void, and returns `None`.
    ///
    /// A call is released here and nowhere else, whether a tool in this process runs it or the caller does. Under a
    /// method that raises levels, a call that acts (one that the policy does not declare harmless) raises the level of
    /// its step.
    pub(super) fn redeem_permit(&mut self, index: usize, permit: Permit) -> Option<Need> {
        match self.monitor.redeem(permit) {
            Ok(authorized) => {
                self.turn.outcome.spent.ran += 1;
                if self.settings.method.raises_level()
                    && !authorized.is_harmless()
                    && let Some(bound) = self.last_step().map(|step| step.bound)
                {
                    // The rest of the turn is generated at this label, so that its steps see what the turn has done.
                    // A refused call has done nothing, and a call that only reads can be repeated.
                    self.labels.raise_level(&bound);
                }
                self.phase = ConversationPhase::Running { index, event: authorized.event() };
                Some(Need::Run(authorized))
            }
            Err(denial) => {
                self.turn.void_denied(&denial);
                self.refuse(index, denial.judgement(), "deny");
                None
            }
        }
    }

    /// Refuses a judged call, the one with this index in the last step. Reports to the model the reasons, and which
    /// arguments it may write as slots. `verdict` is the word by which the refusal names the outcome.
    fn refuse(&mut self, index: usize, judgement: &Judgement, verdict: &str) {
        self.turn.outcome.spent.refused += 1;
        let label = self.last_step().map_or(*self.labels.base(), |step| step.label);
        let entry = self.last_step().and_then(|step| {
            let name = &step.calls.get(index)?.call.name;
            self.tools.catalogue().find(&self.monitor, &step.bound, name)
        });
        let (tool, slots) = entry.map(|entry| (entry.offered.tool.clone(), entry.slots.clone())).unzip();
        let text = refusal::judged_refusal(judgement, verdict, &slots.unwrap_or_default());
        // A denial that depends on hidden text is hidden itself.
        let label = judgement.decided.join(&label);
        self.set_outcome(index, CallOutcome::Refused { text, label, tool, stopped: None });
    }

    /// Refuses the call with this index in the last step, because it needs a person's approval and has none.
    /// `decision` says why there is none. A decision that permits the call is never passed here, and would count as
    /// no answer.
    pub(super) fn refuse_unapproved(&mut self, index: usize, question: &Question, decision: Decision) {
        let verdict = match decision {
            Decision::Deny => "refused by a person",
            Decision::Unasked => "no person was asked, because there were too many questions",
            Decision::AllowOnce
            | Decision::AllowForConversation
            | Decision::AllowByAll
            | Decision::Unanswered
            | Decision::Undecided => "no answer",
        };
        self.refuse(index, question.judgement(), verdict);
    }

    /// Takes a person's decision on the call that waits for it: refuses the call, or prepares to run it. The monitor
    /// judges an approved call again, and may deny it. Does nothing if no call waits for a decision.
    pub(super) fn take_decision(&mut self, decision: Decision) {
        let (index, question) = match std::mem::replace(&mut self.phase, ConversationPhase::User) {
            ConversationPhase::Asking { index, question } => (index, question),
            other => {
                self.phase = other;
                return;
            }
        };
        if !decision.allows() {
            self.refuse_unapproved(index, &question, decision);
            return;
        }
        let approved_call =
            question.call().map(|call| (call.tool.clone(), self.settings.key.digest_of(call)));
        self.turn.approve(approved_call);
        let is_granted = decision == Decision::AllowForConversation && question.is_grantable();
        let approved = match (is_granted, decision) {
            (true, _) => self.monitor.approve_for_session(*question),
            // The approver guarantees that all people whom the question names have approved.
            (false, Decision::AllowByAll) => {
                let approvers = question.approvers();
                self.monitor.approve_by(*question, &approvers)
            }
            // Includes an approval for the rest of the conversation that the policy does not offer: it permits this
            // one call.
            (false, _) => self.monitor.approve(*question),
        };
        match approved {
            Ok(permit) => self.phase = ConversationPhase::Redeeming { index, permit: Box::new(permit) },
            Err(denial) => {
                self.turn.void_denied(&denial);
                self.refuse(index, denial.judgement(), "deny");
            }
        }
    }

    /// Takes the answer of the tool whose call is running, and marks an approval of the call as spent. Does nothing if
    /// no call is running.
    pub(super) fn take_tool_answer(&mut self, answer: ToolAnswer) {
        if let ConversationPhase::Running { index, event } = self.phase {
            self.turn.spend_approval();
            self.record_answer_event(index, event, answer);
        }
    }

    /// Records the answer of a tool as an event, and as the outcome of its call. `index` is the position of the call in
    /// the last step, and `event` is the event of the call. An answer that a rule stops is replaced by a refusal. If
    /// the session has no room for the answer, the turn ends.
    pub(super) fn record_answer_event(&mut self, index: usize, event: EventId, answer: ToolAnswer) {
        let call_id = match self.monitor.trace().event(event).map(|event| &event.body) {
            Some(EventBody::Call(call)) => call.id.clone(),
            _ => String::new(),
        };
        // `carries` is the label that the answer of a tool states, if the tool is itself an agent.
        let ToolAnswer { content, structured, is_error, carries } = answer;
        let carries = carries.map_or(Label::BOTTOM, |names| self.monitor.from_names(&names));
        // Whether a rule stops the answer depends on what the rule reads, so the answer carries the label of that text
        // as well.
        let tool = self.monitor.trace().event(event).and_then(|call| call.tool());
        let carries = tool.map_or(carries, |tool| carries.join(&self.monitor.output_floor(tool)));
        let output = Output { call_id, tool: None, content, structured, is_error: Some(is_error) };
        match self.monitor.push_with_floors(TraceEntry::from(output), &carries.into()) {
            Ok((event, findings)) => {
                let objections = blocking_messages(findings);
                if objections.is_empty() {
                    return self.set_outcome(index, CallOutcome::Output(event));
                }
                let answer = self.stopped_outcome(event, objections);
                self.set_outcome(index, answer);
            }
            Err(_) => {
                self.labels.end_all();
                self.turn.outcome.ended = Some(TurnEnd::Full);
                self.phase = ConversationPhase::User;
            }
        }
    }

    /// Returns the refusal that the model receives in place of an answer which a rule stops. `event` is the event of
    /// the answer. `objections` are the messages of the rules; the turn reports them to the operator, and the refusal
    /// does not contain them.
    pub(super) fn stopped_outcome(&mut self, event: EventId, objections: Vec<String>) -> CallOutcome {
        // That the answer was stopped must be hidden from readers below the label of the answer and of everything
        // that the rules examined. The top is at or above these labels.
        let label = self.monitor.policy().space().top();
        let call = self.monitor.trace().event(event).and_then(|event| event.call);
        let call = call.and_then(|call| self.monitor.trace().event(call));
        let tool = call.and_then(|call| call.tool()).cloned();
        let problem = "a rule of the policy denies the answer of the tool";
        let text = refusal::malformed_refusal(problem, "do without the answer");
        self.turn.rule_messages.extend(objections);
        CallOutcome::Refused { text, label, tool, stopped: Some(event) }
    }
}
