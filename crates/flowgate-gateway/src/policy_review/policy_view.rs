//! Lists the policies that a person may see, and shows the text of one policy with the number of times that each
//! statement applied in the last stored conversations of its client. `http::service` calls
//! [`ModelRoutes::requested_policy`], and then [`RequestedPolicy::show`] on a worker thread.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::RejudgedCall;
use flowgate::policy::Policy;
use flowgate::statement_hits::{HitCounter, StatementHits};
use flowgate::trace::Tool;
use serde_json::{Value, json};

use super::reads_everything;
use super::review_runs::{EndOnDrop, ReviewRun};
use super::stored_conversations::{StoredConversations, read_last};
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::config::Role;
use crate::http::reply::HttpReply;
use crate::page::query::Query;

/// A policy that a person may see, before its statements are counted.
#[derive(Debug)]
pub(crate) struct RequestedPolicy {
    client: Arc<ClientState>,
    /// The conversations in which statements are counted, and the run of the person; `None` if the person may not read
    /// all conversations of the client, so that nothing is counted.
    counted: Option<(StoredConversations, ReviewRun)>,
}

impl ModelRoutes {
    /// Lists the clients of the person's tenants, with the files of their policies and whether they are watched only
    /// (`mode`).
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated.
    pub(crate) fn list_policies(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Viewer)?;
        let clients = self.clients.all().filter(|client| person.sees_tenant(&client.spec.tenant));
        let listed = clients.map(|client| {
            json!({
                "client": client.spec.name,
                "tenant": client.spec.tenant,
                "file": client.spec.policy_file,
                "mode": mode(client),
            })
        });
        Ok(HttpReply::json(StatusCode::OK, &json!({"policies": listed.collect::<Vec<_>>()})))
    }

    /// Prepares the reply to a request for the policy of a client: reads the last conversations of the client, in which
    /// [`RequestedPolicy::show`] counts how often each statement applied. The query of the request has the name of the
    /// client (`client`) and the number of conversations (`last`). Also returns a guard, which the caller holds until
    /// the answer is sent: when it is dropped, the evaluation stops. If the person may not read all conversations of
    /// the client, reads none, and returns no guard; the policy is then shown without counts.
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated or has another evaluation running, the query is malformed,
    /// there is no such client, the database fails, or the gateway has no room.
    pub(crate) async fn requested_policy(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<(RequestedPolicy, Option<EndOnDrop>), HttpReply> {
        let person = self.approvals.person(headers, Role::Viewer)?;
        let query = Query::read(query, &["client", "last"])?;
        let last = read_last(query.number("last")?)?;
        let client = self.reviewed_client(&person, query.required("client")?)?;
        if !reads_everything(&person, &client) {
            return Ok((RequestedPolicy { client, counted: None }, None));
        }
        let (run, guard) = self.begin_review(&person.name)?;
        let conversations = self.stored_conversations(&client, last).await?;
        Ok((RequestedPolicy { client, counted: Some((conversations, run)) }, Some(guard)))
    }

    /// Begins an evaluation of stored conversations for a person. Returns the run, for the worker thread, and the guard
    /// that stops it, for the task of the request.
    ///
    /// # Errors
    /// The reply to send if another evaluation of the same person runs.
    pub(super) fn begin_review(&self, person: &str) -> Result<(ReviewRun, EndOnDrop), HttpReply> {
        self.reviews.begin(person).ok_or_else(|| {
            let message = "another evaluation of yours is running: wait until it has ended";
            HttpReply::detail(StatusCode::TOO_MANY_REQUESTS, message)
        })
    }
}

impl RequestedPolicy {
    /// Counts how often each statement of the policy applied, and returns the reply with the policy and the counts.
    /// Stops early if the request no longer waits for the answer.
    pub(crate) fn show(self) -> HttpReply {
        let policy = self.client.spec.own_policy();
        let mut counter = HitCounter::new(policy);
        // The number of judged calls, and how many conversations could be replayed (`None` without a count).
        let (mut calls, mut counts) = (0, None);
        let is_counted = self.counted.is_some();
        if let Some((conversations, run)) = self.counted {
            // The names of the conversations and the verdicts that their calls had are not needed. The closure returns
            // `None` to end the replay, when the request no longer waits.
            counts = conversations.replay_each(&run, &mut |_, monitor, _| {
                let session = monitor.rejudge(Arc::clone(policy), &mut || run.is_awaited())?;
                // Leaves out the calls that Flowgate itself has judged, such as those about links: the agent did not
                // make them.
                let is_own =
                    |call: &&RejudgedCall| call.call.tool.server.as_deref() != Some(Tool::FLOWGATE_SERVER);
                calls += session.calls.iter().filter(is_own).count();
                counter.add(&session);
                Some(())
            });
            if counts.is_none() {
                return ended_reply();
            }
        }
        let files = policy.files().files().map(|(path, text)| json!({"path": path, "text": text}));
        let statements = counter.hits().iter().map(|hits| statement(policy, hits, is_counted));
        let answer = json!({
            "client": self.client.spec.name,
            "file": self.client.spec.policy_file,
            "mode": mode(&self.client),
            "files": files.collect::<Vec<_>>(),
            "statements": statements.collect::<Vec<_>>(),
            "conversations": counts,
            "calls": is_counted.then_some(calls),
        });
        HttpReply::json(StatusCode::OK, &answer)
    }
}

/// Returns a statement of the policy as JSON, with three counts: how often it applied, how often it objected to
/// something, and how often it could not be evaluated. The counts are null if nothing was counted (`is_counted`).
fn statement(policy: &Policy, hits: &StatementHits, is_counted: bool) -> Value {
    let place = policy.locate(&hits.span);
    let count = |number: u64| is_counted.then_some(number);
    json!({
        "kind": hits.kind.name(),
        "file": place.file,
        "line": place.line,
        "text": policy.excerpt(&hits.span),
        "applied": count(hits.applied),
        "objected": count(hits.objected),
        "failed": count(hits.failed),
    })
}

/// Returns the word for the mode of a client in the JSON for the page.
fn mode(client: &ClientState) -> &'static str {
    if client.spec.watch.is_some() { "watch" } else { "enforce" }
}

/// Returns the reply of an evaluation that stopped because its request no longer waits for the answer, so that nobody
/// reads this reply.
pub(super) fn ended_reply() -> HttpReply {
    HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, "the evaluation was ended with its request")
}
