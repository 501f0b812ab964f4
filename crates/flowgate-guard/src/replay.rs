//! Judges a recorded run call by call, as if it happened live ([`replay()`], [`replay_with`]). The command line
//! (`flowgate explain` and others), the Python package and the benchmarks try policies and influence methods on
//! recorded runs in this way.
//!
//! A run that has happened cannot be stopped, so every call is recorded as having run, with the verdict that it would
//! have received. If a call needs a question, the question counts as asked and answered with yes. The answer of the
//! call still carries the label of the call, so the approval makes nothing more trusted.
//!
//! [`guarded`] replays a run in a guarded conversation instead, with the views that its methods would show.

pub mod guarded;
mod recorded_model;

use std::sync::Arc;

use flowgate::monitor::{Attribution, EventFinding, Judgement, Limits, Monitor, Outcome, PushError};
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate::trace::read::RecordedRun;
use flowgate::trace::{EventBody, EventId, Tool};
use serde_json::{Map, Value};

use crate::influence::InfluenceMethod;

/// A judged run.
#[derive(Debug)]
pub struct ReplayedRun {
    /// All calls, in order.
    pub calls: Vec<JudgedCall>,
    /// Findings of rules and readers on the other events.
    pub findings: Vec<EventFinding>,
    /// Events that the monitor rejected, by their index in the run.
    pub refused: Vec<(usize, PushError)>,
    /// The session at its end, for further inspection.
    pub monitor: Monitor,
}

/// A call of a run, with its verdict.
#[derive(Debug)]
pub struct JudgedCall {
    /// The index in the run.
    pub entry: usize,
    /// The event in the trace, if the call was recorded.
    pub event: Option<EventId>,
    /// The id of the call.
    pub id: String,
    /// The tool.
    pub tool: Tool,
    /// The origin of the call, if the log contains it: `user` or `injection`.
    pub origin: Option<String>,
    /// The verdict.
    pub outcome: Outcome,
    /// The full judgement.
    pub judgement: Judgement,
    /// The dependencies of the call, according to the influence method.
    pub attribution: Attribution,
}

/// What a policy reads in addition to the run that it judges.
#[derive(Debug, Clone, Default)]
pub struct ReplayInputs {
    /// The answers to its extern predicates.
    pub predicates: Predicates,
    /// Its parameters, the values of `input.NAME`. They replace parameters of the same names that the run has itself.
    pub parameters: Map<String, Value>,
}

impl ReplayInputs {
    /// Creates an empty monitor for the replay of a run under a policy.
    fn monitor(&self, policy: &Arc<Policy>, run: &RecordedRun) -> Monitor {
        let mut monitor = Monitor::with_limits(Arc::clone(policy), Limits::default());
        // The monitor is new, so there are no recorded answers to restore.
        monitor.set_predicates(self.predicates.clone(), Vec::new());
        monitor.set_parameters(&self.parameters);
        // A parameter of the caller takes precedence over the value that the run has recorded.
        if let Some(recorded) = run.parameters() {
            monitor.add_parameters(recorded);
        }
        monitor
    }
}

/// Judges a run under a policy, without answers to its extern predicates. Its parameters are those of the run.
pub fn replay(policy: &Arc<Policy>, method: &dyn InfluenceMethod, run: &RecordedRun) -> ReplayedRun {
    replay_with(policy, &ReplayInputs::default(), method, run)
}

/// Judges a run under a policy that reads `inputs`. `method` determines what each call depends on. An event that does
/// not fit the session is left out. It is reported as refused or, if it is a call, as a judged call without an event.
pub fn replay_with(
    policy: &Arc<Policy>,
    inputs: &ReplayInputs,
    method: &dyn InfluenceMethod,
    run: &RecordedRun,
) -> ReplayedRun {
    let mut monitor = inputs.monitor(policy, run);
    let mut session = method.start();
    let (mut calls, mut findings, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (index, entry) in run.entries.iter().enumerate() {
        match &entry.body {
            EventBody::Call(call) => {
                let attribution = session.attribute(monitor.trace(), entry);
                let (id, tool) = (call.id.clone(), call.tool.clone());
                // Records of attacks note whether the user or an injected text asked for a call.
                let origin = entry.extra.get("origin").and_then(|origin| origin.as_str()).map(str::to_owned);
                let recorded = monitor.record(entry.clone(), &attribution);
                if let Some(event) = recorded.event {
                    session.observe(monitor.trace(), event);
                }
                let (event, outcome, judgement) = (recorded.event, recorded.outcome, recorded.judgement);
                calls.push(JudgedCall {
                    entry: index,
                    event,
                    id,
                    tool,
                    origin,
                    outcome,
                    judgement,
                    attribution,
                });
            }
            _ => match monitor.push(entry.clone()) {
                Ok((event, found)) => {
                    findings.extend(found);
                    session.observe(monitor.trace(), event);
                }
                Err(error) => refused.push((index, error)),
            },
        }
    }
    ReplayedRun { calls, findings, refused, monitor }
}
