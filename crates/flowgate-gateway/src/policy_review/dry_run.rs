//! Tries an edited policy on the last stored conversations of a client, and lists the calls whose verdict under the
//! edited policy differs from that under the policy in force. `http::service` calls [`ModelRoutes::requested_dry_run`],
//! and then [`RequestedDryRun::run`] on a worker thread. Nothing is stored, and no service is asked.
//!
//! Both verdicts come from the same replay, so a difference is an effect of the edit. A call can have received another
//! verdict in the conversation itself than in the replay under the policy in force, for example after an approval; the
//! answer marks such calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::{EventFinding, Monitor, Outcome, Reason, ReasonKind, RejudgedCall};
use flowgate::policy::{Action, Diagnostic, InvalidPolicy, MAX_SOURCE, Policy, PolicySource, Severity};
use flowgate::trace::{EventId, Tool};
use flowgate_guard::conversation::CallVerdict;
use serde::Deserialize;
use serde_json::{Value, json};

use super::policy_view::ended_reply;
use super::reads_everything;
use super::review_runs::{EndOnDrop, ReviewRun};
use super::stored_conversations::{ConversationCounts, StoredConversations, read_last};
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::config::Role;
use crate::http::reply::HttpReply;

/// The most changed verdicts that an answer lists.
const MAX_CHANGES: usize = 200;
/// The most reasons of one verdict.
const MAX_REASONS: usize = 5;
/// The most bytes of the arguments of one call.
const MAX_ARGUMENTS: usize = 2 << 10;
/// The most errors, and the most warnings, of a policy.
const MAX_DIAGNOSTICS: usize = 50;

/// A request for a dry run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DryRunRequest {
    client: String,
    /// The edited text of the policy's own file. The imported files are not edited.
    policy: String,
    /// The number of conversations on which the policy is tried, newest first; a default number if it is absent.
    #[serde(default)]
    last: Option<usize>,
}

/// A dry run whose request was checked, before it runs.
#[derive(Debug)]
pub(crate) struct RequestedDryRun {
    client: Arc<ClientState>,
    text: String,
    conversations: StoredConversations,
    review_run: ReviewRun,
}

