//! Decodes what the formats share about the MCP servers that a provider calls: which servers a client may name
//! ([`accepted_label`]), their addresses and their tokens. The modules `mcp_servers` of the formats decode and encode
//! the rest.
//!
//! A server is a tool of the provider: the model is offered one function, and the provider's own model calls the tools
//! of the server, in a request that contains the argument of a permitted call. What the server says about its tools
//! reaches that model alone.

use super::WireError;
use super::fields::{ObjectFields, UNLABELLED_SERVER};
use crate::chat::{McpAddress, McpLabel, McpServer, ProviderTool};

/// The most bytes of a token, or of the value of a header.
const MAX_SECRET: usize = 16_384;

/// Returns the label in the field `label` of an object that declares a server, or names one. `place` is the field that
/// the error names.
///
/// # Errors
/// If the options of the decoder do not accept the server with this label.
pub(super) fn accepted_label(
    object: &ObjectFields<'_>,
    label: &str,
    place: &str,
) -> Result<McpLabel, WireError> {
    let label = object.optional_text(label)?.and_then(McpLabel::parse);
    let is_accepted =
        |label: &McpLabel| object.accepts_provider_tool(&ProviderTool::McpServer(label.clone()));
    label.filter(is_accepted).map_or_else(|| object.field_error(place, UNLABELLED_SERVER), Ok)
}

/// Returns the address in the field `key` of an object that declares a server.
pub(super) fn read_address(object: &ObjectFields<'_>, key: &str) -> Result<McpAddress, WireError> {
    McpAddress::parse(object.text(key)?).map_or_else(
        || {
            object.field_error(
                key,
                "is not an address `https://HOST/PATH` of at most 2048 bytes, without a user name and without a \
                fragment",
            )
        },
        Ok,
    )
}

/// Returns the token in the field `key` of an object that declares a server, if the field is present.
pub(super) fn read_token(object: &ObjectFields<'_>, key: &str) -> Result<Option<String>, WireError> {
    match object.optional_text(key)? {
        Some(token) if is_secret(token) => Ok(Some(token.to_owned())),
        Some(_) => object.field_error(
            key,
            "is not a token of 1 to 16384 printable ASCII characters; write the token alone",
        ),
        None => Ok(None),
    }
}

/// Returns whether a text can be a token, or the value of a header.
pub(super) fn is_secret(text: &str) -> bool {
    (1..=MAX_SECRET).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Returns names of the server's tools that the field `key` contains.
///
/// # Errors
/// If one of them cannot be the name of a tool.
pub(super) fn checked_names(
    object: &ObjectFields<'_>,
    key: &str,
    names: Vec<String>,
) -> Result<Vec<String>, WireError> {
    match names.iter().all(|name| McpServer::is_tool_name(name)) {
        true => Ok(names),
        false => object.field_error(
            key,
            "has a name that no tool of a server has; write names of 1 to 128 printable ASCII characters without \
            spaces, `<` and `>`",
        ),
    }
}
