//! Serves the routes by which people log in to the page and out of it, and by which the page learns who is logged in.
//! `http::service` calls it; the other routes for people call [`ApprovalService::authenticate`].
//!
//! There are three ways to log in: with the key of the configuration, in the same header as for the other routes (the
//! page sends it once and does not store it); with a login link; or at an issuer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::browser_origin;
use super::link_routes::LINK_HEADER;
use super::login_failures::MAX_FAILURES;
use super::login_routes::CLAIM_HEADER;
use super::sessions::{LIFETIME, SessionHolder, SessionId, delete_cookie};
use crate::approvals::ApprovalService;
use crate::config::{Person, Role};
use crate::http::reply::HttpReply;
use crate::log::Limit;

impl ApprovalService {
    /// Returns the person who sends a request, and the session if the request has one in place of a key. `None` if
    /// the request has neither a valid key nor a session, or a session whose person was removed or has lost the
    /// role. If a request has a key, even an invalid one, its session is ignored.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Option<(Arc<Person>, Option<SessionId>)> {
        if headers.contains_key(header::AUTHORIZATION) {
            return self.people.find(headers).map(|person| (person, None));
        }
        let (session, holder) = self.sessions.find(headers, Instant::now())?;
        let person = match holder {
            SessionHolder::Person(name) => self.people.find_by_name(&name).map(Arc::clone)?,
            SessionHolder::LoggedIn(identity) => self.people.find_logged_in(&identity).ok()?,
        };
        Some((person, Some(session)))
    }

    /// Begins a session of the person whose key or whose login link the request carries, or who has logged in at an
    /// issuer in this browser. Returns the reply with the secrets of the session. `address` is the address of the
    /// connection.
    ///
    /// # Errors
    /// The reply to send if the key or the link is not valid, the login at the issuer is missing or gives the person no
    /// role, the address has failed too often, the request comes from the page of another site, or the system returned
    /// no random bytes.
    pub(crate) fn log_in(&self, headers: &HeaderMap, address: IpAddr) -> Result<HttpReply, HttpReply> {
        if browser_origin::is_foreign(headers) {
            let message =
                "the request comes from a web page of another site: open the page of this gateway to log in";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let now = Instant::now();
        self.check_login_failures(address)?;
        if headers.contains_key(LINK_HEADER) {
            return self.log_in_by_link(headers, address, now);
        }
        let (holder, person, lifetime) = match self.take_login(headers) {
            Some(identity) => {
                let person = self.people.find_logged_in(&identity).map_err(|_| {
                    let message = "the person has no role at this gateway: ask its operator to add you, or \
                        one of your groups";
                    HttpReply::detail(StatusCode::FORBIDDEN, message)
                })?;
                // The session lasts as long as the configuration says, otherwise as long as the ID token.
                let bound = self.people.login().and_then(|login| login.session);
                let of_token = || identity.expires.duration_since(SystemTime::now()).unwrap_or_default();
                let lifetime = bound.unwrap_or_else(of_token);
                (SessionHolder::LoggedIn(Arc::new(identity)), person, lifetime)
            }
            // The page asks for the session of a completed login, but there is none. Not counted as a failed login: the
            // cookie of a login cannot be guessed.
            None if headers.contains_key(CLAIM_HEADER) => {
                let message = "this browser has no completed login: begin again";
                return Err(HttpReply::detail(StatusCode::UNAUTHORIZED, message));
            }
            None => {
                let person = self.people.find(headers).ok_or_else(|| {
                    self.login_failures.count(address, now);
                    let message =
                        "no person has this key: send the key that [people.NAME] of the configuration names";
                    HttpReply::detail(StatusCode::UNAUTHORIZED, message)
                })?;
                (SessionHolder::Person(person.name.clone()), person, LIFETIME)
            }
        };
        self.begin_session(holder, &person, lifetime, headers)
    }

    /// Begins a session of the person whose login link the request carries.
    fn log_in_by_link(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
        now: Instant,
    ) -> Result<HttpReply, HttpReply> {
        let person = self.take_login_link(headers, now);
        let person = person.and_then(|name| self.people.find_by_name(&name).map(Arc::clone));
        let person = person.ok_or_else(|| {
            self.login_failures.count(address, now);
            let message = "this login link was used already, is older than five minutes, or was made by an earlier start of the gateway: \
                make a new one with `flowgate login-link`, or log in with your key";
            HttpReply::detail(StatusCode::UNAUTHORIZED, message)
        })?;
        self.begin_session(SessionHolder::Person(person.name.clone()), &person, LIFETIME, headers)
    }

    /// Begins a session of `person`, which lasts for `lifetime`. Returns the reply with the secrets of the session and
    /// the person. `holder` is the person as the session stores them.
    ///
    /// # Errors
    /// The reply to send if the system returned no random bytes.
    fn begin_session(
        &self,
        holder: SessionHolder,
        person: &Person,
        lifetime: Duration,
        headers: &HeaderMap,
    ) -> Result<HttpReply, HttpReply> {
        let is_over_tls = browser_origin::is_over_tls(headers);
        let secrets = self.sessions.begin(holder, Instant::now(), lifetime, is_over_tls).map_err(|_| {
            let message =
                "no session was begun, since the operating system of the gateway returned no random bytes: try again";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let mut reply = session_json(person);
        if let Some(fields) = reply.as_object_mut() {
            fields.insert("token".to_owned(), secrets.token.as_str().into());
        }
        let cookie = secrets.set_cookie();
        Ok(HttpReply::json(StatusCode::OK, &reply).with_header("set-cookie", &cookie))
    }

    /// Checks whether logins from an address have failed too often; if so, also logs it.
    ///
    /// # Errors
    /// The reply to send if they have.
    pub(super) fn check_login_failures(&self, address: IpAddr) -> Result<(), HttpReply> {
        if self.login_failures.is_refused(address, Instant::now()) {
            self.log.limit(&Limit {
                what: "failed logins of one address in a minute",
                effect: "a login was refused with 429",
                setting: None,
                advice: Some("find out who tries keys from this address"),
                most: MAX_FAILURES.into(),
                // No client is concerned: people log in.
                client: "",
                conversation: None,
            });
            let message = "too many logins from this address have failed: try again in a minute";
            let reply = HttpReply::detail(StatusCode::TOO_MANY_REQUESTS, message);
            return Err(reply.header(header::RETRY_AFTER, "60").mark_logged());
        }
        Ok(())
    }

    /// Returns the reply with the person who sends the request: name, role, tenants and clearance. If the request is
    /// refused, a header of the reply says whether people can log in at an issuer, so that the page can offer it.
    ///
    /// # Errors
    /// The reply to send if the request has neither a valid key nor a session.
    pub(crate) fn session(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer).map_err(|refusal| match self.people.login() {
            Some(_) => refusal.with_header(CLAIM_HEADER, "oidc"),
            None => refusal,
        })?;
        Ok(HttpReply::json(StatusCode::OK, &session_json(&person)))
    }

    /// Ends the session of the request, if it has one, and deletes its cookie. The reply describes the person.
    ///
    /// # Errors
    /// The reply to send if the request has neither a valid key nor a session.
    pub(crate) fn log_out(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        if let Some((_, Some(session))) = self.authenticate(headers) {
            self.sessions.end(&session);
        }
        let cookie = delete_cookie(browser_origin::is_over_tls(headers));
        Ok(HttpReply::json(StatusCode::OK, &session_json(&person)).with_header("set-cookie", &cookie))
    }
}

/// Returns a person as JSON for the page: the name, the role, the tenants and the clearance.
fn session_json(person: &Person) -> Value {
    json!({
        "person": person.name,
        "role": person.role.name(),
        "tenants": person.tenants,
        "may_read": person.may_read.names(),
    })
}
