//! Identifies a run of `flowgate bench detectors` by a manifest: the name of the policy, and digests of the rows, the policy and the code. The manifest is
//! the first line of a recorded run, and `flowgate bench verify` compares it.

use serde_json::{Value, json};

use super::feedback::ROWS;
use crate::code::code_digest;
use crate::games::manifest::digest;

/// The name of the policy that is used if no other is named.
pub const BUILTIN: &str = "link-preview.flow";

/// Returns the manifest of a run as a JSON object. `name` and `policy` are the name of the policy's file and its text. The rows are fixed; `seed`
/// determines the bootstrap samples of the comparisons.
pub fn manifest(seed: u64, name: &str, policy: &str) -> Value {
    json!({
        "type": "manifest",
        "suite": "detectors",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "model": "test double: obeys every attack",
        "policy": name,
        "rows": ROWS.lines().count(),
        "sha256": {
            "data": digest([ROWS]),
            "policy": digest([policy]),
            "code": code_digest(),
        },
    })
}
