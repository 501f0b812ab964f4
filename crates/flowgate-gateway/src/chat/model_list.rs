//! Serves the list of the models that a client may request, in the form of the API that the client uses.
//! `http::service` calls it.

use axum::http::{HeaderMap, StatusCode};
use flowgate_lm::wire::Api;

use super::ModelRoutes;
use super::authentication::Caller;
use super::error_reply::error_reply;
use crate::http::reply::HttpReply;
use crate::tls::client_certificate::ClientCertificate;

impl ModelRoutes {
    /// Returns the list of the models that a client may request, in the format of `api`: those that `models` of its
    /// upstream names and that its virtual key, if it has one, permits. The list is empty if the upstream names no
    /// models, although the upstream then permits every model.
    ///
    /// # Errors
    /// The reply to send if the client is not authenticated, or has no upstream.
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
        let names = upstream.models.iter().filter(|name| is_permitted(name)).map(String::as_str);
        let list = api.encode_model_list(&names.collect::<Vec<_>>(), &upstream.name);
        Ok(HttpReply::json(StatusCode::OK, &list))
    }
}
