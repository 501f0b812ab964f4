//! Runs `flowgate audit verify` without `--config`: checks that no line of a log was changed, removed or inserted. It
//! checks the hash chain, the signed heads, and what the options name: the public key, a line that the log must
//! contain, or the heads that a witness has received. `recheck` calls the same functions for `--config`.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use flowgate_audit::{
    AuditPublicKey, ContentCipher, ContentCounts, LogAnchor, LogExpectations, LogSummary, VerifyErrorKind,
    WitnessRecord, verify,
};

use super::{contents, witness};
use crate::args::ExternalHead;
use crate::input::{self, InputError, read_short_text};
use crate::output::{Console, plural};
use crate::progress::{INTERRUPTED, Progress};

/// What a log is checked against, besides its own hash chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct VerifyOptions<'a> {
    /// The public key that must have signed the log, in hexadecimal digits or as the path of a file.
    pub(super) key: Option<&'a str>,
    /// A line that the log must contain.
    pub(super) head: Option<ExternalHead>,
    /// The heads that a witness received, and the file that contains them.
    pub(super) witness: Option<(&'a Path, &'a WitnessRecord)>,
    /// Whether unsigned lines at the end of the log are an objection.
    pub(super) signed: bool,
    /// The cipher that decrypts contents. Without it, encrypted contents are not compared with the log.
    pub(super) cipher: Option<&'a dyn ContentCipher>,
}

/// Runs `flowgate audit verify` without a database: verifies each log and prints the results. Returns 1 if there is an
/// objection to one of them, [`INTERRUPTED`] after an interrupt, otherwise 0.
pub(super) fn run(
    files: &[PathBuf],
    options: &VerifyOptions<'_>,
    output: &mut Console,
) -> Result<u8, InputError> {
    // With the empty word, the progress counts bytes, and no items. `true`: show a progress line.
    let progress = Progress::over_files(files, "", true, output);
    let (mut are_valid, mut logs) = (true, Vec::new());
    for file in files {
        // `&[]`: without a database, there are no heads that the log must contain.
        let log = verify_log(file, options, &[], &progress, output)?;
        are_valid &= log.is_some();
        logs.extend(log);
    }
    if progress.finish(output) {
        return Ok(INTERRUPTED);
    }
    // The witness is checked first, so that its objections are printed even if a log is not valid.
    Ok(u8::from(!(check_witness(options, &logs, output) && are_valid)))
}

/// Checks logs against the heads that a witness received, if the command line names them, and prints objections.
/// Returns true if there is none.
pub(super) fn check_witness(options: &VerifyOptions<'_>, logs: &[LogSummary], output: &mut Console) -> bool {
    options.witness.is_none_or(|(file, witness)| witness::check_heads(file, witness, logs, output))
}

/// Verifies one log and prints the result. Returns its summary; `None` if there is an objection (the verification
/// failed, or `options.signed` is set and the log has unsigned lines), or if Ctrl-C interrupted the reading. `anchors`
/// are the heads that a database has recorded and that the log must contain; without a database, there are none.
///
/// # Errors
/// If a file or the key cannot be read.
pub(super) fn verify_log(
    file: &Path,
    options: &VerifyOptions<'_>,
    anchors: &[LogAnchor],
    progress: &Progress,
    output: &mut Console,
) -> Result<Option<LogSummary>, InputError> {
    let VerifyOptions { key, head, witness, signed, cipher } = options;
    let expected = LogExpectations {
        key: key.map(public_key).transpose()?,
        hash: head.map(|head| head.hash),
        seq: head.and_then(|head| head.seq),
        anchors,
        witness: witness.map(|(_, witness)| witness),
        content_cipher: *cipher,
    };
    let name = file.display().to_string();
    let mut log = input::open_counted(file, progress)?;
    // A log on the standard input has no content file.
    let mut contents = if file == Path::new("-") { None } else { Some(contents::open(file)?) };
    // `verify` takes any reader, as a trait object.
    let contents = contents.as_mut().map(|contents| contents as &mut dyn BufRead);
    let verified = verify(&mut log, &expected, contents);
    progress.clear();
    if progress.is_interrupted() {
        return Ok(None);
    }
    match verified {
        Ok(summary) => {
            let is_refused = *signed && summary.unsigned > 0;
            print_valid(&name, &summary, is_refused, output);
            if key.is_none() {
                output.note(
                    "the key was read from the log itself, which does not prove who wrote it; give the key \
                    that you know with `--key`",
                );
            }
            if summary.unsigned > 0 {
                output.note(
                    "lines after the last head are unsigned: the log is open, or its process was killed",
                );
            }
            Ok(Some(summary).filter(|_| !is_refused))
        }
        // A log that cannot be read is an error of the command, not a finding about the log.
        Err(problem) if matches!(problem.what, VerifyErrorKind::Read(_)) => {
            Err(InputError(format!("{name}: {problem}")))
        }
        Err(problem) => {
            let mark = output.paint("31", "✗");
            output.line(&format!("{mark} {name}: {problem}"));
            Ok(None)
        }
    }
}

