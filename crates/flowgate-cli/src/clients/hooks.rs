//! Finds the hooks in a configuration file of an MCP client (programs that the client runs on events), and decides
//! whether a hook guards the client: it must be `flowgate hook`, judge every call before the call runs, and stop what
//! the policy does not permit. `scan` and `doctor` call it. Nothing of a file is executed here.

use serde_json::{Map, Value};

use super::wrapping;

/// The maximum number of hooks of one file.
const MAX_HOOKS: usize = 1_000;
/// The maximum depth of a hook below the table of hooks. It bounds the recursion on untrusted input.
const MAX_DEPTH: usize = 8;

/// How `flowgate hook` judges the calls of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientHook {
    /// The value of `--harness`.
    pub(crate) harness: &'static str,
    /// The event before each call.
    pub(crate) event: &'static str,
}

/// A hook that a file configures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfiguredHook {
    /// Its command line or its address.
    pub(crate) command: String,
    /// The event on which it runs.
    event: String,
    /// Which tools it is for, if these are not all.
    matcher: Option<String>,
    /// Whether it runs only for calls that fit a further condition.
    is_conditional: bool,
    /// Whether the client does not wait for it.
    is_in_background: bool,
    /// Whether a field says that the client stops the call if the hook fails.
    blocks_on_failure: bool,
}

/// What a hook does for the protection of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HookEffect {
    /// It is not `flowgate hook`.
    NotFlowgate,
    /// It judges every call before it runs.
    Guards,
    /// It is `flowgate hook`, and does not guard the client.
    Gap(HookGap),
}

/// Why a hook of Flowgate does not guard a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HookGap {
    /// It has `--watch`.
    Watches,
    /// The client does not wait for it.
    InBackground,
    /// The hook is for another agent. For this client, it needs the `--harness` that is given here; `None` if `flowgate
    /// hook` cannot judge the calls of the client.
    OtherHarness(Option<&'static str>),
    /// It runs on this event, which is not the one before a call.
    OtherEvent(String),
    /// It judges only the tools that match this.
    SomeTools(String),
    /// It judges only calls that fit a condition.
    SomeCalls,
}

impl HookGap {
    /// Returns the gap in words, as a clause about the hook.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Watches => "only watches, so it stops nothing".to_owned(),
            Self::InBackground => "runs in the background (`async`), so it stops nothing".to_owned(),
            Self::OtherHarness(None) => "cannot judge the calls of this client".to_owned(),
            Self::OtherHarness(Some(harness)) => {
                format!("is for another agent: it needs `--harness {harness}`")
            }
            Self::OtherEvent(event) => format!("runs on `{event}`, not before a call"),
            Self::SomeTools(matcher) => format!("judges only the tools that match `{matcher}`"),
            Self::SomeCalls => "judges only the calls that fit its `if`".to_owned(),
        }
    }
}

/// Returns the hooks of a file with the content `root`, in the order of the file; at most [`MAX_HOOKS`]. Each client nests
/// its hooks differently, so every command and every address anywhere in the table of an event counts as a hook.
pub(crate) fn hooks_of(root: &Value) -> Vec<ConfiguredHook> {
    let mut found = Vec::new();
    for (event, hooks) in root.get("hooks").and_then(Value::as_object).into_iter().flatten() {
        // The settings that apply to every hook of this event; on this level, only the event is known.
        let around = ConfiguredHook {
            command: String::new(),
            event: event.clone(),
            matcher: None,
            is_conditional: false,
            is_in_background: false,
            blocks_on_failure: false,
        };
        collect_hooks(hooks, 1, &around, &mut found);
    }
    found
}

/// Returns whether a file with this content switches all hooks off, in the form of Claude Code or of Gemini CLI.
pub(crate) fn are_switched_off(root: &Value) -> bool {
    let settings = root.get("hooksConfig");
    root.get("disableAllHooks") == Some(&Value::Bool(true))
        || settings.and_then(|settings| settings.get("enabled")) == Some(&Value::Bool(false))
}

