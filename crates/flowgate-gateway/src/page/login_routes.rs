//! Serves the routes by which people log in to the page at an issuer. `http::service` calls it.
//!
//! `GET /ui/login` redirects the browser to the issuer, and the issuer redirects it back to `GET /ui/login/callback`.
//! This route redirects the browser to the page, which takes the completed login by `POST /ui/api/session` and receives
//! the token of its session. In this way, the token is never a part of an address. The only other site to which a route
//! redirects is the issuer.

use std::net::IpAddr;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, header};

use super::assets::CONTENT_SECURITY_POLICY;
use super::login_failures::MAX_FAILURES;
use super::query::Query;
use super::sessions::named_cookie;
use crate::approvals::ApprovalService;
use crate::config::LoginSettings;
use crate::http::reply::HttpReply;
use crate::identity::login::{LoginFailure, ReturnedLogin};
use crate::identity::login_identity::LoginIdentity;
use crate::identity::pending_logins::LOGIN_TIME;
use crate::log::{Limit, LogEvent};

/// The name of the cookie that shows which browser has begun a login, without TLS.
const COOKIE: &str = "flowgate-login";
/// The name of that cookie over TLS. By the prefix, a browser accepts the cookie only from this host and over TLS:
/// another host of the domain cannot plant the cookie of its own login, by which a person would log in as another one.
const HOST_COOKIE: &str = "__Host-flowgate-login";
/// The header by which the page requests the session of a completed login. Only scripts of the page's origin can send
/// it.
pub(crate) const CLAIM_HEADER: &str = "x-flowgate-login";

/// The texts that a person sees after a failed login.
const FAILED: &str = "Not logged in: the login was not begun in this browser, took too long, or was refused by the identity provider. Begin again.";
const UNAVAILABLE: &str = "Not logged in: the gateway and the identity provider could not complete the login. \
    The log of the gateway has the reason: ask its operator.";
const TOO_MANY: &str = "Not logged in: too many logins from your address have failed. Try again in a minute.";
const NO_ROLE: &str = "Not logged in: your account has no role at this gateway. Ask its operator to add you, or one of your groups.";

impl ApprovalService {
    /// Begins a login, and returns the reply that redirects the browser to the issuer.
    ///
    /// # Errors
    /// The reply to send if the configuration has no `[login.oidc]`, or the issuer cannot be reached.
    pub(crate) async fn begin_login(&self) -> Result<HttpReply, HttpReply> {
        let login = self.people.login().ok_or_else(no_login_reply)?;
        let (cookie, target) = login.begin(&self.logins).await.map_err(|why| self.failed_login(&why))?;
        let reply = HttpReply::empty(StatusCode::SEE_OTHER).with_header("location", &target);
        Ok(reply.with_header("set-cookie", &login_cookie(login, &cookie)))
    }

    /// Completes a login with the query that the issuer has added to the address, and returns the reply that redirects
    /// the browser to the page. `address` is the address of the connection: if the issuer has refused too many codes
    /// from it, the login is refused without a request to the issuer.
    ///
    /// # Errors
    /// The page to show if the login failed, or the person has no role.
    pub(crate) async fn complete_login(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
        address: IpAddr,
    ) -> Result<HttpReply, HttpReply> {
        let login = self.people.login().ok_or_else(no_login_reply)?;
        let failed = |why: &LoginFailure| self.failed_login(why);
        let malformed = LoginFailure::Request(
            "the query that the issuer added to the address of `redirect` is malformed or has no `state`: begin again",
        );
        // Other names that an issuer may add, such as `session_state`, are ignored.
        let known = ["state", "code", "iss", "error"];
        let pairs = query.unwrap_or_default().split('&');
        let is_known = |pair: &&str| {
            let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
            known.contains(&name)
        };
        let pairs: Vec<&str> = pairs.filter(is_known).collect();
        let query = Query::read(Some(&pairs.join("&")), &known).map_err(|_| failed(&malformed))?;
        let state = query.text("state").ok_or_else(|| failed(&malformed))?;
        let cookie = named_cookie(headers, cookie_name(login)).unwrap_or_default();
        // A code next to an error is not used: the issuer has refused the login.
        let code = query.text("code").filter(|_| query.text("error").is_none());
        let returned = ReturnedLogin { state, code, issuer: query.text("iss") };
        self.check_refused_codes(address)?;
        let identity = login.complete(&self.logins, cookie, returned, &self.log).await;
        let identity = identity.map_err(|why| {
            if matches!(why, LoginFailure::Code(_)) {
                self.refused_codes.count(address, Instant::now());
            }
            failed(&why)
        })?;
        if let Err(why) = self.people.find_logged_in(&identity) {
            self.log_login(&why);
            return Err(failure_page(StatusCode::FORBIDDEN, NO_ROLE));
        }
        // The browser receives a new cookie, with which the page then requests the session.
        let new_cookie = self.logins.complete(identity, Instant::now());
        let new_cookie = new_cookie.map_err(|_| failed(&LoginFailure::Random))?;
        let reply = HttpReply::empty(StatusCode::SEE_OTHER).with_header("location", "/ui/#login");
        Ok(reply.with_header("set-cookie", &login_cookie(login, &new_cookie)))
    }

