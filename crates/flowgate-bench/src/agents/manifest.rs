//! Identifies a run of `flowgate bench agents`: its methods, and digests of the tasks, the policy and the code. It is the first line of a recorded run,
//! and `flowgate bench verify` compares it.

use serde_json::{Value, json};

use super::Guard;
use super::task::{all, injections};
use crate::code::code_digest;
use crate::games::manifest::digest;

/// The name of the model in the manifest.
pub(crate) const DOUBLE: &str = "test double: capable and gullible";

/// Returns the manifest of a run as a JSON object. The tasks are fixed; `seed` determines the bootstrap samples of the comparisons.
pub fn manifest(seed: u64, guards: &[Guard]) -> Value {
    let tasks = all();
    let texts = tasks.iter().map(|task| format!("{task:?}"));
    json!({
        "type": "manifest",
        "suite": "agents",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "model": DOUBLE,
        "methods": guards.iter().map(|guard| guard.name()).collect::<Vec<_>>(),
        "tasks": tasks.len(),
        "sha256": {
            "tasks": digest(texts.chain(injections().iter().map(|injection| format!("{injection:?}")))),
            "policy": digest([super::POLICY]),
            "code": code_digest(),
        },
    })
}
