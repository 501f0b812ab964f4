//! Sends HTTP requests to an issuer, within limits on time and size: for its keys, its description, and the ID tokens
//! of people who log in. `issuer` and `login` call it on a thread that may block.
//!
//! No redirect is followed and no proxy is used: the operator has chosen the address of the issuer, and nothing else
//! may receive the secrets of a login.

use std::io::Read as _;
use std::time::Duration;

use flowgate_lm::remote::Authorities;

use crate::ureq_tls::tls_config;

/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 512 << 10;
/// The time for a whole request.
const TIME: Duration = Duration::from_secs(5);

/// A client of one issuer.
#[derive(Debug)]
pub(crate) struct BoundedHttp(ureq::Agent);

impl BoundedHttp {
    /// Creates the client, which trusts the certificates of these authorities.
    pub(crate) fn new(authorities: &Authorities) -> Self {
        let config = ureq::Agent::config_builder()
            // The function `read` returns the status, and the callers judge it.
            .http_status_as_error(false)
            // A redirect is not followed. Its status is returned like any other.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // No connection is reused: the issuer may have closed it, and a request sent on it would have no answer.
            .max_idle_connections(0)
            .proxy(None)
            .tls_config(tls_config(authorities))
            .timeout_global(Some(TIME))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        Self(ureq::Agent::new_with_config(config))
    }

    /// Fetches a document.
    ///
    /// # Errors
    /// Why the document cannot be fetched: a sentence for the operator's log, without content of the answer.
    pub(crate) fn get(&self, url: &str) -> Result<String, String> {
        let response = self.0.get(url).header("accept", "application/json").call();
        read(response).and_then(successful)
    }

    /// Sends the fields of a form, with a header `Authorization` if one is given. Returns the status and the answer.
    ///
    /// # Errors
    /// Why there is no answer: a sentence for the operator's log, without content.
    pub(crate) fn post_form(
        &self,
        url: &str,
        fields: &[(&str, &str)],
        authorization: Option<&str>,
    ) -> Result<(u16, String), String> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = self.0.post(url).header("accept", "application/json");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        read(request.header("content-type", "application/x-www-form-urlencoded").send(body.as_bytes()))
    }
}

/// Reads the status and the text of an answer, and returns both. Any status is accepted.
///
/// # Errors
/// If there is no answer in time, or it is too long or not UTF-8: a sentence for the operator.
fn read(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<(u16, String), String> {
    // Errors do not contain what was sent.
    let mut response = response.map_err(|error| match error {
        ureq::Error::Timeout(_) => {
            "the issuer did not answer within 5 s: check its address and that this machine can reach it"
                .to_owned()
        }
        _ => "the issuer cannot be reached: check its address, its certificate, and that it runs".to_owned(),
    })?;
    let status = response.status().as_u16();
    let mut text = String::new();
    // One byte more than allowed shows that the answer is too long.
    let read = response.body_mut().as_reader().take(MAX_ANSWER + 1).read_to_string(&mut text);
    read.map_err(|_| {
        "the answer of the issuer broke off, took longer than 5 s, or is not UTF-8: check its address"
            .to_owned()
    })?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_ANSWER) {
        return Err("the answer of the issuer is longer than 512 KiB: check its address".to_owned());
    }
    Ok((status, text))
}

/// Returns the text of an answer with the status 200, and an error for every other status.
fn successful((status, text): (u16, String)) -> Result<String, String> {
    match status {
        200 => Ok(text),
        300..400 => Err(format!(
            "the issuer answered with the redirect {status}, which is not followed: configure the address to which it leads"
        )),
        _ => Err(format!("the issuer answered with the HTTP status {status}: check its address and its log")),
    }
}
