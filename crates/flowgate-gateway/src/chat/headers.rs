//! Reads three headers of a client's request: the name of the conversation, the declared provenance of user messages,
//! and the features of the Messages API that the client asks for. Also writes the name of the conversation into the
//! header of a reply. The model routes and the MCP routes call it.

use axum::http::HeaderMap;
use flowgate_lm::chat::Source;

use crate::http::reply::HttpReply;
use crate::virtual_keys::scope::name_for_client;

/// The header in which a client names the conversation of a request.
pub(crate) const CONVERSATION: &str = "x-flowgate-conversation";
/// The header in which a client declares the provenance of those parts of user messages that have no mark of their own.
pub(crate) const SOURCE: &str = "x-flowgate-source";

/// Reads the name of the conversation from the headers of a request; `None` if the client names none.
///
/// # Errors
/// If the header occurs twice or is no valid name. The message tells the client what to send.
pub(crate) fn conversation_of(headers: &HeaderMap) -> Result<Option<String>, String> {
    let mut values = headers.get_all(CONVERSATION).iter();
    // The first value, and whether there is another one.
    let (value, other) = (values.next().map(|value| value.to_str()), values.next());
    match value {
        // Refused, because another program that reads the request might use the other value.
        _ if other.is_some() => Err(format!("the header `{CONVERSATION}` occurs twice: send it once")),
        None => Ok(None),
        Some(Ok(name)) if is_conversation_name(name) => Ok(Some(name.to_owned())),
        Some(_) => Err(format!(
            "the value of the header `{CONVERSATION}` is no name of a conversation: send 1 to 128 printable ASCII \
             characters"
        )),
    }
}

/// Returns whether a client may give a conversation this name: 1 to 128 printable ASCII characters, tabs included.
pub(crate) fn is_conversation_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Adds the header with the name of the conversation to a reply. `name` is the name in the gateway, which begins with
/// the scope of the virtual key; the client receives the name without this scope. `None` adds no header.
pub(crate) fn with_conversation_header(reply: HttpReply, name: Option<&str>) -> HttpReply {
    match name {
        Some(name) => reply.with_header(CONVERSATION, name_for_client(name)),
        None => reply,
    }
}

/// Reads the header that declares the provenance of those parts of user messages that have no mark of their own;
/// `None` if it is absent.
///
/// # Errors
/// If the header occurs twice or has an unknown value. The message tells the client what to send.
pub(super) fn declared_default_source(headers: &HeaderMap) -> Result<Option<Source>, String> {
    let mut values = headers.get_all(SOURCE).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(format!("the header `{SOURCE}` occurs twice: send it once")),
        (Some(value), None) => match value.to_str().ok().and_then(Source::from_name) {
            Some(source) => Ok(Some(source)),
            None => {
                let names: Vec<&str> = Source::ALL.iter().map(|source| source.name()).collect();
                Err(format!("the value of the header `{SOURCE}` must be one of: {}", names.join(", ")))
            }
        },
    }
}

/// The features of the Messages API that the gateway requests from the upstream if the client does. They change how
/// much a model reasons or may read, and add no part to its answers that the gateway does not know. All other features
/// that a client asks for are dropped.
const PASSED_BETAS: [&str; 3] =
    ["context-1m-2025-08-07", "effort-2025-11-24", "interleaved-thinking-2025-05-14"];

/// Returns those of [`PASSED_BETAS`] that a request asks for in its headers `anthropic-beta`. Each of these headers is
/// a list, separated by commas. Only the first 64 requested features count, which bounds the work on a long header.
pub(crate) fn passed_betas(headers: &HeaderMap) -> Vec<&'static str> {
    let asked = headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    let asked: Vec<&str> = asked.flat_map(|value| value.split(',')).map(str::trim).take(64).collect();
    PASSED_BETAS.into_iter().filter(|passed| asked.contains(passed)).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::virtual_keys::scope::scope;

    /// The names of conversations of virtual keys inside the gateway cannot be sent.
    #[test]
    fn names_have_visible_ascii_characters() {
        let check = |name: &str, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(CONVERSATION, HeaderValue::from_bytes(name.as_bytes()).unwrap());
            assert_eq!(conversation_of(&headers).ok().flatten().as_deref(), expected, "{name}");
        };
        check("c1", Some("c1"));
        check(&"c".repeat(128), Some(&"c".repeat(128)));
        check(&"c".repeat(129), None);
        check("", None);
        check(&(scope(Some("0a1b")) + "c1"), None);
    }

    #[test]
    fn only_known_features_are_passed_on() {
        let check = |values: &[&str], expected: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("anthropic-beta", value.parse().unwrap());
            }
            assert_eq!(passed_betas(&headers), expected, "{values:?}");
        };
        check(&[], &[]);
        check(&["mcp-client-2025-11-20, effort-2025-11-24"], &["effort-2025-11-24"]);
        check(
            &["interleaved-thinking-2025-05-14", "context-1m-2025-08-07,effort"],
            &["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"],
        );
    }
}
