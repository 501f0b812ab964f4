//! Judges again what an audit log says was judged, from what the store has of the conversations.
//!
//! The guard reads no clock and draws no random number, so every verdict can be had again. A log whose chain is whole and whose
//! verdicts come to the same was written by a gateway that judged so; one that says something else was not.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::clients::{self, Clients};
use super::config::Config;
use super::sessions;
use crate::audit::{Anchors, Hash, Record};
use crate::store::logs::Listed;
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
    /// Verdicts from before the log was begun, which it does not have.
    pub earlier: u64,
    /// Conversations of which the log has nothing, and that cannot be judged again: their policy was changed, or their client is gone.
    pub unread: u64,
    /// What did not come to the same.
    pub differ: Vec<Difference>,
}

/// What a database has before logs are read. A turn is recorded before it is kept: what is there must be in a log that is read later.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What it knows of logs.
    pub anchors: Anchors,
    conversations: Vec<Listed>,
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

/// The verdicts of logs, by conversation, with the policies under which they were given.
#[derive(Debug, Default)]
pub struct Logged {
    verdicts: HashMap<(String, String), Vec<OfLog>>,
    logs: Vec<Hash>,
}

/// The verdicts that one log has of one conversation, each with its policy.
type OfLog = Vec<(String, Verdict)>;

impl Logged {
    /// From now on, records are of this log.
    pub fn begin(&mut self, log: Hash) {
        self.logs.push(log);
    }

    /// Takes note of a record, if it is a verdict.
    pub fn add(&mut self, record: &Record) {
        if record.kind != "judged" {
            return;
        }
        let text =
            |name: &str| record.object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let event = record.object.get("event").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let verdict = (event, text("tool"), text("verdict"), text("digest"));
        let read = self.logs.len().max(1);
        let logs = self.verdicts.entry((text("client"), text("conversation"))).or_default();
        if logs.len() < read {
            logs.resize_with(read, Vec::new);
        }
        if let Some(log) = logs.last_mut() {
            log.push((text("policy"), verdict));
        }
    }
}

/// What the database of a configuration has.
///
/// # Errors
/// If the store cannot be read.
pub fn known(config: &Config) -> Result<Known, StoreError> {
    waiting(async {
        let store = Store::read(&config.store.place).await?;
        // Logs first: what is recorded meanwhile is in the log.
        Ok(Known { anchors: store.anchors().await?, conversations: store.conversations().await? })
    })
}

/// Judges again what the database has and what the logs say, with the policies of a configuration.
///
/// # Errors
/// If the store cannot be read.
pub fn recheck(config: Config, known: Known, logged: Logged) -> Result<Rechecked, StoreError> {
    waiting(judge_again(config, known, logged))
}

fn waiting<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(StoreError::Runtime)?.block_on(work)
}

async fn judge_again(config: Config, known: Known, mut logged: Logged) -> Result<Rechecked, StoreError> {
    let store = Store::read(&config.store.place).await?;
    let clients = Clients::new(config.clients);
    let mut rechecked = Rechecked::default();
    // Where nothing is known of the log, conversations may be older than it.
    let anchors = known.anchors.logs.iter().filter(|anchor| logged.logs.contains(&anchor.log));
    let after = anchors.map(|anchor| anchor.after).min();
    for Listed { id, client: name, name: conversation, turns } in known.conversations {
        let verdicts = logged.verdicts.remove(&(name.clone(), conversation.clone()));
        let is_older = after.is_some_and(|after| id <= after);
        if verdicts.is_none() && (is_older || after.is_none()) {
            continue;
        }
        let logs = verdicts.unwrap_or_default();
        let all = count(logs.iter().map(Vec::len).sum());
        let past = store.past(&name, &conversation).await?;
        let found = clients.named(&name).zip(past);
        let Some((client, mut past)) = found.filter(|(client, past)| client.spec.basis == past.basis) else {
            rechecked.gone += all;
            rechecked.unread += u64::from(all == 0);
            continue;
        };
        past.inputs.truncate(usize::try_from(turns).unwrap_or(usize::MAX));
        // Verdicts under another policy are those of a conversation that began anew since.
        let of_policy = |log: OfLog| -> Vec<Verdict> {
            let same = log.into_iter().filter(|(policy, _)| *policy == past.basis);
            same.map(|(_, verdict)| verdict).collect()
        };
        let logs: Vec<Vec<Verdict>> = logs.into_iter().map(of_policy).collect();
        let left = count(logs.iter().map(Vec::len).sum());
        rechecked.gone += all.saturating_sub(left);
        match again(&client, &past).and_then(|judged| compare(&logs, &judged, is_older)) {
            Ok(Compared { same, unkept, earlier }) => {
                rechecked.same += same;
                rechecked.unkept += unkept;
                rechecked.earlier += earlier;
            }
            Err(what) => rechecked.differ.push(Difference { client: name, conversation, what }),
        }
    }
    let left = logged.verdicts.into_values().flatten().map(|log| log.len()).sum();
    rechecked.gone += count(left);
    rechecked
        .differ
        .sort_by(|one, other| (&one.client, &one.conversation).cmp(&(&other.client, &other.conversation)));
    Ok(rechecked)
}

