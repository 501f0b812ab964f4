//! Identifies a run of `flowgate bench agents`: its methods, and digests of the tasks, the prompts, the policy and the code. It is the first line of a recorded run,
//! and `flowgate bench verify` compares it.

use serde_json::{Value, json};

use super::Guard;
use super::gullible::instruction;
use super::task::{all, injections};
use super::world::{TOOLS, offered};
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
            "prompts": digest(prompts()),
            "policy": digest([super::POLICY]),
            "code": code_digest(),
        },
    })
}

/// Returns the texts that a model receives besides what follows from its calls, for their digest: the message of the user
/// in each task, the tools with their descriptions and arguments, and each injected instruction as strangers write it.
fn prompts() -> Vec<String> {
    let messages = all().into_iter().map(|task| task.prompt.to_owned());
    let servers: Vec<&str> = TOOLS.iter().map(|tool| tool.server).collect();
    let tools = offered(&servers).into_iter();
    let tools = tools.map(|tool| format!("{:?} {} {}", tool.tool, tool.description, *tool.parameters));
    let injected = injections().into_iter().map(|(_, tool, arguments)| instruction(tool, &arguments));
    messages.chain(tools).chain(injected).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_identifies_the_run() {
        let guards = [Guard::Unguarded];
        assert_eq!(manifest(1, &guards), manifest(1, &guards));
        let sums = manifest(1, &guards)["sha256"].as_object().cloned().unwrap();
        assert!(sums.len() == 4 && sums.values().all(|sum| sum.as_str().unwrap().len() == 64), "{sums:?}");
        let prompts = prompts();
        for expected in ["Sends money.", "recipient", "inbox"] {
            assert!(prompts.iter().any(|prompt| prompt.contains(expected)), "{expected}");
        }
    }
}
