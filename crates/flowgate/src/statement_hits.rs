//! Counts how often each statement of a policy applied in recorded sessions, so that the author of the policy sees
//! which statements have an effect and which never do. The gateway shows the counts next to the text of the policy.
//!
//! The sessions are [judged again](crate::monitor::Monitor::rejudge) under the policy. [`HitCounter::add`] counts the
//! statements that are named in the resulting verdicts and findings, and those that labelled a region.

use crate::monitor::{Judgement, Reason, ReasonKind, RejudgedSession};
use crate::policy::{Action, Policy, Span};
use crate::trace::{Document, Status};

/// The kinds of statements whose applications are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatementHitKind {
    /// `label`: it gave a region of an event its label.
    Label,
    /// `require`: it bounded a call, or an argument of a call.
    Require,
    /// `payload`: it exempted an argument.
    Payload,
    /// `consent`: it covered an excess of a call.
    Consent,
    /// `endorse`: it endorsed an argument.
    Endorse,
    /// A rule with this action: it matched.
    Rule(Action),
}

impl StatementHitKind {
    /// Returns the word with which the statement begins; for a rule, the one that states its action.
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Require => "require",
            Self::Payload => "payload",
            Self::Consent => "consent",
            Self::Endorse => "endorse",
            Self::Rule(Action::Deny) => "raise",
            Self::Rule(Action::Ask) => "ask",
            Self::Rule(Action::Log) => "log",
        }
    }
}

/// A statement of a policy, and how often it applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementHits {
    /// The kind of the statement.
    pub kind: StatementHitKind,
    /// Its first line.
    pub span: Span,
    /// How often it applied. For `label`, the number of events of which it labelled a region; for a rule, the number of
    /// matches; for any other statement, the number of calls to which it applied.
    pub applied: u64,
    /// How often it objected to something. For `require`, the number of calls that exceeded it; for a rule that asks or
    /// denies, the number of matches; for any other statement 0.
    pub objected: u64,
    /// How often it could not be evaluated, or had no effect because its tool pattern was ambiguous.
    pub failed: u64,
}

/// The counts of all statements of a policy.
#[derive(Debug, Clone)]
pub struct HitCounter {
    /// In the order of the policy.
    hits: Vec<StatementHits>,
    /// The first byte of each `label` statement, by its index in the plan.
    labels: Vec<usize>,
}

impl HitCounter {
    /// Creates a counter for the statements of a policy, with all counts at 0.
    pub fn new(policy: &Policy) -> Self {
        let plan = &policy.plan;
        let labels = plan.labels.iter().map(|s| (StatementHitKind::Label, &s.span));
        let requirements = plan.requirements.iter().map(|s| (StatementHitKind::Require, &s.span));
        let payloads = plan.payloads.iter().map(|s| (StatementHitKind::Payload, &s.span));
        let consents = plan.consents.iter().map(|s| (StatementHitKind::Consent, &s.span));
        let endorsements = plan.endorsements.iter().map(|s| (StatementHitKind::Endorse, &s.span));
        let rules = plan.rules.iter().map(|s| (StatementHitKind::Rule(s.action), &s.span));
        let all = labels.chain(requirements).chain(payloads).chain(consents).chain(endorsements).chain(rules);
        let uncounted = |(kind, span): (StatementHitKind, &Span)| StatementHits {
            kind,
            span: span.clone(),
            applied: 0,
            objected: 0,
            failed: 0,
        };
        let mut hits: Vec<StatementHits> = all.map(uncounted).collect();
        // A statement about several regions is in the plan once for each, with the same span, but counts once.
        hits.sort_by_key(|hits| hits.span.start);
        hits.dedup_by_key(|hits| hits.span.start);
        Self { hits, labels: plan.labels.iter().map(|statement| statement.span.start).collect() }
    }

    /// Counts the statements that applied in a session that was judged under the policy: those that labelled its
    /// events, and those that are named in the judgements of its calls and in the findings about its other events. The
    /// labels of calls that did not run do not count.
    pub fn add(&mut self, session: &RejudgedSession) {
        let events = session.monitor.trace().events().iter();
        for event in events.filter(|event| event.status == Status::Done) {
            for label in self.labelling_statements(&event.document) {
                self.count(label, |hits| hits.applied += 1);
            }
        }
        session.findings.iter().for_each(|finding| self.add_reason(&finding.reason));
        session.calls.iter().for_each(|call| self.add_judgement(&call.judgement));
    }

    /// Returns the statements with their counts, in the order of the policy.
    pub fn hits(&self) -> &[StatementHits] {
        &self.hits
    }

    /// Returns the `label` statements that labelled a region of an event, each as its offset in the policy. The result
    /// may be incomplete, since the document records only the first few statements that labelled one region.
    fn labelling_statements(&self, document: &Document) -> Vec<usize> {
        let nodes = 0..document.nodes().len();
        let mut statements: Vec<usize> = nodes.flat_map(|node| document.labelled_by(node)).collect();
        statements.sort_unstable();
        statements.dedup();
        statements.iter().filter_map(|index| self.labels.get(*index)).copied().collect()
    }

