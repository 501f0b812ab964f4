//! Compares the verdicts in an audit log with a replay of the conversations in the database.
//!
//! The guard reads no clock and draws no random number, so a replay gives the same verdicts. If the chain of a log is
//! intact and its verdicts equal the replayed ones, the log records what the gateway of this database decided. A log
//! with other verdicts was altered, or belongs to another gateway. `flowgate audit` calls [`read_database_snapshot`]
//! before it reads the logs, and [`recheck`] afterwards.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::clients::{self, Clients};
use super::conversations;
use crate::config::GatewayConfig;
use crate::database::log_heads::ConversationListing;
use crate::database::{ConversationJournal, Database, DatabaseError};
use flowgate_audit::{AuditRecord, DatabaseLogAnchors, LineHash, RecordKind};

/// The outcome of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecheckReport {
    /// Verdicts that the replay reproduced.
    pub same: u64,
    /// Verdicts of turns that were never stored: their calls were not sent.
    pub unsent: u64,
    /// Verdicts of conversations that were deleted, or that have another policy now.
    pub gone: u64,
    /// Replayed verdicts that are older than the log and therefore not in it.
    pub earlier: u64,
    /// Conversations without verdicts in the log that cannot be replayed: their policy was changed, or their client
    /// was removed.
    pub unread: u64,
    /// Conversations whose replay differs from the log, or diverges.
    pub differ: Vec<ReplayDifference>,
}

/// The conversations and log anchors of a database, read before the logs. A turn is recorded before it is stored: so
/// every turn in this snapshot must be in a log that is read later.
#[derive(Debug, Clone, Default)]
pub struct DatabaseSnapshot {
    /// The positions of audit logs that the database recorded with turns.
    pub anchors: DatabaseLogAnchors,
    conversations: Vec<ConversationListing>,
}

/// A conversation whose replay differs from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDifference {
    /// The name of the client.
    pub client: String,
    /// The name of the conversation.
    pub conversation: String,
    /// A sentence that describes the difference.
    pub what: String,
}

impl fmt::Display for ReplayDifference {
    /// Writes the conversation, its client and what differs, for the output of `flowgate audit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conversation {} of {}: {}", self.conversation, self.client, self.what)
    }
}

/// A verdict: the number of events before it, the tool, the outcome, and the digest of the call.
type VerdictRow = (u64, String, String, String);

/// The verdicts in audit logs, by conversation, with the policy under which each verdict was given.
#[derive(Debug, Default)]
pub struct LoggedVerdicts {
    /// The verdicts by the names of the client and the conversation: one list for each log, in the order of `logs`.
    verdicts: HashMap<(String, String), Vec<VerdictsOfLog>>,
    /// The hash of the first line of each log, which identifies the log.
    logs: Vec<LineHash>,
    /// For each policy, how often the log that was begun last records that a configuration without this policy was
    /// loaded.
    replacements: BTreeMap<String, u64>,
}

/// A verdict in a log.
#[derive(Debug, Clone)]
struct LoggedVerdict {
    /// The digest of the policy.
    policy: String,
    /// How many configurations without the policy were loaded before the verdict, by this log.
    replacements: u64,
    /// Whether a configuration without the policy was loaded after the verdict. The conversation may then have been
    /// carried over to another policy and back, which replaces its verdicts.
    is_replaced: bool,
    row: VerdictRow,
}

/// The verdicts on one conversation in one log.
type VerdictsOfLog = Vec<LoggedVerdict>;

impl LoggedVerdicts {
    /// Begins the log with this first line: the records that are added next belong to it.
    pub fn begin(&mut self, log: LineHash) {
        self.end_log();
        self.logs.push(log);
    }

    /// Adds a record to the log that was begun last. Only verdicts and records of loaded configurations count: the
    /// latter say which policies are in force from then on. All other records are ignored.
    pub fn add(&mut self, record: &AuditRecord) {
        match record.kind {
            RecordKind::ConfigurationLoaded => return self.note_configuration(record),
            RecordKind::Judged => {}
            _ => return,
        }
        // A field of the record; empty if it is missing.
        let text =
            |name: &str| record.object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        // A record without a number is damaged, and equals no replayed verdict.
        let event = record.object.get("event").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let row = (event, text("tool"), text("verdict"), text("digest"));
        // A record before any `begin` belongs to a first log without a known id.
        let log_count = self.logs.len().max(1);
        let logs = self.verdicts.entry((text("client"), text("conversation"))).or_default();
        // Adds empty lists for the earlier logs that have no verdict on this conversation.
        if logs.len() < log_count {
            logs.resize_with(log_count, Vec::new);
        }
        if let Some(log) = logs.last_mut() {
            let policy = text("policy");
            // How often the policy was replaced before this verdict. `end_log` compares this with the number at the
            // end.
            let replacements = *self.replacements.entry(policy.clone()).or_default();
            log.push(LoggedVerdict { policy, replacements, is_replaced: false, row });
        }
    }

