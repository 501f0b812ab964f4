//! Runs the commands `/grants` and `/withdraw` of a chat: lists and withdraws the grants, which are the calls that the
//! person has allowed for the rest of the conversation.

use std::collections::BTreeSet;

use flowgate::monitor::Grant;
use flowgate_guard::conversation::Conversation;
use serde_json::Value;

use super::terminal::ChatTerminal;
use crate::output::plural;
use crate::{escaping, report};

/// Runs `/grants`: prints each grant with its number, the call that was allowed, what further calls may change, and why
/// the person was asked.
pub(super) fn print(conversation: &Conversation, terminal: &ChatTerminal) {
    let grants = conversation.monitor().session_grants();
    if grants.is_empty() {
        terminal.print("No call is allowed for the rest of this conversation.");
        return;
    }
    for (index, grant) in grants.iter().enumerate() {
        let title = format!("{}  {}", index + 1, escaping::line(&grant.tool.to_string()));
        terminal.print(&terminal.paint("1", &title));
        // The monitor grants no call with malformed arguments, so the default is not used.
        let arguments = grant.call().arguments.clone().unwrap_or_default();
        for line in escaping::json(&Value::Object(arguments)).lines() {
            terminal.print(&format!("    {line}"));
        }
        if let Some(sentence) = grant.other_values() {
            terminal.print(&format!("    {}", escaping::line(&sentence)));
        }
        for reason in report::group_reasons(&grant.reasons) {
            terminal.print(&format!("  - {}", escaping::line(&reason.message)));
        }
    }
    terminal.print("/withdraw withdraws all of them, and /withdraw NUMBER one of them.");
}

/// Runs `/withdraw`: withdraws the grant whose number in the list is `which`, or all grants if `which` is empty. Prints
/// how many were withdrawn, or an error if there is no such grant.
pub(super) fn withdraw(conversation: &mut Conversation, which: &str, terminal: &ChatTerminal) {
    let before = conversation.monitor().session_grants().len();
    if before == 0 {
        terminal.error("there is no grant to withdraw: no call is allowed for the rest of this conversation");
        return;
    }
    if which.is_empty() {
        conversation.withdraw_grants();
    } else {
        let Some(digest) =
            grant_of_number(conversation, which).map(|grant| conversation.call_digest(grant.call()))
        else {
            terminal.error(&format!(
                "`{}` is not the number of a grant: write a number from 1 to {before}, as /grants lists them, or \
                 /withdraw alone for all",
                escaping::excerpt(which, 40)
            ));
            return;
        };
        // The person may have granted the same call more than once, for different reasons. All its grants are
        // withdrawn.
        conversation.withdraw_grants_for(&BTreeSet::from([digest]));
    }
    let withdrawn = before.saturating_sub(conversation.monitor().session_grants().len());
    let verb = if withdrawn == 1 { "is" } else { "are" };
    terminal.print(&format!(
        "{} {verb} withdrawn: you are asked about such calls again.",
        plural(withdrawn, "grant")
    ));
}

/// Returns the grant with this number in the list, which begins with 1.
fn grant_of_number<'a>(conversation: &'a Conversation, number: &str) -> Option<&'a Grant> {
    let index = number.parse::<usize>().ok()?.checked_sub(1)?;
    conversation.monitor().session_grants().get(index)
}
