//! Decodes what the formats share about the MCP servers that a provider calls: the label of a server, which decides
//! whether the client may name it ([`accepted_label`]), its address, its token and the names of its tools. The modules
//! `mcp_servers` of the formats call this module, and decode and encode the rest.
//!
//! A server counts as one tool of the provider. The client's model is offered one function for it. If the policy
//! permits a call of this function, a separate request to the provider contains the argument of the call, and the model
//! that answers this request calls the tools of the server. The descriptions of these tools reach only that model.

use super::WireError;
use super::fields::{ObjectFields, UNLABELLED_SERVER};
use crate::chat::{McpAddress, McpLabel, ProviderMcpServer, ProviderTool};

/// The most bytes of a token, or of the value of a header.
const MAX_SECRET: usize = 16_384;

/// Returns the label of the server that `object` declares or names, from its field `key`.
///
/// # Errors
/// If the field has no valid label, or if the options of the decoder accept no server with this label. The error is
/// about the field `place`: for a tool, this is `type`, since the tool as a whole is refused.
pub(super) fn accepted_label(
    object: &ObjectFields<'_>,
    key: &str,
    place: &str,
) -> Result<McpLabel, WireError> {
    let label = object.optional_text(key)?.and_then(McpLabel::parse);
    let is_accepted =
        |label: &McpLabel| object.accepts_provider_tool(&ProviderTool::McpServer(label.clone()));
    label.filter(is_accepted).map_or_else(|| object.field_error(place, UNLABELLED_SERVER), Ok)
}

/// Returns the address in the field `key` of an object that declares a server. Fails if it is missing or malformed.
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

/// Returns the token in the field `key` of an object that declares a server; `None` if the field is absent. Fails if
/// the text cannot be a token.
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

/// Returns whether a text can be a token, or the value of a header: it is printable ASCII, and neither empty nor too
/// long.
pub(super) fn is_secret(text: &str) -> bool {
    (1..=MAX_SECRET).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Returns `names`, the names of tools of a server that were read from the field `key` of `object`.
///
/// # Errors
/// If one of them cannot be the name of a tool. The error is about the field `key`.
pub(super) fn checked_names(
    object: &ObjectFields<'_>,
    key: &str,
    names: Vec<String>,
) -> Result<Vec<String>, WireError> {
    match names.iter().all(|name| ProviderMcpServer::is_tool_name(name)) {
        true => Ok(names),
        false => object.field_error(
            key,
            "has a name that cannot be that of a tool; write names of 1 to 128 printable ASCII characters without \
            spaces, `<` and `>`",
        ),
    }
}
