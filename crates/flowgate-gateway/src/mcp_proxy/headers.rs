//! Generates and checks the HTTP headers that repeat parts of an MCP message.
//!
//! An HTTP intermediary, such as a load balancer, may decide by these headers without reading the message, so they
//! must agree with the message. [`McpHeaders`] are the headers of a client's request. Those for the method and the
//! name are compared with the client's message, and the request is rejected if they differ. The headers for a
//! server are generated from the message that is sent to it; a client's header that repeats an argument is
//! forwarded only if an argument of the message has its value. `request`, `exchange` and `server_requests` call
//! this module.

use axum::http::{HeaderMap, HeaderName, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The header with the version of the protocol.
const VERSION: &str = "mcp-protocol-version";
/// The header that repeats the method of a message.
const METHOD: &str = "mcp-method";
/// The header that repeats the subject of a message: the name of a tool or prompt, or the address of a resource.
const NAME: &str = "mcp-name";
/// The prefix of headers that repeat an argument of a call.
const ARGUMENT: &str = "mcp-param-";
/// The beginning and the end of a base64 value, by which a header carries a text that has characters other than
/// visible ASCII.
const BASE64: (&str, &str) = ("=?base64?", "?=");

/// The MCP headers of a client's request.
#[derive(Debug, Clone, Default)]
pub(super) struct McpHeaders {
    version: Option<String>,
    method: Option<String>,
    name: Option<String>,
    /// The headers that repeat arguments of a call, with their values.
    arguments: Vec<(HeaderName, String)>,
}

impl McpHeaders {
    /// Reads the MCP headers of a client's request.
    ///
    /// # Errors
    /// If a header is sent twice or has characters other than visible ASCII, or the header for the version does not
    /// have the form of a version of MCP.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, String> {
        // The value of a header; `None` if the request does not have it.
        let single_value = |name: &str| {
            let mut values = headers.get_all(name).iter();
            match (values.next(), values.next()) {
                (None, _) => Ok(None),
                (Some(value), None) => value.to_str().map(|value| Some(value.to_owned())).map_err(|_| {
                    format!(
                        "the header `{name}` contains characters other than visible ASCII: encode it \
                        as `=?base64?...?=`"
                    )
                }),
                (Some(_), Some(_)) => Err(format!("the request has the header `{name}` twice: send it once")),
            }
        };
        let mut arguments = Vec::new();
        // The number of arguments that headers repeat is bounded; further ones are ignored.
        for name in headers.keys().filter(|name| name.as_str().starts_with(ARGUMENT)).take(64) {
            arguments.extend(single_value(name.as_str())?.map(|value| (name.clone(), value)));
        }
        let version = single_value(VERSION)?;
        if version.as_ref().is_some_and(|version| !flowgate_mcp::is_revision_date(version)) {
            return Err(format!(
                "the header `{VERSION}` does not have the form of a version of MCP: send one such as `2025-11-25`"
            ));
        }
        Ok(Self { version, method: single_value(METHOD)?, name: single_value(NAME)?, arguments })
    }

    /// Checks that the headers for the method and the name, if the client sent them, agree with the message, and
    /// that base64 in a header can be decoded. Headers that repeat arguments are not compared here:
    /// [`for_message`](Self::for_message) leaves out those that do not agree.
    ///
    /// # Errors
    /// If a header differs or cannot be decoded, or the message does not have the part that a header repeats.
    pub(super) fn check(&self, message: &Value) -> Result<(), String> {
        let arguments = self.arguments.iter().map(|(name, value)| (name.as_str(), value));
        let mut all = self.name.iter().map(|value| (NAME, value)).chain(arguments);
        if let Some((name, _)) = all.find(|(_, value)| decoded(value).is_none()) {
            return Err(format!(
                "the header `{name}` is not valid base64 of UTF-8 between `=?base64?` and `?=`: encode it again"
            ));
        }
        let mismatch = |name: &str| {
            format!(
                "the header `{name}` differs from the part of the message that it repeats: send equal values"
            )
        };
        if self.method.is_some() && self.method.as_deref() != message.get("method").and_then(Value::as_str) {
            return Err(mismatch(METHOD));
        }
        if self.name.as_deref().is_some_and(|name| decoded(name).as_deref() != subject_name(message)) {
            return Err(mismatch(NAME));
        }
        Ok(())
    }

    /// Returns the headers for a message to the server: the client's protocol version, the method and the name of the
    /// message, and the client's headers that repeat an argument of the message.
    pub(super) fn for_message(&self, message: &Value) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        if let Some(version) = &self.version {
            headers.push((VERSION.to_owned(), version.clone()));
        }
        // A method that a header cannot carry unchanged is left out. MCP defines no such method.
        if let Some(method) = message.get("method").and_then(Value::as_str).filter(|method| is_plain(method))
        {
            headers.push((METHOD.to_owned(), method.to_owned()));
        }
        if let Some(name) = subject_name(message) {
            headers.push((NAME.to_owned(), encoded(name)));
        }
        // Only the client knows which arguments the schema of the tool wants in headers, so its headers are used. A
        // value that is not among the judged arguments is not sent: it would bypass the judgement.
        let arguments = message.pointer("/params/arguments");
        for (name, value) in &self.arguments {
            let text = decoded(value);
            if text.is_some_and(|text| arguments.is_some_and(|arguments| contains_text(arguments, &text))) {
                headers.push((name.as_str().to_owned(), value.clone()));
            }
        }
        headers
    }
}

