//! `flowgate audit verify --config`: whether logs have what their database knows, and every verdict comes to the same again.

use std::path::{Path, PathBuf};

use flowgate_gateway::audit::{Anchors, Hash, Records};
use flowgate_gateway::model_routes::recheck::{Logged, Rechecked, known, recheck};

use super::verify::{self, Options};
use crate::command::serve;
use crate::input::{self, InputError};
use crate::output::Output;
use crate::visible;

/// How many conversations are named.
const NAMED: usize = 20;

/// Runs the command; returns the exit code.
pub(super) fn run(
    files: &[PathBuf],
    config: &Path,
    options: &Options<'_>,
    output: &mut Output,
) -> Result<u8, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(format!("{}: {error}", config.display()));
    let config = serve::model_routes(config)?;
    // Before the logs are read: what is recorded meanwhile is no objection.
    let known = known(&config).map_err(|error| failed(&error))?;
    let (mut logged, mut logs) = (Logged::default(), Vec::new());
    for file in files {
        let Some(summary) = verify::one(file, options, &known.anchors.logs, output)? else { return Ok(1) };
        logs.push(summary.id);
        logged.begin(summary.id);
        for record in Records::new(input::open(file)?, None) {
            let record = record.map_err(|problem| InputError(format!("{}: {problem}", file.display())))?;
            logged.add(&record);
        }
    }
    let are_known = knows(&known.anchors, files, &logs, output);
    let rechecked = recheck(config, known, logged).map_err(|error| failed(&error))?;
    told(&rechecked, output);
    Ok(u8::from(!rechecked.differ.is_empty() || !are_known))
}

/// Whether the database knows these logs, and none besides.
fn knows(anchors: &Anchors, files: &[PathBuf], logs: &[Hash], output: &mut Output) -> bool {
    if anchors.logs.is_empty() {
        output.note("the database knows no audit log yet: start the gateway once, so that it knows how far the log has come");
        return true;
    }
    let mark = output.paint("31", "✗");
    let mut are_known = true;
    for (file, log) in files.iter().zip(logs) {
        if !anchors.logs.iter().any(|anchor| anchor.log == *log) {
            are_known = false;
            output.line(&format!("{mark} {}: the database does not know this log", file.display()));
        }
    }
    for anchor in anchors.logs.iter().filter(|anchor| !logs.contains(&anchor.log)) {
        are_known = false;
        let line = anchor.head.seq.saturating_add(1);
        let advice = if anchors.is_shared {
            "give the logs of all gateways that share it"
        } else {
            "it was cut off or replaced"
        };
        output.line(&format!(
            "{mark} the database knows a log that is not here, up to line {line} ({}), signed by {}: {advice}",
            anchor.head.hash, anchor.key
        ));
    }
    are_known
}

fn told(rechecked: &Rechecked, output: &mut Output) {
    let Rechecked { same, unkept, gone, earlier, unread, differ } = rechecked;
    let (color, mark) = if differ.is_empty() { ("32", "✓") } else { ("31", "✗") };
    let mark = output.paint(color, mark);
    output.line(&format!("{mark} {same} verdicts come to the same again"));
    if *unkept > 0 {
        output.line(&format!("  unkept    {unkept} of turns whose answers did not go out"));
    }
    if *gone > 0 {
        output.line(&format!(
            "  gone      {gone} of conversations that were deleted, or began anew under another policy"
        ));
    }
    if *earlier > 0 {
        output.line(&format!("  earlier   {earlier} that the database has from before the log was begun"));
    }
    if *unread > 0 {
        output.line(&format!(
            "  unread    {unread} conversations of the database whose policy has changed, or whose client is gone"
        ));
    }
    for difference in differ.iter().take(NAMED) {
        output.line(&format!("  differs   {}", visible::short(&difference.to_string(), 400)));
    }
    if differ.len() > NAMED {
        output.line(&format!("  differs   {} more", differ.len() - NAMED));
    }
}
