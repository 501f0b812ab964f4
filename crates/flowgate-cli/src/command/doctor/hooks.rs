//! Examines the hooks in the files of an MCP client (the programs that the client runs at events such as a tool call),
//! for `flowgate doctor`: whether one of them is `flowgate hook` and judges every call before it runs, and whether the
//! policy of this hook can be used with its parameters. Adds what it finds to the findings that `doctor` prints.

use std::path::{Path, PathBuf};

use super::guard_policy::load;
use super::{Findings, report_policy};
use crate::clients::hooks::{ConfiguredHook, HookEffect, HookGap};
use crate::clients::places::{CLIENTS, McpClient};
use crate::clients::wrapping::option;
use crate::escaping;

/// The hooks of the examined files.
#[derive(Debug, Default)]
pub(super) struct FoundHooks {
    /// Each hook with its file, and whether the file belongs to the project alone.
    hooks: Vec<(PathBuf, bool, ConfiguredHook)>,
    /// The files that switch hooks off.
    off: Vec<PathBuf>,
}

impl FoundHooks {
    /// Adds the hooks of the file at `path`. `are_off` says whether the file switches hooks off. `is_of_project` says
    /// whether the file is of a project, and not of the user or of all users.
    pub(super) fn add(
        &mut self,
        (path, is_of_project): (&Path, bool),
        hooks: Vec<ConfiguredHook>,
        are_off: bool,
    ) {
        self.hooks.extend(hooks.into_iter().map(|hook| (path.to_owned(), is_of_project, hook)));
        if are_off {
            self.off.push(path.to_owned());
        }
    }

    /// Examines the hooks that were added, and adds a finding for each problem: Flowgate has no hook, hooks are switched
    /// off, a hook of Flowgate does not guard, the policy of a hook that guards cannot be used, or the hooks that guard
    /// are for this project only. `client` is `None` if the hooks are those of a file whose client is not known.
    pub(super) fn examine(&self, client: Option<&McpClient>, findings: &mut Findings) {
        let effects: Vec<(&Path, &ConfiguredHook, HookEffect)> = self
            .hooks
            .iter()
            .map(|(path, _, hook)| (path.as_path(), hook, effect(hook, client)))
            .filter(|(.., effect)| *effect != HookEffect::NotFlowgate)
            .collect();
        // For each hook that guards, whether it is in a file of the project.
        let guarding: Vec<bool> = self
            .hooks
            .iter()
            .filter(|(.., hook)| effect(hook, client) == HookEffect::Guards)
            .map(|(_, is_of_project, _)| *is_of_project)
            .collect();
        let is_only_of_project = !guarding.is_empty() && guarding.iter().all(|is_of_project| *is_of_project);
        if effects.is_empty() {
            if let Some(client) = client.filter(|client| client.hook.is_some()) {
                let name = client.name;
                findings.note(format!(
                    "{name} has no hook of Flowgate, so nothing judges its own tools; docs/hooks.md says how to add one"
                ));
            }
            return;
        }
        for path in &self.off {
            findings.wrong(format!(
                "{}: hooks are switched off, so none of them guards; remove `disableAllHooks` or `hooksConfig.enabled`",
                path.display()
            ));
        }
        let guards = !guarding.is_empty();
        let mut seen: Vec<String> = Vec::new();
        for (path, hook, effect) in effects {
            match effect {
                HookEffect::Guards => examine_guard(path, hook, findings),
                // If another hook judges the calls, a hook for another event is not a gap: it judges prompts or outputs.
                HookEffect::Gap(HookGap::OtherEvent(_)) if guards => {}
                HookEffect::Gap(gap) => {
                    let problem = format!(
                        "{}: the hook of Flowgate {}; {}",
                        path.display(),
                        escaping::excerpt(&gap.description(), 120),
                        remedy(&gap)
                    );
                    // The hooks of several events usually have the same command.
                    if !seen.contains(&problem) {
                        findings.wrong(problem.clone());
                        seen.push(problem);
                    }
                }
                // `effects` has no such hook.
                HookEffect::NotFlowgate => {}
            }
        }
        if is_only_of_project {
            findings.note(
                "the hook of Flowgate is in the files of this project, so it guards only what the client does here; write it \
                 into the settings of the user to guard everything (docs/hooks.md)",
            );
        }
    }
}

