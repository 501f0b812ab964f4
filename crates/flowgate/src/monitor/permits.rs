//! Judges calls, turns approvals into permits, and redeems permits. A call runs only through a [`Permit`], and only this
//! file creates permits. The program that drives an agent calls [`Monitor::judge_entry`], [`Monitor::approve`] and
//! [`Monitor::redeem`]; `call_examination` computes the judgement, and `recorded_calls` records calls that ran already.

use std::sync::Arc;

use super::attribution::Attribution;
use super::call_examination::ExaminedCall;
use super::input_record::MonitorInput;
use super::referenced_state::StoreVersions;
use super::stores::StoreAccess;
use super::verdict::{Approval, PermitDropFlag};
use super::{
    AuthorizedCall, Denial, Judgement, Monitor, Outcome, Permit, Question, Reason, ReasonKind, Verdict,
    tool_bounds,
};
use crate::label::Label;
use crate::policy::Action;
use crate::trace::{Call, EventBody, EventId, PossibleInfluence, Status, TraceEntry};

/// # Calls and approvals
///
/// A call is judged, approved by a person if the verdict asks for it, and redeemed when it runs.
/// [`record`](Self::record) is for logs of calls that ran already.
impl Monitor {
    /// Judges a call as if everything that its agent has seen had influenced it.
    pub fn judge(&mut self, call: Call) -> Verdict {
        self.judge_entry(TraceEntry::from(call), Attribution::everything())
    }

    /// Judges a call of one agent, given what the call depends on.
    ///
    /// Never fails: a call that cannot be decided is denied, with the reason.
    pub fn judge_entry(&mut self, entry: TraceEntry, attribution: Attribution) -> Verdict {
        self.withdraw_dropped_permits();
        self.record_judged(&entry, &attribution);
        self.judge_with(entry, attribution, None)
    }

    /// Turns a person's approval into a permit for exactly the call that was asked about.
    ///
    /// The call is judged again in the current state. It is denied if a reason denies it, or if a reason asks that the
    /// question did not list. The approval is void if, since the question, this session has written to a store that the
    /// call touches, or another session to a store whose state the call refers to. The approval counts for nobody in
    /// particular, so it does not suffice if [certain people](Question::approvers) must approve.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all.
    pub fn approve(&mut self, question: Question) -> Result<Permit, Denial> {
        self.approve_by(question, &[])
    }

    /// Turns an approval into a permit, as [`approve`](Self::approve) does. The caller has checked that everybody who
    /// must approve has approved.
    pub(super) fn permit_approved(&mut self, question: Question) -> Result<Permit, Denial> {
        self.withdraw_dropped_permits();
        if !Arc::ptr_eq(&self.session_identity, &question.session_identity) {
            return Err(self.stale_denial(
                question.judgement,
                "the question belongs to another session; approve it in the session that asked it",
            ));
        }
        // Writes of this session count for every store that the call touches; writes of other sessions count only for
        // the stores to whose state the call refers.
        if !self.stores.is_unchanged(&question.stores)
            || !self.stores.is_unchanged_by_others(&question.referred)
        {
            let message = "the external state that the call refers to has changed since the question was \
                asked; propose the call again";
            return Err(self.stale_denial(question.judgement, message));
        }
        // Judged in the current state; the reasons that the person was shown are left out.
        let approval = Approval { reasons: question.judgement.reasons, event: question.event };
        match self.judge_with(question.entry, question.attribution, Some(approval)) {
            Verdict::Permit(permit) => Ok(permit),
            Verdict::Confirm(again) => Err(self.stale_denial(
                again.judgement,
                "the call now needs an approval for a reason that the question did not list; propose the \
                call again",
            )),
            Verdict::Deny(denial) => Err(denial),
        }
    }

    /// Turns a permit into a question, so that a person decides on a call that the policy permits: the caller may ask
    /// about more calls than the policy does. Drops the permit, which withdraws the call from the trace.
    pub fn require_approval(&mut self, permit: Permit) -> Question {
        let (event, judgement) = (permit.event, permit.judgement.clone());
        let (entry, attribution) = (permit.entry.clone(), permit.attribution.clone());
        let access = self.accesses.get(&event).cloned().unwrap_or_default();
        let (stores, referred) = self.touched_versions(&entry, &access);
        let reads_state = !access.reads.is_empty();
        let session_identity = Arc::clone(&permit.session_identity);
        drop(permit);
        self.withdraw_dropped_permits();
        Question { entry, attribution, judgement, event, stores, referred, reads_state, session_identity }
    }

