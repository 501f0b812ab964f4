//! Defines the result of judging a call: a [`Verdict`] (permit, question or denial), with its reasons as data. The
//! program that drives an agent acts on it.
//!
//! A permitting verdict contains a [`Permit`], the evidence that exactly this call may run. When the call runs, the
//! monitor exchanges the permit for an [`AuthorizedCall`], which the tool takes by value. Only the monitor creates
//! these values.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::argument_path::is_in_argument;
use super::attribution::Attribution;
use super::referenced_state::StoreVersions;
use crate::label::Label;
use crate::policy::{Action, GrantScope, Span};
use crate::trace::{Call, EventId, Region, TraceEntry};

/// The verdict on a call.
///
/// It is exhaustive on purpose: a program that acts on it must be changed when a variant is added.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// The call may run.
    Permit(Permit),
    /// A person must decide.
    Confirm(Question),
    /// The call must not run.
    Deny(Denial),
}

impl Verdict {
    /// Returns how the call was judged.
    pub fn judgement(&self) -> &Judgement {
        match self {
            Self::Permit(permit) => &permit.judgement,
            Self::Confirm(question) => &question.judgement,
            Self::Deny(denial) => &denial.judgement,
        }
    }
}

/// The kinds of verdicts without their contents, mildest first.
///
/// It is exhaustive on purpose: a program that acts on it must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The call may run.
    Permit,
    /// A person must decide.
    Confirm,
    /// The call must not run.
    Deny,
}

impl Outcome {
    /// Returns the stable name of the outcome, as records and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Confirm => "confirm",
            Self::Deny => "deny",
        }
    }
}

/// How a call was judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The label of the call as text: one item for each dimension.
    pub label: Vec<String>,
    /// The label of the verdict itself: the call's label, joined with everything that the deciding rules
    /// could read. An observer that may not see that much must not learn the verdict, whichever it is.
    pub decided: Label,
    /// The reasons why the call is not simply permitted; empty if it is.
    pub reasons: Vec<Reason>,
    /// Matches and failures of rules that only log, excesses that standing consent covers, and reasons that a grant
    /// covers.
    pub notes: Vec<Reason>,
    /// The `require`, `payload` and `endorse` statements that applied to the call, whether or not it met them, in the
    /// order of the policy. Together with the statements of `reasons` and `notes`, they decided the verdict.
    pub applied: Vec<Span>,
    /// The arguments that the policy endorses by a class of values, in the order of the statements.
    pub classes: Vec<ValueClass>,
    /// Whether the call is harmless: the policy permits it at every label, as for a tool that only reads.
    pub is_harmless: bool,
    /// The influence method that reported what the call depends on.
    pub method: &'static str,
    /// The number of regions that were hidden from the decision.
    pub hidden: usize,
}

impl Judgement {
    /// Returns the outcome that follows from the reasons: deny takes precedence over confirm.
    pub fn outcome(&self) -> Outcome {
        let worst = self.reasons.iter().map(|reason| match reason.action {
            Action::Deny => Outcome::Deny,
            Action::Ask => Outcome::Confirm,
            Action::Log => Outcome::Permit,
        });
        worst.max().unwrap_or(Outcome::Permit)
    }
}

/// A class of values that an `endorse` statement describes, such as dates, and to which an argument's value belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueClass {
    /// The name of the argument.
    pub argument: String,
    /// The class in words, such as "a value for which `is_date` holds".
    pub description: String,
    /// The first line of the statement.
    pub statement: Span,
}

/// One reason against a call, or one finding about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The kind of the reason.
    pub kind: ReasonKind,
    /// The action that it requires.
    pub action: Action,
    /// One sentence. It contains no content of the trace, except for names in labels and what a rule's
    /// message computes.
    pub message: String,
    /// The statement of the policy that it follows from.
    pub statement: Option<Span>,
    /// The part of the call that the reason is about: `decision`, or the path of an argument.
    pub part: Option<String>,
    /// The label of that part, in the dimensions that exceed the requirement.
    pub label: Vec<String>,
    /// The greatest label that the part may carry in these dimensions.
    pub required: Vec<String>,
    /// Regions that brought the label in, with their labels: some of those that the attribution names or, if it names
    /// none, some of those that the agent had seen, the latest event first.
    pub regions: Vec<(Region, Vec<String>)>,
    /// The longest scope for which a person may approve the call despite this reason: one call, the rest of the session
    /// (see [`Monitor::approve_for_session`](super::Monitor::approve_for_session)), or longer.
    pub grant_scope: GrantScope,
    /// Whether an approval for longer than one call may cover other values of the arguments in
    /// [`Judgement::classes`]: the statement says `by class`.
    pub grants_class: bool,
    /// The elements of `label` in the dimensions of confidentiality: the kinds of confidential data in the part.
    pub categories: Vec<String>,
    /// The people who must all approve the call despite this reason, sorted. Empty if one approval of any person
    /// suffices.
    pub approvers: Vec<String>,
    /// The events that a rule refers to.
    pub events: Vec<EventId>,
}

