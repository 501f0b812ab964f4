//! Examines a configuration of the gateway, for `flowgate doctor --config`: whether the environment variables that it
//! names are set, whether other users can read its key files, whether its policies are valid, and what the policies hide
//! from the models of clients. With `--online`, also examines whether the servers of models answer, and whether the
//! issuers of MCP servers give tokens. The configuration consists of the fields of the file and of those that
//! `FLOWGATE_CONFIG__*` variables set. Adds what it finds to the findings that `doctor` prints.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use flowgate_gateway::config::ClientSettings;
use flowgate_gateway::{visibility, watching};
use serde_json::Value;
use ureq::tls::TlsConfig;

use super::sample::SampleRequest;
use super::{FindingState, Findings, online, permissions, report_policy};
use crate::clients::config_file::ConfigText;
use crate::command::serve::{config_content, read_config};
use crate::gateway_client::trusted_in;
use crate::input::{InputError, read_short_text};

/// The settings that name an environment variable for whose value [`examine_secrets`] has a substitute. An unset
/// variable of any other setting, such as `encryption-key-from`, is an error of [`read_config`].
const VARIABLES: [&str; 4] = ["key-from", "url-from", "webhook-secret-from", "client-secret-from"];
/// The settings whose value is the path of a file with a key; `tls.key` is another one.
const SECRET_FILES: [&str; 6] = [
    "key-file",
    "webhook-secret-file",
    "client-secret-file",
    "encryption-key-file",
    "headers-file",
    "token-file",
];

/// Examines the configuration at `path`: its secrets, its certificates, and its policies, with a sample request if one
/// is given. With `is_online`, also asks the servers of models, and the issuers of MCP servers.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn examine(
    path: &Path,
    request: Option<&SampleRequest>,
    is_online: bool,
    findings: &mut Findings,
) -> Result<(), InputError> {
    let (text, name) = (read_short_text(path)?, path.display().to_string());
    let folder = path.parent().unwrap_or(Path::new(""));
    // `true`: the configuration is TOML.
    let in_file = match ConfigText::read(&text, true) {
        Ok(document) => document.to_value(),
        Err(error) => {
            findings.wrong(format!("{name}: {error}"));
            return Ok(());
        }
    };
    // The content with the fields that `FLOWGATE_CONFIG__*` variables set. If such a variable cannot be used,
    // `read_config` reports the reason below.
    let effective = config_content(&text);
    let can_ask = effective.is_ok();
    let document = effective.unwrap_or(in_file);
    // Pairs of a variable that is not set and a substitute for its value.
    let mut missing = Vec::new();
    // The empty path: the whole document is the section.
    examine_secrets(&document, "", folder, &mut missing, findings);
    // Missing variables are reported by now. The rest is examined as if they were set.
    let environment = |variable: &str| {
        let substitute =
            || missing.iter().find(|(named, _)| named == variable).map(|(_, value)| value.clone());
        std::env::var(variable).ok().filter(|value| !value.is_empty()).or_else(substitute)
    };
    match read_config(&text, folder, &environment) {
        Err(error) => findings.wrong(format!("{name}: {error}")),
        Ok(config) => {
            if let Some(tls) = &config.tls {
                let warnings = [tls.warning(), tls.validity_warning(SystemTime::now())];
                for warning in warnings.into_iter().flatten() {
                    findings.wrong(format!("{name}: tls.{warning}"));
                }
            }
            for note in config.certificate_notes() {
                findings.note(format!("{name}: {note}"));
            }
            for client in &config.clients {
                examine_client(client, folder, request, findings);
            }
            // A substitute for a secret must not be sent.
            if is_online && missing.is_empty() {
                examine_tokens(&config.clients, &name, findings);
            }
        }
    }
    // The addresses are not known if a variable cannot be used.
    if is_online && can_ask {
        examine_upstreams(&document, folder, &name, findings);
    }
    Ok(())
}

