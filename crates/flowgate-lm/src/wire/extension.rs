//! Reads Flowgate's own field `"flowgate": {"is_error": true}` of a tool output, by which a client declares that the
//! tool failed. Chat Completions and Responses have no field for that.

use super::WireError;
use super::fields::ObjectFields;
use super::known_fields::{FieldRule, KnownFields};

/// The field that contains them.
pub(super) const EXTENSION_FIELD: &str = "flowgate";

const ANSWER: KnownFields =
    KnownFields { title: "flowgate", rows: &[("is_error", FieldRule::Read("whether the tool failed"))] };

/// Whether a tool output is an error; `None` if the client does not declare it.
pub(super) fn is_error(answer: &ObjectFields<'_>) -> Result<Option<bool>, WireError> {
    if answer.get(EXTENSION_FIELD).is_none() {
        return Ok(None);
    }
    let own = answer.object(EXTENSION_FIELD)?;
    own.reject_unknown(&ANSWER)?;
    own.get("is_error").map(|_| own.flag("is_error")).transpose()
}
