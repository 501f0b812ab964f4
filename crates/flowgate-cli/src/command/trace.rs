//! Runs `flowgate trace export`: prints the traces of conversations that a gateway has stored, as JSON lines. The trace
//! of one conversation has a line for each event; with all conversations, each conversation is one line.
//!
//! With `--config`, this module has `flowgate_gateway` replay the conversations from the gateway's database. With
//! `--gateway`, the submodule `running_gateway` asks a running gateway for the events, with a person's key.

#[cfg(feature = "run")]
mod running_gateway;

use std::path::Path;

use flowgate::monitor::Monitor;
use flowgate::trace::Status;
use flowgate::trace::read::RecordedRun;
use flowgate_gateway::chat::stored_trace::{StoredTraceOutcome, read_every_stored_trace, read_stored_trace};
use flowgate_guard::trace_lines;
use serde_json::{Map, Value, json};

#[cfg(feature = "run")]
use crate::args::GatewayArgs;
use crate::args::TraceCommand;
use crate::command::serve;
use crate::escaping;
use crate::input::InputError;
use crate::output::Console;

/// The maximum number of names that an error lists.
const MAX_NAMED: usize = 10;

/// Runs the subcommand of `flowgate trace`, and returns its exit code. Fails as [`export`] and [`export_all`] do.
pub(crate) fn run(trace: &TraceCommand, output: &mut Console) -> Result<u8, InputError> {
    match trace {
        #[cfg(feature = "run")]
        TraceCommand::Export { gateway: Some(gateway), key_file, ca_file, client, conversation, .. } => {
            let gateway = GatewayArgs {
                gateway: gateway.clone(),
                key_file: key_file.clone(),
                ca_file: ca_file.clone(),
            };
            let done = running_gateway::export(&gateway, client.as_deref(), conversation.as_deref(), output)?;
            done.or_else(|error| error.report(output))
        }
        TraceCommand::Export { config, client, conversation, .. } => {
            // The command line requires `--config` or `--gateway`. If both were missing, no file would be found.
            let config = config.as_deref().unwrap_or(Path::new(""));
            match (client, conversation) {
                (Some(client), Some(conversation)) => export(config, client, conversation, output),
                // Without a conversation, the command line has `--all`.
                (client, _) => export_all(config, client.as_deref(), output),
            }
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
    // `read_stored_trace` calls this function with the monitor of the replayed conversation, if there is one.
    let outcome = read_stored_trace(settings, client, conversation, &mut |monitor| {
        print_lines(&monitor.parameters(), lines(monitor), output);
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

/// Prints every stored conversation of a client, or of all clients, each as one line. Returns 0, or 1 if one of them
/// cannot be replayed: it is reported, and the others are printed.
///
/// # Errors
/// If the configuration or the database cannot be used, there is no such client, or no conversation is stored.
fn export_all(config: &Path, client: Option<&str>, output: &mut Console) -> Result<u8, InputError> {
    let settings = serve::gateway_config(config)?;
    let failed = |problem: String| InputError(format!("{}: {problem}", config.display()));
    let (mut found, mut code) = (0_usize, 0);
    let outcome = read_every_stored_trace(settings, client, &mut |trace| {
        found += 1;
        match trace.replayed {
            Ok(monitor) => {
                let (parameters, events) = (monitor.parameters(), lines(monitor).collect::<Vec<_>>());
                print_run(trace.client, trace.conversation, &parameters, &events, output);
            }
            Err(why) => {
                report_left_out(trace.client, trace.conversation, &why, output);
                code = 1;
            }
        }
    });
    match outcome.map_err(|error| failed(error.to_string()))? {
        StoredTraceOutcome::UnknownClient(names) => {
            let client = client.unwrap_or_default();
            Err(failed(format!("there is no client `{client}`; {}", listed("clients", &names))))
        }
        _ if found == 0 => Err(failed(NOTHING_STORED.to_owned())),
        _ => Ok(code),
    }
}

/// The message if there is no conversation to export.
const NOTHING_STORED: &str = "no conversation is stored; run the agent first";

/// Returns the events of a replayed conversation as the lines of a trace, without calls that did not run.
fn lines(monitor: &Monitor) -> impl Iterator<Item = Value> {
    let events = monitor.trace().events().iter().filter(|event| event.status == Status::Done);
    events.map(|event| trace_lines::line(event, monitor))
}

/// Prints the events of a conversation, each on a line, after a line with the parameters of its policy if there are
/// any.
fn print_lines(parameters: &Map<String, Value>, events: impl Iterator<Item = Value>, output: &mut Console) {
    let first = (!parameters.is_empty()).then(|| Value::Object(RecordedRun::parameters_member(parameters)));
    first.into_iter().chain(events).for_each(|line| output.line(&escaping::json_line(&line)));
}

/// Prints a conversation as one run of a corpus, on one line, with the parameters of its policy if there are any.
fn print_run(
    client: &str,
    conversation: &str,
    parameters: &Map<String, Value>,
    events: &[Value],
    output: &mut Console,
) {
    let mut run = json!({"client": client, "conversation": conversation, "messages": events});
    if let (false, Some(run)) = (parameters.is_empty(), run.as_object_mut()) {
        run.extend(RecordedRun::parameters_member(parameters));
    }
    output.line(&escaping::json_line(&run));
}

/// Reports a conversation that cannot be exported with the others. Its name is escaped, because a client chooses it.
fn report_left_out(client: &str, conversation: &str, why: &str, output: &mut Console) {
    let name = escaping::excerpt(conversation, 60);
    output.error(&format!("the conversation {name} of the client `{client}` is left out: {why}"));
}

/// Returns the clause of an error that lists the existing clients or conversations, at most [`MAX_NAMED`] of them.
/// `what` is `clients` or `conversations`. Names are escaped, because a client chooses the names of its conversations.
fn listed(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("there are no {what}");
    }
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| escaping::excerpt(name, 60)).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("the {what} are: {}{more}", shown.join(", "))
}
