//! Examines one call: labels it, checks its requirements and the rules, and determines the label of the verdict itself.
//! The monitor calls [`Monitor::examine`] for a call that is judged, approved or redeemed; `recorded_calls` calls it
//! for a call of a log, and `rejudge` for a call that ran in another session.

use super::stores::StoreAccess;
use super::verdict::Approval;
use super::{
    Attribution, CallDependency, Judgement, MAX_ARGUMENTS, Monitor, PushError, Reason, ReasonKind,
    tool_bounds,
};
use crate::label::Label;
use crate::policy::Action;
use crate::rules::ObservedEvents;
use crate::trace::{EventBody, EventId, PossibleInfluence, Status, TraceEntry};

/// A judged call.
pub(super) struct ExaminedCall {
    pub(super) judgement: Judgement,
    /// The call at the end of the trace; `None` if it could not be appended.
    pub(super) event: Option<EventId>,
    /// The call as the tool would receive it, with endorsed arguments in their canonical form.
    pub(super) entry: TraceEntry,
    /// The stores that the call accesses.
    pub(super) access: StoreAccess,
    /// The label of what its agent had seen before the call.
    pub(super) seen: Label,
}

impl Monitor {
    /// Appends a call to the trace, labels it and judges it. The reasons that `approval` covers do not count, and a
    /// grant of this session can turn reasons into notes. The caller retracts the call if it is not permitted.
    ///
    /// An error that prevents the call from being appended is returned at once, with `event: None`; all other problems
    /// are collected as reasons.
    pub(super) fn examine(
        &mut self,
        entry: TraceEntry,
        attribution: &Attribution,
        approval: Option<&Approval>,
    ) -> ExaminedCall {
        let mut judgement = Judgement {
            label: Vec::new(),
            // Top until the label of the verdict is computed. A call that is refused at once keeps it.
            decided: self.policy.space().top(),
            reasons: Vec::new(),
            notes: Vec::new(),
            applied: Vec::new(),
            classes: Vec::new(),
            is_harmless: false,
            method: attribution.method,
            hidden: attribution.hidden,
        };
        // Denies a call that is not appended to the trace. So it has no event, reads no store and has seen nothing.
        // `access` and `seen` have no meaning for the caller then.
        let refuse = |mut judgement: Judgement, entry, kind, message: String| {
            judgement.reasons.push(Reason::new(kind, Action::Deny, message));
            ExaminedCall {
                judgement,
                event: None,
                entry,
                access: StoreAccess::default(),
                seen: Label::BOTTOM,
            }
        };
        // The checks before the call is appended.
        let EventBody::Call(call) = &entry.body else {
            return refuse(
                judgement,
                entry,
                ReasonKind::Malformed,
                "the event to judge is not a call; push it instead".to_owned(),
            );
        };
        if self.trace.len() >= self.limits.events {
            return refuse(judgement, entry, ReasonKind::Limit, PushError::Full.to_string());
        }
        let position = match self.trace.position_of(&entry) {
            Ok(position) => position,
            Err(error) => return refuse(judgement, entry, ReasonKind::Malformed, error.to_string()),
        };
        match &call.arguments {
            Err(error) => {
                judgement.reasons.push(Reason::new(ReasonKind::Malformed, Action::Deny, error.to_string()));
            }
            Ok(arguments) if arguments.len() > MAX_ARGUMENTS => {
                let message = format!(
                    "the call has more than {MAX_ARGUMENTS} arguments; make a call with fewer arguments"
                );
                return refuse(judgement, entry, ReasonKind::Limit, message);
            }
            Ok(_) => {}
        }
        if self.trace.calls_with_id(&call.id).next().is_some() {
            let message = "another call of the session has the same id, so it is unclear which of them an \
                output would answer; give each call its own id";
            judgement.reasons.push(Reason::new(ReasonKind::DuplicateId, Action::Deny, message));
        }
        let tool = call.tool.clone();
        let applicable = self.applicable(&tool);

        let seen = position.context;
        // The call is appended before it is judged, since rules and conditions evaluate it like any other event.
        let document = self.label_call(&entry, attribution, &seen);
        if document.is_oversize {
            let message = "the arguments of the call have more than 200000 values, or lists and maps nested more than 64 deep; pass less in one call";
            judgement.reasons.push(Reason::new(ReasonKind::Limit, Action::Deny, message));
        }
        let influence = possible_influence(attribution);
        // Endorsed arguments are replaced by their one spelling, but a grant is for the call as it was written.
        let original = match &entry.body {
            EventBody::Call(call) if !self.grants.is_empty() => Some(call.clone()),
            _ => None,
        };
        let mut canonical_entry = entry.clone();
        let event = self.trace.append(entry, position, document, Status::Pending, None, influence);

        if let Some(call) = self.trace.event_mut(event) {
            call.hidden = attribution.hidden;
        }
        // The judgement itself: endorsements first, since they lower the labels that the requirements and rules test.
        let mut fuel = self.limits.fuel;
        let (endorsed, classes) = self.endorse(event, &applicable, &mut canonical_entry, &mut fuel);
        // The endorsements have changed labels in the document, from which the label of the event is now computed.
        self.trace.update_labels(event, &seen);
        let required = self.check_requirements(event, &applicable, attribution, &mut fuel);
        judgement.reasons.extend(required.reasons);
        judgement.is_harmless = required.is_harmless;
        (judgement.applied, judgement.classes) = (endorsed, classes);
        judgement.applied.extend(required.applied);
        judgement.applied.sort_by_key(|span| span.start);
        judgement.applied.dedup();
        judgement.notes.extend(required.consented);
        for reason in self.match_rules(event, &mut fuel) {
            match reason.action {
                Action::Log => judgement.notes.push(reason),
                _ => judgement.reasons.push(reason),
            }
        }
        if fuel == 0 {
            let message = "the evaluation exceeded its fuel, the limit of its steps; simplify the rules, or begin a new session";
            judgement.reasons.push(Reason::new(ReasonKind::Limit, Action::Deny, message));
        }
        if let Some(approval) = approval {
            judgement.reasons.retain(|reason| !approval.covers(reason, event));
        }
        let label = self.trace.event(event).map_or(Label::BOTTOM, |call| call.label);
        judgement.label = self.describe(&label);
        // The verdict, whichever it is, reveals what rules read of other events. That matters only if the model was
        // shown a view, which hides such events. Any other attribution hides nothing or is an estimate.
        let is_view = matches!(attribution.decision, CallDependency::View(_));
        let observed = if is_view {
            let consents = &self.policy.plan.consents;
            let mut applicable = applicable.consents.iter().filter_map(|index| consents.get(*index));
            // Whether a call is within the limits of a consent depends on other calls, as with a rule that counts them.
            let is_limited = applicable.any(|consent| !consent.limits.is_empty());
            let limits = if is_limited { ObservedEvents::Calls } else { ObservedEvents::Nothing };
            crate::rules::observed_events(&self.policy.plan, &self.trace, event).max(limits)
        } else {
            ObservedEvents::Nothing
        };
        let observed = match observed {
            ObservedEvents::Nothing => Label::BOTTOM,
            // The absence of such events is information, too, so the label covers what could have been there.
            ObservedEvents::Calls => self.trace.calls_context(),
            ObservedEvents::Everything => self.policy.space().top(),
        };
        judgement.decided = label.join(&observed);
        if let Some(call) = self.trace.event_mut(event) {
            (call.decided, call.observed) = (judgement.decided, observed);
        }
        if let Some(call) = &original {
            self.apply_grants(call, &mut judgement);
        }
        let greatest_permitted = tool_bounds::greatest_permitted_label(&self.policy.plan, &tool);
        let access = self.access(tool.clone(), required.is_harmless);
        // The label of the decision to call, without what the arguments depend on.
        let decision = self.trace.event(event).map_or(Label::BOTTOM, |call| call.document.frame_label());
        if is_view && !judgement.decided.flows_to(&decision) && decision.flows_to(&greatest_permitted) {
            // An observer may know that the call was proposed, but neither whether it runs nor whether it is
            // harmless, so the stores that it could write to carry the label in any case. If the decision alone
            // exceeds the greatest label that the tool permits, the call does not run, and no store is raised.
            let is_always_harmless = tool_bounds::is_harmless(&self.policy.plan, &tool);
            let access = self.access(tool, is_always_harmless);
            self.stores.raise(&access.writes, &judgement.decided);
        }
        ExaminedCall { judgement, event: Some(event), entry: canonical_entry, access, seen }
    }
}

/// Reduces an attribution to the events that the call may depend on: regions become their events, and views are joined.
/// The trace uses the result to find the events that can have influenced a later one.
fn possible_influence(attribution: &Attribution) -> PossibleInfluence {
    let mut events = Vec::new();
    let mut shown: Option<Label> = None;
    for dependency in attribution.dependencies() {
        match dependency {
            CallDependency::Everything => return PossibleInfluence::All,
            CallDependency::Regions(regions) => events.extend(regions.iter().map(|(event, _)| *event)),
            CallDependency::View(view) => shown = Some(shown.map_or(*view, |shown| shown.join(view))),
            CallDependency::Slot { view, regions } => {
                shown = Some(shown.map_or(*view, |shown| shown.join(view)));
                events.extend(regions.iter().map(|(event, _)| *event));
            }
            // The model cannot have written such a call, which is denied whatever it depends on.
            CallDependency::Hidden => {}
        }
    }
    events.sort_unstable();
    events.dedup();
    match shown {
        Some(view) => PossibleInfluence::View(view, events),
        None => PossibleInfluence::Of(events),
    }
}
