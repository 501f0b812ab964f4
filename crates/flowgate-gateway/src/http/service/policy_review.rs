//! Serves two evaluations of policies on stored conversations, for the people who review policies: how often each
//! statement of a policy applied, and a dry run of an edited policy. The routes of `service` call it.

use axum::extract::Request;

use super::{GatewayService, protect_connection};
use crate::http::reply::HttpReply;

impl GatewayService {
    /// Serves a policy, and for each of its statements the number of times that it applied in stored conversations. A
    /// worker thread counts these. Returns the error to send if the person is not authenticated or the evaluation
    /// fails.
    pub(super) async fn policy_usage(&self, request: Request) -> Result<HttpReply, HttpReply> {
        let models = self.routes_of_people()?;
        let (head, _) = request.into_parts();
        // The guard ends the evaluation if this request ends first.
        let (requested, _guard) = models.requested_policy(&head.headers, head.uri.query()).await?;
        protect_connection(&head.extensions);
        self.run_on_worker(move || requested.show()).await
    }

    /// Serves a dry run: judges stored conversations under the edited policy in the body, on a worker thread. Returns
    /// the error to send if the person is not authenticated, or the evaluation cannot begin or fails.
    pub(super) async fn dry_run(&self, request: Request) -> Result<HttpReply, HttpReply> {
        let models = self.routes_of_people()?;
        let (head, body) = request.into_parts();
        // The body of an unauthenticated request is not read.
        models.approvals.check(&head.headers)?;
        protect_connection(&head.extensions);
        let read = self.receive(&head.headers, body).await?;
        // The guard ends the evaluation if this request ends first.
        let (requested, _guard) = models.requested_dry_run(&head.headers, &read.bytes).await?;
        // Frees the memory of the body, which is not needed any more.
        drop(read);
        self.run_on_worker(move || requested.run()).await
    }
}
