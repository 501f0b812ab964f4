//! Counts each request against the quotas of its client and of its virtual key (the requests that each may send in a
//! minute), and refuses the request if a quota is exhausted. Also writes to the operator's log which limit of a client
//! or a key was reached. The model routes and the MCP routes call this module before they read a body; `budgets` calls
//! it to log that a budget is used up.

use axum::http::StatusCode;

use super::ModelRoutes;
use super::clients::ClientState;
use super::report::RequestReport;
use super::turn_trace::TurnTrace;
use crate::database::{DatabaseError, RequestAdmission};
use crate::http::reply::HttpReply;
use crate::http::request_error::RequestError;
use crate::log::Limit;
use crate::mcp_proxy::stream_place::MAX_LISTENING;
use crate::virtual_keys::valid_key::ValidKey;

/// A limit on the requests of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientLimit {
    /// Requests per minute.
    Requests,
    /// Tokens per day.
    Tokens,
    /// The cost per day.
    Cost,
    /// Requests in parallel.
    Parallel,
    /// Parallel streams on which the client only listens for messages of an MCP server.
    Listening,
}

/// A limit on the requests of a virtual key, with its value, which was set when the key was made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyLimit {
    /// Requests per minute.
    Requests(u32),
    /// Tokens per day.
    Tokens(u64),
    /// The cost per day, in millionths of the currency.
    Cost(u64),
}

/// The refusal of a request that exceeds a quota or a budget of its client or of its virtual key, or that the database
/// could not count.
#[derive(Debug)]
pub(crate) struct QuotaRefusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The number of seconds after which the client may try again.
    retry_after: u64,
}

impl QuotaRefusal {
    /// Creates a refusal with this status and message, after which the client may try again in `retry_after` seconds.
    pub(super) fn new(status: StatusCode, message: String, retry_after: u64) -> Self {
        Self { status, message, retry_after }
    }

    /// Adds the `retry-after` header to the reply that refuses the request, and marks it as logged, because the
    /// refusal was logged when the quota was checked.
    pub(crate) fn add_to(&self, reply: HttpReply) -> HttpReply {
        reply.with_header("retry-after", &self.retry_after.to_string()).mark_logged()
    }
}

impl ModelRoutes {
    /// Logs that a client has reached the limit `bound`, and that its request was refused. `conversation` is the
    /// conversation that the request names, if it names one.
    pub(crate) fn log_client_limit(
        &self,
        client: &ClientState,
        conversation: Option<&str>,
        bound: ClientLimit,
    ) {
        // What is limited, the setting of the limit, advice, and the limit itself. Only a limit that the operator can
        // set has a setting; the line about a fixed limit has advice instead.
        let (what, setting, advice, most) = match bound {
            ClientLimit::Requests => {
                let most = client.spec.requests_per_minute.into();
                ("requests of one client in a minute", Some("[clients.NAME] requests-per-minute"), None, most)
            }
            ClientLimit::Tokens => {
                let most = client.spec.budget.tokens_per_day.unwrap_or_default();
                ("tokens of one client in a day", Some("[clients.NAME] tokens-per-day"), None, most)
            }
            ClientLimit::Cost => {
                // The log has whole units of the currency.
                let most = client.spec.budget.cost_per_day.unwrap_or_default() / 1_000_000;
                ("cost of one client in a day", Some("[clients.NAME] cost-per-day"), None, most)
            }
            ClientLimit::Parallel => {
                let most = u64::try_from(client.spec.parallel).unwrap_or(u64::MAX);
                ("requests of one client at the same time", Some("[clients.NAME] parallel"), None, most)
            }
            ClientLimit::Listening => {
                let most = u64::try_from(MAX_LISTENING).unwrap_or(u64::MAX);
                ("streams of one client at the same time", None, Some("end streams that are not read"), most)
            }
        };
        let effect = "the request was refused with 429";
        self.log.limit(&Limit {
            what,
            effect,
            setting,
            advice,
            most,
            client: &client.spec.name,
            conversation,
        });
    }