/// Prints the summary of the log in the file `name`, whose hash chain is valid. `is_refused` says that the log has
/// unsigned lines although the options forbid them; the summary is then marked as an objection.
fn print_valid(name: &str, summary: &LogSummary, is_refused: bool, output: &mut Console) {
    let mark = if is_refused { output.paint("31", "✗") } else { output.paint("32", "✓") };
    // The lines up to the last head, which the head signs.
    let signed = summary.lines.saturating_sub(summary.unsigned);
    let whole = if summary.unsigned == 0 { "is whole" } else { "is whole up to its last head" };
    output.line(&format!(
        "{mark} {name} {whole}: {} since {}, opened {}",
        plural(signed, "line"),
        summary.begun,
        plural(summary.openings, "time")
    ));
    output.line(&format!("  key       {}", summary.key));
    // Below, lines are printed with numbers from 1; `seq` counts from 0.
    if let Some(head) = summary.head {
        output.line(&format!("  head      {} (line {})", head.hash, head.seq.saturating_add(1)));
    }
    let behind = if summary.unsigned == 0 { "" } else { " after it, not verified" };
    output.line(&format!("  unsigned  {}{behind}", plural(summary.unsigned, "line")));
    if let Some(anchor) = summary.anchor {
        let (line, hash) = (anchor.head.seq.saturating_add(1), anchor.head.hash);
        output.line(&format!("  database  knows it up to line {line} ({hash})"));
    }
    if let Some((count, head)) = summary.witnessed {
        let (line, hash) = (head.seq.saturating_add(1), head.hash);
        output.line(&format!("  witness   knows {count} of its heads, the last of line {line} ({hash})"));
    }
    if summary.torn > 0 {
        output.line(&format!(
            "  torn      {} that a killed process left incomplete, set aside when the log was opened",
            plural(summary.torn, "line")
        ));
    }
    let contents = summary.contents.filter(|contents| *contents != ContentCounts::default());
    if let Some(ContentCounts { kept, missing, forgotten, stray, sealed }) = contents {
        // Each recorded deletion explains one missing content.
        let mut line = format!("  content   {kept} kept, {} forgotten", missing.min(forgotten));
        if missing > forgotten {
            line += &format!(", {} missing without a record of their deletion", missing - forgotten);
        }
        if forgotten > missing {
            line += &format!(", {} present although the log records their deletion", forgotten - missing);
        }
        if sealed > 0 {
            line += &format!(", {sealed} encrypted and not checked: give their keys with `--config`");
        }
        if stray > 0 {
            line += &format!(", {stray} without a line in the log");
        }
        output.line(&line);
    }
}

/// Parses a public key that is given as hexadecimal digits, or as the path of a file that contains them.
fn public_key(given: &str) -> Result<AuditPublicKey, InputError> {
    if let Some(key) = AuditPublicKey::parse(&given.to_ascii_lowercase()) {
        return Ok(key);
    }
    let text = read_short_text(Path::new(given))?;
    AuditPublicKey::parse(&text.to_ascii_lowercase()).ok_or_else(|| {
        InputError(format!(
            "{given}: the file or the value is not a public key; give 64 hexadecimal digits, as in the \
            `.pub` file beside the gateway's key"
        ))
    })
}
