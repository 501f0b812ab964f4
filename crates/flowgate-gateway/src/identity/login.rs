//! Logs people in by OpenID Connect: the authorization code flow with PKCE, `state` and `nonce`. `page::login_routes`
//! serves its routes.
//!
//! The crate `openidconnect` is not used: it needs an implementation of RSA that leaks its private keys by time, and its
//! own HTTP stack. What the flow needs beside the verification of tokens is here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flowgate::json::{self, Numbers};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::byte_serialize;

use super::issuer::IssuerDescription;
use super::login_identity::LoginIdentity;
use super::pending_logins::{LoginParty, LoginSecrets, PendingLogins};
use super::token::{TokenRefusal, UnverifiedToken};
use crate::config::LoginSettings;
use crate::log::OperatorLog;

/// How long a login waits while as many others as may ask the issuer at the same time do.
const EXCHANGE_WAIT: Duration = Duration::from_secs(2);

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginFailure {
    /// The request belongs to no login of this browser, or the issuer has refused the login.
    Request(&'static str),
    /// The issuer cannot be reached, or its answer is not acceptable. The sentence is for the operator's log.
    Issuer(String),
    /// The system of the gateway returned no random bytes.
    Random,
}

impl LoginFailure {
    /// Returns the sentence for the operator's log.
    pub(crate) fn sentence(&self) -> &str {
        match self {
            Self::Request(why) => why,
            Self::Issuer(why) => why,
            Self::Random => "the system returned no random bytes",
        }
    }
}

/// What the issuer has added to the address to which it sends a person back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReturnedLogin<'r> {
    pub(crate) state: &'r str,
    /// The code; `None` if the issuer refuses the login.
    pub(crate) code: Option<&'r str>,
    /// The issuer, if it names itself (RFC 9207).
    pub(crate) issuer: Option<&'r str>,
}

