//! Runs `flowgate keys`: an admin makes, lists and revokes virtual keys of a running gateway. This module sends the
//! requests by `gateway_client` and prints the answers; the gateway decides what the admin may do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowgate_audit::Timestamp;
use serde_json::{Value, json};

use crate::args::GatewayArgs;
use crate::args::keys::{KeysCommand, KeysFormat};
use crate::escaping;
use crate::gateway_client::{GatewayClient, GatewayError, encode};
use crate::input::InputError;
use crate::output::{Console, plural};
use crate::question_text::text;

/// The route of the gateway for keys.
const ROUTE: &str = "/api/v1/keys";

/// Runs a subcommand of `flowgate keys`, and returns its exit code.
pub(crate) fn run(command: &KeysCommand, output: &mut Console) -> Result<u8, InputError> {
    let done = match command {
        KeysCommand::List { format, gateway } => list(*format, gateway, output)?,
        KeysCommand::Create {
            client,
            name,
            days,
            requests_per_minute,
            tokens_per_day,
            cost_per_day,
            models,
            format,
            gateway,
        } => {
            let request = json!({
                "client": client,
                "name": name,
                "expires": days.map(expiry),
                "requests_per_minute": requests_per_minute,
                "tokens_per_day": tokens_per_day,
                "cost_per_day": cost_per_day,
                "models": models,
            });
            create(&request, *format, gateway, output)?
        }
        KeysCommand::Revoke { id, format, gateway } => revoke(id, *format, gateway, output)?,
    };
    // The message of a gateway that refuses the request is printed, and the exit code is 1.
    done.or_else(|error| error.report(output))
}

/// The result of an operation: the exit code. As for `flowgate approvals`, the outer error is an invalid command line
/// or file; the inner error says that the gateway refused the request, or could not be reached.
type OperationResult = Result<Result<u8, GatewayError>, InputError>;

/// Runs `flowgate keys list`: prints the virtual keys of the clients of the admin's tenant. The exit code is 0.
fn list(format: KeysFormat, options: &GatewayArgs, output: &mut Console) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
    Ok(gateway.get(ROUTE).map(|answer| {
        if format == KeysFormat::Json {
            output.line(&escaping::json(&answer));
            return 0;
        }
        let keys = answer.get("keys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
        if !rows.is_empty() {
            let columns =
                ["id", "client", "name", "state", "made by", "made", "last used", "expires", "limits"];
            output.table(&columns, &rows);
        }
        output.line(&plural(keys.len(), "key"));
        0
    }))
}

/// Runs `flowgate keys create`: makes the virtual key that `request` describes, and prints it. The gateway stores only
/// a digest, so it can never show the key again. The exit code is 0.
fn create(
    request: &Value,
    format: KeysFormat,
    options: &GatewayArgs,
    output: &mut Console,
) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
    Ok(gateway.post(ROUTE, request).map(|made| {
        match format {
            KeysFormat::Json => output.line(&escaping::json(&made)),
            KeysFormat::Text => {
                output.line(&escaping::line(text(&made, "key")));
                let id = escaping::line(text(&made, "id"));
                output.note(&format!(
                    "the gateway cannot show this key again; `flowgate keys revoke {id}` revokes it"
                ));
            }
        }
        0
    }))
}

/// Runs `flowgate keys revoke`: revokes the virtual key with this id. The exit code is 0.
fn revoke(id: &str, format: KeysFormat, options: &GatewayArgs, output: &mut Console) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    Ok(gateway.delete(&format!("{ROUTE}/{}", encode(id))).map(|answer| {
        match format {
            KeysFormat::Json => output.line(&escaping::json(&answer)),
            KeysFormat::Text => output.line(&format!("{}: revoked", escaping::line(text(&answer, "id")))),
        }
        0
    }))
}

/// Returns the cells of a key in the table of `flowgate keys list`. The cell of a time shows only the day. All limits are
/// in one cell.
fn row(key: &Value) -> Vec<String> {
    let cell = |name: &str| escaping::line(text(key, name));
    // Returns the day of the time in the field `name`, in milliseconds since 1970; `none` if the key has no such time.
    let day = |name: &str, none: &str| match key.get(name).and_then(Value::as_u64) {
        None => none.to_owned(),
        Some(millis) => Timestamp(millis).to_string().chars().take_while(|c| *c != 'T').collect(),
    };
    let mut limits = Vec::new();
    for (name, unit) in [
        ("requests_per_minute", "requests/min"),
        ("tokens_per_day", "tokens/day"),
        ("cost_per_day", "cost/day"),
    ] {
        if let Some(limit) = key.get(name).filter(|limit| !limit.is_null()) {
            limits.push(format!("{limit} {unit}"));
        }
    }
    let models = key.get("models").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    limits.extend(models.iter().filter_map(Value::as_str).map(escaping::line));
    vec![
        cell("id"),
        cell("client"),
        cell("name"),
        cell("state"),
        cell("made_by"),
        day("made", ""),
        day("last_used", "never"),
        day("expires", "never"),
        limits.join(", "),
    ]
}

/// Returns the time at which a key expires that is valid for this number of days, in milliseconds since 1970.
fn expiry(days: u32) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = now + Duration::from_secs(u64::from(days) * 86_400);
    u64::try_from(then.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_what_a_key_may_do() {
        let key = json!({
            "id": "0a", "client": "agent", "name": "ci\u{1b}", "state": "valid", "made_by": "bob", "made": 86_400_000_u64,
            "last_used": null, "expires": 172_800_000_u64, "requests_per_minute": 3, "tokens_per_day": null,
            "cost_per_day": 0.5, "models": ["m"],
        });
        let expected = [
            "0a",
            "agent",
            &escaping::line("ci\u{1b}"),
            "valid",
            "bob",
            "1970-01-02",
            "never",
            "1970-01-03",
            "3 requests/min, 0.5 cost/day, m",
        ];
        assert_eq!(row(&key), expected);
    }
}
