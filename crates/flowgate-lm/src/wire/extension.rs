//! Reads the field `"flowgate": {"is_error": true}` of a tool output, by which a client declares that the tool failed.
//! The field is Flowgate's addition to Chat Completions and Responses, which have no field for this. The request
//! decoders of these two formats call this module.

use super::WireError;
use super::fields::{EXTENSION, ObjectFields};
use super::known_fields::{FieldRule, KnownFields};

/// The fields of the declaration in a tool output.
const ANSWER: KnownFields =
    KnownFields { title: "flowgate", rows: &[("is_error", FieldRule::Read("whether the tool failed"))] };

/// Returns whether the client declares that a tool failed; `None` if it declares nothing. `answer` is the message or
/// item with the tool's output. Fails if the declaration is malformed.
pub(super) fn is_error(answer: &ObjectFields<'_>) -> Result<Option<bool>, WireError> {
    if answer.get(EXTENSION).is_none() {
        return Ok(None);
    }
    let extension = answer.object(EXTENSION)?;
    extension.reject_unsupported(&ANSWER)?;
    // `flag` returns false for an absent field, so it is called only if the field is present.
    extension.get("is_error").map(|_| extension.flag("is_error")).transpose()
}
