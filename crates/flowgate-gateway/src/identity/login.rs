//! Logs people in by OpenID Connect: the authorization code flow with PKCE, `state` and `nonce`. `page::login_routes`
//! serves the routes and calls [`LoginSettings::begin`] and [`LoginSettings::complete`].
//!
//! The crate `openidconnect` is not used: it needs an HTTP stack of its own, and an implementation of RSA whose timing
//! leaks private keys. The other files of `identity` contain everything that the flow needs: `pending_logins` stores
//! the secrets of a login, `issuer` fetches the description and the keys of the issuer, and `token` verifies ID tokens.

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
use super::token::{TokenClaims, TokenRefusal, UnverifiedToken};
use crate::config::LoginSettings;
use crate::log::OperatorLog;

/// The time for which a login waits until the issuer has answered other logins, if too many logins are completed at the
/// same time.
const EXCHANGE_WAIT: Duration = Duration::from_secs(2);

/// The reason why a login failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginFailure {
    /// The request does not belong to a login of this browser at the configured issuer, or the issuer has refused the
    /// login. The sentence is for the operator's log.
    Request(&'static str),
    /// The issuer cannot be reached, or its answer is not acceptable. The sentence is for the operator's log.
    Issuer(String),
    /// The issuer has refused the code. The sentence is for the operator's log.
    Code(String),
    /// The system of the gateway returned no random bytes.
    Random,
}

impl LoginFailure {
    /// Returns the sentence for the operator's log.
    pub(crate) fn sentence(&self) -> &str {
        match self {
            Self::Request(why) => why,
            Self::Issuer(why) | Self::Code(why) => why,
            Self::Random => "the operating system of the gateway returned no random bytes: try again",
        }
    }
}

/// The parameters that the issuer adds to the address of the gateway when it sends a person's browser back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReturnedLogin<'r> {
    pub(crate) state: &'r str,
    /// The code; `None` if the issuer refuses the login.
    pub(crate) code: Option<&'r str>,
    /// The issuer, if it names itself (RFC 9207).
    pub(crate) issuer: Option<&'r str>,
}