    /// Counts a loaded configuration as a replacement of each policy that the configuration does not have. Only
    /// policies under which this log has verdicts are counted.
    fn note_configuration(&mut self, record: &AuditRecord) {
        // A list that was cut off does not say which policies the configuration lacks.
        let policies = record.object.get("policies").and_then(Value::as_array);
        let Some(policies) = policies.filter(|_| !record.object.contains_key("cut")) else { return };
        for (policy, count) in &mut self.replacements {
            *count += u64::from(!policies.iter().any(|listed| listed.as_str() == Some(policy.as_str())));
        }
    }

    /// Ends the log that was begun last: marks those of its verdicts after which a configuration without their policy
    /// was loaded.
    fn end_log(&mut self) {
        let replacements = std::mem::take(&mut self.replacements);
        let log_count = self.logs.len().max(1);
        // Conversations without verdicts in this log have a shorter list.
        let of_log = self.verdicts.values_mut().filter(|logs| logs.len() == log_count);
        for verdict in of_log.filter_map(|logs| logs.last_mut()).flatten() {
            verdict.is_replaced =
                replacements.get(&verdict.policy).is_some_and(|count| *count > verdict.replacements);
        }
    }
}

/// Reads the conversations and log anchors of the database that a configuration names. Has to be called before the logs
/// are read.
///
/// # Errors
/// If the database cannot be read.
pub fn read_database_snapshot(config: &GatewayConfig) -> Result<DatabaseSnapshot, DatabaseError> {
    run_blocking(async {
        let store = Database::read_with_keys(&config.store.address, &config.store.encryption).await?;
        let read = async |store: &Database| {
            // Anchors are read before conversations, so that a turn stored in between is certainly in a log that is
            // read later.
            Ok(DatabaseSnapshot {
                anchors: store.anchors().await?,
                conversations: store.conversations().await?,
            })
        };
        store.close_after(read).await
    })
}

/// Replays the conversations of `snapshot`, which was read before the logs, under the policies of a configuration.
/// Compares the verdicts with those in the logs (`logged`).
///
/// # Errors
/// If the database cannot be read.
pub fn recheck(
    config: GatewayConfig,
    snapshot: DatabaseSnapshot,
    logged: LoggedVerdicts,
) -> Result<RecheckReport, DatabaseError> {
    run_blocking(async {
        let store = Database::read_with_keys(&config.store.address, &config.store.encryption).await?;
        store.close_after(async |store| recheck_conversations(store, config, snapshot, logged).await).await
    })
}

/// Runs a future on a runtime of its own and on this thread, which it blocks: the commands that call it have no
/// runtime.
pub(super) fn run_blocking<T>(
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(DatabaseError::Runtime)?.block_on(work)
}

