//! Finds what `ssh` runs on other machines, and what runs in containers and through `git`: `ssh host …`,
//! `docker exec …`, `git bisect run …`. [`launches`](super::launches) calls these functions for the commands of these
//! programs.

use super::UnreadReason;
use super::effective_command::EffectiveCommand;
use super::expansion::Argument;
use super::launch::{Launch, abbreviates, is_cluster_with, joined_script, split_options};

/// Returns what `ssh` runs: the arguments after the host, joined to a script that a shell on that machine executes.
/// Without such arguments, that shell reads the standard input. An option that is unknown, or that can name a command
/// (`-F`, some settings of `-o`), counts as not read.
pub(super) fn ssh_launches<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let mut launches = Vec::new();
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    // The options and the host end before the argument `at`. The host is the first argument that is not an option.
    let mut at = 0;
    let mut has_host = false;
    while let Some(word) = call.arguments.get(at) {
        if word.splits {
            launches.push(unread(UnreadReason::Arguments));
            break;
        }
        let Some(letters) = word.text.strip_prefix('-').filter(|_| word.known) else {
            if has_host {
                break;
            }
            has_host = true;
            at += 1;
            continue;
        };
        at += 1;
        for (i, letter) in letters.char_indices() {
            let rest = letters.get(i + letter.len_utf8()..).unwrap_or_default();
            // Short options without a value. The options in the list below take the rest of the word or the next word
            // as their value.
            if "46AaCfGgKkMNnqsTtVvXxYy".contains(letter) {
                continue;
            }
            // An option with a value. An unknown option is treated like one with a value.
            let value = if rest.is_empty() { call.arguments.get(at).map_or("", |w| &w.text) } else { rest };
            at += usize::from(rest.is_empty());
            let lower = value.to_ascii_lowercase();
            let is_unknown = !"BbcDEeFIiJLlmoOpQRSWw".contains(letter);
            // `-F` names a file of settings, and `-o` gives a setting; some settings name a command.
            let may_name_command = letter == 'F'
                || letter == 'o' && ["command", "include", "match"].iter().any(|name| lower.contains(name));
            if is_unknown || may_name_command {
                launches.push(unread(UnreadReason::Arguments));
            }
            break;
        }
    }
    // Unread if one of the arguments before `at` can become several words.
    launches.extend(split_options(call, at));
    let command = call.arguments.get(at..).unwrap_or_default();
    if command.is_empty() && has_host {
        launches.push(unread(UnreadReason::Input));
    }
    launches.extend(joined_script(command, call));
    launches
}

/// The options of `docker run`, `docker exec` and `kubectl exec` without a value, in their short and long forms.
const CONTAINER_FLAGS: &str = "itdTP";
const CONTAINER_LONG_FLAGS: &[&str] = &[
    "rm",
    "interactive",
    "tty",
    "detach",
    "init",
    "privileged",
    "read-only",
    "stdin",
    "quiet",
    "no-deps",
    "publish-all",
    "service-ports",
];
/// The options of the same programs that take a value, in their short and long forms.
const CONTAINER_VALUES: &str = "evpuwnchlm";
const CONTAINER_LONG_VALUES: &[&str] = &[
    "env",
    "volume",
    "publish",
    "user",
    "workdir",
    "name",
    "network",
    "mount",
    "platform",
    "env-file",
    "memory",
    "cpus",
    "gpus",
    "hostname",
    "label",
    "namespace",
    "container",
    "context",
    "pull",
    "ipc",
    "shm-size",
    "add-host",
    "cap-add",
    "cap-drop",
    "security-opt",
    "restart",
    "index",
    "detach-keys",
    "net",
    "tmpfs",
    "ulimit",
    "pid",
];

/// Returns what a program that manages containers, such as `docker`, runs in one: the arguments after the image or the
/// container, or for `kubectl` after `--`. Empty if no subcommand such as `exec` or `run` is present. An unknown option
/// counts as not read, since it may take the next word as its value.
pub(super) fn container_launches<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    let verbs = ["exec", "run", "create", "debug"];
    let Some(verb) = call.texts().position(|text| verbs.contains(&text)) else { return Vec::new() };
    let mut launches = Vec::new();
    let mut at = verb + 1;
    // Whether the image or the container was read.
    let mut has_target = false;
    let is_kubectl = matches!(call.name, "kubectl" | "oc");
    while let Some(word) = call.arguments.get(at) {
        let text = word.text.as_str();
        if word.splits {
            launches.push(unread(UnreadReason::Arguments));
            break;
        }
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, v)| (name, Some(v)));
            at += 1;
            if CONTAINER_LONG_VALUES.contains(&name) {
                at += usize::from(value.is_none());
            } else if !CONTAINER_LONG_FLAGS.contains(&name) {
                launches.push(unread(UnreadReason::Arguments));
            }
        } else if let Some(short) = text.strip_prefix('-').filter(|short| !short.is_empty()) {
            at += 1;
            for (i, letter) in short.char_indices() {
                if CONTAINER_VALUES.contains(letter) {
                    at += usize::from(i + letter.len_utf8() == short.len());
                    break;
                }
                if !CONTAINER_FLAGS.contains(letter) {
                    launches.push(unread(UnreadReason::Arguments));
                    break;
                }
            }
        } else if has_target && !is_kubectl {
            break;
        } else {
            // The image or the container or, for `kubectl`, any word before `--`.
            has_target = true;
            at += 1;
        }
    }
    // Unread if one of the arguments before `at` can become several words.
    launches.extend(split_options(call, at));
    let command = call.arguments.get(at..).unwrap_or_default();
    // Without a command, the image determines what runs.
    launches.push(match command {
        [] => unread(UnreadReason::File),
        words => Launch::Words(words.to_vec()),
    });
    launches
}

