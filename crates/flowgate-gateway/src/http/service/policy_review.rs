//! Serves evaluations of policies on stored conversations, for people. The routes of `service` call it.

use axum::extract::Request;

use super::{GatewayService, protect_connection};
use crate::http::reply::HttpReply;

impl GatewayService {
    /// Serves a policy with the counts of its statements, which a worker thread counts.
    pub(super) async fn policy_usage(&self, request: Request) -> Result<HttpReply, HttpReply> {
        let models = self.routes_of_people()?;
        let (head, _) = request.into_parts();
        // The guard ends the evaluation if this request ends before it.
        let (requested, _guard) = models.requested_policy(&head.headers, head.uri.query()).await?;
        protect_connection(&head.extensions);
        self.run_on_worker(move || requested.show()).await
    }

    /// Serves a dry run of an edited policy, on a worker thread.
    pub(super) async fn dry_run(&self, request: Request) -> Result<HttpReply, HttpReply> {
        let models = self.routes_of_people()?;
        let (head, body) = request.into_parts();
        // The body of an unauthenticated request is not read.
        models.approvals.check(&head.headers)?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        let (requested, _guard) = models.requested_dry_run(&head.headers, &read.bytes).await?;
        drop(read);
        self.run_on_worker(move || requested.run()).await
    }
}
