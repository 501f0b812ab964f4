//! Reads extensions of clients in formats that lack them: `"flowgate": {"is_error": true}`.

use super::WireError;
use super::fields::{Fields, Known};

/// The field that contains them.
pub(super) const OWN: &str = "flowgate";

const ANSWER: Known = Known { read: &["is_error"], dropped: &[], fixed: &[] };

/// Whether a tool output is an error; `None` if the client does not declare it.
pub(super) fn is_error(answer: &Fields<'_>) -> Result<Option<bool>, WireError> {
    if answer.get(OWN).is_none() {
        return Ok(None);
    }
    let own = answer.object(OWN)?;
    own.only(&ANSWER)?;
    own.get("is_error").map(|_| own.flag("is_error")).transpose()
}