/// Replays each conversation of the snapshot under its client's current policy, and compares the verdicts with those in
/// the logs. A conversation that may be older than every log is skipped if the logs have no verdict on it. A
/// conversation whose policy or settings have changed cannot be compared: its logged verdicts count as `gone`, and the
/// conversation counts as `unread` if there are none. Logged verdicts on deleted conversations count as `gone` too.
///
/// # Errors
/// If the database cannot be read.
async fn recheck_conversations(
    store: &Database,
    config: GatewayConfig,
    snapshot: DatabaseSnapshot,
    mut logged: LoggedVerdicts,
) -> Result<RecheckReport, DatabaseError> {
    logged.end_log();
    let clients = Clients::new(config.clients);
    let mut report = RecheckReport::default();
    // The number of the last conversation that began before the oldest log. `None` if the database has no anchor of
    // these logs; then any conversation may be older than the logs.
    let anchors = snapshot.anchors.logs.iter().filter(|anchor| logged.logs.contains(&anchor.log));
    let oldest_anchor = anchors.map(|anchor| anchor.after).min();
    for ConversationListing { id, client: name, name: conversation, turns } in snapshot.conversations {
        let logged_verdicts = logged.verdicts.remove(&(name.clone(), conversation.clone()));
        // Conversations are numbered in the order in which they begin.
        let is_older = oldest_anchor.is_some_and(|oldest_anchor| id <= oldest_anchor);
        let may_be_older = is_older || oldest_anchor.is_none();
        if logged_verdicts.is_none() && may_be_older {
            continue;
        }
        let logs = logged_verdicts.unwrap_or_default();
        let logged_count = count(logs.iter().map(Vec::len).sum());
        let journal = store.read_journal(&name, &conversation).await?;
        let client_and_journal = clients.find_by_name(&name).zip(journal);
        let Some((client, mut journal)) = client_and_journal
            .filter(|(client, journal)| client.spec.config_fingerprint == journal.config_fingerprint)
        else {
            report.gone += logged_count;
            // A conversation without verdicts is still reported, since it could not be compared.
            report.unread += u64::from(logged_count == 0);
            continue;
        };
        // Turns that were stored after the snapshot may be missing in the logs that were read.
        journal.inputs.truncate(usize::try_from(turns).unwrap_or(usize::MAX));
        // Verdicts under another policy belong to an earlier conversation of the same name.
        let verdicts_under_policy = |log: VerdictsOfLog| -> VerdictsOfLog {
            log.into_iter().filter(|verdict| verdict.policy == journal.config_fingerprint).collect()
        };
        let logs: Vec<VerdictsOfLog> = logs.into_iter().map(verdicts_under_policy).collect();
        let of_this_policy = count(logs.iter().map(Vec::len).sum());
        report.gone += logged_count.saturating_sub(of_this_policy);
        match replay_verdicts(&client, &journal).and_then(|judged| compare(&logs, &judged, is_older)) {
            Ok(ComparisonCounts { same, unsent, replaced, earlier }) => {
                report.same += same;
                report.unsent += unsent;
                report.gone += replaced;
                report.earlier += earlier;
            }
            Err(what) => report.differ.push(ReplayDifference { client: name, conversation, what }),
        }
    }
    let without_conversation = logged.verdicts.into_values().flatten().map(|log| log.len()).sum();
    report.gone += count(without_conversation);
    report
        .differ
        .sort_by(|one, other| (&one.client, &one.conversation).cmp(&(&other.client, &other.conversation)));
    Ok(report)
}

/// Replays a stored conversation, and returns its verdicts in the form in which they are compared with the log.
///
/// # Errors
/// The description of the first turn whose replay diverges.
fn replay_verdicts(
    client: &Arc<clients::ClientState>,
    journal: &ConversationJournal,
) -> Result<Vec<VerdictRow>, String> {
    let judged =
        conversations::replay(client, &journal.key, &journal.inputs).map_err(|failure| failure.message)?;
    let verdict = |call: flowgate_guard::conversation::CallVerdict| {
        (count(call.event), call.tool.to_string(), call.outcome.name().to_owned(), call.digest)
    };
    Ok(judged.into_iter().map(verdict).collect())
}

/// The counts of one conversation's verdicts, named as in [`RecheckReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ComparisonCounts {
    same: u64,
    unsent: u64,
    /// Verdicts that the replay does not give, and after which another policy was in force for a time.
    replaced: u64,
    earlier: u64,
}

/// Matches the replayed verdicts on one conversation with the verdicts in the logs, in order. There may be several
/// logs, such as those of gateways that share a database.
///
/// * A replayed verdict that is in a log counts as `same`.
/// * If the conversation `is_older` than the logs, its first verdicts may be missing there; they count as `earlier`.
/// * A logged verdict that the replay does not give counts as `unsent`: usually its turn was not stored. If another
///   policy was in force after it, it counts as `replaced`: the conversation may have been carried over to that policy
///   and back, which replaces its verdicts.
///
/// # Errors
/// The description of the first replayed verdict that is in no log and does not count as `earlier`.
fn compare(
    logs: &[VerdictsOfLog],
    replayed: &[VerdictRow],
    is_older: bool,
) -> Result<ComparisonCounts, String> {
    // The part of each log after the last verdict that was matched in it.
    let mut unmatched: Vec<_> = logs.iter().map(|log| log.iter()).collect();
    let (mut same, mut unsent, mut replaced, mut earlier) = (0, 0, 0, 0);
    let mut skip = |logged: &LoggedVerdict| match logged.is_replaced {
        true => replaced += 1,
        false => unsent += 1,
    };
    for verdict in replayed {
        // Whether the rest of a log has this verdict.
        let has_verdict = |remaining: &&mut std::slice::Iter<'_, LoggedVerdict>| {
            remaining.as_slice().iter().any(|logged| logged.row == *verdict)
        };
        if let Some(remaining) = unmatched.iter_mut().find(has_verdict) {
            // Consumes the log up to and including this verdict. The verdicts before it are not replayed.
            for logged in remaining.by_ref() {
                if logged.row == *verdict {
                    break;
                }
                skip(logged);
            }
            same += 1;
        } else if is_older && same == 0 {
            earlier += 1;
        } else {
            let (event, tool, outcome, _) = verdict;
            return Err(format!(
                "the replay gives `{outcome}` for a call of {tool} at event {event}, but none of the given logs has this verdict: a log was \
                 altered, was written by another gateway or is missing, or the database was changed; keep the logs and the database, and \
                 compare them with a backup"
            ));
        }
    }
    unmatched.into_iter().flatten().for_each(skip);
    Ok(ComparisonCounts { same, unsent, replaced, earlier })
}