    /// Logs that a virtual key of a client has reached its limit `bound`, and that the request was refused.
    /// `conversation` is the conversation that the request names, if it names one.
    pub(super) fn log_key_limit(
        &self,
        client: &ClientState,
        key: &ValidKey,
        conversation: Option<&str>,
        bound: KeyLimit,
    ) {
        let (what, most) = match bound {
            KeyLimit::Requests(most) => ("requests of one virtual key in a minute", most.into()),
            KeyLimit::Tokens(most) => ("tokens of one virtual key in a day", most),
            // The log has whole units of the currency.
            KeyLimit::Cost(most) => ("cost of one virtual key in a day", most / 1_000_000),
        };
        // The operator has to learn which key it was. The name of the conversation contains the id of the key. If the
        // request names no conversation, the line has the account of the key in its place, which contains the id too.
        let conversation = conversation.map_or_else(|| key.account(), str::to_owned);
        self.log.limit(&Limit {
            what,
            effect: "the request was refused with 429",
            setting: None,
            advice: Some("make a key with a higher limit, and revoke this one"),
            most,
            client: &client.spec.name,
            conversation: Some(&conversation),
        });
    }

    /// Logs that the database could not check a quota or a budget, in the same form as other failed requests, and
    /// returns the refusal of the request. `conversation` is the conversation that the request names, if it names one.
    pub(super) fn quota_failure(
        &self,
        client: &ClientState,
        conversation: Option<&str>,
        error: DatabaseError,
    ) -> QuotaRefusal {
        let failure = RequestError::from(error);
        let mut report = RequestReport::begin(conversation, TurnTrace::default());
        report.set_failure(&failure);
        // `write` removes the client's key for the upstream from the name of the conversation. `None`: this key is not
        // known here.
        report.write(&self.log, &client.spec.name, None);
        // The database may answer again soon, so the client is asked to retry after a second.
        QuotaRefusal::new(failure.status, failure.message, 1)
    }

    /// Counts one request against the quota of its virtual key (`key`), if this key has a quota, and then against the
    /// quota of its client. Gateways that share a database share the quotas. Logs a refusal, with the `conversation`
    /// that the request names.
    ///
    /// # Errors
    /// If the quota is exhausted, or the database cannot count the request. The message tells the client what to do.
    pub(crate) async fn take_request(
        &self,
        (client, key): (&ClientState, Option<&ValidKey>),
        conversation: Option<&str>,
    ) -> Result<(), QuotaRefusal> {
        let store = self.sessions.store();
        // The quota of the key comes first, so that the refused requests of one key do not use up the client's quota,
        // which all of its keys share.
        if let Some((key, per_minute)) = key.and_then(|key| Some((key, key.requests_per_minute?))) {
            let counted = store.take_request(&key.account(), per_minute).await;
            let counted = counted.map_err(|error| self.quota_failure(client, conversation, error))?;
            if let RequestAdmission::Exhausted { seconds } = counted {
                self.log_key_limit(client, key, conversation, KeyLimit::Requests(per_minute));
                let message = format!("this key has sent too many requests in a minute: wait {seconds} s");
                return Err(QuotaRefusal::new(StatusCode::TOO_MANY_REQUESTS, message, seconds));
            }
        }
        // Counts the request in this process first, which needs no query.
        let admission = match client.take_request() {
            Err(seconds) => RequestAdmission::Exhausted { seconds },
            // If no other gateway uses the database, the count of this process is the whole count.
            Ok(()) if !store.is_shared() => RequestAdmission::Admitted,
            Ok(()) => {
                let counted = store.take_request(&client.spec.name, client.spec.requests_per_minute).await;
                counted.map_err(|error| self.quota_failure(client, conversation, error))?
            }
        };
        let RequestAdmission::Exhausted { seconds } = admission else { return Ok(()) };
        self.log_client_limit(client, conversation, ClientLimit::Requests);
        let message = format!("this client has sent too many requests in a minute: wait {seconds} s");
        Err(QuotaRefusal { status: StatusCode::TOO_MANY_REQUESTS, message, retry_after: seconds })
    }
}
