//! Writes the text of a gateway's configuration, for `flowgate init --gateway`. The configuration names the drafted
//! policy and the model's server. It lists the agent's system messages under `pinned`, because the gateway hides all
//! other system messages from the model.

use std::path::Path;

use toml_edit::Value;

use crate::args::InitArgs;

/// Returns the configuration for the policy and the model's server that `options` name, in TOML. `instructions` are the
/// system messages of the agent, which the configuration lists under `pinned`; the gateway hides all other system
/// messages from the model.
pub(super) fn text(options: &InitArgs, instructions: &[String]) -> String {
    // The path of the policy as the configuration names it. A configuration that is not written to a file has no
    // folder.
    let policy = options
        .gateway
        .as_deref()
        .map_or_else(|| options.out.display().to_string(), |gateway| policy_path(&options.out, gateway));
    let pinned: Vec<String> = instructions.iter().map(|text| quoted(text)).collect();
    let pinned = if pinned.is_empty() {
        "# pinned = [\"...\"]                  # the agent's instructions, word for word; other system messages are hidden".to_owned()
    } else {
        format!(
            "# The agent's instructions, word for word; other system messages are hidden. `{{}}` is a hole for what changes.\n\
             pinned = [\n    {},\n]",
            pinned.join(",\n    ")
        )
    };
    let users = if options.user_types {
        "user-messages = \"trust-unmarked-even-if-pasted\"  # a person types them; what the agent pastes in unmarked is trusted, too"
    } else {
        "# Who writes the agent's user messages? Until this says it, they are hidden from the model.\n\
         # user-messages = \"trust-unmarked-even-if-pasted\"  # a person types them; what the agent pastes in unmarked is trusted, too\n\
         # user-messages = \"marked\"                          # the agent marks what a person types; see docs/gateway.md"
    };
    format!(
        "# A first configuration of `flowgate serve`. `flowgate doctor --config FILE` says what is missing.\n\
         [upstreams.model]\n\
         url = {upstream}\n\
         api = \"chat-completions\"            # or \"responses\", \"messages\"\n\
         key-from = \"UPSTREAM_KEY\"           # the variable that holds the provider's key\n\n\
         [clients.agent]\n\
         key-from = \"AGENT_KEY\"              # the variable that holds the key that the agent sends, 16 characters or more\n\
         upstream = \"model\"\n\
         policy = {policy}\n\
         {users}\n\
         {pinned}\n",
        upstream = quoted(&options.upstream),
        policy = quoted(&policy),
    )
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().trim().to_owned()
}

/// Returns the path by which the configuration file `gateway` names the policy: only the name of the file if both files
/// are in the same folder, otherwise an absolute path. If the current folder is unknown, returns `policy` unchanged.
fn policy_path(policy: &Path, gateway: &Path) -> String {
    if policy.parent() == gateway.parent()
        && let Some(name) = policy.file_name()
    {
        return name.to_string_lossy().into_owned();
    }
    std::path::absolute(policy).unwrap_or_else(|_| policy.to_owned()).display().to_string()
}