/// What a conversation judges that is made again.
fn again(client: &Arc<clients::Known>, past: &Past) -> Result<Vec<Verdict>, String> {
    let judged = sessions::replay(client, &past.key, &past.inputs).map_err(|failure| failure.message)?;
    let verdict = |call: flowgate_guard::conversation::Judged| {
        (count(call.event), call.tool.to_string(), call.outcome.name().to_owned(), call.digest)
    };
    Ok(judged.into_iter().map(verdict).collect())
}

/// What came of the verdicts of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Compared {
    same: u64,
    unkept: u64,
    earlier: u64,
}

/// Every verdict that comes again stands in a log, in order; what else stands there is of turns that were not kept. The first ones of a
/// conversation that `is_older` than the log may be missing.
fn compare(logs: &[Vec<Verdict>], again: &[Verdict], is_older: bool) -> Result<Compared, String> {
    let mut rests: Vec<_> = logs.iter().map(|log| log.iter()).collect();
    let (mut same, mut earlier) = (0, 0);
    for verdict in again {
        let log = rests.iter_mut().find(|rest| rest.as_slice().contains(verdict));
        if let Some(rest) = log {
            let _ = rest.any(|known| known == verdict);
            same += 1;
        } else if is_older && same == 0 {
            earlier += 1;
        } else {
            let (event, tool, outcome, _) = verdict;
            return Err(format!("`{outcome}` for a call of {tool} at event {event} is not in the log"));
        }
    }
    let all: usize = logs.iter().map(Vec::len).sum();
    Ok(Compared { same, unkept: count(all).saturating_sub(same), earlier })
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
        type Said<'a> = &'a [(u64, &'a str)];
        let check = |logs: &[Said<'_>], again: Said<'_>, is_older: bool, expected: Result<[u64; 3], &str>| {
            let all = |list: Said<'_>| -> Vec<Verdict> { list.iter().map(|(e, o)| verdict(*e, o)).collect() };
            let logged: Vec<Vec<Verdict>> = logs.iter().map(|log| all(log)).collect();
            let found = compare(&logged, &all(again), is_older);
            let found = found.map(|Compared { same, unkept, earlier }| [same, unkept, earlier]);
            assert_eq!(found, expected.map_err(str::to_owned), "{logs:?} {again:?}");
        };
        check(&[&[]], &[], false, Ok([0, 0, 0]));
        check(&[&[(1, "permit"), (2, "deny")]], &[(1, "permit"), (2, "deny")], false, Ok([2, 0, 0]));
        // A turn that was tried, and not kept, and tried again.
        let tried: Said<'_> = &[(1, "permit"), (1, "permit"), (2, "deny")];
        check(&[tried], &[(1, "permit"), (2, "deny")], false, Ok([2, 1, 0]));
        let missing = Err("`permit` for a call of send at event 1 is not in the log");
        check(&[&[(1, "deny")]], &[(1, "permit")], false, missing);
        check(&[], &[(1, "permit")], false, missing);
        check(
            &[&[(2, "deny"), (1, "permit")]],
            &[(1, "permit"), (2, "deny")],
            false,
            Err("`deny` for a call of send at event 2 is not in the log"),
        );
        // Two gateways went on with it in turn.
        let turns: Said<'_> = &[(1, "permit"), (2, "deny"), (3, "permit")];
        check(&[&[(1, "permit"), (3, "permit")], &[(2, "deny")]], turns, false, Ok([3, 0, 0]));
        // It began before its log did; but what the log has is there to the end.
        check(&[&[(3, "permit")]], turns, true, Ok([1, 0, 2]));
        check(
            &[&[(2, "deny")]],
            turns,
            true,
            Err("`permit` for a call of send at event 3 is not in the log"),
        );
    }
}
