//! Answers the route that lists the models that a client may ask for, in the form of the API that the client uses.
//! `http::service` calls it.

use axum::http::{HeaderMap, StatusCode};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use super::ModelRoutes;
use super::authentication::Caller;
use super::error_reply::error_reply;
use crate::http::reply::HttpReply;
use crate::tls::client_certificate::ClientCertificate;

impl ModelRoutes {
    /// Serves the list of the models that a client may request, in the format of the API `api`. A client that is not
    /// authenticated, or has no upstream, is answered with the error.
    pub(crate) async fn models(
        &self,
        api: Api,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<HttpReply, HttpReply> {
        let Caller { client, virtual_key, .. } = self
            .authenticate_for_model(headers, certificate)
            .await
            .map_err(|failure| error_reply(api, failure.status, &failure.message).annotate(failure.detail))?;
        let upstream = client.spec.upstream().map_err(|why| error_reply(api, StatusCode::NOT_FOUND, why))?;
        let is_permitted = |name: &str| virtual_key.as_ref().is_none_or(|key| key.permits_model(name));
        // The gateway does not know when a model was created; the formats require a time.
        let model = |name: &String| match api {
            Api::Messages => {
                json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"})
            }
            Api::GenerateContent => json!({
                "name": format!("models/{name}"),
                "displayName": name,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            }),
            _ => json!({"id": name, "object": "model", "created": 0, "owned_by": upstream.name}),
        };
        let models: Vec<Value> =
            upstream.models.iter().filter(|name| is_permitted(name)).map(model).collect();
        let list = match api {
            Api::Messages => {
                let id_of = |model: Option<&Value>| model.and_then(|model| model.get("id")).cloned();
                json!({"first_id": id_of(models.first()), "last_id": id_of(models.last()), "has_more": false, "data": models})
            }
            Api::GenerateContent => json!({"models": models}),
            _ => json!({"object": "list", "data": models}),
        };
        Ok(HttpReply::json(StatusCode::OK, &list))
    }
}