/// Adds the hooks in `value`, which is `depth` levels below the table of hooks, to `found`. A hook is an object with a
/// `command` or a `url`. The settings of an object, such as a matcher, also apply to the hooks nested in it: `around` has
/// the settings of the levels above `value`.
fn collect_hooks(value: &Value, depth: usize, around: &ConfiguredHook, found: &mut Vec<ConfiguredHook>) {
    if depth > MAX_DEPTH || found.len() >= MAX_HOOKS {
        return;
    }
    match value {
        Value::Object(fields) => {
            let here = settings_within(fields, around);
            for (key, value) in fields {
                match value {
                    Value::String(command) if matches!(key.as_str(), "command" | "url") => {
                        found.push(ConfiguredHook { command: command.clone(), ..here.clone() });
                    }
                    value => collect_hooks(value, depth + 1, &here, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_hooks(item, depth + 1, around, found)),
        _ => {}
    }
}

/// Returns the settings that apply within an object: those of the object's own `fields`, together with `around`, those
/// of the levels above.
fn settings_within(fields: &Map<String, Value>, around: &ConfiguredHook) -> ConfiguredHook {
    let mut here = around.clone();
    match fields.get("matcher") {
        None | Some(Value::Null) => {}
        // A pattern that every tool matches is no restriction.
        Some(Value::String(all)) if matches!(all.as_str(), "" | "*" | ".*") => {}
        Some(Value::String(some)) => here.matcher = Some(some.clone()),
        // A matcher of another form may be a restriction, so the hook is not taken for a guard of all tools.
        Some(other) => here.matcher = Some(other.to_string()),
    }
    here.is_conditional |= fields.get("if").is_some_and(|condition| !condition.is_null());
    // A value that is not `false` counts as true: the hook is then not taken for a guard.
    here.is_in_background |= fields.get("async").is_some_and(|flag| flag.as_bool() != Some(false));
    // The fields of Claude Code and of Cursor.
    here.blocks_on_failure |= fields.get("onFailure").and_then(Value::as_str) == Some("block")
        || fields.get("failClosed") == Some(&Value::Bool(true));
    here
}

impl ConfiguredHook {
    /// Returns the words of the command line. If a quotation mark is not closed, they are separated at spaces.
    pub(crate) fn words(&self) -> Vec<String> {
        // Only a command with quotation marks or an escaped space is split like in a shell: backslashes in any other
        // command are those of Windows paths.
        let words = match self.command.contains(['"', '\'']) || self.command.contains("\\ ") {
            true => shlex::split(&self.command),
            false => None,
        };
        words.unwrap_or_else(|| self.command.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns whether the client continues with the call if the hook cannot run, for example because its program is
    /// missing. Clients take the exit code 2 for a refusal, and ignore any other failure, unless a field of the hook
    /// says otherwise. A command that ends in `|| exit 2` turns every failure into a refusal.
    pub(crate) fn fails_open(&self) -> bool {
        let without_spaces: String = self.command.split_whitespace().collect();
        !self.blocks_on_failure && !without_spaces.ends_with("||exit2")
    }

    /// Returns whether the hook guards a client and, if it is a hook of Flowgate that does not, the first reason that
    /// applies. `of_client` says how `flowgate hook` judges the calls of the client; `None` if it cannot judge them.
    pub(crate) fn effect(&self, of_client: Option<ClientHook>) -> HookEffect {
        let words = self.words();
        if !is_flowgate_hook(&words) {
            return HookEffect::NotFlowgate;
        }
        // Without `--harness`, `flowgate hook` judges the calls of Claude Code.
        let harness = wrapping::option(&words, "--harness").unwrap_or("claude-code");
        HookEffect::Gap(match of_client {
            _ if wrapping::is_watching(&words) => HookGap::Watches,
            _ if self.is_in_background => HookGap::InBackground,
            None => HookGap::OtherHarness(None),
            Some(client) if client.harness != harness => HookGap::OtherHarness(Some(client.harness)),
            Some(client) if client.event != self.event => HookGap::OtherEvent(self.event.clone()),
            Some(_) => match &self.matcher {
                Some(matcher) => HookGap::SomeTools(matcher.clone()),
                None if self.is_conditional => HookGap::SomeCalls,
                None => return HookEffect::Guards,
            },
        })
    }
}

/// Returns whether a command line begins with `flowgate hook`, with or without the path of `flowgate`. A command that
/// runs it in another way, for example after variables of the environment, is not recognised.
fn is_flowgate_hook(words: &[String]) -> bool {
    let [program, subcommand, ..] = words else { return false };
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    matches!(name, "flowgate" | "flowgate.exe") && subcommand == "hook"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CLAUDE: ClientHook = ClientHook { harness: "claude-code", event: "PreToolUse" };
    const CURSOR: ClientHook = ClientHook { harness: "cursor", event: "preToolUse" };

    #[test]
    fn hooks_are_found_in_every_form() {
        let root = json!({"hooks": {
            "PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "a"}]}],
            "stop": [{"command": "b"}, {"url": "https://x"}],
        }});
        let hooks = hooks_of(&root);
        let found: Vec<_> = hooks.iter().map(|hook| (&*hook.command, &*hook.event)).collect();
        assert_eq!(found, [("a", "PreToolUse"), ("b", "stop"), ("https://x", "stop")]);
        let mut deep = json!({"command": "c"});
        for _ in 0..50 {
            deep = json!([deep]);
        }
        assert_eq!(hooks_of(&json!({"hooks": {"stop": deep}})), []);
    }

    #[test]
    fn only_a_hook_that_judges_every_call_guards() {
        let hook = "flowgate hook --policy /etc/p.flow || exit 2";
        let check = |client: ClientHook, hooks: Value, expected: &str| {
            let found = hooks_of(&json!({"hooks": hooks}));
            let [found] = found.as_slice() else { panic!("{found:?}") };
            let said = match found.effect(Some(client)) {
                HookEffect::NotFlowgate => "not Flowgate".to_owned(),
                HookEffect::Guards => "guards".to_owned(),
                HookEffect::Gap(gap) => gap.description(),
            };
            assert_eq!(said, expected, "{hooks}");
        };
        let nested =
            |matcher: Value, command: &str| json!([{"matcher": matcher, "hooks": [{"command": command}]}]);
        for matcher in [json!("*"), json!(""), json!(".*"), Value::Null] {
            check(CLAUDE, json!({"PreToolUse": nested(matcher, hook)}), "guards");
        }
        for (matcher, shown) in [(json!("Bash|Write"), "Bash|Write"), (json!(["Bash"]), r#"["Bash"]"#)] {
            let said = format!("judges only the tools that match `{shown}`");
            check(CLAUDE, json!({"PreToolUse": nested(matcher, hook)}), &said);
        }
        let own = |path: &str| nested(json!("*"), &hook.replace("flowgate", path));
        for path in ["/usr/bin/flowgate", "'/my programs/flowgate'", "C:\\bin\\flowgate.exe"] {
            check(CLAUDE, json!({"PreToolUse": own(path)}), "guards");
        }
        for path in ["X=1 flowgate", "myflowgate", "true; flowgate"] {
            check(CLAUDE, json!({"PreToolUse": own(path)}), "not Flowgate");
        }
        for option in ["--watch w.jsonl", "--watch=w.jsonl", "'--watch' w.jsonl"] {
            let watching = hook.replace("--policy", &format!("{option} --policy"));
            check(
                CLAUDE,
                json!({"PreToolUse": nested(json!("*"), &watching)}),
                "only watches, so it stops nothing",
            );
        }
        check(
            CLAUDE,
            json!({"PostToolUse": nested(json!("*"), hook)}),
            "runs on `PostToolUse`, not before a call",
        );
        check(
            CLAUDE,
            json!({"PreToolUse": [{"command": hook, "if": "Bash(git *)"}]}),
            "judges only the calls that fit its `if`",
        );
        check(
            CLAUDE,
            json!({"PreToolUse": [{"command": hook, "async": true}]}),
            "runs in the background (`async`), so it stops nothing",
        );
        check(
            CURSOR,
            json!({"preToolUse": [{"command": hook}]}),
            "is for another agent: it needs `--harness cursor`",
        );
        let cursor = hook.replace("--policy", "--harness cursor --policy");
        check(CURSOR, json!({"preToolUse": [{"command": cursor, "timeout": 60}]}), "guards");
        check(
            CURSOR,
            json!({"preToolUse": [{"command": cursor, "matcher": "Shell"}]}),
            "judges only the tools that match `Shell`",
        );
    }

    #[test]
    fn a_hook_can_fail_open() {
        for (hook, expected) in [
            (json!({"command": "flowgate hook --policy p.flow"}), true),
            (json!({"command": "flowgate hook --policy p.flow || exit 2"}), false),
            (json!({"command": "flowgate hook --policy p.flow ||  exit 2 "}), false),
            (json!({"command": "flowgate hook --policy p.flow || exit 1"}), true),
            (json!({"command": "flowgate hook --policy p.flow", "onFailure": "block"}), false),
            (json!({"command": "flowgate hook --policy p.flow", "onFailure": "continue"}), true),
            (json!({"command": "flowgate hook --policy p.flow", "failClosed": true}), false),
            (json!({"command": "flowgate hook --policy p.flow", "failClosed": false}), true),
        ] {
            let found = hooks_of(&json!({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}));
            assert_eq!(found.first().map(ConfiguredHook::fails_open), Some(expected), "{hook}");
        }
    }

    #[test]
    fn hooks_can_be_switched_off() {
        for (root, expected) in [
            (json!({"disableAllHooks": true}), true),
            (json!({"disableAllHooks": false}), false),
            (json!({"hooksConfig": {"enabled": false}}), true),
            (json!({"hooksConfig": {"enabled": true}}), false),
            (json!({"hooks": {}}), false),
        ] {
            assert_eq!(are_switched_off(&root), expected, "{root}");
        }
    }
}
