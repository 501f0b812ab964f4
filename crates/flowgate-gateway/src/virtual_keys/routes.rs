//! Serves the routes by which admins make, list and revoke virtual keys. `http::service` calls it.
//!
//! An admin sees and handles the keys of the clients of their tenants. No lesser role may, since a key has the rights
//! of its client. The gateway shows a key only once, in the reply to the request that makes it.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, StatusCode, header};
use flowgate_audit::AuditEvent;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scope::scope;
use super::text::VirtualKeyText;
use crate::chat::ModelRoutes;
use crate::config::{ClientSettings, MAX_COST, Role};
use crate::database::{AddedKey, DatabaseError, KeyLimits, NewVirtualKey, StoredVirtualKey};
use crate::http::reply::HttpReply;
use crate::log::Limit;
use crate::random;

/// The most keys of one client, not counting revoked ones.
pub(crate) const MAX_KEYS: usize = 1000;
/// The longest name of a key, in characters.
const MAX_NAME: usize = 64;
/// The most models that a key may be limited to.
const MAX_MODELS: usize = 64;

/// The form of the body of a request for a key.
const FORM: &str = "`{\"client\": \"...\", \"name\": \"...\"}`, where `expires` (milliseconds since 1970), \
    `requests_per_minute`, `tokens_per_day`, `cost_per_day` and `models` are optional";

/// The body of a request for a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MakeKeyRequest {
    client: String,
    name: String,
    /// In milliseconds since 1970.
    expires: Option<u64>,
    requests_per_minute: Option<u32>,
    tokens_per_day: Option<u64>,
    /// In the currency of the section `[prices]`.
    cost_per_day: Option<f64>,
    #[serde(default)]
    models: Vec<String>,
}

impl MakeKeyRequest {
    /// Checks the request, for a key of this client at the time `now`, in milliseconds since 1970. Returns the time at
    /// which the key expires (`None`: it does not expire), and its limits.
    ///
    /// # Errors
    /// The message about the first invalid field.
    fn check(&self, client: &ClientSettings, now: u64) -> Result<(Option<i64>, KeyLimits), String> {
        let is_usual = |c: char| c.is_alphanumeric() || " ._@/+-".contains(c);
        if self.name.trim().is_empty()
            || self.name.chars().count() > MAX_NAME
            || !self.name.chars().all(is_usual)
        {
            return Err(format!(
                "name: write 1 to {MAX_NAME} characters: letters and digits of any alphabet, spaces, and `._@/+-`"
            ));
        }
        let expires = self.expires.map(|expires| i64::try_from(expires).unwrap_or(i64::MAX));
        if self.expires.is_some_and(|expires| expires <= now) {
            return Err(
                "expires: the time is in the past: write a later one, in milliseconds since 1970".to_owned()
            );
        }
        if self.requests_per_minute == Some(0) || self.tokens_per_day == Some(0) {
            return Err(
                "requests_per_minute, tokens_per_day: a limit of 0 permits nothing: make no key instead"
                    .to_owned(),
            );
        }
        if self.cost_per_day.is_some_and(|cost| !(cost > 0.0 && cost <= MAX_COST)) {
            return Err(format!("cost_per_day: write a number above 0 and at most {MAX_COST:e}"));
        }
        if self.cost_per_day.is_some() && client.budget.prices.is_empty() {
            return Err(
                "cost_per_day: no model has a price: the operator can add [prices] to the configuration"
                    .to_owned(),
            );
        }
        if self.models.len() > MAX_MODELS {
            return Err(format!("models: a key can name at most {MAX_MODELS} models: leave some out"));
        }
        // An empty list permits every model.
        let permitted =
            client.upstream.as_ref().map(|upstream| upstream.models.as_slice()).unwrap_or_default();
        let is_refused = |model: &&String| !permitted.is_empty() && !permitted.contains(model);
        if let Some(refused) = self.models.iter().find(is_refused) {
            return Err(format!(
                "models: this client may not ask for `{refused}`; it may ask for: {}",
                permitted.join(", ")
            ));
        }
        // In millionths of the currency, as the database stores it. At least 1, since a limit of 0 permits nothing.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most 10^18")]
        let cost_per_day = self.cost_per_day.map(|cost| ((cost * 1e6).round() as u64).max(1));
        let limits = KeyLimits {
            requests_per_minute: self.requests_per_minute,
            tokens_per_day: self.tokens_per_day,
            cost_per_day,
            models: self.models.clone(),
        };
        Ok((expires, limits))
    }
}

