//! Identifies a run of `flowgate bench agents` by a manifest: its methods, and digests of the tasks, the prompts, the policy and the code. The manifest is
//! the first line of a recorded run, and `flowgate bench verify` compares it.

use serde_json::{Value, json};

use super::Guard;
use super::gullible::instruction;
use super::task::{BenchTask, TaskStep, ValueSource, all, injections};
use super::world::{TOOLS, offered};
use crate::code::code_digest;
use crate::games::manifest::digest;

/// The name of the model in the manifest.
pub(crate) const DOUBLE: &str = "test double: capable and gullible";

/// Returns the manifest of a run with these guards as a JSON object. The tasks are fixed; `seed` determines the
/// bootstrap samples of the comparisons. The digests identify everything else that determines the results, so that a
/// change of it is noticed.
pub fn manifest(seed: u64, guards: &[Guard]) -> Value {
    let tasks = all();
    json!({
        "type": "manifest",
        "suite": "agents",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "model": DOUBLE,
        "methods": guards.iter().map(|guard| guard.name()).collect::<Vec<_>>(),
        "tasks": tasks.len(),
        "sha256": {
            "tasks": digest(task_texts(&tasks)),
            "prompts": digest(prompts()),
            "policy": digest([super::POLICY]),
            "code": code_digest(),
        },
    })
}

/// Returns the texts that identify the tasks and the injected instructions, for their digest. They contain what the fields
/// contain and not their names, so that a renamed field changes no digest.
fn task_texts(tasks: &[BenchTask]) -> Vec<String> {
    let tasks = tasks.iter().map(|task| {
        let steps: Vec<Value> = task.steps.iter().map(step_json).collect();
        json!([task.servers, task.prompt, steps, task.kind.name()]).to_string()
    });
    let injected = injections().into_iter();
    let injected = injected.map(|(server, tool, arguments)| json!([server, tool, arguments]).to_string());
    tasks.chain(injected).collect()
}

/// Returns a step as a list, for the digest of the tasks: its kind, and then its fields in order.
fn step_json(step: &TaskStep) -> Value {
    match step {
        TaskStep::Call { tool, arguments } => {
            let arguments = arguments.iter().map(|(name, source)| json!([name, source_json(source)]));
            json!(["call", tool, arguments.collect::<Vec<_>>()])
        }
        TaskStep::If { step, row, field, says, then } => {
            json!(["if", step, row, field, says, step_json(then)])
        }
        TaskStep::Tell { step, row, field } => json!(["tell", step, row, field]),
    }
}

/// Returns the source of a value as a list, for the digest of the tasks: its kind, and then its fields in order.
fn source_json(source: &ValueSource) -> Value {
    match source {
        ValueSource::User(value) => json!(["user", value]),
        ValueSource::Field { step, row, field } => json!(["field", step, row, field]),
        ValueSource::Written { step, row, field } => json!(["written", step, row, field]),
    }
}

/// Returns the texts that a model receives whatever calls it makes, for their digest: the message of the user in each
/// task, the tools with their descriptions and arguments, and each injected instruction as strangers write it.
fn prompts() -> Vec<String> {
    let messages = all().into_iter().map(|task| task.prompt.to_owned());
    let servers: Vec<&str> = TOOLS.iter().map(|tool| tool.server).collect();
    let tools = offered(&servers).into_iter();
    let tools = tools.map(|spec| {
        let server = spec.tool.server.as_deref().unwrap_or_default();
        format!("{server}/{} {} {}", spec.tool.name, spec.description, *spec.parameters)
    });
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
        for expected in ["Sends money.", "recipient", "inbox", "bank/send_money"] {
            assert!(prompts.iter().any(|prompt| prompt.contains(expected)), "{expected}");
        }
        // Names of types and fields are not hashed.
        let mut texts = task_texts(&all());
        let count = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!(
            (texts.len(), count),
            (count, all().len() + injections().len()),
            "no two tasks are the same"
        );
        texts.extend(prompts);
        for name in ["Call {", "User(", "Tool {", "arguments:", "BenchTask"] {
            assert!(!texts.iter().any(|text| text.contains(name)), "{name}");
        }
    }
}