/// Converts a number of verdicts or events; one that does not fit becomes the maximum.
fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verdicts are matched in order, in several logs; a verdict is missing only if the conversation is older.
    #[test]
    fn verdicts_are_matched_in_order() {
        let verdict =
            |event: u64, outcome: &str| (event, "send".to_owned(), outcome.to_owned(), "d".to_owned());
        // A verdict by its event and its outcome.
        type VerdictTuples<'a> = &'a [(u64, &'a str)];
        // `expected` are the numbers of verdicts that count as `same`, `unsent` and `earlier`, or the beginning of the
        // error.
        let check = |logs: &[VerdictTuples<'_>],
                     replayed: VerdictTuples<'_>,
                     is_older: bool,
                     expected: Result<[u64; 3], &str>| {
            let all = |list: VerdictTuples<'_>| -> Vec<VerdictRow> {
                list.iter().map(|(e, o)| verdict(*e, o)).collect()
            };
            let logged: Vec<VerdictsOfLog> = logs
                .iter()
                .map(|log| {
                    let (policy, replacements, is_replaced) = (String::new(), 0, false);
                    let logged =
                        |row| LoggedVerdict { policy: policy.clone(), replacements, is_replaced, row };
                    all(log).into_iter().map(logged).collect()
                })
                .collect();
            let found = compare(&logged, &all(replayed), is_older);
            let found = found.map(|ComparisonCounts { same, unsent, replaced, earlier }| {
                assert_eq!(replaced, 0);
                [same, unsent, earlier]
            });
            match (&found, &expected) {
                (Err(found), Err(beginning)) => assert!(found.starts_with(beginning), "{found}"),
                _ => assert_eq!(found.as_ref().ok(), expected.as_ref().ok(), "{logs:?} {replayed:?}"),
            }
        };
        check(&[&[]], &[], false, Ok([0, 0, 0]));
        check(&[&[(1, "permit"), (2, "deny")]], &[(1, "permit"), (2, "deny")], false, Ok([2, 0, 0]));
        // The log of a turn that was not stored at first and was retried.
        let tried: VerdictTuples<'_> = &[(1, "permit"), (1, "permit"), (2, "deny")];
        check(&[tried], &[(1, "permit"), (2, "deny")], false, Ok([2, 1, 0]));
        let missing =
            Err("the replay gives `permit` for a call of send at event 1, but none of the given logs");
        check(&[&[(1, "deny")]], &[(1, "permit")], false, missing);
        check(&[], &[(1, "permit")], false, missing);
        check(
            &[&[(2, "deny"), (1, "permit")]],
            &[(1, "permit"), (2, "deny")],
            false,
            Err("the replay gives `deny` for a call of send at event 2, but none of the given logs"),
        );
        // Two gateways continued the conversation alternately.
        let turns: VerdictTuples<'_> = &[(1, "permit"), (2, "deny"), (3, "permit")];
        check(&[&[(1, "permit"), (3, "permit")], &[(2, "deny")]], turns, false, Ok([3, 0, 0]));
        // The conversation began before the log did; from the first logged verdict on, no verdict may be missing.
        check(&[&[(3, "permit")]], turns, true, Ok([1, 0, 2]));
        check(
            &[&[(2, "deny")]],
            turns,
            true,
            Err("the replay gives `permit` for a call of send at event 3, but none of the given logs"),
        );
    }
}