/// Returns what a hook does for the protection of a client. If the client is not known (`None`), the hook is examined as
/// one of the client that its option `--harness` names.
fn effect(hook: &ConfiguredHook, client: Option<&McpClient>) -> HookEffect {
    if let Some(client) = client {
        return hook.effect(client.hook);
    }
    // As a hook of any other client, the hook has the effect `OtherHarness`, which is skipped.
    let mut effects =
        CLIENTS.iter().filter_map(|client| client.hook).map(|of_client| hook.effect(Some(of_client)));
    let is_for_harness = |effect: &HookEffect| !matches!(effect, HookEffect::Gap(HookGap::OtherHarness(_)));
    effects.find(is_for_harness).unwrap_or(HookEffect::NotFlowgate)
}

/// Returns what to do about a gap.
fn remedy(gap: &HookGap) -> &'static str {
    match gap {
        HookGap::Watches => "remove `--watch` to enforce the policy",
        HookGap::InBackground => "remove `async`",
        HookGap::OtherHarness(_) => "see docs/hooks.md",
        HookGap::OtherEvent(_) => "add it to the event before calls (docs/hooks.md)",
        HookGap::SomeTools(_) => "write `\"matcher\": \"*\"`",
        HookGap::SomeCalls => "remove `if`",
    }
}

/// Examines a hook that guards, in the file at `path`: whether the client continues if the hook cannot run, whether the
/// policy of the hook can be used, and whether the hook sets the parameters of this policy.
fn examine_guard(path: &Path, hook: &ConfiguredHook, findings: &mut Findings) {
    let (words, file) = (hook.words(), path.display());
    if hook.fails_open() {
        findings.note(format!(
            "{file}: the client continues if the hook of Flowgate cannot run or takes too long; end its command with `|| exit 2`, \
             and write `\"onFailure\": \"block\"` for Claude Code or `\"failClosed\": true` for Cursor (docs/hooks.md)"
        ));
    }
    let Some(policy_path) = option(&words, "--policy") else {
        return findings
            .wrong(format!("{file}: the hook has no --policy, so it denies every call; add --policy FILE"));
    };
    // The client's shell expands this path when it runs the hook, so the file of the policy is not known here.
    if policy_path.contains('$') || policy_path.starts_with('~') {
        return findings.right(format!(
            "{file}: the hook guards the client by the policy {}",
            escaping::excerpt(policy_path, 100)
        ));
    }
    let policy_file = Path::new(policy_path);
    if policy_file.is_relative() {
        findings.wrong(format!(
            "{file}: the path of the hook's policy is relative, so it depends on the folder in which the client runs; write the absolute path"
        ));
    }
    let policy = match load(policy_file) {
        Err(why) => return findings.wrong(format!("{file}: the hook denies every call: {why}")),
        Ok(policy) => policy,
    };
    report_policy(&policy, &policy_file.display().to_string(), policy_file, findings);
    // A parameter is set by one word `--param=NAME=VALUE`, or by the word `NAME=VALUE` after `--param`.
    let is_set = |parameter: &str| {
        words.iter().any(|word| {
            let value = word.strip_prefix("--param=").unwrap_or(word);
            value.strip_prefix(parameter).is_some_and(|rest| rest.starts_with('='))
        })
    };
    let missing: Vec<&str> = policy.parameters().filter(|parameter| !is_set(parameter)).collect();
    if missing.is_empty() {
        findings.right(format!("{file}: the hook guards the client by the policy {}", policy_file.display()));
    }
    for parameter in missing {
        findings.wrong(format!(
            "{file}: the policy of the hook reads `input.{parameter}`, which the hook does not set; add --param {parameter}=VALUE to the hook"
        ));
    }
}