/// Returns whether the header `Origin` of a request says that a browser sends it for a web page of another machine. An
/// origin that cannot be parsed counts as another machine. Such requests are refused: the page has no key, but a proxy
/// in front of the gateway may add one.
pub(super) fn is_from_web_page(headers: &HeaderMap) -> bool {
    let is_local = |origin: &str| {
        let uri = origin.parse::<Uri>().ok();
        uri.and_then(|uri| uri.host().map(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]")))
            .unwrap_or(false)
    };
    headers.get_all(header::ORIGIN).iter().any(|origin| !origin.to_str().is_ok_and(is_local))
}

/// Returns the subject of a request: the name of its tool or prompt, or the address of its resource. `None` if it has
/// none of these.
fn subject_name(message: &Value) -> Option<&str> {
    let field = match message.get("method")?.as_str()? {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ => return None,
    };
    message.get("params")?.get(field)?.as_str()
}

/// Returns whether a JSON value is this text, or contains it as one of its items or values. A number or a boolean is
/// compared in its JSON form.
fn contains_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found == text,
        Value::Number(number) => number.to_string() == text,
        Value::Bool(value) => text == if *value { "true" } else { "false" },
        Value::Array(items) => items.iter().any(|item| contains_text(item, text)),
        Value::Object(fields) => fields.values().any(|field| contains_text(field, text)),
        Value::Null => false,
    }
}

/// Returns whether a header can contain this text unchanged: it is visible ASCII without spaces around it, and does not
/// have the form of a base64 value ([`BASE64`]).
fn is_plain(text: &str) -> bool {
    let is_framed = text.starts_with(BASE64.0) && text.ends_with(BASE64.1);
    text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim_matches([' ', '\t']) == text
        && !is_framed
}

/// Converts a text to the value of a header: unchanged if possible, and otherwise in base64 between the two texts of
/// [`BASE64`].
fn encoded(text: &str) -> String {
    match is_plain(text) {
        true => text.to_owned(),
        false => format!("{}{}{}", BASE64.0, STANDARD.encode(text), BASE64.1),
    }
}

/// Converts the value of a header back to its text, the inverse of [`encoded`]; `None` if its base64 is invalid.
fn decoded(text: &str) -> Option<String> {
    match text.strip_prefix(BASE64.0).and_then(|rest| rest.strip_suffix(BASE64.1)) {
        Some(rest) => String::from_utf8(STANDARD.decode(rest).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn read(headers: &[(&'static str, &'static str)]) -> Result<McpHeaders, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        McpHeaders::read(&map)
    }

    #[test]
    fn headers_must_agree_with_the_message() {
        let call = json!({"method": "tools/call", "params": {"name": "pay", "arguments": {"to": {"name": "bob"}, "sum": 5}}});
        let check = |headers: &[(&'static str, &'static str)], expected: Result<&[(&str, &str)], &str>| {
            let sent =
                read(headers).and_then(|beside| beside.check(&call).map(|()| beside.for_message(&call)));
            let expected = expected.map_err(str::to_owned).map(|expected| {
                let always = [("mcp-method", "tools/call"), ("mcp-name", "pay")];
                let first = expected.iter().filter(|(name, _)| *name == VERSION);
                let rest = expected.iter().filter(|(name, _)| *name != VERSION);
                let all = first.chain(&always).chain(rest);
                all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
            });
            assert_eq!(sent, expected, "{headers:?}");
        };
        check(&[], Ok(&[]));
        check(
            &[(VERSION, "2026-07-28"), (METHOD, "tools/call"), (NAME, "pay")],
            Ok(&[(VERSION, "2026-07-28")]),
        );
        check(&[(NAME, "=?base64?cGF5?=")], Ok(&[]));
        check(
            &[(METHOD, "tools/list")],
            Err(
                "the header `mcp-method` differs from the part of the message that it repeats: send equal values",
            ),
        );
        check(
            &[(NAME, "read")],
            Err(
                "the header `mcp-name` differs from the part of the message that it repeats: send equal values",
            ),
        );
        check(
            &[(NAME, "pay"), (NAME, "read")],
            Err("the request has the header `mcp-name` twice: send it once"),
        );
        let not_base64 = "is not valid base64 of UTF-8 between `=?base64?` and `?=`: encode it again";
        for (name, value) in
            [(NAME, "=?base64?cGF5"), (NAME, "=?base64?c?="), ("mcp-param-to", "=?base64?/w==?=")]
        {
            let expected = format!("the header `{name}` {not_base64}");
            // Without its end, the value is a plain text.
            let is_framed = value.ends_with("?=");
            let differs = "the header `mcp-name` differs from the part of the message that it repeats: send equal values";
            check(&[(name, value)], Err(if is_framed { expected.as_str() } else { differs }));
        }
        check(
            &[(VERSION, "latest")],
            Err(
                "the header `mcp-protocol-version` does not have the form of a version of MCP: send one such as `2025-11-25`",
            ),
        );
        // Only judged arguments are repeated.
        check(
            &[("mcp-param-to", "bob"), ("mcp-param-sum", "5")],
            Ok(&[("mcp-param-to", "bob"), ("mcp-param-sum", "5")]),
        );
        check(
            &[("mcp-param-to", "=?base64?Ym9i?="), ("mcp-param-note", "mallory")],
            Ok(&[("mcp-param-to", "=?base64?Ym9i?=")]),
        );
    }

    #[test]
    fn names_that_no_header_can_hold_are_written_otherwise() {
        for name in ["pay", "b\u{e4}nk", " pay", "=?base64?x?=", "a\nb: c"] {
            let written = encoded(name);
            assert!(
                HeaderValue::from_str(&written).is_ok() && decoded(&written).as_deref() == Some(name),
                "{written}"
            );
            assert_eq!(written == name, name == "pay", "{written}");
        }
    }
}
