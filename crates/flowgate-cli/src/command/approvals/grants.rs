//! Runs `flowgate approvals grants` and `flowgate approvals withdraw`: lists the grants of people, for the rest of a
//! conversation or lasting, and withdraws one. The output describes a grant in the same words as the web page.

use flowgate_audit::Timestamp;
use serde_json::Value;

use super::{OperationResult, print_json};
use crate::args::{ApprovalsFormat, GatewayArgs};
use crate::escaping;
use crate::gateway_client::{GatewayClient, encode};
use crate::output::{Console, plural};
use crate::question_text::{names, print_arguments, text};

/// The route of the gateway for grants.
const ROUTE: &str = "/api/v1/grants";

/// Runs `flowgate approvals grants`: prints each grant with its terms and the call that was allowed, and their number.
/// With JSON, prints the gateway's answer. The exit code is 0.
pub(super) fn list(format: ApprovalsFormat, options: &GatewayArgs, output: &mut Console) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    // The outer `Result` is for errors of the input; the caller prints an error of the gateway.
    Ok(gateway.get(ROUTE).map(|answer| {
        if format == ApprovalsFormat::Json {
            print_json(&answer, output);
            return 0;
        }
        let grants = answer.get("grants").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for grant in grants {
            let call = grant.get("call").unwrap_or(&Value::Null);
            output.line(&escaping::line(&format!(
                "{}  {} of {}, allowed by {}",
                text(grant, "id"),
                text(call, "tool"),
                text(grant, "client"),
                text(grant, "who")
            )));
            output.line(&format!("    {}", terms(grant)));
            if grant.get("in_force") == Some(&Value::Bool(false)) {
                output.line(
                    "    not in force: the policy or the settings of the client have changed since, or the approvals of the conversation are frozen",
                );
            }
            print_arguments(call.get("arguments").unwrap_or(&Value::Null), output);
        }
        output.line(&plural(grants.len(), "grant"));
        0
    }))
}

/// Runs `flowgate approvals withdraw`: withdraws the grant with this id. The exit code is 0.
pub(super) fn withdraw(
    id: &str,
    format: ApprovalsFormat,
    options: &GatewayArgs,
    output: &mut Console,
) -> OperationResult {
    let gateway = GatewayClient::new(options, output)?;
    Ok(gateway.delete(&format!("{ROUTE}/{}", encode(id))).map(|answer| {
        match format {
            ApprovalsFormat::Json => print_json(&answer, output),
            ApprovalsFormat::Text => {
                output.line(&format!("{}: withdrawn", escaping::line(text(&answer, "id"))));
            }
        }
        0
    }))
}

/// Describes a grant in words: since when it holds, until when, and within which limits. Texts that come from the gateway
/// are escaped.
fn terms(grant: &Value) -> String {
    // Returns the time in a field of the grant; an empty text if the grant has no such time.
    let time = |name: &str| {
        grant
            .get(name)
            .and_then(Value::as_u64)
            .map(|millis| Timestamp(millis).to_string())
            .unwrap_or_default()
    };
    let since = format!("since {}", time("granted"));
    // A grant for a conversation has no limits of its own. The arguments in `grant_leaves_open` may have any value.
    if text(grant, "kind") == "conversation" {
        let open = names(grant, "grant_leaves_open");
        let open = if open.is_empty() { String::new() } else { format!(", with any {}", open.join(", ")) };
        let conversation = escaping::line(text(grant, "conversation"));
        return format!("{since}, for the rest of the conversation {conversation}{open}");
    }
    let expires = time("expires");
    let until =
        if expires.is_empty() { "until it is withdrawn".to_owned() } else { format!("until {expires}") };
    format!("{since}, {until}; {}", limits(grant))
}

/// Describes the daily limits of a lasting grant in words, with what was used of them today.
fn limits(grant: &Value) -> String {
    let mut limits = Vec::new();
    if let Some(calls) = grant.get("calls_a_day").and_then(Value::as_u64) {
        let today = grant.get("calls_today").and_then(Value::as_u64).unwrap_or_default();
        limits.push(format!(
            "{today} of {} today",
            plural(usize::try_from(calls).unwrap_or(usize::MAX), "call")
        ));
    }
    if let Some(sum) = grant.get("sum_a_day").filter(|sum| !sum.is_null()) {
        let part = |name: &str| escaping::line(text(sum, name));
        limits.push(format!("{} {} of {} today", part("argument"), part("used_today"), part("most")));
    }
    if limits.is_empty() { "no limit".to_owned() } else { limits.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_terms_of_a_grant_are_said() {
        for (grant, expected) in [
            (
                json!({"kind": "conversation", "conversation": "c\u{1b}", "granted": 0, "grant_leaves_open": []}),
                format!("since 1970-01-01T00:00:00.000Z, for the rest of the conversation {}", escaping::line("c\u{1b}")),
            ),
            (
                json!({"kind": "conversation", "conversation": "c", "granted": 0, "grant_leaves_open": ["body"]}),
                "since 1970-01-01T00:00:00.000Z, for the rest of the conversation c, with any body".to_owned(),
            ),
            (
                json!({"kind": "lasting", "granted": 0, "expires": null, "calls_a_day": null, "sum_a_day": null}),
                "since 1970-01-01T00:00:00.000Z, until it is withdrawn; no limit".to_owned(),
            ),
            (
                json!({"kind": "lasting", "granted": 0, "expires": 86_400_000, "calls_a_day": 3, "calls_today": 1,
                    "sum_a_day": {"argument": "amount", "most": "50", "used_today": "20.5"}}),
                "since 1970-01-01T00:00:00.000Z, until 1970-01-02T00:00:00.000Z; 1 of 3 calls today, amount 20.5 of 50 today"
                    .to_owned(),
            ),
        ] {
            assert_eq!(terms(&grant), expected, "{grant}");
        }
    }
}