    /// Checks that the issuer has not refused too many codes from an address. Anybody can begin a login and return
    /// with an invented code, and each code costs a request to the issuer. A web page of another site cannot cause
    /// such a request in a person's browser, since the request needs the cookie and the state of a login.
    ///
    /// These failures are counted separately from those of keys: if the issuer refuses all codes because the gateway
    /// has a wrong secret, people with keys can still log in.
    ///
    /// # Errors
    /// The page to show if the issuer has refused too many codes.
    fn check_refused_codes(&self, address: IpAddr) -> Result<(), HttpReply> {
        if !self.refused_codes.is_refused(address, Instant::now()) {
            return Ok(());
        }
        self.log.limit(&Limit {
            what: "codes from one address that the issuer has refused in a minute",
            effect: "a login was refused with 429",
            setting: None,
            advice: Some(
                "find out who invents codes from this address, or check the client secret in [login.oidc]",
            ),
            most: MAX_FAILURES.into(),
            // No client is concerned: people log in.
            client: "",
            conversation: None,
        });
        Err(failure_page(StatusCode::TOO_MANY_REQUESTS, TOO_MANY).header(header::RETRY_AFTER, "60"))
    }

    /// Takes the completed login of the browser that sends a request, once. `None` if the request has no
    /// [`CLAIM_HEADER`], or the browser has no completed login.
    pub(super) fn take_login(&self, headers: &HeaderMap) -> Option<LoginIdentity> {
        headers.get(CLAIM_HEADER)?;
        let name = cookie_name(self.people.login()?);
        self.logins.take_complete(named_cookie(headers, name)?, Instant::now())
    }

    /// Logs why a login failed, and returns the page to show. The failure does not count towards the limit on failed
    /// logins of the address: a state cannot be guessed, and a web page of another site can cause such requests. Codes
    /// that the issuer refuses have a [limit of their own](Self::check_refused_codes).
    fn failed_login(&self, why: &LoginFailure) -> HttpReply {
        self.log_login(why.sentence());
        match why {
            LoginFailure::Request(_) => failure_page(StatusCode::BAD_REQUEST, FAILED),
            LoginFailure::Issuer(_) | LoginFailure::Code(_) | LoginFailure::Random => {
                failure_page(StatusCode::BAD_GATEWAY, UNAVAILABLE)
            }
        }
    }

    /// Writes why a person was not logged in to the operator's log.
    fn log_login(&self, why: &str) {
        let sentence = format!("login.oidc: a person was not logged in: {why}");
        self.log.write(LogEvent::Refused, "", Vec::new(), &sentence);
    }
}

/// Returns whether people reach the page over TLS, by the address to which the issuer sends them back.
fn is_over_tls(login: &LoginSettings) -> bool {
    login.redirect.starts_with("https://")
}

/// Returns the name of the cookie of a login.
fn cookie_name(login: &LoginSettings) -> &'static str {
    if is_over_tls(login) { HOST_COOKIE } else { COOKIE }
}

/// Returns the value of `Set-Cookie` for a login. `SameSite` is `Lax`, since the browser has to send the cookie when
/// the issuer, another site, redirects it back.
fn login_cookie(login: &LoginSettings, value: &str) -> String {
    // The prefix of the name demands the path `/`.
    let (path, secure) = if is_over_tls(login) { ("/", "; Secure") } else { ("/ui", "") };
    let (name, seconds) = (cookie_name(login), LOGIN_TIME.as_secs());
    format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

/// Returns the reply if the configuration has no `[login.oidc]`.
fn no_login_reply() -> HttpReply {
    let message = "people log in with a key here: the operator can add [login.oidc] to the configuration";
    HttpReply::detail(StatusCode::NOT_FOUND, message)
}

/// Returns an HTML page with a sentence. The sentence is a constant, so it need not be escaped. The caller has logged
/// the failure already.
fn failure_page(status: StatusCode, sentence: &str) -> HttpReply {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Flowgate</title><link rel=\"stylesheet\" href=\"/ui/page.css\"></head>\
         <body><main class=\"login\"><h1>Flowgate</h1><p role=\"alert\">{sentence}</p><p><a href=\"/ui/\">To the page</a></p></main></body></html>\n"
    );
    HttpReply::document("text/html; charset=utf-8", html)
        .with_status(status)
        .header(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY)
        .header(header::X_FRAME_OPTIONS, "DENY")
        .header(header::REFERRER_POLICY, "no-referrer")
        .mark_logged()
}