/// Examines the settings of a section, and of the sections below it, that name environment variables or files with
/// keys. `section_path` is the path of the section, for messages, and `folder` is the folder in which relative paths
/// begin. `missing` receives each variable that is not set, with a substitute for its value, so that the rest of the
/// configuration can still be examined.
fn examine_secrets(
    section: &Value,
    section_path: &str,
    folder: &Path,
    missing: &mut Vec<(String, String)>,
    findings: &mut Findings,
) {
    for (key, value) in section.as_object().into_iter().flatten() {
        let setting = if section_path.is_empty() { key.clone() } else { format!("{section_path}.{key}") };
        match value {
            Value::String(variable) if VARIABLES.contains(&key.as_str()) => {
                if std::env::var(variable).is_ok_and(|value| !value.is_empty()) {
                    findings.right(format!("{setting}: the variable {variable} is set"));
                    continue;
                }
                let advice = if key == "url-from" {
                    "an address"
                } else {
                    "the key or secret that the provider gave you or, for a client, a person or a webhook, to a random text of 16 characters or more"
                };
                findings.wrong(format!("{setting}: the variable {variable} is not set; set it to {advice}"));
                // `memory` is a valid address of a database; the other text is long enough for a key.
                let substitute = match key.as_str() {
                    "url-from" => "memory".to_owned(),
                    _ => format!("{variable}-0123456789abcdef"),
                };
                missing.push((variable.clone(), substitute));
            }
            // A setting `key` names a file only in the section `tls`.
            Value::String(file) if SECRET_FILES.contains(&key.as_str()) || setting == "tls.key" => {
                if let Some(problem) = permissions::readable_by_others(&folder.join(file)) {
                    findings.wrong(format!("{setting}: {problem}"));
                }
            }
            value => examine_secrets(value, &setting, folder, missing, findings),
        }
    }
}

/// Examines the policy of a client, and what the policy hides from the client's model, with a sample request if one is
/// given. In watch mode, nothing is hidden, so only the policy is examined. `folder` is the folder of the configuration.
fn examine_client(
    client: &ClientSettings,
    folder: &Path,
    request: Option<&SampleRequest>,
    findings: &mut Findings,
) {
    let path = folder.join(&client.policy_file);
    report_policy(client.own_policy(), &path.display().to_string(), &path, findings);
    if client.watch.is_some() {
        findings.wrong(format!("clients.{}: {}", client.name, watching::WARNING));
        return;
    }
    let advised = visibility::client_advice(client);
    let before = findings.0.len();
    // What the policy hides on purpose needs no advice.
    for advice in advised.iter().filter(|advice| !advice.is_intended) {
        let text = format!("clients.{}: {}", client.name, advice.text);
        // `label-answer` concerns answers of tools that no statement labels, as in a policy that `flowgate init` drafts.
        // The model looks at these answers when it needs them, so this is only a note.
        if advice.id == "label-answer" { findings.note(text) } else { findings.wrong(text) }
    }
    if !findings.0.iter().skip(before).any(|finding| finding.state == FindingState::Wrong) {
        findings.right(format!(
            "clients.{}: no line is missing in the policy or the configuration, so nothing is hidden from its model by mistake",
            client.name
        ));
    }
    if let Some(request) = request {
        // Without watch mode, this is the client's own policy.
        request.examine(&client.policy, &path.display().to_string(), findings);
    }
}

/// Asks for each MCP server of the clients whether its issuer gives a token, and adds a finding for each. A server that
/// is not behind OAuth is skipped. `name` is the file of the configuration.
fn examine_tokens(clients: &[ClientSettings], name: &str, findings: &mut Findings) {
    let servers = clients.iter().flat_map(|client| &client.servers);
    // Several clients can use the same server, which is examined once.
    let by_name: BTreeMap<&str, _> = servers.map(|server| (server.name.as_str(), server)).collect();
    for (server, settings) in by_name {
        match settings.check_token() {
            None => {}
            Some(Ok(())) => findings.right(format!("mcp.{server}: its issuer gives a token")),
            Some(Err(why)) => findings.wrong(format!("{name}: mcp.{server}: {why}")),
        }
    }
}

/// Asks the servers of models that the configuration `document` names whether they answer; `document` includes the
/// fields from the environment. Any status below 500 shows that a server can be reached: the request has no key, so a
/// refusal is expected. The certificate of a server is checked as the gateway checks it: by the authorities of its
/// `ca-file`, if it has one. `name` is the file of the configuration, and `folder` the folder in which relative paths
/// begin. An upstream without an address is skipped.
fn examine_upstreams(document: &Value, folder: &Path, name: &str, findings: &mut Findings) {
    for (upstream, section) in document.get("upstreams").and_then(Value::as_object).into_iter().flatten() {
        let Some(url) = section.get("url").and_then(Value::as_str) else { continue };
        let trusted = match section.get("ca-file").and_then(Value::as_str) {
            None => Ok(TlsConfig::default()),
            Some(file) => trusted_in(&folder.join(file)),
        };
        let trusted = match trusted {
            Ok(trusted) => trusted,
            Err(InputError(why)) => {
                findings.wrong(format!("{name}: upstreams.{upstream}: its server was not asked, since `ca-file` cannot be used: {why}"));
                continue;
            }
        };
        match online::status(url, trusted) {
            Ok(status @ 500..) => findings
                .wrong(format!("{name}: upstreams.{upstream}: its server fails with the status {status}; see the log of that server")),
            Ok(status) => findings
                .right(format!("upstreams.{upstream} can be reached (status {status}, without a key)")),
            Err(why) => findings.wrong(format!("{name}: upstreams.{upstream} cannot be reached: {why}")),
        }
    }
}
