//! Runs `flowgate trace export`: prints the trace of a conversation that a gateway has stored, as JSON lines.
//! `flowgate_gateway` replays the conversation from its database; this module prints the events.

use std::path::Path;

use flowgate::trace::Status;
use flowgate_gateway::chat::stored_trace::{StoredTraceOutcome, read_stored_trace};

use crate::args::TraceCommand;
use crate::command::serve;
use crate::escaping;
use crate::input::InputError;
use crate::output::Console;
use crate::trace_lines;

/// The maximum number of names that an error lists.
const MAX_NAMED: usize = 10;

/// Runs the subcommand of `flowgate trace`, and returns its exit code.
pub(crate) fn run(trace: &TraceCommand, output: &mut Console) -> Result<u8, InputError> {
    match trace {
        TraceCommand::Export { config, client, conversation } => export(config, client, conversation, output),
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