impl ModelRoutes {
    /// Checks a request for a dry run, and reads the conversations that it needs. Also returns a guard, which the
    /// caller holds until the answer is sent: when it is dropped, the dry run stops.
    ///
    /// # Errors
    /// The reply to send if the person is not an approver or admin, may not read everything of the client, or has
    /// another evaluation running; if the body is malformed or too large; or if there is no such client, the database
    /// fails, or the gateway has no room.
    pub(crate) async fn requested_dry_run(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(RequestedDryRun, EndOnDrop), HttpReply> {
        let person = self.approvals.person(headers, Role::Approver)?;
        let DryRunRequest { client, policy: text, last } = serde_json::from_slice(body).map_err(|error| {
            let message = format!(
                "the body of the request is not `{{\"client\": NAME, \"policy\": TEXT, \"last\": NUMBER}}`: {error}; send it in this form"
            );
            HttpReply::detail(StatusCode::BAD_REQUEST, &message)
        })?;
        if text.len() > MAX_SOURCE {
            let message = format!(
                "the policy is longer than {MAX_SOURCE} bytes: shorten it, or move statements to files that it imports, which are not edited here"
            );
            return Err(HttpReply::detail(StatusCode::PAYLOAD_TOO_LARGE, &message));
        }
        let last = read_last(last)?;
        // Checks that the person may see the client, and may read everything that an edited policy could test.
        let client = self.reviewed_client(&person, &client)?;
        if !reads_everything(&person, &client) {
            let message = "your clearance does not cover all texts of this client, and an edited policy could test any of them: \
                ask a person who may read everything for the dry run";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let (review_run, guard) = self.begin_review(&person.name)?;
        let conversations = self.stored_conversations(&client, last).await?;
        Ok((RequestedDryRun { client, text, conversations, review_run }, guard))
    }
}

impl RequestedDryRun {
    /// Compiles the edited policy and, if it has no error, judges the conversations under both policies. The answer has
    /// the differences or, if the policy has errors, these errors. Stops early if the request no longer waits for the
    /// answer: the browser has disconnected, or the time for an answer is over.
    pub(crate) fn run(self) -> HttpReply {
        let Self { client, text, conversations, review_run } = self;
        let own = client.spec.own_policy();
        let edited = match own.with_own_text(&text) {
            Ok(edited) => Arc::new(edited),
            Err(InvalidPolicy { source, diagnostics }) => {
                return HttpReply::json(
                    StatusCode::OK,
                    &DryRun::default().to_json(&source, &diagnostics, None),
                );
            }
        };
        let mut result = DryRun { is_enforced: client.spec.watch.is_none(), ..DryRun::default() };
        let counts = conversations.replay_each(&review_run, &mut |name, monitor, judged| {
            let is_awaited = &mut || review_run.is_awaited();
            result.add(name, monitor, judged, own, &edited, is_awaited)
        });
        let Some(counts) = counts else { return ended_reply() };
        let answer = result.to_json(edited.files(), edited.warnings(), Some(counts));
        HttpReply::json(StatusCode::OK, &answer)
    }
}

/// The differences between the policy in force and the edited one, in the conversations that were judged so far.
#[derive(Debug, Default)]
struct DryRun {
    /// Whether the conversations ran under the policy in force, and not in watch mode.
    is_enforced: bool,
    /// The number of calls.
    calls: usize,
    /// The number of calls with another verdict under the edited policy.
    changed: usize,
    /// The changed verdicts, at most [`MAX_CHANGES`].
    changes: Vec<Value>,
    /// The number of calls whose replay under the policy in force has another verdict than the conversation had.
    differing: usize,
    /// The numbers of messages and answers that a rule stops: under the policy in force, and under the edited one.
    stopped: [usize; 2],
}

impl DryRun {
    /// Judges a conversation under both policies, and adds the differences to the result. `name` is the name of the
    /// conversation, `monitor` is the monitor that has replayed it, and `judged` are the verdicts that its calls had
    /// when they were made. `own` is the policy in force, and `edited` the edited one. Returns `None` as soon as
    /// `is_awaited` returns false: the request no longer waits for the answer.
    fn add(
        &mut self,
        name: &str,
        monitor: &Monitor,
        judged: &[CallVerdict],
        own: &Arc<Policy>,
        edited: &Arc<Policy>,
        is_awaited: &mut dyn FnMut() -> bool,
    ) -> Option<()> {
        let before = monitor.rejudge(Arc::clone(own), is_awaited)?;
        let after = monitor.rejudge(Arc::clone(edited), is_awaited)?;
        for (sum, session) in self.stopped.iter_mut().zip([&before, &after]) {
            *sum += stopped_count(&session.findings);
        }
        // The verdicts in `judged` to which no call was matched yet.
        let mut unmatched = judged.iter();
        // Both sessions have the same inputs, and so the same calls.
        for (old, new) in before.calls.iter().zip(&after.calls) {
            // Skips the calls that Flowgate itself has judged, such as those about links: the agent did not make them.
            if old.call.tool.server.as_deref() == Some(Tool::FLOWGATE_SERVER) {
                continue;
            }
            self.calls += 1;
            let (was, would_be) = (old.judgement.outcome(), new.judgement.outcome());
            let recorded = Self::take_recorded(&mut unmatched, old);
            // In watch mode, the conversation ran under another policy, so its verdicts are not compared.
            let differs = self.is_enforced && recorded.is_some_and(|recorded| recorded != was);
            self.differing += usize::from(differs);
            if was == would_be {
                continue;
            }
            self.changed += 1;
            if self.changes.len() < MAX_CHANGES {
                self.changes.push(change(name, old, new, [own, edited], differs));
            }
        }
        Some(())
    }

    /// Returns the verdict that a call had in the conversation, if it had one. `unmatched` are the recorded verdicts
    /// after the last one that was found; they are in the order of the calls. Removes the found verdict and the ones
    /// before it; for a call without a verdict, removes none.
    fn take_recorded(
        unmatched: &mut std::slice::Iter<'_, CallVerdict>,
        call: &RejudgedCall,
    ) -> Option<Outcome> {
        let is_its =
            |verdict: &&CallVerdict| verdict.event == call.events_before && verdict.tool == call.call.tool;
        let mut rest = unmatched.clone();
        let found = rest.find(is_its)?;
        *unmatched = rest;
        Some(found.outcome)
    }

    /// Returns the result as JSON. `source` and `diagnostics` belong to the edited policy. `counts` are the numbers of
    /// conversations; `None` if the edited policy has an error, so that nothing was judged.
    fn to_json(
        &self,
        source: &PolicySource,
        diagnostics: &[Diagnostic],
        counts: Option<ConversationCounts>,
    ) -> Value {
        let of_severity = |severity: Severity| {
            let found = diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity);
            found
                .take(MAX_DIAGNOSTICS)
                .map(|diagnostic| diagnostic_json(source, diagnostic))
                .collect::<Vec<_>>()
        };
        let [stopped_before, stopped_after] = self.stopped;
        json!({
            "errors": of_severity(Severity::Error),
            "warnings": of_severity(Severity::Warning),
            "conversations": counts,
            "calls": self.calls,
            "changed": self.changed,
            "changes": self.changes,
            "differing": self.differing,
            "stopped_before": stopped_before,
            "stopped_after": stopped_after,
        })
    }
}

/// Returns the number of messages and answers that a rule stops, because it matches, fails or exceeds a limit.
/// Findings that are only noted do not count, and an event with several findings counts once.
fn stopped_count(findings: &[EventFinding]) -> usize {
    let kinds = [ReasonKind::Rule, ReasonKind::RuleError, ReasonKind::Limit];
    let stopping = findings
        .iter()
        .filter(|finding| kinds.contains(&finding.reason.kind) && finding.reason.action != Action::Log);
    stopping.map(|finding| finding.event).collect::<BTreeSet<EventId>>().len()
}

/// Returns, as JSON, a call whose verdict changes, with the reasons under each policy. `conversation` is the name
/// of the conversation. `old` is the call under the policy in force (`own`), and `new` the same call under the
/// edited one. `differs` says whether the call had another verdict in the conversation itself than in the replay
/// under the policy in force.
fn change(
    conversation: &str,
    old: &RejudgedCall,
    new: &RejudgedCall,
    [own, edited]: [&Policy; 2],
    differs: bool,
) -> Value {
    let mut arguments = match &old.call.arguments {
        Ok(arguments) => Value::Object(arguments.clone()).to_string(),
        Err(error) => error.to_string(),
    };
    let is_cut = arguments.len() > MAX_ARGUMENTS;
    if is_cut {
        arguments.truncate(arguments.floor_char_boundary(MAX_ARGUMENTS));
    }
    // The outcome and the reasons under one of the policies.
    let side = |call: &RejudgedCall, policy: &Policy| {
        let reasons = call.judgement.reasons.iter().take(MAX_REASONS);
        json!({
            "outcome": outcome(call.judgement.outcome()),
            "reasons": reasons.map(|reason| reason_json(policy, reason)).collect::<Vec<_>>(),
        })
    };
    json!({
        "conversation": conversation,
        "tool": old.call.tool.to_string(),
        "arguments": arguments,
        "is_cut": is_cut,
        "before": side(old, own),
        "after": side(new, edited),
        "differs": differs,
    })
}

/// Returns a reason of a verdict as JSON: its message, and the file and line of its statement in the policy, if any.
fn reason_json(policy: &Policy, reason: &Reason) -> Value {
    let place = reason.statement.as_ref().map(|span| policy.locate(span));
    json!({
        "message": reason.message,
        "file": place.and_then(|place| place.file),
        "line": place.map(|place| place.line),
    })
}

/// Returns an error or a warning about the edited policy as JSON, with its position.
fn diagnostic_json(source: &PolicySource, diagnostic: &Diagnostic) -> Value {
    let place = source.locate(diagnostic.span.start);
    json!({
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "code": diagnostic.code,
        "message": diagnostic.message,
        "help": diagnostic.help,
    })
}

/// Returns the word for an outcome in the JSON for the page.
fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Permit => "permitted",
        Outcome::Confirm => "asked",
        Outcome::Deny => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::{mistakes, schema};

    /// The answer has the form that the description of the API states.
    #[test]
    fn answers_have_their_form() {
        let policy = Policy::parse("lattice integrity: trusted < untrusted\n").unwrap();
        let InvalidPolicy { source, diagnostics } = policy.with_own_text("require nothing\n").unwrap_err();
        let invalid = DryRun::default().to_json(&source, &diagnostics, None);
        assert_eq!(invalid["errors"][0]["line"], 1, "{invalid}");
        let counts = Some(ConversationCounts::default());
        let valid = DryRun::default().to_json(policy.files(), &[], counts);
        for answer in [invalid, valid] {
            assert_eq!(mistakes(&answer, &schema("DryRun"), "it"), Vec::<String>::new(), "{answer}");
        }
    }
}
