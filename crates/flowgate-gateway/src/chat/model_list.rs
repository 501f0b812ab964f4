//! Answers the route that lists the models that a client may ask for, in the form of the API that the client uses.
//! `http::service` calls it.

use axum::http::{HeaderMap, StatusCode};
use flowgate_lm::wire::Api;

use super::ModelRoutes;
use super::authentication::Caller;
use super::error_reply::error_reply;
use crate::http::reply::HttpReply;
use crate::tls::client_certificate::ClientCertificate;

impl ModelRoutes {
    /// Serves the list of the models that a client may request, in the format of the API `api`: the models that its
    /// upstream lists and that its virtual key, if it has one, permits. If the upstream lists no models, the answer is
    /// empty. A client that is not authenticated, or has no upstream, is answered with the error.
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
