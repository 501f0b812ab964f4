//! `flowgate audit verify`: whether a log is what was written.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use flowgate_gateway::audit::{Anchor, Contents, Expected, PublicKey, Summary, What, verify};

use super::contents;
use crate::args::KeptHead;
use crate::input::{self, InputError, policy_source};
use crate::output::Output;

/// What is known of a log beside what stands in it.
#[derive(Debug)]
pub(super) struct Options<'a> {
    pub(super) key: Option<&'a str>,
    pub(super) head: Option<KeptHead>,
    /// Whether lines that nobody has signed are an objection.
    pub(super) signed: bool,
}

/// Runs the command; returns the exit code.
pub(super) fn run(files: &[PathBuf], options: &Options<'_>, output: &mut Output) -> Result<u8, InputError> {
    let mut code = 0;
    for file in files {
        code = code.max(u8::from(one(file, options, &[], output)?.is_none()));
    }
    Ok(code)
}

/// Checks one log, and says what comes of it; nothing if it is not what was written.
pub(super) fn one(
    file: &Path,
    options: &Options<'_>,
    anchors: &[Anchor],
    output: &mut Output,
) -> Result<Option<Summary>, InputError> {
    let Options { key, head, signed } = options;
    let expected = Expected {
        key: key.map(public_key).transpose()?,
        hash: head.map(|head| head.hash),
        seq: head.and_then(|head| head.seq),
        anchors,
    };
    let name = file.display().to_string();
    let mut log = input::open(file)?;
    // Whoever reads the log from elsewhere has the log alone.
    let mut contents = if file == Path::new("-") { None } else { Some(contents::open(file)?) };
    let contents = contents.as_mut().map(|contents| contents as &mut dyn BufRead);
    match verify(&mut log, &expected, contents) {
        Ok(summary) => {
            let is_refused = *signed && summary.unsigned > 0;
            whole(&name, &summary, is_refused, output);
            if key.is_none() {
                output.note("the key is the log's own word; give the one that you know with --key");
            }
            if summary.unsigned > 0 {
                output.note(
                    "lines behind the last head are signed by nobody: the log is open, or its process was killed",
                );
            }
            Ok(Some(summary).filter(|_| !is_refused))
        }
        Err(problem) if matches!(problem.what, What::Read(_)) => {
            Err(InputError(format!("{name}: {problem}")))
        }
        Err(problem) => {
            let mark = output.paint("31", "✗");
            output.line(&format!("{mark} {name}: {problem}"));
            Ok(None)
        }
    }
}

fn whole(name: &str, summary: &Summary, is_refused: bool, output: &mut Output) {
    let mark = if is_refused { output.paint("31", "✗") } else { output.paint("32", "✓") };
    let count = |n: u64, word: &str| if n == 1 { format!("{n} {word}") } else { format!("{n} {word}s") };
    let signed = summary.lines.saturating_sub(summary.unsigned);
    let whole = if summary.unsigned == 0 { "is whole" } else { "is whole up to its last head" };
    output.line(&format!(
        "{mark} {name} {whole}: {} since {}, opened {}",
        count(signed, "line"),
        summary.begun,
        count(summary.openings, "time")
    ));
    output.line(&format!("  key       {}", summary.key));
    if let Some(head) = summary.head {
        output.line(&format!("  head      {} (line {})", head.hash, head.seq.saturating_add(1)));
    }
    let behind = if summary.unsigned == 0 { "" } else { " behind it, not verified" };
    output.line(&format!("  unsigned  {}{behind}", count(summary.unsigned, "line")));
    if let Some(anchor) = summary.anchor {
        let (line, hash) = (anchor.head.seq.saturating_add(1), anchor.head.hash);
        output.line(&format!("  database  knows it up to line {line} ({hash})"));
    }
    if summary.torn > 0 {
        output
            .line(&format!("  torn      {}, set aside when the log was opened", count(summary.torn, "line")));
    }
    let contents = summary.contents.filter(|contents| *contents != Contents::default());
    if let Some(Contents { kept, missing, forgotten, stray }) = contents {
        let mut line = format!("  content   {kept} kept, {} forgotten", missing.min(forgotten));
        if missing > forgotten {
            line += &format!(", {} missing that the log does not say were forgotten", missing - forgotten);
        }
        if forgotten > missing {
            line += &format!(", {} there again that the log says were forgotten", forgotten - missing);
        }
        if stray > 0 {
            line += &format!(", {stray} of no line yet");
        }
        output.line(&line);
    }
}

/// A key that is given by its digits, or by a file that has them.
fn public_key(given: &str) -> Result<PublicKey, InputError> {
    if let Some(key) = PublicKey::parse(&given.to_ascii_lowercase()) {
        return Ok(key);
    }
    let text = policy_source(Path::new(given))?;
    PublicKey::parse(&text.to_ascii_lowercase()).ok_or_else(|| {
        InputError(format!(
            "{given}: no public key: give 64 hexadecimal digits, as they stand in the `.pub` beside the gateway's key"
        ))
    })
}
