//! Verdicts, and their reasons as data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attribution::Attribution;
use super::references::Versions;
use crate::label::Label;
use crate::policy::{Action, Span};
use crate::trace::{Call, Entry, EventId, Region};

/// What is to become of a call.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// It may run.
    Permit(Permit),
    /// A person has to decide.
    Confirm(Question),
    /// It must not run.
    Deny(Denial),
}

impl Verdict {
    /// How it was judged.
    pub fn judgement(&self) -> &Judgement {
        match self {
            Self::Permit(permit) => &permit.judgement,
            Self::Confirm(question) => &question.judgement,
            Self::Deny(denial) => &denial.judgement,
        }
    }
}

/// The three verdicts without what they carry, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It may run.
    Permit,
    /// A person has to decide.
    Confirm,
    /// It must not run.
    Deny,
}

impl Outcome {
    /// The word for it.
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
    /// What the call carries, one phrase for each dimension.
    pub label: Vec<String>,
    /// What the verdict itself carries: the call's label, joined with everything that the deciding rules could
    /// read. Whoever may not see that much must not learn of the verdict, whatever it is.
    pub decided: Label,
    /// Why it is not simply permitted; empty if it is.
    pub reasons: Vec<Reason>,
    /// What rules recorded without objecting.
    pub notes: Vec<Reason>,
    /// Whether the policy lets everything flow into the tool: a harmless reader.
    pub is_harmless: bool,
    /// The influence method that said what the call depends on.
    pub method: &'static str,
    /// How many regions were hidden from the decision.
    pub hidden: usize,
}

impl Judgement {
    /// The verdict that the reasons amount to: deny beats ask.
    pub fn outcome(&self) -> Outcome {
        let worst = self.reasons.iter().map(|reason| match reason.action {
            Action::Deny => Outcome::Deny,
            Action::Ask => Outcome::Confirm,
            Action::Log => Outcome::Permit,
        });
        worst.max().unwrap_or(Outcome::Permit)
    }
}

/// One reason against a call, or one finding about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What kind of reason.
    pub kind: ReasonKind,
    /// What it asks for.
    pub action: Action,
    /// One sentence, without content of the trace.
    pub message: String,
    /// The statement of the policy behind it.
    pub statement: Option<Span>,
    /// The part of the call: `decision`, or the path of an argument.
    pub part: Option<String>,
    /// What that part carries, in the dimensions that exceed the requirement.
    pub label: Vec<String>,
    /// The most that it may carry there.
    pub required: Vec<String>,
    /// Regions that brought the label in, nearest first, with their labels.
    pub regions: Vec<(Region, Vec<String>)>,
    /// For confidential data, what it is, in the words of the policy.
    pub categories: Vec<String>,
    /// The events that a rule speaks of.
    pub events: Vec<EventId>,
}

impl Reason {
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
            categories: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// The call carries more than its requirement allows.
    Requirement,
    /// The call carries something, and no statement says what its tool may carry.
    Undeclared,
    /// The policy consents to what the call carries.
    Consent,
    /// A rule matches.
    Rule,
    /// A rule could not be evaluated.
    RuleError,
    /// The call depends on something that the influence method hides.
    Hidden,
    /// The call or output cannot be read in exactly one way.
    Malformed,
    /// A pattern that grants something matches tools of two servers.
    AmbiguousTool,
    /// The id of the call is taken.
    DuplicateId,
    /// An output answers no call, or one that was not permitted, or is the second answer.
    Unsolicited,
    /// The permit or the approval no longer holds: things have changed, or it was given elsewhere.
    Stale,
    /// The step took too long to evaluate, or the call or the session is too large.
    Limit,
}

impl ReasonKind {
    /// A stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requirement => "requirement",
            Self::Undeclared => "undeclared",
            Self::Consent => "consent",
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

/// Something found about an event that cannot be stopped any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The event.
    pub event: EventId,
    /// What was found.
    pub reason: Reason,
}

/// Evidence that the monitor allowed exactly this call.
///
/// Only the monitor makes one. It owns the call and reserves its place in the trace; dropping it gives the
/// place up. Before the call runs, [`Monitor::redeem`](super::Monitor::redeem) judges it again.
#[derive(Debug)]
#[must_use = "a dropped permit is an allowed call that never ran"]
pub struct Permit {
    pub(super) entry: Entry,
    pub(super) attribution: Attribution,
    pub(super) judgement: Judgement,
    pub(super) event: EventId,
    /// The monitor's state at the time; if it is still the same, so is the verdict.
    pub(super) version: u64,
    pub(super) approval: Option<Approval>,
    /// The monitor that made it.
    pub(super) home: Arc<()>,
    pub(super) ticket: Arc<Ticket>,
}

impl Permit {
    /// How the call was judged.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// The place of the call in the trace.
    pub fn event(&self) -> EventId {
        self.event
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.ticket.is_given_up.store(true, Ordering::Release);
    }
}

/// Tells the monitor that a permit was dropped.
#[derive(Debug, Default)]
pub(super) struct Ticket {
    is_given_up: AtomicBool,
}

impl Ticket {
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }
}

/// What a person has to decide: this call, with exactly these arguments.
#[derive(Debug)]
#[must_use]
pub struct Question {
    pub(super) entry: Entry,
    pub(super) attribution: Attribution,
    pub(super) judgement: Judgement,
    /// The place that the call would have had.
    pub(super) event: EventId,
    /// The stores that the call touches, and how often this session had written to each.
    pub(super) stores: Vec<(usize, u64)>,
    /// The stores to whose state the call refers, and how often other sessions had written to each.
    pub(super) referred: Versions,
    /// The monitor that asks.
    pub(super) home: Arc<()>,
}

impl Question {
    /// How the call was judged.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// The state to which the call refers: another text if other sessions have written to it since, and an empty one if it refers to
    /// none.
    pub fn state(&self) -> String {
        self.referred.iter().map(|(store, others)| format!("{store}:{others};")).collect()
    }

    /// The call that would run, exactly.
    pub fn call(&self) -> Option<&Call> {
        match &self.entry.body {
            crate::trace::Body::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// That a person approved of certain reasons, for one call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Approval {
    pub(super) reasons: Vec<Reason>,
    /// The place of the call when the person was asked.
    pub(super) event: EventId,
}

impl Approval {
    /// Whether the person was told of this reason, `event` being the place of the call now.
    pub(super) fn covers(&self, reason: &Reason, event: EventId) -> bool {
        let others = |reason: &Reason, own: EventId| {
            reason.events.iter().copied().filter(|id| *id != own).collect::<Vec<_>>()
        };
        let same = |known: &Reason| {
            (known.kind, &known.statement, &known.part, &known.label, &known.message)
                == (reason.kind, &reason.statement, &reason.part, &reason.label, &reason.message)
                && others(known, self.event) == others(reason, event)
        };
        reason.action == Action::Ask && self.reasons.iter().any(same)
    }
}

/// A call that must not run, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Denial {
    pub(super) judgement: Box<Judgement>,
}

impl Denial {
    /// How the call was judged.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }
}

/// A call that is running now: what a tool takes, by value.
#[derive(Debug)]
pub struct Authorized {
    pub(super) call: Call,
    pub(super) event: EventId,
}

impl Authorized {
    /// The call, with its arguments as they were judged.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The place of the call in the trace.
    pub fn event(&self) -> EventId {
        self.event
    }

    /// The arguments as the tool gets them: the canonical print of what was judged.
    pub fn arguments_json(&self) -> String {
        let arguments = self.call.arguments.as_ref().cloned().unwrap_or_default();
        serde_json::Value::Object(arguments).to_string()
    }
}