impl Reason {
    /// Returns whether the reason is about the argument with this name, or a part of it.
    #[must_use]
    pub fn is_about_argument(&self, name: &str) -> bool {
        self.part.as_deref().is_some_and(|part| is_in_argument(part, name))
    }

    /// Creates a reason with no further details; the caller sets those that it knows.
    pub(super) fn new(kind: ReasonKind, action: Action, message: impl Into<String>) -> Self {
        Self {
            kind,
            action,
            message: message.into(),
            statement: None,
            part: None,
            label: Vec::new(),
            required: Vec::new(),
            regions: Vec::new(),
            grant_scope: GrantScope::Call,
            grants_class: false,
            categories: Vec::new(),
            approvers: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReasonKind {
    /// The label of the call exceeds its requirement.
    Requirement,
    /// The label of the call is not bottom in a dimension that no `require` for the tool bounds.
    Undeclared,
    /// Standing consent covers what the call carries.
    Consent,
    /// A grant covers the reason: a person has approved equal calls for the rest of the session.
    Granted,
    /// A rule matches.
    Rule,
    /// A rule or another statement, such as a `require`, could not be evaluated.
    RuleError,
    /// The call depends on something that the influence method hides.
    Hidden,
    /// The call or output cannot be read in exactly one way.
    Malformed,
    /// A pattern by which a statement grants something, or a rule exempts a tool, matches tools of two servers.
    AmbiguousTool,
    /// The id of the call is already in use.
    DuplicateId,
    /// An output answers no call, a call that was not permitted, or a call that was answered before.
    Unsolicited,
    /// The permit or the approval is no longer valid: the state has changed, or another monitor issued it.
    Stale,
    /// The fuel is spent, or the call, the session or the number of matches is too large.
    Limit,
}

impl ReasonKind {
    /// Returns the stable name of the kind, as records and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requirement => "requirement",
            Self::Undeclared => "undeclared",
            Self::Consent => "consent",
            Self::Granted => "granted",
            Self::Rule => "rule",
            Self::RuleError => "rule-error",
            Self::Hidden => "hidden",
            Self::Malformed => "malformed",
            Self::AmbiguousTool => "ambiguous-tool",
            Self::DuplicateId => "duplicate-id",
            Self::Unsolicited => "unsolicited",
            Self::Stale => "stale",
            Self::Limit => "limit",
        }
    }
}

/// A finding about an event that can no longer be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFinding {
    /// The event.
    pub event: EventId,
    /// The reason for the finding.
    pub reason: Reason,
}

/// Evidence that the monitor permitted exactly this call.
///
/// Only the monitor creates one. It owns the call and reserves its event in the trace; dropping it withdraws the call.
/// [`Monitor::redeem`](super::Monitor::redeem) judges the call again if the state has changed since the permit was
/// created.
#[derive(Debug)]
#[must_use = "a dropped permit is an allowed call that never ran"]
pub struct Permit {
    pub(super) entry: TraceEntry,
    pub(super) attribution: Attribution,
    pub(super) judgement: Judgement,
    pub(super) event: EventId,
    /// The version of the monitor's state; while it is the same, so is the verdict.
    pub(super) version: u64,
    /// The approval with which the call was permitted; a later judgement of the call takes it into account again.
    pub(super) approval: Option<Approval>,
    /// The monitor that created it.
    pub(super) session_identity: Arc<()>,
    /// Set when the permit is dropped; the monitor reads it.
    pub(super) drop_flag: Arc<PermitDropFlag>,
}

impl Permit {
    /// Returns how the call was judged.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Returns the event of the call in the trace.
    pub fn event(&self) -> EventId {
        self.event
    }
}

impl Drop for Permit {
    /// Sets the flag by which the monitor learns that the permit was dropped. The monitor then withdraws the call,
    /// unless the permit was redeemed before.
    fn drop(&mut self) {
        self.drop_flag.is_dropped.store(true, Ordering::Release);
    }
}

/// Reports to the monitor that a permit was dropped.
#[derive(Debug, Default)]
pub(super) struct PermitDropFlag {
    is_dropped: AtomicBool,
}

impl PermitDropFlag {
    /// Returns whether the permit was dropped; the monitor then withdraws its call.
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }
}

