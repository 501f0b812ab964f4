//! Rejects requests that match no route, or whose method the route does not support. `http::service` calls it.

use axum::http::{HeaderMap, StatusCode};
use flowgate_lm::wire::{Api, KeyHeader};

use super::{GatewayService, ROUTES, ServiceRoute};
use crate::chat::error_reply::error_reply;
use crate::http::reply::HttpReply;

impl GatewayService {
    /// Answers a request for a path that is no route. The answer is always an error: for a path of a provider's API,
    /// such as one under `/v1/`, in the error format of the provider; for any other path, a list of all routes, if the
    /// caller has access.
    pub(super) async fn unknown(&self, headers: &HeaderMap, path: &str) -> Result<HttpReply, HttpReply> {
        // A program that requests another route of a provider expects errors in the format of the provider.
        if path.starts_with("/v1/") || form_of_prefix(path).is_some() {
            let answers = ROUTES
                .iter()
                .filter(|(.., route)| matches!(route, ServiceRoute::Model(_) | ServiceRoute::ModelMethod(_)));
            let answers: Vec<&str> = answers.map(|(_, path, _)| *path).collect();
            let message = format!(
                "this gateway does not support this route of the provider: use one of {}, /v1/embeddings and /v1/models",
                answers.join(", ")
            );
            return Err(error_reply(implied_api(headers, path), StatusCode::NOT_FOUND, &message));
        }
        self.access.check(headers)?;
        let routes: Vec<String> = ROUTES.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        let detail =
            format!("there is no route with this path: use one of these routes: {}", routes.join(", "));
        Err(HttpReply::detail(StatusCode::NOT_FOUND, &detail))
    }

    /// Answers a request whose method its route does not support, with the names of the supported ones. The answer is
    /// always an error; it names no route to a caller without access.
    pub(super) async fn wrong_method(&self, headers: &HeaderMap, path: &str) -> Result<HttpReply, HttpReply> {
        self.access.check(headers)?;
        // A path with a variable segment differs from its pattern, and is answered without the methods.
        let routes = ROUTES.iter().filter(|(_, known, _)| *known == path);
        let methods: Vec<&str> = routes.map(|(method, ..)| method.as_str()).collect();
        let detail = match methods.as_slice() {
            [] => {
                "this route does not support the method of the request: see /api/openapi.json for its methods"
                    .to_owned()
            }
            [method] => {
                format!("{path} supports only the method {method}: send the request with this method")
            }
            several => format!(
                "{path} supports only the methods {}: send the request with one of them",
                several.join(", ")
            ),
        };
        Err(HttpReply::detail(StatusCode::METHOD_NOT_ALLOWED, &detail))
    }
}

/// Returns the API to which all paths with this beginning belong, such as Gemini's for `/v1beta/`; `None` if the path
/// could belong to several APIs.
fn form_of_prefix(path: &str) -> Option<Api> {
    Api::ALL.into_iter().find(|api| api.form().own_prefix.is_some_and(|prefix| path.starts_with(prefix)))
}

/// Returns the API in whose form a request is answered if its route does not show the API: the request matches no
/// route, or several APIs share the route. If the path has a beginning that belongs to one API only, it is this API.
/// Otherwise it is the API in whose own header the client sends its key, such as `x-api-key`. Clients with the header
/// `Authorization`, or without a key, count as clients of Chat Completions.
pub(super) fn implied_api(headers: &HeaderMap, path: &str) -> Api {
    let sends_key = |api: &Api| {
        let header = api.form().key_header;
        header != KeyHeader::BEARER && headers.contains_key(header.name)
    };
    // A request with the key headers of several APIs counts as one for the last of them in the list.
    form_of_prefix(path)
        .or_else(|| Api::ALL.into_iter().rev().find(sends_key))
        .unwrap_or(Api::ChatCompletions)
}