impl ModelRoutes {
    /// Makes a key as the body of the request says, and returns it. The audit log has a record of the key before the
    /// key is valid.
    ///
    /// # Errors
    /// The reply to send if the person is not an admin of the client's tenant, the body is malformed, the client has a
    /// key of this name or too many keys, or the key cannot be recorded or stored.
    pub(crate) async fn make_key(&self, headers: &HeaderMap, body: &[u8]) -> Result<HttpReply, HttpReply> {
        // Checks the request, and that the person may make a key for its client.
        let person = self.approvals.person(headers, Role::Admin)?;
        let bad = |why: &str| HttpReply::detail(StatusCode::BAD_REQUEST, why);
        let request: MakeKeyRequest = serde_json::from_slice(body).map_err(|error| {
            bad(&format!("the body of the request does not have the form {FORM}: {error}"))
        })?;
        let client = self.clients.find_by_name(&request.client);
        let client = client.filter(|client| person.sees_tenant(&client.spec.tenant)).ok_or_else(|| {
            let message = "there is no client of this name, or it is of a tenant for which you are no admin: correct \
                `client`";
            HttpReply::detail(StatusCode::NOT_FOUND, message)
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let (expires, limits) = request.check(&client.spec, now).map_err(|why| bad(&why))?;
        // Checked before the audit log records the key: otherwise it would record a key that is not made.
        self.check_other_keys(&client.spec, &request.name).await?;
        // Draws the key, records it, and stores it.
        let store = self.sessions.store();
        let no_random = |_| database_error_reply(DatabaseError::NoRandomBytes);
        let text = VirtualKeyText::generate().map_err(no_random)?;
        let id = random::hex(&random::bytes::<8>().map_err(no_random)?);
        let what = format!("{id} {}", request.name);
        let (tenant, who) = (client.spec.tenant.clone(), person.name.clone());
        let event = AuditEvent::KeyMade {
            client: client.spec.name.clone(),
            tenant: tenant.clone(),
            what: what.clone(),
            who: who.clone(),
        };
        self.recorder.record(&[event.into()]).map_err(database_error_reply)?;
        let key = NewVirtualKey {
            id: id.clone(),
            digest: text.digest(),
            client: client.spec.name.clone(),
            tenant,
            name: request.name.clone(),
            who: who.clone(),
            expires,
            limits,
        };
        let added = async {
            // The database stores the head of the audit log before the key is valid, so that a later removal of the
            // record from the log is noticed.
            store.persist_log_head().await?;
            store.add_virtual_key(key, i64::try_from(MAX_KEYS).unwrap_or(i64::MAX)).await
        };
        let added = added.await.map_err(|error| {
            self.recorder.record_unconfirmed(format!("key {what}"), &who, &error);
            database_error_reply(error)
        })?;
        // The audit log has a record of the key already. If another request has taken the name or the last place in the
        // meantime, a correction says that the key was not made.
        if added != AddedKey::Added {
            let cause = "the key was not made".to_owned();
            let correction = AuditEvent::OrderUnconfirmed { what: format!("key {what}"), who, cause };
            self.recorder.record(&[correction.into()]).map_err(database_error_reply)?;
            return Err(self.refuse_key(&client.spec, added));
        }
        let made = json!({
            "id": id,
            "key": text.expose(),
            "client": request.client,
            "name": request.name,
            "expires": expires,
        });
        Ok(HttpReply::json(StatusCode::OK, &made).with_header(header::CACHE_CONTROL.as_str(), "no-store"))
    }

    /// Checks that the client has no key with the name `name`, and may have one more key.
    async fn check_other_keys(&self, client: &ClientSettings, name: &str) -> Result<(), HttpReply> {
        let store = self.sessions.store();
        let keys = store.virtual_keys(Some(&client.tenant)).await.map_err(database_error_reply)?;
        let names = keys.iter().filter(|key| key.client == client.name).map(|key| key.name.as_str());
        let names: Vec<&str> = names.collect();
        if names.contains(&name) {
            return Err(self.refuse_key(client, AddedKey::NameTaken));
        }
        if names.len() >= MAX_KEYS {
            return Err(self.refuse_key(client, AddedKey::Full));
        }
        Ok(())
    }

    /// Returns the reply to a request for a key that is not made, because of `outcome`: its name is taken, or the
    /// client has too many keys. Logs the limit in the second case.
    fn refuse_key(&self, client: &ClientSettings, outcome: AddedKey) -> HttpReply {
        if outcome != AddedKey::Full {
            let message = "the client has a key of this name: choose another one, or revoke that key";
            return HttpReply::detail(StatusCode::CONFLICT, message);
        }
        self.log.limit(&Limit {
            what: "virtual keys of one client",
            effect: "no further key is made",
            setting: None,
            advice: Some("revoke keys that are not used"),
            most: u64::try_from(MAX_KEYS).unwrap_or(u64::MAX),
            client: &client.name,
            conversation: None,
        });
        let message = format!("the client has {MAX_KEYS} keys: revoke those that are not used");
        HttpReply::detail(StatusCode::CONFLICT, &message)
    }

    /// Returns the reply with the names, states and limits of the keys of the clients of the person's tenants,
    /// without the keys themselves.
    ///
    /// # Errors
    /// The reply to send if the person is no admin, or the database fails.
    pub(crate) async fn list_keys(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Admin)?;
        let tenants = person.tenants.iter().map(|tenant| Some(tenant.as_str()));
        // An empty list means all tenants: one query without a tenant reads the keys of all.
        let all = person.tenants.is_empty().then_some(None);
        let mut listed: Vec<Value> = Vec::new();
        for tenant in tenants.chain(all) {
            let keys = self.sessions.store().virtual_keys(tenant).await.map_err(database_error_reply)?;
            listed.extend(keys.iter().map(|key| self.key_json(key)));
        }
        Ok(HttpReply::json(StatusCode::OK, &json!({"keys": listed})))
    }

    /// Revokes the key with this id: every gateway that shares the database refuses the next request with the key. The
    /// audit log records the order before the key is revoked.
    ///
    /// # Errors
    /// The reply to send if the person is no admin of the key's tenant, there is no such key, or the order cannot be
    /// recorded or stored.
    pub(crate) async fn revoke_key(&self, headers: &HeaderMap, id: &str) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Admin)?;
        let store = self.sessions.store();
        let key = store.virtual_key(id).await.map_err(database_error_reply)?;
        let key = key.filter(|key| person.sees_tenant(&key.tenant)).ok_or_else(no_key_reply)?;
        let what = format!("{} {}", key.id, key.name);
        let event = AuditEvent::KeyRevoked {
            client: key.client.clone(),
            tenant: key.tenant.clone(),
            what: what.clone(),
            who: person.name.clone(),
        };
        self.recorder.record(&[event.into()]).map_err(database_error_reply)?;
        let revoked = async {
            // The database stores the head of the audit log before the key is revoked, so that a later removal of the
            // record from the log is noticed.
            store.persist_log_head().await?;
            // The scope of the key is the name under which its requests and spending are counted.
            store.revoke_virtual_key(&key.id, &scope(Some(&key.id))).await
        };
        let was_valid = revoked.await.map_err(|error| {
            self.recorder.record_unconfirmed(format!("revocation of key {what}"), &person.name, &error);
            database_error_reply(error)
        })?;
        if !was_valid {
            return Err(no_key_reply());
        }
        Ok(HttpReply::json(StatusCode::OK, &json!({"id": key.id, "revoked": true})))
    }

    /// Returns a key as JSON for the list of keys. Its state is `valid`, `expired`, or `no-client` if the configuration
    /// no longer has the client of the key, or the client has another tenant now.
    fn key_json(&self, key: &StoredVirtualKey) -> Value {
        // A client that now has another tenant is not the one for which the key was made.
        let client = self.clients.find_by_name(&key.client);
        let state = match client {
            Some(client) if client.spec.tenant == key.tenant => {
                if key.is_expired {
                    "expired"
                } else {
                    "valid"
                }
            }
            _ => "no-client",
        };
        let limits = &key.limits;
        // In the currency; it is stored in millionths.
        #[expect(
            clippy::cast_precision_loss,
            reason = "a cost is at most 10^18 millionths, and is shown to people"
        )]
        let cost = limits.cost_per_day.map(|millionths| millionths as f64 / 1e6);
        json!({
            "id": key.id,
            "client": key.client,
            "tenant": key.tenant,
            "name": key.name,
            "state": state,
            "made_by": key.who,
            "made": key.made,
            "last_used": key.last_used,
            "expires": key.expires,
            "requests_per_minute": limits.requests_per_minute,
            "tokens_per_day": limits.tokens_per_day,
            "cost_per_day": cost,
            "models": limits.models,
        })
    }
}

/// Returns the reply if there is no key with the requested id that the person may handle.
fn no_key_reply() -> HttpReply {
    let message = "there is no key with this id, or it is of a tenant for which you are no admin: take the id \
        from the list of keys";
    HttpReply::detail(StatusCode::NOT_FOUND, message)
}

/// Returns the reply to a request that failed because of the database or the audit log.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn database_error_reply(error: DatabaseError) -> HttpReply {
    HttpReply::of_database_error(&error)
}
