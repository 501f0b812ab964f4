//! What clients of ours say beside a message in forms that have no word for it: `"flowgate": {"is_error": true}`.

use super::WireError;
use super::fields::{Fields, Known};

/// The field in which it stands.
pub(super) const OWN: &str = "flowgate";

const ANSWER: Known = Known { read: &["is_error"], dropped: &[], fixed: &[] };

/// Whether the answer of a tool is an error; `None` if the client does not say.
pub(super) fn is_error(answer: &Fields<'_>) -> Result<Option<bool>, WireError> {
    if answer.get(OWN).is_none() {
        return Ok(None);
    }
    let own = answer.object(OWN)?;
    own.only(&ANSWER)?;
    own.get("is_error").map(|_| own.flag("is_error")).transpose()
}