    /// Counts the statements that applied to one call, those that it exceeded, and those that could not be evaluated.
    fn add_judgement(&mut self, judgement: &Judgement) {
        for span in &judgement.applied {
            self.count(span.start, |hits| hits.applied += 1);
        }
        // A call is counted once, however many of its parts exceed a requirement.
        let mut exceeded: Vec<usize> = Vec::new();
        for reason in judgement.reasons.iter().chain(&judgement.notes) {
            match (reason.kind, &reason.statement) {
                // With a grant, the call is permitted, but exceeds the requirement as well.
                (ReasonKind::Requirement | ReasonKind::Consent | ReasonKind::Granted, Some(span)) => {
                    exceeded.push(span.start);
                }
                _ => self.add_reason(reason),
            }
        }
        exceeded.sort_unstable();
        exceeded.dedup();
        for start in exceeded {
            self.count(start, |hits| match hits.kind {
                // A reason that names a consent says that the consent covers an excess of the call.
                StatementHitKind::Consent => hits.applied += 1,
                _ => hits.objected += 1,
            });
        }
    }

    /// Counts the statement that a reason follows from. A match of a rule counts as applied and, unless the rule only
    /// logs, as objected. An evaluation that failed or exceeded a limit, and an ambiguous pattern, count as failed. Any
    /// other reason changes no count.
    fn add_reason(&mut self, reason: &Reason) {
        let Some(span) = &reason.statement else { return };
        self.count(span.start, |hits| match reason.kind {
            ReasonKind::Rule => {
                hits.applied += 1;
                hits.objected += u64::from(reason.action != Action::Log);
            }
            ReasonKind::RuleError | ReasonKind::AmbiguousTool | ReasonKind::Limit => hits.failed += 1,
            _ => {}
        });
    }

    /// Applies `change` to the counts of the statement that begins at the byte `start`, if there is one.
    fn count(&mut self, start: usize, change: impl FnOnce(&mut StatementHits)) {
        let found = self.hits.binary_search_by_key(&start, |hits| hits.span.start);
        if let Some(hits) = found.ok().and_then(|index| self.hits.get_mut(index)) {
            change(hits);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::monitor::{Attribution, Monitor};
    use crate::trace::{Tool, TraceEntry};

    const POLICY: &str = r#"lattice integrity: trusted < untrusted
lattice secrecy: public < private
label message as trusted, public if:
    (message: Message)
label out.content as untrusted, private if:
    (out: ToolOutput) is tool:read
label out.content as trusted, public if:
    (out: ToolOutput) is tool:unused
require top if:
    (call: ToolCall) is tool:read
require trusted, private if:
    (call: ToolCall) is tool:send
payload call.arguments.body if:
    (call: ToolCall) is tool:send
endorse call.arguments.day as trusted if:
    (call: ToolCall) is tool:send
    is_date(call.arguments.day)
consent private for call.arguments.body if:
    (call: ToolCall) is tool:post
require trusted, public if:
    (call: ToolCall) is tool:post
raise "no" if:
    (out: ToolOutput)
    "hunter2" in out.content
ask "really" if:
    (call: ToolCall) is tool:send
log "seen" if:
    (message: Message)
    message.role == "user"
raise "broken" if:
    (call: ToolCall) is tool:send
    call.arguments.missing > 1
"#;

    #[test]
    fn every_statement_is_counted() {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let mut monitor = Monitor::new(Arc::clone(&policy));
        monitor.record_inputs();
        monitor.push(TraceEntry::user("go")).unwrap();
        let all = Attribution::everything();
        let post = TraceEntry::tool_call("c0", Tool::local("post"), r#"{"body": "b"}"#);
        monitor.record(post, &all);
        monitor.record(TraceEntry::tool_call("c1", Tool::local("read"), "{}"), &all);
        monitor.push(TraceEntry::tool_output("c1", "hunter2")).unwrap();
        let send = r#"{"body": "b", "day": "2026-01-02", "to": "eve"}"#;
        let _ = monitor.judge_entry(TraceEntry::tool_call("c2", Tool::local("send"), send), all.clone());
        let session = monitor.rejudge(Arc::clone(&policy), &mut || true).unwrap();
        let mut counter = HitCounter::new(&policy);
        counter.add(&session);
        let counts: Vec<(&str, usize, [u64; 3])> = counter
            .hits()
            .iter()
            .map(|hits| {
                (hits.kind.name(), policy.line(&hits.span), [hits.applied, hits.objected, hits.failed])
            })
            .collect();
        assert_eq!(
            counts,
            [
                ("label", 3, [1, 0, 0]),
                ("label", 5, [1, 0, 0]),
                ("label", 7, [0, 0, 0]),
                ("require", 9, [1, 0, 0]),
                ("require", 11, [1, 1, 0]),
                ("payload", 13, [1, 0, 0]),
                ("endorse", 15, [1, 0, 0]),
                ("consent", 18, [0, 0, 0]),
                ("require", 20, [1, 0, 0]),
                ("raise", 22, [1, 1, 0]),
                ("ask", 25, [1, 1, 0]),
                ("log", 27, [1, 0, 0]),
                ("raise", 30, [0, 0, 1]),
            ]
        );
        // A second session adds to the counts.
        counter.add(&session);
        assert_eq!(counter.hits()[3].applied, 2);
    }
}