impl LoginSettings {
    /// Begins a login: returns the value of the cookie of its browser, and the address at the issuer where the person
    /// logs in.
    ///
    /// # Errors
    /// If the issuer does not describe itself.
    pub(crate) async fn begin(&self, logins: &PendingLogins) -> Result<(String, String), LoginFailure> {
        let description = self.issuer.recent_description().await.map_err(LoginFailure::Issuer)?;
        let address = description.address("authorization_endpoint").map_err(LoginFailure::Issuer)?;
        let mut address = Url::parse(address)
            .map_err(|_| LoginFailure::Issuer("`authorization_endpoint` is not an address".to_owned()))?;
        let (cookie, secrets) =
            logins.begin(self.party(), Instant::now()).map_err(|_| LoginFailure::Random)?;
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", &self.redirect)
            .append_pair("scope", &self.scopes)
            .append_pair("state", &secrets.state)
            .append_pair("nonce", &secrets.nonce)
            .append_pair("code_challenge", &secrets.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok((cookie, address.into()))
    }

    /// Returns what a login belongs to: the issuer, and the name under which the issuer knows the gateway.
    fn party(&self) -> LoginParty {
        LoginParty { issuer: self.issuer.settings.issuer.clone(), client_id: self.client_id.clone() }
    }

    /// Completes the login of the browser with this cookie: exchanges the code for an ID token, verifies it, and returns
    /// who the person is.
    ///
    /// # Errors
    /// If the login is not that of the browser, or the issuer does not vouch for the person.
    pub(crate) async fn complete(
        &self,
        logins: &PendingLogins,
        cookie: &str,
        returned: ReturnedLogin<'_>,
        log: &OperatorLog,
    ) -> Result<LoginIdentity, LoginFailure> {
        let secrets =
            logins.take_returned(cookie, returned.state, Instant::now()).ok_or(LoginFailure::Request(
                "the state is that of no login that this browser has begun in the last ten minutes",
            ))?;
        // The configuration may have been reloaded in between.
        if secrets.party != self.party() {
            return Err(LoginFailure::Request(
                "the login has begun at another issuer than that of the configuration",
            ));
        }
        let description = self.issuer.recent_description().await.map_err(LoginFailure::Issuer)?;
        let own = &self.issuer.settings.issuer;
        // The code of another issuer must not be sent to this one.
        let is_named = description.has("authorization_response_iss_parameter_supported");
        match returned.issuer {
            Some(issuer) if issuer != own => {
                return Err(LoginFailure::Request("the login was answered by another issuer"));
            }
            None if is_named => {
                return Err(LoginFailure::Request(
                    "the issuer did not name itself in its answer, although it says that it does",
                ));
            }
            _ => {}
        }
        let code = returned.code.ok_or(LoginFailure::Request("the issuer has refused the login"))?;
        let token = self.exchange(&description, code, &secrets).await?;
        let refused = |why: TokenRefusal| LoginFailure::Issuer(format!("the ID token is refused: {why}"));
        let unverified = UnverifiedToken::read(&token).map_err(refused)?;
        let audiences = vec![self.client_id.as_str()];
        let claims = self.issuer.verify(&unverified, audiences, log).await.map_err(refused)?;
        // If it names the party that it was made for, that is this gateway; it must if there are several audiences.
        match claims.get("azp") {
            Some(party) if party.as_str() != Some(&self.client_id) => {
                return Err(refused(TokenRefusal::AuthorizedParty));
            }
            None if claims.has_several_audiences() => return Err(refused(TokenRefusal::AuthorizedParty)),
            _ => {}
        }
        if claims.text("nonce") != Some(secrets.nonce.as_str()) {
            return Err(refused(TokenRefusal::Nonce));
        }
        LoginIdentity::read(&claims, self).map_err(LoginFailure::Issuer)
    }

    /// Exchanges a code for an ID token.
    async fn exchange(
        &self,
        description: &IssuerDescription,
        code: &str,
        secrets: &LoginSecrets,
    ) -> Result<String, LoginFailure> {
        let endpoint = description.address("token_endpoint").map_err(LoginFailure::Issuer)?.to_owned();
        // Without a word of the issuer, the method is that of the header.
        let methods = description.list("token_endpoint_auth_methods_supported");
        let takes_header = methods.is_none_or(|all| all.is_empty() || all.contains(&"client_secret_basic"));
        let mut fields = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code.to_owned()),
            ("redirect_uri", self.redirect.clone()),
            ("code_verifier", secrets.verifier.clone()),
        ];
        let authorization = match &self.client_secret {
            Some(secret) if takes_header => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(&self.client_id), encoded(secret.expose()));
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
            secret => {
                fields.push(("client_id", self.client_id.clone()));
                fields.extend(secret.iter().map(|secret| ("client_secret", secret.expose().to_owned())));
                None
            }
        };
        let issuer = Arc::clone(&self.issuer);
        // Anybody can begin a login and return from it with a code of no worth.
        let place = tokio::time::timeout(EXCHANGE_WAIT, self.issuer.exchanges.acquire()).await;
        let _place = place.map_err(|_| {
            LoginFailure::Issuer(
                "the issuer is still answering to earlier logins: try again later".to_owned(),
            )
        })?;
        let sent = tokio::task::spawn_blocking(move || {
            let fields: Vec<(&str, &str)> =
                fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            issuer.http.post_form(&endpoint, &fields, authorization.as_deref())
        });
        let answered = sent.await.unwrap_or_else(|_| Err("the task failed".to_owned()));
        let (status, text) = answered.map_err(LoginFailure::Issuer)?;
        if status != 200 {
            return Err(LoginFailure::Issuer(format!(
                "the issuer answered to the code with the HTTP status {status}: check `client-id`, the secret and `redirect`"
            )));
        }
        let answer = json::parse(&text, Numbers::Any).ok();
        let token = answer.as_ref().and_then(|answer| answer.get("id_token")).and_then(Value::as_str);
        token
            .map(str::to_owned)
            .ok_or_else(|| LoginFailure::Issuer("the issuer returned no ID token".to_owned()))
    }
}
