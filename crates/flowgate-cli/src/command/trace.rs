//! Runs `flowgate trace export`: prints the trace of a conversation that a gateway has stored, as JSON lines.
//! `flowgate_gateway` replays the conversation from its database, or a running gateway does so for a person with a key;
//! this module prints the events.

use std::path::Path;

use flowgate::trace::Status;
use flowgate_gateway::chat::stored_trace::{StoredTraceOutcome, read_stored_trace};
use flowgate_guard::trace_lines;
#[cfg(feature = "run")]
use serde_json::Value;

#[cfg(feature = "run")]
use crate::args::GatewayArgs;
use crate::args::TraceCommand;
use crate::command::serve;
use crate::escaping;
#[cfg(feature = "run")]
use crate::gateway_client::{GatewayClient, GatewayError, encode};
use crate::input::InputError;
use crate::output::Console;

/// The maximum number of names that an error lists.
const MAX_NAMED: usize = 10;

/// Runs the subcommand of `flowgate trace`, and returns its exit code.
pub(crate) fn run(trace: &TraceCommand, output: &mut Console) -> Result<u8, InputError> {
    match trace {
        #[cfg(feature = "run")]
        TraceCommand::Export { gateway: Some(gateway), key_file, ca_file, client, conversation, .. } => {
            let gateway = GatewayArgs {
                gateway: gateway.clone(),
                key_file: key_file.clone(),
                ca_file: ca_file.clone(),
            };
            let done = export_from_gateway(&gateway, client, conversation, output)?;
            done.or_else(|error| error.report(output))
        }
        TraceCommand::Export { config, client, conversation, .. } => {
            // The command line has one of both; without any, the file is not found.
            export(config.as_deref().unwrap_or(Path::new("")), client, conversation, output)
        }
    }
}

/// Prints the events of a conversation as a running gateway shows them to the person with the key, answer by answer. The
/// exit code is 0. The outer error is an invalid command line, and the inner one an answer other than success.
#[cfg(feature = "run")]
fn export_from_gateway(
    options: &GatewayArgs,
    client: &str,
    conversation: &str,
    output: &mut Console,
) -> Result<Result<u8, GatewayError>, InputError> {
    let gateway = GatewayClient::new(options, output)?;
    let mut from = 0;
    loop {
        let path =
            format!("/ui/api/trace?client={}&name={}&from={from}", encode(client), encode(conversation));
        let answer = match gateway.get(&path) {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let Some(events) = answer.get("events").and_then(Value::as_array) else {
            let why = format!("{}: the answer is not that of a gateway; check the address", options.gateway);
            return Ok(Err(GatewayError::Failed(why)));
        };
        for event in events {
            output.line(&escaping::json_line(event));
        }
        match answer.get("next").and_then(Value::as_u64) {
            // Each answer has at least one event, so this ends.
            Some(next) if next > from => from = next,
            _ => return Ok(Ok(0)),
        }
    }
}

/// Prints the events of a stored conversation, without calls that did not run. Returns 0, or 1 if the conversation
/// cannot be replayed.
///
/// # Errors
/// If the configuration or the database cannot be used, or there is no such client or conversation.
fn export(config: &Path, client: &str, conversation: &str, output: &mut Console) -> Result<u8, InputError> {
    let settings = serve::gateway_config(config)?;
    let failed = |problem: String| InputError(format!("{}: {problem}", config.display()));
    // The function is called with the replayed conversation, if there is one.
    let outcome = read_stored_trace(settings, client, conversation, &mut |monitor| {
        for event in monitor.trace().events().iter().filter(|event| event.status == Status::Done) {
            output.line(&escaping::json_line(&trace_lines::line(event, monitor)));
        }
    });
    match outcome.map_err(|error| failed(error.to_string()))? {
        StoredTraceOutcome::Replayed => Ok(0),
        StoredTraceOutcome::UnknownClient(names) => {
            Err(failed(format!("there is no client `{client}`; {}", listed("clients", &names))))
        }
        StoredTraceOutcome::UnknownConversation(names) => Err(failed(format!(
            "the client `{client}` has no stored conversation `{conversation}`; {}",
            listed("conversations", &names)
        ))),
        StoredTraceOutcome::Unreadable(why) => {
            output.error(&format!(
                "{}: the conversation `{conversation}` cannot be replayed: {why}",
                config.display()
            ));
            Ok(1)
        }
    }
}

/// Returns the clause of an error that lists the existing clients or conversations, at most [`MAX_NAMED`] of them. `what`
/// is `clients` or `conversations`. Names are escaped, because a client chooses the names of its conversations.
fn listed(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("there are no {what}");
    }
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| escaping::excerpt(name, 60)).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("the {what} are: {}{more}", shown.join(", "))
}
