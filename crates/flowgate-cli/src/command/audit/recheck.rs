//! Runs `flowgate audit verify --config`: checks that the logs contain the lines that the gateway's database has
//! recorded, and that every verdict is the same when it is recomputed.
//!
//! The module `verify` checks each log by itself, and `flowgate_gateway` recomputes the verdicts. This module checks
//! that the logs are those that the database knows, and prints the outcome.

use std::path::{Path, PathBuf};

use flowgate_audit::{DatabaseLogAnchors, LineHash, VerifiedRecords};
use flowgate_gateway::chat::recheck::{LoggedVerdicts, RecheckReport, read_database_snapshot, recheck};

use super::verify::{self, VerifyOptions};
use crate::command::serve;
use crate::escaping;
use crate::input::{self, InputError};
use crate::output::{Console, plural};
use crate::progress::{INTERRUPTED, Progress};

/// The maximum number of differing conversations that are listed.
const MAX_NAMED: usize = 20;

/// Runs `flowgate audit verify --config`: verifies each log of `files` also against the lines that the database of the
/// configuration has recorded, recomputes the verdicts, and prints the outcome. Returns 1 if a log is not valid, the
/// database or the witness knows another log, or a verdict differs; [`INTERRUPTED`] after an interrupt; otherwise 0.
/// Stops at the first log that is not valid, without comparing any verdict.
pub(super) fn run(
    files: &[PathBuf],
    config: &Path,
    options: &VerifyOptions<'_>,
    output: &mut Console,
) -> Result<u8, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(format!("{}: {error}", config.display()));
    let config = serve::gateway_config(config)?;
    let cipher = config.store.encryption.audit_content_cipher();
    let options = &VerifyOptions { cipher: cipher.as_deref(), ..*options };
    // The database is read before the logs: a line that the gateway appends meanwhile is then only in the log, which is
    // no objection.
    let snapshot = read_database_snapshot(&config).map_err(|error| failed(&error))?;
    let (mut logged, mut logs, mut summaries) = (LoggedVerdicts::default(), Vec::new(), Vec::new());
    // Each log is read twice, to verify it and to collect its verdicts, so `files` is listed twice. With the empty
    // word, the progress counts bytes, and no items.
    let progress = Progress::over_files(&[files, files].concat(), "", true, output);
    for file in files {
        let verified = verify::verify_log(file, options, &snapshot.anchors.logs, &progress, output)?;
        if progress.is_interrupted() {
            break;
        }
        let Some(summary) = verified else { return Ok(1) };
        logs.push(summary.id);
        logged.begin(summary.id);
        summaries.push(summary);
        // `None`: the log names its key itself, which `verify_log` has compared with the expected one.
        for record in VerifiedRecords::new(input::open_counted(file, &progress)?, None) {
            if progress.is_interrupted() {
                break;
            }
            let record = record.map_err(|problem| InputError(format!("{}: {problem}", file.display())))?;
            logged.add(&record);
        }
    }
    if progress.finish(output) {
        return Ok(INTERRUPTED);
    }
    // Both checks run, since each prints its objections.
    let are_known = check_known_logs(&snapshot.anchors, files, &logs, output);
    let has_no_objection = verify::check_witness(options, &summaries, output) && are_known;
    let rechecked = recheck(config, snapshot, logged).map_err(|error| failed(&error))?;
    print_rechecked(&rechecked, output);
    Ok(u8::from(!rechecked.differ.is_empty() || !has_no_objection))
}

/// Returns whether the database has recorded these logs and no others, and prints each objection. If the database has
/// recorded no log yet, returns true and prints a note. `anchors` has the last recorded line of each log that the
/// database knows. `logs` has the id of the log in each of the `files`: the hash of its first line.
fn check_known_logs(
    anchors: &DatabaseLogAnchors,
    files: &[PathBuf],
    logs: &[LineHash],
    output: &mut Console,
) -> bool {
    if anchors.logs.is_empty() {
        output.note(
            "the database has no record of an audit log yet: start the gateway once, so that the database \
            records the length of the log",
        );
        return true;
    }
    let mark = output.paint("31", "✗");
    let mut are_known = true;
    for (file, log) in files.iter().zip(logs) {
        if !anchors.logs.iter().any(|anchor| anchor.log == *log) {
            are_known = false;
            output.line(&format!("{mark} {}: the database has no record of this log; give the configuration of the gateway that wrote it", file.display()));
        }
    }
    for anchor in anchors.logs.iter().filter(|anchor| !logs.contains(&anchor.log)) {
        are_known = false;
        let line = anchor.head.seq.saturating_add(1);
        let advice = if anchors.is_shared {
            "give the logs of all gateways that share the database"
        } else {
            "find out who truncated or replaced that log"
        };
        output.line(&format!(
            "{mark} the database has recorded another log, up to line {line} ({}), signed by {}: {advice}",
            anchor.head.hash, anchor.key
        ));
    }
    are_known
}

/// Prints the outcome: how many verdicts were confirmed, how many could not be compared and why, and the
/// conversations in which a verdict differs.
fn print_rechecked(rechecked: &RecheckReport, output: &mut Console) {
    let RecheckReport { same, unsent, gone, earlier, unread, differ } = rechecked;
    let (color, mark) = if differ.is_empty() { ("32", "✓") } else { ("31", "✗") };
    let mark = output.paint(color, mark);
    output.line(&format!(
        "{mark} {} confirmed: the calls were judged again, with equal results",
        plural(same, "verdict")
    ));
    if *unsent > 0 {
        output.line(&format!(
            "  not sent  {} of turns that were not stored, so no call was sent",
            plural(unsent, "verdict")
        ));
    }
    if *gone > 0 {
        output.line(&format!(
            "  deleted   {} of conversations that were deleted, or restarted with another policy",
            plural(gone, "verdict")
        ));
    }
    if *earlier > 0 {
        output.line(&format!(
            "  earlier   {} in the database that are older than the log",
            plural(earlier, "verdict")
        ));
    }
    if *unread > 0 {
        output.line(&format!(
            "  unread    {} in the database whose policy has changed, or whose client is no longer \
            configured",
            plural(unread, "conversation")
        ));
    }
    for difference in differ.iter().take(MAX_NAMED) {
        output.line(&format!("  differs   {}", escaping::excerpt(&difference.to_string(), 400)));
    }
    if differ.len() > MAX_NAMED {
        output.line(&format!("  differs   {}", plural(differ.len() - MAX_NAMED, "further conversation")));
    }
}