    /// Redeems a permit: marks the call as run, applies its writes to the stores, and returns the call for the tool to
    /// execute. Judges the call again first if the state has changed since the permit was created.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all.
    pub fn redeem(&mut self, permit: Permit) -> Result<AuthorizedCall, Denial> {
        self.withdraw_dropped_permits();
        let mut permit = permit;
        if !Arc::ptr_eq(&self.session_identity, &permit.session_identity) {
            return Err(self.stale_denial(
                permit.judgement.clone(),
                "the permit belongs to another session; redeem it in the session that judged the call",
            ));
        }
        let has_session_changed = permit.version != self.version;
        if has_session_changed {
            // Judging appends the call again, so the event that the permit reserved is withdrawn.
            self.withdraw(permit.event);
            let (entry, attribution) = (permit.entry.clone(), permit.attribution.clone());
            permit = match self.judge_with(entry, attribution, permit.approval.clone()) {
                Verdict::Permit(again) => again,
                Verdict::Confirm(question) => {
                    return Err(self.stale_denial(
                        question.judgement,
                        "the session has changed since the call was judged, and the call now needs an \
                        approval; propose the call again",
                    ));
                }
                Verdict::Deny(denial) => return Err(denial),
            };
        }
        let event = permit.event;
        // The call is no longer reserved, so dropping the permit does not withdraw it.
        self.reserved.retain(|(reserved, _)| *reserved != event);
        self.run(event);
        // Always a call, since only calls get permits.
        let EventBody::Call(call) = permit.entry.body.clone() else {
            let message =
                "the permitted event is not a call, which is a defect of Flowgate; please report it";
            return Err(self.stale_denial(permit.judgement.clone(), message));
        };
        self.record_input(|| MonitorInput::Ran { call: call.id.clone(), event });
        Ok(AuthorizedCall { call, event, is_harmless: permit.judgement.is_harmless })
    }

    /// Judges a call; the reasons that `approval` covers do not count. Only a permitted call remains in the trace: any
    /// other call is removed again, so the next event takes its index.
    fn judge_with(
        &mut self,
        entry: TraceEntry,
        attribution: Attribution,
        approval: Option<Approval>,
    ) -> Verdict {
        // A question contains the call as it was proposed, since approving it judges the call again; a permit
        // contains the call as the tool receives it, with endorsed arguments in their canonical form.
        let original = entry.clone();
        let examined = self.examine(entry, &attribution, approval.as_ref());
        let ExaminedCall { judgement, event, entry, access, seen } = examined;
        match (judgement.outcome(), event) {
            (Outcome::Permit, Some(event)) => {
                // The flag reports to the monitor that the permit was dropped without being redeemed.
                let drop_flag = Arc::new(PermitDropFlag::default());
                self.reserved.push((event, Arc::clone(&drop_flag)));
                self.accesses.insert(event, access);
                // A reservation alone changes no verdict that was given before it, so the version stays the
                // same: calls of one message are judged in order, and may run in that order.
                let version = self.version;
                let session_identity = Arc::clone(&self.session_identity);
                Verdict::Permit(Permit {
                    entry,
                    attribution,
                    judgement,
                    event,
                    version,
                    approval,
                    session_identity,
                    drop_flag,
                })
            }
            (Outcome::Confirm, Some(event)) => {
                self.retract(event, &seen);
                // The numbers of writes to stores so far: of this session to those that the call touches, and of other
                // sessions to those whose state it refers to. The approval is void if they have changed.
                let (stores, referred) = self.touched_versions(&original, &access);
                let reads_state = !access.reads.is_empty();
                let session_identity = Arc::clone(&self.session_identity);
                let entry = original;
                Verdict::Confirm(Question {
                    entry,
                    attribution,
                    judgement,
                    event,
                    stores,
                    referred,
                    reads_state,
                    session_identity,
                })
            }
            // The call is denied, or could not be appended (`None`), which its judgement reports as a reason to deny.
            (_, event) => {
                if let Some(event) = event {
                    self.retract(event, &seen);
                }
                Verdict::Deny(Denial { judgement: Box::new(judgement) })
            }
        }
    }

    /// Returns two lists of stores, by which a later write is noticed. The first contains the stores that a call reads
    /// or writes, each with the number of writes of this session. The second contains the stores to whose state the
    /// call refers, each with the number of writes of other sessions.
    fn touched_versions(&self, entry: &TraceEntry, access: &StoreAccess) -> (StoreVersions, StoreVersions) {
        let referred = match &entry.body {
            EventBody::Call(call) => self.referenced_versions(call, access),
            _ => StoreVersions::new(),
        };
        (self.stores.versions(access), referred)
    }

    /// Adds to a judgement the reason that its permit or question is no longer valid, and returns it as a denial.
    pub(super) fn stale_denial(&self, mut judgement: Judgement, message: &str) -> Denial {
        judgement.reasons.push(Reason::new(ReasonKind::Stale, Action::Deny, message));
        Denial { judgement: Box::new(judgement) }
    }

    /// Marks a call as done, registers its tool, and raises the labels of the stores that it writes to. If the model was
    /// not shown a view, also raises the labels of all other stores that some call of the tool could write to.
    pub(super) fn run(&mut self, event: EventId) {
        self.version += 1;
        let mut tool = None;
        if let Some(call) = self.trace.event_mut(event) {
            call.status = Status::Done;
            tool = call.tool().cloned();
        }
        let (label, is_view) = self.trace.event(event).map_or((Label::BOTTOM, false), |call| {
            (call.label, matches!(call.influence, PossibleInfluence::View(..)))
        });
        if let Some(tool) = tool {
            self.register_tool(&tool);
            if !is_view {
                // Whether this call is harmless may depend on its arguments, so the stores that any call of the tool
                // could write to carry its label either way. If the model was shown a view, `examine` and
                // `raise_stores_for_view` have raised them already.
                let harmless = tool_bounds::is_harmless(&self.policy.plan, &tool);
                let possible = self.access(tool, harmless);
                self.stores.raise(&possible.writes, &label);
            }
        }
        if let Some(access) = self.accesses.get(&event) {
            self.stores.write(&access.writes, &label);
            self.trace.record_write(event, &access.writes);
        }
    }
}