/// The settings that `git -c` and `git config` may change: none of them names a program. An entry that ends with a dot
/// matches all names that begin with it. Any other entry matches the names that begin with it and have no further dot,
/// since `diff.renames.command` is a setting of the driver `renames`.
const GIT_SETTINGS: &[&str] = &[
    "user.",
    "color.",
    "advice.",
    "init.defaultbranch",
    "pull.",
    "push.",
    "fetch.prune",
    "safe.directory",
    "core.autocrlf",
    "core.quotepath",
    "core.filemode",
    "core.ignorecase",
    "core.longpaths",
    "commit.gpgsign",
    "tag.gpgsign",
    "merge.conflict",
    "merge.ff",
    "rebase.auto",
    "diff.renames",
    "diff.algorithm",
    "log.",
    "column.",
    "branch.",
    "http.postbuffer",
    "http.version",
    "protocol.version",
    "status.",
    "rerere.",
    "gc.auto",
    "gc.prune",
    "gc.reflog",
    "pack.",
];

/// Returns what `git` runs because of its arguments: settings that name programs, and subcommands that run commands.
pub(super) fn git_launches<'s>(call: &EffectiveCommand<'_, 's>) -> Vec<Launch<'s>> {
    let unread = |reason| Launch::Unread(reason, call.span.clone());
    let mut launches = Vec::new();
    let mut at = 0;
    // The options before the subcommand.
    while let Some(word) = call.arguments.get(at) {
        let text = word.text.as_str();
        let value = call.arguments.get(at + 1);
        match text {
            _ if word.splits => {
                launches.push(unread(UnreadReason::Arguments));
                return launches;
            }
            // `-c NAME=VALUE` changes a setting, which can name a program.
            "-c" => {
                let setting = value.map(|value| value.text.split('=').next().unwrap_or_default());
                if !setting.is_some_and(is_harmless_setting) || value.is_some_and(|value| value.splits) {
                    launches.push(unread(UnreadReason::Arguments));
                }
                at += 2;
            }
            // Options with a value.
            "-C" | "--git-dir" | "--work-tree" | "--namespace" => at += 2,
            // The folder of the programs of `git`, and a setting from an environment variable.
            _ if text.starts_with("--exec-path=") || text.starts_with("--config-env") => {
                launches.push(unread(UnreadReason::Arguments));
                at += 1;
            }
            _ if text.starts_with('-') => at += 1,
            _ => break,
        }
    }
    launches.extend(split_options(call, at));
    let Some((subcommand, rest)) = call.arguments.get(at..).and_then(<[Argument<'s>]>::split_first) else {
        return launches;
    };
    launches.extend(git_subcommand_launches(subcommand, rest, call));
    launches
}

/// Returns whether a setting of `git` is one of those that name no program (see [`GIT_SETTINGS`]).
fn is_harmless_setting(setting: &str) -> bool {
    let lower = setting.to_ascii_lowercase();
    let mut rests = GIT_SETTINGS.iter().filter_map(|name| Some((name, lower.strip_prefix(name)?)));
    rests.any(|(name, rest)| name.ends_with('.') || !rest.contains('.'))
}

/// Returns what a subcommand of `git` runs. `rest` are the arguments after the subcommand, and `call` is the whole
/// command.
fn git_subcommand_launches<'s>(
    subcommand: &Argument<'s>,
    rest: &[Argument<'s>],
    call: &EffectiveCommand<'_, 's>,
) -> Vec<Launch<'s>> {
    let mut launches = Vec::new();
    let operands = || rest.iter().filter(|word| !word.text.starts_with('-'));
    // Returns whether one of these options is present, possibly abbreviated, or with a value in the same word.
    let has = |options: &[&str]| {
        let is =
            |text: &str| options.iter().any(|option| text.starts_with(option) || abbreviates(text, option));
        rest.iter().any(|word| is(&word.text))
    };
    // Whether the subcommand runs a program that is not followed.
    let runs = match subcommand.text.as_str() {
        _ if !subcommand.known => true,
        "rebase" => has(&["--exec"]) || rest.iter().any(|word| is_cluster_with(&word.text, 'x')),
        "filter-branch" | "difftool" | "mergetool" | "web--browse" | "instaweb" | "shell" => true,
        "submodule" => operands().any(|word| word.text == "foreach"),
        "bisect" if operands().next().is_some_and(|word| word.text == "run") => {
            let command = rest.iter().skip_while(|word| word.text != "run").skip(1);
            launches.push(Launch::Words(command.cloned().collect()));
            false
        }
        "config" => {
            let setting =
                operands().find(|word| !matches!(word.text.as_str(), "set" | "get" | "unset" | "list"));
            // With a name alone, `config` reads or removes a setting (`--unset`), and sets no program.
            let sets = operands().count() > 1 || has(&["--add", "--replace-all", "-e", "--edit"]);
            sets && !setting.is_some_and(|word| word.known && is_harmless_setting(&word.text))
        }
        "grep" => has(&["-O", "--open-files-in-pager"]),
        // In an address, `ext::` precedes a command to run.
        _ => has(&["--upload-pack", "--receive-pack", "--exec=", "ext::", "--config=", "--extcmd"]),
    };
    // The options of `clone` that set a setting or the program of the other side, or that copy hooks from a template.
    let clones = subcommand.text == "clone" && has(&["-c", "-u", "--config", "--template"]);
    if runs || clones {
        launches.push(Launch::Unread(UnreadReason::Arguments, call.span.clone()));
    }
    launches
}