/// The question to a person: whether this call may run, with exactly these arguments.
#[derive(Debug)]
#[must_use]
pub struct Question {
    pub(super) entry: TraceEntry,
    pub(super) attribution: Attribution,
    pub(super) judgement: Judgement,
    /// The event of the call while it was judged; the event has been removed from the trace.
    pub(super) event: EventId,
    /// The stores that the call touches, with the number of writes by this session to each.
    pub(super) stores: Vec<(usize, u64)>,
    /// The stores to whose state the call refers, with the number of writes by other sessions to each.
    pub(super) referred: StoreVersions,
    /// Whether the tool can read external state; then an equal call can mean something else later.
    pub(super) reads_state: bool,
    /// The monitor that asks.
    pub(super) session_identity: Arc<()>,
}

impl Question {
    /// Returns how the call was judged.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Returns the people who must all approve the call, sorted, each once; empty if one approval of any person
    /// suffices: see [`Monitor::approve_by`](super::Monitor::approve_by).
    pub fn approvers(&self) -> Vec<String> {
        let reasons = &self.judgement.reasons;
        let mut names: Vec<String> = reasons.iter().flat_map(|reason| reason.approvers.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns a text that represents the state to which the call refers. It differs once other sessions have
    /// written to that state, and is empty if the call refers to none.
    pub fn state(&self) -> String {
        self.referred.iter().map(|(store, others)| format!("{store}:{others};")).collect()
    }

    /// Returns the call that a person is asked about. The result is never `None`: the monitor asks only about calls.
    pub fn call(&self) -> Option<&Call> {
        match &self.entry.body {
            crate::trace::EventBody::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// A person's approval of certain reasons, for one call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Approval {
    pub(super) reasons: Vec<Reason>,
    /// The event of the call when the question was asked.
    pub(super) event: EventId,
}

impl Approval {
    /// Returns whether the question listed this reason, so that the approval holds despite it. False for a reason that
    /// does not ask: a person cannot approve what the policy denies. `event` is the event of the call now. Its index may
    /// have changed since the question, so the call itself is left out where the events of two reasons are compared.
    pub(super) fn covers(&self, reason: &Reason, event: EventId) -> bool {
        let other_events = |reason: &Reason, own: EventId| {
            reason.events.iter().copied().filter(|id| *id != own).collect::<Vec<_>>()
        };
        let is_same = |approved: &Reason| {
            (approved.kind, &approved.statement, &approved.part, &approved.label, &approved.message)
                == (reason.kind, &reason.statement, &reason.part, &reason.label, &reason.message)
                && other_events(approved, self.event) == other_events(reason, event)
        };
        reason.action == Action::Ask && self.reasons.iter().any(is_same)
    }
}

/// A call that must not run, with the reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Denial {
    pub(super) judgement: Box<Judgement>,
}

impl Denial {
    /// Returns how the call was judged.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }
}

/// The messages of all reasons, on one line.
impl fmt::Display for Denial {
    /// Writes the messages of all reasons, also of those that only ask.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call is denied")?;
        for (index, reason) in self.judgement.reasons.iter().enumerate() {
            write!(f, "{} {}", if index == 0 { ":" } else { ";" }, reason.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Denial {}

/// A call that is running now: the proof that a tool takes by value.
#[derive(Debug)]
pub struct AuthorizedCall {
    pub(super) call: Call,
    pub(super) event: EventId,
    pub(super) is_harmless: bool,
}

impl AuthorizedCall {
    /// Returns the call, with its arguments as they were judged.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns the event of the call in the trace.
    pub fn event(&self) -> EventId {
        self.event
    }

    /// Returns whether the call is harmless: the judgement with which it runs found that the policy permits it at every
    /// label, as for a tool that only reads. Any other call can have an effect outside the session.
    pub fn is_harmless(&self) -> bool {
        self.is_harmless
    }

    /// Returns the arguments as the tool receives them: the canonical print of what was judged.
    pub fn arguments_json(&self) -> String {
        let arguments = self.call.arguments.as_ref().cloned().unwrap_or_default();
        serde_json::Value::Object(arguments).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs, reports and denials contain these names, and other programs search for them.
    #[test]
    fn names_of_kinds_are_stable() {
        for (kind, name) in [
            (ReasonKind::Requirement, "requirement"),
            (ReasonKind::Undeclared, "undeclared"),
            (ReasonKind::Consent, "consent"),
            (ReasonKind::Granted, "granted"),
            (ReasonKind::Rule, "rule"),
            (ReasonKind::RuleError, "rule-error"),
            (ReasonKind::Hidden, "hidden"),
            (ReasonKind::Malformed, "malformed"),
            (ReasonKind::AmbiguousTool, "ambiguous-tool"),
            (ReasonKind::DuplicateId, "duplicate-id"),
            (ReasonKind::Unsolicited, "unsolicited"),
            (ReasonKind::Stale, "stale"),
            (ReasonKind::Limit, "limit"),
        ] {
            assert_eq!(kind.name(), name);
        }
    }
}
