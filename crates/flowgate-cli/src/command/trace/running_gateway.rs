//! Prints the traces of conversations that a running gateway replays, for `flowgate trace export --gateway`. The
//! gateway leaves out what the clearance of the person with the key does not cover, or replaces it by a constant.

use serde_json::{Map, Value};

use super::{NOTHING_STORED, print_lines, print_run, report_left_out};
use crate::args::GatewayArgs;
use crate::gateway_client::{GatewayClient, GatewayError, encode};
use crate::input::InputError;
use crate::output::Console;

/// Prints the events of a conversation, if both `client` and `conversation` are given. Otherwise prints every
/// conversation of the client, or of all clients, each as one line, the newest first. Returns the exit code: 0, or 1
/// if a conversation is left out. The outer error is an invalid command line or file; the inner error says that the
/// gateway refused the request, or could not be reached.
pub(super) fn export(
    options: &GatewayArgs,
    client: Option<&str>,
    conversation: Option<&str>,
    output: &mut Console,
) -> Result<Result<u8, GatewayError>, InputError> {
    let gateway = Gateway { client: GatewayClient::new(options, output)?, address: &options.gateway };
    Ok(match (client, conversation) {
        (Some(client), Some(conversation)) => {
            let mut print = |parameters: &Map<String, Value>, events: Vec<Value>| {
                print_lines(parameters, events.into_iter(), output);
            };
            gateway.read_events(client, conversation, &mut print).map(|()| 0)
        }
        (client, _) => gateway.export_all(client, output),
    })
}

/// A running gateway.
struct Gateway<'a> {
    client: GatewayClient,
    /// The address, for messages.
    address: &'a str,
}

/// Receives the events of an answer. The first argument has the parameters of the policy with the first answer of a
/// conversation, and is empty afterwards.
type EventReceiver<'e> = dyn FnMut(&Map<String, Value>, Vec<Value>) + 'e;

impl Gateway<'_> {
    /// Passes the events of a conversation to `each`, answer by answer; the first time with the parameters of its
    /// policy, as far as the person may read them. Fails if the gateway refuses a request, or cannot be reached.
    fn read_events(
        &self,
        client: &str,
        conversation: &str,
        each: &mut EventReceiver<'_>,
    ) -> Result<(), GatewayError> {
        let mut from = 0;
        loop {
            let path =
                format!("/ui/api/trace?client={}&name={}&from={from}", encode(client), encode(conversation));
            let mut answer = self.client.get(&path)?;
            let events = self.list(&mut answer, "events")?;
            let parameters = answer.get("parameters").and_then(Value::as_object).filter(|_| from == 0);
            each(parameters.unwrap_or(&Map::new()), events);
            match answer.get("next").and_then(Value::as_u64) {
                // `next` must grow, so that a faulty answer cannot repeat the loop without end.
                Some(next) if next > from => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Prints every conversation of a client, or of all clients, each as one line. Conversations that cannot be
    /// replayed are reported and left out; the exit code is then 1. Fails if there is no conversation, or if the
    /// gateway cannot be reached.
    fn export_all(&self, client: Option<&str>, output: &mut Console) -> Result<u8, GatewayError> {
        // The gateway lists the conversations with a number below `before`, the newest first, a part at a time. `next` in
        // an answer is the value of `before` for the next part.
        let (mut found, mut code, mut before) = (0_usize, 0, i64::MAX);
        let chosen = client.map_or_else(String::new, |client| format!("&client={}", encode(client)));
        loop {
            let mut answer = self.client.get(&format!("/ui/api/conversations?before={before}{chosen}"))?;
            for listed in self.list(&mut answer, "conversations")? {
                let text = |key: &str| listed.get(key).and_then(Value::as_str).unwrap_or_default();
                let (client, name) = (text("client"), text("conversation"));
                found += 1;
                let (mut parameters, mut events) = (Map::new(), Vec::new());
                let mut collect = |of_answer: &Map<String, Value>, further: Vec<Value>| {
                    parameters.extend(of_answer.clone());
                    events.extend(further);
                };
                match self.read_events(client, name, &mut collect) {
                    Ok(()) => print_run(client, name, &parameters, &events, output),
                    // The gateway answers, but has no trace of this conversation for the person.
                    Err(GatewayError::Refused(why)) => {
                        report_left_out(client, name, &why, output);
                        code = 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            match answer.get("next").and_then(Value::as_i64) {
                Some(next) if next < before => before = next,
                _ if found == 0 => {
                    return Err(GatewayError::Refused(NOTHING_STORED.to_owned()));
                }
                _ => return Ok(code),
            }
        }
    }

    /// Takes the list in this field out of an answer. Fails if the field has no list: then a gateway did not write the
    /// answer.
    fn list(&self, answer: &mut Value, field: &str) -> Result<Vec<Value>, GatewayError> {
        match answer.get_mut(field).map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Err(GatewayError::Failed(format!(
                "{}: the answer is not that of a gateway; check the address",
                self.address
            ))),
        }
    }
}
