//! Builds error replies in the form of the API that the client uses, so that the client's library can read them. The
//! model routes and `http::service` call [`error_reply`].

use axum::http::{StatusCode, header};
use flowgate_lm::wire::Api;

use crate::http::reply::HttpReply;

/// Builds an error reply in the form of an API. A reply with the status 429 tells the client to retry after a second.
pub(crate) fn error_reply(api: Api, status: StatusCode, message: &str) -> HttpReply {
    let reply = HttpReply::json(status, &api.encode_error(status.as_u16(), message));
    if status == StatusCode::TOO_MANY_REQUESTS { reply.header(header::RETRY_AFTER, "1") } else { reply }
}
