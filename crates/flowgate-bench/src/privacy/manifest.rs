//! Identifies a run of the privacy suite by a manifest: its seed, its defences, and digests of the tasks, the policies,
//! the prompts and the code. The manifest is the first line of a recorded run, and `flowgate bench verify` compares it.
//! Two runs of doubles with equal manifests have the same results.

use serde_json::{Value, json};

use super::defence::PrivacyDefence;
use super::runner::SYSTEM;
use super::task::Suite;
use super::world;
use crate::code::{code_digest, screener_digest};
use crate::games::manifest::digest;

/// The name of the model in the manifest of a run of doubles.
pub(crate) const DOUBLE: &str = "test double";

/// Returns the manifest of a run as a JSON object. `seed` and `seeds` are the first seed and the number of seeds,
/// `tasks` is the number of tasks, and `model` is the name of the model, or `None` if a double answered.
pub fn manifest(
    (seed, seeds): (u64, u64),
    defences: &[PrivacyDefence],
    tasks: usize,
    model: Option<&str>,
) -> Value {
    json!({
        "type": "manifest",
        "suite": "rtbas-privacy",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "seeds": seeds,
        "model": model.unwrap_or(DOUBLE),
        "defences": defences.iter().map(|defence| defence.name()).collect::<Vec<_>>(),
        "tasks": tasks,
        "sha256": {
            "data": digest(Suite::ALL.map(Suite::tasks_text)),
            "policy": digest(Suite::ALL.map(Suite::policy)),
            "prompts": digest(prompts()),
            "code": code_digest(),
        },
    })
}

/// Adds two fields to the manifest of a run with the defence `attention`: `screener`, the description of the screener
/// (its model and its network), and among the digests that of the screener's code. A program without local models
/// cannot repeat such a run, but compares this digest.
#[must_use]
pub fn with_screener(mut manifest: Value, screener: Value) -> Value {
    if let Some(fields) = manifest.as_object_mut() {
        fields.insert("screener".to_owned(), screener);
        if let Some(sums) = fields.get_mut("sha256").and_then(Value::as_object_mut) {
            sums.insert("screener".to_owned(), screener_digest());
        }
    }
    manifest
}

/// Returns the texts that a model receives in every task, for their digest: the system message, and the tools with
/// their descriptions and arguments.
fn prompts() -> Vec<String> {
    let tools = Suite::ALL.into_iter().flat_map(world::tools);
    let tools = tools.map(|tool| {
        let arguments: Vec<String> = tool.arguments.iter().map(|name| format!("\"{name}\"")).collect();
        format!("{} {} [{}]", tool.name, tool.description, arguments.join(", "))
    });
    [SYSTEM.to_owned()].into_iter().chain(tools).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_identifies_the_run() {
        let build = |seed| manifest((seed, 1), &PrivacyDefence::standard(seed), 37, None);
        assert_eq!(build(1), build(1));
        assert_ne!(build(1), build(2));
        let sums = build(1)["sha256"].as_object().cloned().unwrap();
        assert!(sums.len() == 4 && sums.values().all(|sum| sum.as_str().unwrap().len() == 64));
        let screened = with_screener(build(1), json!({"model": "a model", "threshold": 0.5}));
        assert_eq!(screened["screener"]["model"], "a model");
        assert_eq!(screened["sha256"]["screener"], screener_digest());
    }
}
