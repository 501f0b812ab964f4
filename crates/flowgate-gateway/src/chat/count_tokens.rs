//! Answers requests for the number of tokens of a chat, in the APIs that have such requests. `http::service` calls it.
//!
//! The gateway estimates the number from what the client sent, and asks no model. A model's server would count what the
//! model is shown, which may depend on hidden text.

use axum::http::StatusCode;
use flowgate_lm::estimated_input_tokens;
use serde_json::json;

use super::ModelRoutes;
use super::error_reply::error_reply;
use super::model_request::ModelRouteRequest;
use crate::http::reply::HttpReply;

impl ModelRoutes {
    /// Answers a request to count tokens with the estimate for the chat and the tools in its body. The error is the
    /// reply to a body that is not a valid request.
    pub(crate) fn count_tokens(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
    ) -> Result<HttpReply, HttpReply> {
        let bad = |message: &str| error_reply(received.api, StatusCode::BAD_REQUEST, message);
        let text = std::str::from_utf8(body)
            .map_err(|_| bad("the body of the request is not valid UTF-8: encode it in UTF-8"))?;
        let request = received.client.decoder.decode_count_request(received.api, text);
        let tokens = estimated_input_tokens(&request.map_err(|why| bad(&why))?);
        // Always present: for an API without such requests, `decode_count_request` has failed.
        let count = received.api.form().token_count.as_ref();
        let field = count.map_or("input_tokens", |count| count.answer_field);
        Ok(HttpReply::json(StatusCode::OK, &json!({field: tokens})))
    }
}
