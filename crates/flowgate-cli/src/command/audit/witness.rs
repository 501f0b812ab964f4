//! Compares audit logs with the heads (signed lines) that a witness has received, for `flowgate audit verify
//! --witness`. A witness is a party outside the gateway; its record shows whether a log was replaced or restored to an
//! earlier state. `verify_log` of `verify` checks the heads of one log; this module reads the file of the witness and
//! finds logs that are missing.

use std::path::Path;

use flowgate_audit::{LogSummary, WitnessRecord};

use crate::input::{self, InputError};
use crate::output::Console;

/// The maximum number of invalid lines that are listed.
const MAX_NAMED: usize = 20;

/// Reads the file at `path`, which has the heads that a witness received. Invalid lines are not an error:
/// [`check_heads`] reports them.
pub(super) fn read(path: &Path) -> Result<WitnessRecord, InputError> {
    let failed = |error: std::io::Error| {
        InputError(format!("{}: the file cannot be read: {error}; give another copy of it", path.display()))
    };
    WitnessRecord::read(input::open(path)?).map_err(failed)
}

/// Checks logs against the heads that a witness has received, and returns whether there is no objection. Prints each
/// objection: an invalid line in the file of the witness (`path`), and a log that the witness knows and that is not
/// among `logs`, although the same key signed it. Also prints two things that are not objections: that an incomplete line
/// was written again in full, and losses that an operator has accepted.
pub(super) fn check_heads(
    path: &Path,
    witness: &WitnessRecord,
    logs: &[LogSummary],
    output: &mut Console,
) -> bool {
    let (mark, name) = (output.paint("31", "✗"), path.display());
    for (line, problem) in witness.rejected_lines().iter().take(MAX_NAMED) {
        output.line(&format!("{mark} {name}: line {line}: {problem}"));
    }
    if witness.rejected_lines().len() > MAX_NAMED {
        output.line(&format!(
            "{mark} {name}: {} more invalid lines",
            witness.rejected_lines().len() - MAX_NAMED
        ));
    }
    if witness.partial_lines() > 0 {
        output.note(
            "a line of the witness is incomplete, but a later line repeats it in full: the writer was stopped while it wrote, and nothing is lost",
        );
    }
    // The keys that signed the logs, each once.
    let mut keys = Vec::new();
    for log in logs {
        if !keys.contains(&log.key) {
            keys.push(log.key);
        }
    }
    let mut has_no_objection = witness.rejected_lines().is_empty();
    for key in keys {
        // `since` is the number of the first lost line, from 0.
        for (log, since, time) in witness.accepted_losses(key) {
            let line = since.saturating_add(1);
            output.line(&format!(
                "  accepted  the loss of line {line} of the log {log} and of all later lines: recorded by an \
                operator at {time}"
            ));
        }
        for (log, head) in witness.signed_by(key).filter(|(log, _)| logs.iter().all(|one| one.id != *log)) {
            has_no_objection = false;
            let line = head.seq.saturating_add(1);
            output.line(&format!(
                "{mark} {name}: the witness has received another log with the same key, {log}, up to line \
                {line} ({}); verify that log as well, or find out who replaced it",
                head.hash
            ));
        }
    }
    has_no_objection
}
