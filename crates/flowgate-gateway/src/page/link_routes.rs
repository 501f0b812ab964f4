//! Serves the route by which a person makes a login link, and redeems the links by which people log in. `http::service`
//! and `session_routes` call it.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, header};
use serde_json::json;

use super::browser_origin;
use super::login_links::LINK_LIFETIME;
use crate::approvals::ApprovalService;
use crate::config::Role;
use crate::http::reply::HttpReply;

/// The header in which the page sends the token of a link.
pub(super) const LINK_HEADER: &str = "x-flowgate-login-link";

impl ApprovalService {
    /// Makes a login link for the person whose key the request carries, and returns the reply with the link. A
    /// request with a session in place of a key receives none: otherwise an attacker with a stolen session could
    /// log in again and again.
    ///
    /// # Errors
    /// The reply to send if the request has no valid key or comes from the page of another site, or the system
    /// returned no random bytes.
    pub(crate) fn make_login_link(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.person(headers, Role::Viewer)?;
        if !headers.contains_key(header::AUTHORIZATION) || browser_origin::is_foreign(headers) {
            let message = "a login link is made with the key of a person, not with a session: use `flowgate login-link`";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let link = self.login_links.make(&person.name, Instant::now()).map_err(|_| {
            let message = "no link was made, since the operating system of the gateway returned no random bytes: try again";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        Ok(HttpReply::json(StatusCode::OK, &json!({"link": link, "seconds": LINK_LIFETIME.as_secs()})))
    }

    /// Takes the link whose token a request carries, so that the link is used up, and returns the name of its person.
    /// `None` if the request has no token or several, or one that is unknown, used or too old.
    pub(super) fn take_login_link(&self, headers: &HeaderMap, now: Instant) -> Option<String> {
        let mut tokens = headers.get_all(LINK_HEADER).iter();
        let token = tokens.next()?.to_str().ok()?;
        if tokens.next().is_some() {
            return None;
        }
        self.login_links.take(token, now)
    }
}
