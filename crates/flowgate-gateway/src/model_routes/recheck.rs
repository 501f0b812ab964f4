//! Judges again what an audit log says was judged, from what the store has of the conversations.
//!
//! The guard reads no clock and draws no random number, so every verdict can be had again. A log whose chain is whole and whose
//! verdicts come to the same was written by a gateway that judged so; one that says something else was not.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::clients::{Clients, Known};
use super::config::Config;
use super::sessions;
use crate::audit::Record;
use crate::store::{Past, Store, StoreError};

/// What came of judging again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rechecked {
    /// Verdicts that came to the same.
    pub same: u64,
    /// Verdicts of turns that were never kept: their calls did not go out.
    pub unkept: u64,
    /// Verdicts of conversations that were deleted, or that are held under another policy now.
    pub gone: u64,
    /// What did not come to the same.
    pub differ: Vec<Difference>,
}

/// A conversation that does not come to what the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The client.
    pub client: String,
    /// The conversation.
    pub conversation: String,
    /// What differs.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conversation {} of {}: {}", self.conversation, self.client, self.what)
    }
}

/// A verdict: how many events there were, the tool, what was said, and what stands for the call.
type Verdict = (u64, String, String, String);

/// The verdicts of a log, by conversation, with the policies under which they were given.
#[derive(Debug, Default)]
pub struct Logged(HashMap<(String, String), Vec<(String, Verdict)>>);

impl Logged {
    /// Takes note of a record, if it is a verdict.
    pub fn add(&mut self, record: &Record) {
        if record.kind != "judged" {
            return;
        }
        let text =
            |name: &str| record.object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let event = record.object.get("event").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let verdict = (event, text("tool"), text("verdict"), text("digest"));
        let place = (text("client"), text("conversation"));
        self.0.entry(place).or_default().push((text("policy"), verdict));
    }
}

/// Judges again, with the policies and the store of a configuration.
///
/// # Errors
/// If the store cannot be read.
pub fn recheck(config: Config, logged: Logged) -> Result<Rechecked, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(StoreError::Runtime)?.block_on(judge_again(config, logged))
}

async fn judge_again(config: Config, logged: Logged) -> Result<Rechecked, StoreError> {
    let store = Store::read(&config.store.place).await?;
    let clients = Clients::new(config.clients);
    let mut rechecked = Rechecked::default();
    let mut places: Vec<_> = logged.0.into_iter().collect();
    places.sort();
    for ((name, conversation), verdicts) in places {
        let past = store.past(&name, &conversation).await?;
        let known = clients.named(&name).zip(past);
        let Some((client, past)) = known.filter(|(client, past)| client.spec.basis == past.basis) else {
            rechecked.gone += count(verdicts.len());
            continue;
        };
        // Verdicts under another policy are those of a conversation that began anew since.
        let (verdicts, gone): (Vec<_>, Vec<_>) =
            verdicts.into_iter().partition(|(policy, _)| *policy == past.basis);
        rechecked.gone += count(gone.len());
        let verdicts: Vec<Verdict> = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
        match again(&client, &past).and_then(|judged| compare(&verdicts, &judged)) {
            Ok((same, unkept)) => {
                rechecked.same += same;
                rechecked.unkept += unkept;
            }
            Err(what) => rechecked.differ.push(Difference { client: name, conversation, what }),
        }
    }
    Ok(rechecked)
}

/// What a conversation judges that is made again.
fn again(client: &Arc<Known>, past: &Past) -> Result<Vec<Verdict>, String> {
    let judged = sessions::replay(client, &past.key, &past.inputs).map_err(|failure| failure.message)?;
    let verdict = |call: flowgate_guard::conversation::Judged| {
        (count(call.event), call.tool.to_string(), call.outcome.name().to_owned(), call.digest)
    };
    Ok(judged.into_iter().map(verdict).collect())
}

/// Every verdict that comes again stands in the log, in order; what else stands there is of turns that were not kept.
fn compare(logged: &[Verdict], again: &[Verdict]) -> Result<(u64, u64), String> {
    let mut rest = logged.iter();
    for verdict in again {
        if !rest.any(|known| known == verdict) {
            let (event, tool, outcome, _) = verdict;
            return Err(format!("`{outcome}` for a call of {tool} at event {event} is not in the log"));
        }
    }
    Ok((count(again.len()), count(logged.len() - again.len())))
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_stand_in_order() {
        let verdict =
            |event: u64, outcome: &str| (event, "send".to_owned(), outcome.to_owned(), "d".to_owned());
        let check = |logged: &[(u64, &str)], again: &[(u64, &str)], expected: Result<(u64, u64), &str>| {
            let all =
                |list: &[(u64, &str)]| -> Vec<Verdict> { list.iter().map(|(e, o)| verdict(*e, o)).collect() };
            assert_eq!(
                compare(&all(logged), &all(again)),
                expected.map_err(str::to_owned),
                "{logged:?} {again:?}"
            );
        };
        check(&[], &[], Ok((0, 0)));
        check(&[(1, "permit"), (2, "deny")], &[(1, "permit"), (2, "deny")], Ok((2, 0)));
        // A turn that was tried, and not kept, and tried again.
        check(&[(1, "permit"), (1, "permit"), (2, "deny")], &[(1, "permit"), (2, "deny")], Ok((2, 1)));
        check(
            &[(1, "deny")],
            &[(1, "permit")],
            Err("`permit` for a call of send at event 1 is not in the log"),
        );
        check(
            &[(2, "deny"), (1, "permit")],
            &[(1, "permit"), (2, "deny")],
            Err("`deny` for a call of send at event 2 is not in the log"),
        );
    }
}
