//! `flowgate audit verify`: whether a log is what was written.

use std::io::BufRead;
use std::path::Path;

use flowgate_gateway::audit::{Contents, Expected, Hash, PublicKey, Summary, What, verify};

use super::contents;
use crate::input::{self, InputError, policy_source};
use crate::output::Output;

/// Runs the command; returns the exit code.
pub(crate) fn run(
    file: &Path,
    key: Option<&str>,
    head: Option<Hash>,
    output: &mut Output,
) -> Result<u8, InputError> {
    let expected = Expected { key: key.map(public_key).transpose()?, hash: head, seq: None };
    let name = file.display();
    let mut log = input::open(file)?;
    // Whoever reads the log from elsewhere has the log alone.
    let mut contents = if file == Path::new("-") { None } else { Some(contents::open(file)?) };
    let contents = contents.as_mut().map(|contents| contents as &mut dyn BufRead);
    match verify(&mut log, &expected, contents) {
        Ok(summary) => {
            whole(&name.to_string(), &summary, output);
            if key.is_none() {
                output.note("the key is the log's own word; give the one that you know with --key");
            }
            if summary.unsigned > 0 {
                output.note(
                    "lines behind the last head are signed by nobody: the log is open, or its process was killed",
                );
            }
            Ok(0)
        }
        Err(problem) if matches!(problem.what, What::Read(_)) => {
            Err(InputError(format!("{name}: {problem}")))
        }
        Err(problem) => {
            let mark = output.paint("31", "✗");
            output.line(&format!("{mark} {name}: {problem}"));
            Ok(1)
        }
    }
}

fn whole(name: &str, summary: &Summary, output: &mut Output) {
    let mark = output.paint("32", "✓");
    let count = |n: u64, word: &str| if n == 1 { format!("{n} {word}") } else { format!("{n} {word}s") };
    output.line(&format!(
        "{mark} {name} is whole: {} since {}, opened {}",
        count(summary.lines, "line"),
        summary.begun,
        count(summary.openings, "time")
    ));
    output.line(&format!("  key       {}", summary.key));
    if let Some(head) = summary.head {
        output.line(&format!("  head      {} (line {})", head.hash, head.seq.saturating_add(1)));
    }
    output.line(&format!("  unsigned  {}", count(summary.unsigned, "line")));
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
