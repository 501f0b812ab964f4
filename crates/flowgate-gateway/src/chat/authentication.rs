//! Authenticates requests: finds the client that has sent a request, by the client's own key or certificate, by a
//! virtual key that an admin has made for the client, or by a token that an issuer has signed. The model routes and the
//! MCP routes call this module before they read a body.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};

use super::ModelRoutes;
use super::clients::ClientState;
use super::credentials::PresentedKeys;
use crate::database::DatabaseError;
use crate::http::request_error::RequestError;
use crate::identity::token::{TokenRefusal, looks_like_token};
use crate::log::LogEvent;
use crate::tls::client_certificate::ClientCertificate;
use crate::virtual_keys::scope::scope;
use crate::virtual_keys::text::{PREFIX, VirtualKeyText};
use crate::virtual_keys::valid_key::ValidKey;

/// Who has sent a request.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) client: Arc<ClientState>,
    /// The virtual key or the token; `None` if the request has the key or the certificate of the client itself.
    pub(crate) virtual_key: Option<Arc<ValidKey>>,
    /// The key for the model provider, if the request has one.
    pub(crate) provider_key: Option<String>,
}

impl Caller {
    /// Returns the name under which the gateway stores the conversation that the caller names `name`. It begins with
    /// the scope of the caller, so that two virtual keys do not share a conversation.
    pub(crate) fn conversation(&self, name: &str) -> String {
        self.scope() + name
    }

    /// Returns the scope of the caller's conversations: the beginning of their names in the gateway, which depends on
    /// the virtual key. It is empty without a virtual key.
    pub(crate) fn scope(&self) -> String {
        scope(self.virtual_key.as_ref().map(|key| key.id.as_str()))
    }
}