impl LoginSettings {
    /// Begins a login. Returns the value of the cookie for the browser, and the address at the issuer to which the
    /// browser is sent.
    ///
    /// # Errors
    /// If the description of the issuer cannot be fetched or used, or the system returns no random bytes.
    pub(crate) async fn begin(&self, logins: &PendingLogins) -> Result<(String, String), LoginFailure> {
        let description = self.issuer.recent_description().await.map_err(LoginFailure::Issuer)?;
        let address = description.address("authorization_endpoint").map_err(LoginFailure::Issuer)?;
        let mut address = Url::parse(address).map_err(|_| {
            LoginFailure::Issuer(
                "`authorization_endpoint` in the OpenID configuration of the issuer is not an address: correct it at \
                the issuer"
                    .to_owned(),
            )
        })?;
        // Notes the issuer, and the name of this gateway there, with the login: `complete` refuses the login if a
        // reload has changed them.
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

    /// Returns the parties of a login: the issuer, and the gateway under the name that the issuer has for it.
    fn party(&self) -> LoginParty {
        LoginParty { issuer: self.issuer.settings.issuer.clone(), client_id: self.client_id.clone() }
    }

    /// Completes the login of the browser with this cookie: exchanges the code for an ID token, verifies the token, and
    /// returns the identity of the person.
    ///
    /// # Errors
    /// If the login was not begun by this browser, or the issuer does not return a valid ID token.
    pub(crate) async fn complete(
        &self,
        logins: &PendingLogins,
        cookie: &str,
        returned: ReturnedLogin<'_>,
        log: &OperatorLog,
    ) -> Result<LoginIdentity, LoginFailure> {
        let secrets =
            logins.take_returned(cookie, returned.state, Instant::now()).ok_or(LoginFailure::Request(
                "this browser has begun no login with the returned `state` in the last ten minutes: begin again",
            ))?;
        // The configuration may have been reloaded in between.
        if secrets.party != self.party() {
            return Err(LoginFailure::Request(
                "the configuration was reloaded and no longer has the issuer or the `client-id` of this login: begin again",
            ));
        }
        let description = self.issuer.recent_description().await.map_err(LoginFailure::Issuer)?;
        self.check_answering_issuer(&description, returned.issuer)?;
        // An issuer that refuses the login sends no code.
        let no_code = "the issuer has refused the login: see the log of the issuer";
        let code = returned.code.ok_or(LoginFailure::Request(no_code))?;
        let token = self.exchange(&description, code, &secrets).await?;
        let claims = self.verified_claims(&token, &secrets.nonce, log).await?;
        LoginIdentity::read(&claims, self).map_err(LoginFailure::Issuer)
    }

    /// Checks that the issuer of the configuration has answered the login, since the code of another issuer must not be
    /// sent to this one. `named` is the issuer that the answer names.
    fn check_answering_issuer(
        &self,
        description: &IssuerDescription,
        named: Option<&str>,
    ) -> Result<(), LoginFailure> {
        let configured = &self.issuer.settings.issuer;
        let must_name_itself = description.has("authorization_response_iss_parameter_supported");
        match named {
            Some(issuer) if issuer != configured => Err(LoginFailure::Request(
                "an issuer other than that of [login.oidc] has answered the login (`iss`): check the \
                address of the link",
            )),
            None if must_name_itself => Err(LoginFailure::Request(
                "the issuer did not name itself in its answer (`iss`), although its description says that \
                it does: begin again",
            )),
            _ => Ok(()),
        }
    }

    /// Verifies an ID token, which must have been made for this gateway and for the login with this `nonce`, and
    /// returns its claims.
    async fn verified_claims(
        &self,
        token: &str,
        nonce: &str,
        log: &OperatorLog,
    ) -> Result<TokenClaims, LoginFailure> {
        let refused = |why: TokenRefusal| {
            let advice = refusal_advice(why, &self.issuer.settings.name);
            LoginFailure::Issuer(format!("the ID token is refused: {why}; {advice}"))
        };
        let unverified = UnverifiedToken::read(token).map_err(refused)?;
        let audiences = vec![self.client_id.as_str()];
        let claims = self.issuer.verify(&unverified, audiences, log).await.map_err(refused)?;
        // `azp` names the party for which the token was made: it must be this gateway. A token with several audiences
        // must have it.
        match claims.get("azp") {
            Some(party) if party.as_str() != Some(&self.client_id) => {
                return Err(refused(TokenRefusal::AuthorizedParty));
            }
            None if claims.has_several_audiences() => return Err(refused(TokenRefusal::AuthorizedParty)),
            _ => {}
        }
        // The token must be the one of this login.
        if claims.text("nonce") != Some(nonce) {
            return Err(refused(TokenRefusal::Nonce));
        }
        Ok(claims)
    }

    /// Exchanges the code of the login with these secrets for an ID token, which is not verified yet.
    ///
    /// # Errors
    /// If the issuer cannot be asked in time, or answers without an ID token.
    async fn exchange(
        &self,
        description: &IssuerDescription,
        code: &str,
        secrets: &LoginSecrets,
    ) -> Result<String, LoginFailure> {
        let endpoint = description.address("token_endpoint").map_err(LoginFailure::Issuer)?.to_owned();
        // If the description does not name the methods, the default is the header.
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
                // OAuth 2.0 (RFC 6749, section 2.3.1) form-encodes both parts before they are joined.
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(&self.client_id), encoded(secret.expose()));
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
            // The issuer does not take the header, or the gateway has no secret: the body has the name of the gateway
            // and, if there is one, the secret.
            secret => {
                fields.push(("client_id", self.client_id.clone()));
                fields.extend(secret.iter().map(|secret| ("client_secret", secret.expose().to_owned())));
                None
            }
        };
        let issuer = Arc::clone(&self.issuer);
        // Limits the requests to the issuer that run at the same time: anybody can begin a login, and return with an
        // invented code.
        let permit = tokio::time::timeout(EXCHANGE_WAIT, self.issuer.exchanges.acquire()).await;
        let _permit = permit.map_err(|_| {
            LoginFailure::Issuer("the issuer is still answering earlier logins: try again later".to_owned())
        })?;
        let sent = tokio::task::spawn_blocking(move || {
            let fields: Vec<(&str, &str)> =
                fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            issuer.http.post_form(&endpoint, &fields, authorization.as_deref())
        });
        let answered = sent.await.unwrap_or_else(|_| {
            Err("the exchange of the code failed because of a bug in the gateway: report it".to_owned())
        });
        let (status, text) = answered.map_err(LoginFailure::Issuer)?;
        Self::id_token_in(status, &text)
    }

    /// Returns the ID token in the issuer's answer to a code, which has this HTTP status and this text.
    fn id_token_in(status: u16, text: &str) -> Result<String, LoginFailure> {
        if status != 200 {
            let why = format!(
                "the issuer answered the code with the HTTP status {status}: check `client-id`, the secret and `redirect` in [login.oidc]"
            );
            // A refusal of the code (RFC 6749, section 5.2), in contrast to a failure of the issuer.
            let is_refused = (400..500).contains(&status);
            return Err(if is_refused { LoginFailure::Code(why) } else { LoginFailure::Issuer(why) });
        }
        let answer = json::parse(text, Numbers::Any).ok();
        let token = answer.as_ref().and_then(|answer| answer.get("id_token")).and_then(Value::as_str);
        token.map(str::to_owned).ok_or_else(|| {
            LoginFailure::Issuer(
                "the issuer returned no ID token (`id_token`): add `openid` to `scopes` in [login.oidc]"
                    .to_owned(),
            )
        })
    }
}

/// Returns the advice in the message that an ID token is refused: what the operator, or the person who logs in, can do
/// about it. `why` is the reason for the refusal, and `issuer` is NAME of the section `[issuers.NAME]` of the issuer
/// that made the token.
fn refusal_advice(why: TokenRefusal, issuer: &str) -> String {
    match why {
        TokenRefusal::Algorithm => format!("check `algorithms` in [issuers.{issuer}]"),
        TokenRefusal::Issuer | TokenRefusal::NoIssuer | TokenRefusal::UnknownIssuer => {
            format!("check `issuer` in [issuers.{issuer}]")
        }
        TokenRefusal::NoKeys => format!("the log has a line about issuers.{issuer} with the reason"),
        TokenRefusal::UnknownKey | TokenRefusal::KeyOfOtherAlgorithm | TokenRefusal::Signature => {
            format!("check where the keys come from in [issuers.{issuer}]")
        }
        TokenRefusal::Expired | TokenRefusal::NotYetValid => {
            "compare the clocks of the gateway and the issuer".to_owned()
        }
        TokenRefusal::Audience | TokenRefusal::AuthorizedParty => {
            "check `client-id` in [login.oidc]".to_owned()
        }
        TokenRefusal::Nonce => "begin the login again".to_owned(),
        _ => "correct the settings of the client that is registered for the gateway at the issuer".to_owned(),
    }
}
