//! Shows people the policy of a client with the number of times that each statement applied in stored conversations,
//! and tries an edited policy on these conversations. `http::service` calls it, and the page for people shows the
//! answers.
//!
//! Nothing is stored or changed: the conversations are replayed from their journals, and judged again under a policy by
//! [`Monitor::rejudge`](flowgate::monitor::Monitor::rejudge).
//!
//! * `stored_conversations`: selects the last stored conversations of a client, and replays them.
//! * `policy_view`: lists the policies, and shows one with the counts of its statements.
//! * `dry_run`: lists the calls whose verdicts an edited policy would change.
//! * `review_runs`: lets each person run one evaluation at a time, which ends with its request.

mod dry_run;
mod policy_view;
mod review_runs;
mod stored_conversations;

use std::sync::Arc;

use axum::http::StatusCode;
use flowgate::label::NameTable;

use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::config::Person;
use crate::http::reply::HttpReply;
pub(crate) use review_runs::ReviewRuns;

impl ModelRoutes {
    /// Returns the client with this name, if the person may see its tenant.
    ///
    /// # Errors
    /// The reply to send if there is no such client.
    fn reviewed_client(&self, person: &Person, name: &str) -> Result<Arc<ClientState>, HttpReply> {
        let client = self.clients.find_by_name(name);
        client.filter(|client| person.sees_tenant(&client.spec.tenant)).ok_or_else(|| {
            let message = "there is no client of this name, or it is of a tenant that you may not see: choose \
                one from the list of policies";
            HttpReply::detail(StatusCode::NOT_FOUND, message)
        })
    }
}

/// Returns whether a person may read every text of the conversations of a client. Only such a person may review the
/// policy: counts and verdicts depend on all texts, and an edited policy can test any of them.
pub(crate) fn reads_everything(person: &Person, client: &ClientState) -> bool {
    // In watch mode, the conversations run under another policy than the client's own, and both have to be covered.
    [&client.spec.policy, client.spec.own_policy()].iter().all(|policy| {
        let space = policy.space();
        person.may_read.bound_under(space, &NameTable::new(space)).is_top(space)
    })
}
