//! Recognises requests that a web page of another site makes a person's browser send. The routes for people refuse such
//! requests if they carry a session.
//!
//! A browser names the site of the requesting web page in `Sec-Fetch-Site` or `Origin`, and no script can change these
//! headers. A request with neither header comes from a program, or from a browser that omits them in requests to the
//! same site; the token of the session protects such requests.

use axum::http::{HeaderMap, HeaderName, header};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns whether a page of another site may have caused a request: its headers show that a browser sent it, and not
/// that a page of the gateway itself caused it. True for requests of pages of another origin, also of another host of
/// the same site; for addresses that a person typed (`Sec-Fetch-Site: none`); and for headers that cannot be compared.
/// False for a request with neither `Sec-Fetch-Site` nor `Origin`.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    // Returns the only value of a header, or `None` if it is absent. Fails if there are several, or it is not ASCII.
    let only = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(drop),
            // Several values: no browser sends these headers more than once.
            (Some(_), Some(_)) => Err(()),
        }
    };
    match (only(&FETCH_SITE), only(&header::ORIGIN), only(&header::HOST)) {
        // A proxy in front of the gateway may change `Host`, so `Sec-Fetch-Site` decides whenever the browser sends it.
        (Ok(Some(site)), Ok(_), _) => site != "same-origin",
        // A browser sends `Origin` with each request of a page of another origin, apart from `GET` and `HEAD`.
        (Ok(None), Ok(None), _) => false,
        (Ok(None), Ok(Some(origin)), Ok(Some(host))) => !is_origin_of(origin, host),
        _ => true,
    }
}

/// Returns whether the browser reached the page over TLS, directly or through a proxy, according to `Origin`. If so,
/// the cookie of the session is sent over TLS only.
pub(crate) fn is_over_tls(headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    origin.is_some_and(|origin| origin.starts_with("https://"))
}

/// Returns whether `origin` is the origin of pages of `host`.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    name.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_site_is_recognised() {
        let check = |given: &[(&'static str, &'static str)], expected: bool| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(is_foreign(&headers), expected, "{given:?}");
        };
        let host = ("host", "gate.example:8000");
        check(&[host], false);
        check(&[host, ("sec-fetch-site", "same-origin")], false);
        check(&[host, ("sec-fetch-site", "same-origin"), ("origin", "https://gate.example")], false);
        check(&[host, ("sec-fetch-site", "same-site")], true);
        check(&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://gate.example:8000")], true);
        check(&[host, ("sec-fetch-site", "none")], true);
        check(&[host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "same-origin")], true);
        check(&[host, ("origin", "http://gate.example:8000")], false);
        check(&[host, ("origin", "https://GATE.example:8000")], false);
        check(&[host, ("origin", "http://gate.example")], true);
        check(&[host, ("origin", "http://evil.example:8000")], true);
        check(&[host, ("origin", "null")], true);
        check(&[host, ("origin", "gate.example:8000")], true);
        check(&[("origin", "http://gate.example:8000")], true);
        check(&[host, ("host", "evil.example"), ("origin", "http://gate.example:8000")], true);
    }
}