impl ModelRoutes {
    /// Finds the client of a request by its key and by the certificate of its connection. Counts the client, or the
    /// unauthenticated request, for the page for people.
    ///
    /// A virtual key takes the place of the client's own key: a client with a certificate must also present the
    /// certificate.
    ///
    /// # Errors
    /// Why the request is rejected, as a message for the client; also if the database cannot be read.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Caller, RequestError> {
        let found = self.find_caller(headers, certificate).await;
        match &found {
            Ok(caller) => self.coverage.note_client(&caller.client.spec.name),
            Err(failure) if failure.status == StatusCode::UNAUTHORIZED => self.coverage.note_stranger(),
            Err(_) => {}
        }
        found
    }

    /// Finds the client of a request for [`authenticate`](Self::authenticate). First finds the client to which the key
    /// in the headers belongs: a client's own key, a virtual key or a token. Then
    /// [`find_by_credentials`](super::clients::Clients::find_by_credentials) decides whether this client and the
    /// certificate of the connection agree.
    ///
    /// # Errors
    /// As for [`authenticate`](Self::authenticate).
    async fn find_caller(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Caller, RequestError> {
        let refuse = |why: &str| RequestError::new(StatusCode::UNAUTHORIZED, why);
        let keys = PresentedKeys::read(headers).map_err(refuse)?;
        // Why the token of the request authenticates no client. The request is refused for this reason unless a
        // certificate authenticates a client.
        let mut refusal = None;
        let (by_key, virtual_key) = match (self.clients.holder_of(&keys), keys.for_gateway()) {
            (Some(client), _) => (Some(Arc::clone(client)), None),
            // What looks like a virtual key is never taken for a key of the model provider.
            (None, Some(key)) if key.starts_with(PREFIX) => {
                let (client, key) = self.find_virtual_key(key).await?;
                (Some(client), Some(key))
            }
            (None, Some(key)) if looks_like_token(key) => match self.find_by_token(key).await {
                Ok((client, key)) => (Some(client), Some(key)),
                // This can be a token for the model provider: a client that is authenticated by its certificate may
                // send one.
                Err(why @ TokenRefusal::UnknownIssuer) => {
                    refusal = Some(why);
                    (None, None)
                }
                Err(why) => return Err(token_refusal(why)),
            },
            // There is no key, or one for the model provider: only a certificate can authenticate the client.
            (None, _) => (None, None),
        };
        let found = self.clients.find_by_credentials(keys, by_key.as_ref(), certificate);
        let (client, provider_key) =
            found.map_err(|why| refusal.map_or_else(|| refuse(why), token_refusal))?;
        if provider_key.as_ref().is_some_and(|key| key.starts_with(PREFIX)) {
            return Err(refuse(
                "the key for the model provider is a key of this gateway: send a key of the provider",
            ));
        }
        Ok(Caller { client, virtual_key, provider_key })
    }

    /// Authenticates a request to a model, as [`authenticate`](Self::authenticate) does. The returned caller has a
    /// key for the model provider exactly if the client's upstream is configured with `pass-key`.
    ///
    /// # Errors
    /// Why the request is rejected, as a message for the client: it is not authenticated, its client has no upstream,
    /// or the key for the provider is missing. Also if the database cannot be read.
    pub(crate) async fn authenticate_for_model(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Caller, RequestError> {
        let mut caller = self.authenticate(headers, certificate).await?;
        let refuse = |why: &str| RequestError::new(StatusCode::UNAUTHORIZED, why);
        let pass_key = caller.client.spec.upstream().map_err(refuse)?.pass_key;
        if pass_key && caller.provider_key.is_none() {
            // A client without a key and without a virtual key is authenticated by its certificate alone: it sends no
            // key for the gateway.
            return Err(refuse(match (&caller.client.spec.key, &caller.virtual_key) {
                (None, None) => {
                    "the request has no key for the model provider: send your provider's key in \
                    `Authorization: Bearer KEY`, `x-api-key` or `x-goog-api-key`"
                }
                _ => {
                    "the request has no key for the model provider: send your provider's key in \
                    `Authorization: Bearer KEY`, `x-api-key` or `x-goog-api-key`, and the gateway's in `x-flowgate-key`"
                }
            }));
        }
        caller.provider_key = caller.provider_key.filter(|_| pass_key);
        Ok(caller)
    }

    /// Finds the virtual key with this text, and its client. Notes once a day that the key is used.
    ///
    /// # Errors
    /// If the key is unknown, revoked or expired, its client is no longer configured with the tenant for which the key
    /// was made, or the database cannot be read.
    async fn find_virtual_key(&self, text: &str) -> Result<(Arc<ClientState>, Arc<ValidKey>), RequestError> {
        let refuse = |why: &str| RequestError::new(StatusCode::UNAUTHORIZED, why);
        let unknown = || {
            refuse(
                "the key is not valid: it was revoked, or no such key was made; ask the operator of the gateway",
            )
        };
        // The database is not asked for a text that cannot be a key.
        let key = VirtualKeyText::read(text).ok_or_else(unknown)?;
        let store = self.sessions.store();
        let found = store.virtual_key_of(&key.digest()).await.map_err(|error| self.key_failure(error))?;
        // The database has found the key by its digest, in a time that depends on the digest. The digests are compared
        // again here, in constant time.
        let stored = found.filter(|stored| key.has_digest(&stored.digest)).ok_or_else(unknown)?;
        if stored.is_expired {
            return Err(refuse("the key has expired: ask the operator of the gateway for another one"));
        }
        let client = self.clients.find_by_name(&stored.client);
        let client = client.filter(|client| client.spec.tenant == stored.tenant).ok_or_else(|| {
            refuse("the client of the key was removed from the configuration, or has another tenant now: ask the operator of the gateway for another key")
        })?;
        if !stored.is_used_today
            && let Err(error) = store.note_virtual_key_use(&stored.id).await
        {
            // The request continues: only the list of keys shows when a key was last used.
            let sentence = format!("the list of virtual keys will not show that a key was used: {error}");
            self.log.write(LogEvent::Failure, &client.spec.name, Vec::new(), &sentence);
        }
        let key = Arc::new(ValidKey::new(stored, &client.spec.budget.prices));
        Ok((client, key))
    }

    /// Logs that the database could not look up a virtual key, and returns the refusal of the request.
    fn key_failure(&self, error: DatabaseError) -> RequestError {
        // The empty name: without the key, the client is not known.
        let sentence = format!("a virtual key could not be looked up: {error}");
        self.log.write(LogEvent::Failure, "", Vec::new(), &sentence);
        RequestError::from(error)
    }
}

/// Returns the refusal of a request with a token. The sender of the request learns what to send; only the log has the
/// reason `why`.
fn token_refusal(why: TokenRefusal) -> RequestError {
    let message = "the token is not accepted: send `Authorization: Bearer TOKEN` with a token that has not expired and is from the \
        issuer and for the audience that the operator of this gateway has configured";
    RequestError::new(StatusCode::UNAUTHORIZED, message).with_detail(why.to_string())
}
