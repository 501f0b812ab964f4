//! Checks whether a client may ask for the model that a request names, and whether the request offers too many tools.
//! `answer` and `embeddings` call it before a model is asked.

use axum::http::StatusCode;
use flowgate_lm::wire;

use super::clients::ClientState;
use crate::config::UpstreamConfig;
use crate::http::request_error::RequestError;
use crate::virtual_keys::valid_key::ValidKey;

/// The maximum number of tools that one request may offer.
const MAX_TOOLS: usize = 512;

/// Rejects a request of `caller` (a client and its virtual key) if it offers too many tools, or if [`check_model`]
/// rejects its model. Called before the chat of the request is added to the conversation.
pub(crate) fn check_request(
    caller: (&ClientState, Option<&ValidKey>),
    decoded: &wire::ReceivedRequest,
) -> Result<(), RequestError> {
    check_model(caller, &decoded.model)?;
    if decoded.request.tools.len() > MAX_TOOLS {
        let message =
            format!("the request has more than {MAX_TOOLS} tools: send only those that the agent needs");
        return Err(RequestError::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(())
}

/// Rejects a request for `model` if the client has no upstream, if the client or its virtual key (`key`) may not use
/// the model, or if the model has no price although the client or the key has a budget for costs.
pub(super) fn check_model(
    (client, key): (&ClientState, Option<&ValidKey>),
    model: &str,
) -> Result<(), RequestError> {
    let upstream = upstream(client)?;
    // An empty list permits every model.
    if !upstream.models.is_empty() && !upstream.models.iter().any(|permitted| permitted == model) {
        let message = format!(
            "this client may not ask for the model `{model}`; it may ask for: {} (`models` in [upstreams])",
            upstream.models.join(", ")
        );
        return Err(RequestError::new(StatusCode::NOT_FOUND, message));
    }
    if let Some(key) = key.filter(|key| !key.permits_model(model)) {
        let models = key.models();
        let message =
            format!("this key may not be used for the model `{model}`; it may be used for: {models}");
        return Err(RequestError::new(StatusCode::NOT_FOUND, message));
    }
    let budgets = std::iter::once(&client.spec.budget).chain(key.map(|key| &key.budget));
    if !budgets.into_iter().all(|budget| budget.permits_model(model)) {
        let message = format!(
            "the model `{model}` has no price, so its cost cannot be counted against the budget: request another \
             model, or let the operator of the gateway add its price to [prices]"
        );
        return Err(RequestError::new(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

/// Returns the upstream of a client; the error says that the client has none.
pub(super) fn upstream(client: &ClientState) -> Result<&UpstreamConfig, RequestError> {
    client.spec.upstream().map_err(|why| RequestError::new(StatusCode::NOT_FOUND, why))
}
