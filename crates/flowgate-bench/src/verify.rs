//! Verifies a recorded run of a benchmark: computes its manifest again, repeats the run, and compares every line.
//! `flowgate bench verify` calls [`verify`], which passes the games, the runs on folders of the user, and the runs of
//! local models to its submodules.
//!
//! A run of a double can be repeated from its manifest. A run of a real model can be repeated with the answers that
//! `--answers` kept; without them, [`verify`] refuses it, because the model may answer differently the next time. A
//! search for attacks takes minutes, so it is repeated only on demand; otherwise, its lines are left out of the
//! comparison, and [`verify`] reports that. A measurement that reads the inside of a model, such as its attention, is
//! repeated with a model that the program evaluates itself ([`LocalModels`]).
//!
//! A run is repeated if this code gives the same lines, even if other code recorded it: another version or digest of
//! the sources in the manifest gives a note, and no difference.

mod folders;
mod games;
mod lines;
mod local;
mod searches;

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_lm::ChatModel;
use serde_json::Value;

use self::folders::{CORPUS_PREFIX, needs_folder, verify_corpus, verify_injections};
use self::lines::{SkippedLines, compare, not_repeatable, number, string_list, text};
use crate::agents::{self, Guard};
use crate::code::screener_digest;
use crate::corpora::{CorpusFolder, load_news_pairs};
use crate::detectors;
use crate::games::TextSources;
use crate::policy_errors;
use crate::privacy::{self, AnswerSource, PrivacySuite};
use crate::propagation::{self, CopyingErrors, PropagationSuite, Size};

pub use local::{LocalModels, PropagationRun, ScreenerRun};
pub use searches::MAX_QUERIES;

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of recorded lines that equal those of the repeated run.
    pub repeated: usize,
    /// A text for each difference, such as `line 3: questions differs`. The run is confirmed if there is none.
    pub differences: Vec<String>,
    /// What differs without being a difference of the run: that other code recorded it.
    pub notes: Vec<String>,
    /// A text for each kind of line that was not compared, with the number of these lines.
    pub left_out: Vec<String>,
}

/// A function that opens the recorded answers of the model with the given name. The error says why they cannot be used.
pub type OpenAnswers<'a> = dyn Fn(&str) -> Result<Box<dyn ChatModel>, String> + 'a;

/// How a run is repeated.
#[derive(Clone, Copy, Default)]
pub struct VerifySettings<'a> {
    /// Opens the recorded answers of a real model; `None` if there are none.
    pub answers: Option<&'a OpenAnswers<'a>>,
    /// Whether the searches for attacks are repeated as well.
    pub repeats_searches: bool,
    /// Opens the recorded answers of the model that drove the attacker; `None` if there are none.
    pub attacker_answers: Option<&'a OpenAnswers<'a>>,
    /// The folder that the run read: a public benchmark, labelled texts or articles. `None` if it is not at hand.
    pub folder: Option<&'a dyn CorpusFolder>,
    /// The texts of folders that a run of the games read; `None` if they are not at hand.
    pub texts: Option<&'a TextSources>,
    /// The models that the program can evaluate itself; `None` if it evaluates none.
    pub local: Option<&'a dyn LocalModels>,
}

impl std::fmt::Debug for VerifySettings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifySettings")
            .field("has_answers", &self.answers.is_some())
            .field("repeats_searches", &self.repeats_searches)
            .field("has_attacker_answers", &self.attacker_answers.is_some())
            .field("has_folder", &self.folder.is_some())
            .field("has_texts", &self.texts.is_some())
            .field("has_local_models", &self.local.is_some())
            .finish()
    }
}

/// Verifies the lines of a run in the format jsonl, of which the first is the manifest. A difference between the
/// recorded and the repeated run is part of the result and not an error.
///
/// # Errors
/// If the run cannot be repeated, or the repeated run fails. A run cannot be repeated if
///
/// * the first line is not the manifest of a suite that this program has, or the manifest names something that it does
///   not have;
/// * it is a run of a real model, which is not at hand and has no recorded answers;
/// * it read a folder that is not at hand or has another form;
/// * its searches are to be repeated, and it has none.
pub fn verify(lines: &[Value], settings: VerifySettings<'_>) -> Result<Verification, String> {
    let manifest = lines.first().filter(|line| text(line, "type") == "manifest");
    let manifest = manifest.ok_or(
        "line 1 is not the manifest of a run; give a file that `flowgate bench` wrote with `--format jsonl`",
    )?;
    let answers = settings.answers;
    if settings.repeats_searches && manifest.get("search").is_none() {
        return Err(
            "line 1: the run records no search for attacks, so none can be repeated; leave `--searches` out, or record the run again with `--queries`"
                .to_owned(),
        );
    }
    match text(manifest, "suite") {
        "rtbas-privacy" => verify_privacy(manifest, lines, settings),
        "agentsecbench-games" => games::verify_games(manifest, lines, settings),
        "agentsecbench-extended" => games::verify_extended(manifest, lines, settings),
        "agentsecbench-paper" => games::verify_experiment(manifest, lines, answers),
        "detectors" => verify_detectors(manifest, lines),
        "agents" => verify_agents(manifest, lines),
        "attention-screeners" | "attention-screeners/traces" => {
            local::verify_screeners(manifest, lines, settings)
        }
        "permissive-propagation" => verify_propagation(manifest, lines, settings),
        "injection-detectors" => verify_injections(manifest, lines, settings.folder),
        corpus if corpus.starts_with(CORPUS_PREFIX) => verify_corpus(manifest, lines, settings.folder),
        other => Err(format!(
            "line 1 names the suite `{}`, whose runs this version of Flowgate cannot repeat; verify the file with the version that wrote it, or record the run again and compare the two files",
            other.escape_debug()
        )),
    }
}

/// Repeats a run of the privacy suite with the seed and the defences that the manifest names, and compares the lines
/// with the recorded ones. If the local model of the defence `attention` is not at hand, the lines of this defence are
/// left out. It is then a difference if they were not recorded with the screener's code of this program.
fn verify_privacy(
    manifest: &Value,
    lines: &[Value],
    settings: VerifySettings<'_>,
) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let name = text(manifest, "model");
    let recorded = if name == privacy::DOUBLE {
        None
    } else {
        let open = settings.answers.ok_or_else(|| not_repeatable(name))?;
        Some(open(name)?)
    };
    let source = recorded.as_deref().map_or(AnswerSource::Double, AnswerSource::Model);
    let named = string_list(manifest, "defences")?;
    let defences: Result<Vec<_>, _> =
        named.iter().map(|name| privacy::PrivacyDefence::parse(name, seed)).collect();
    let defences = defences.map_err(|error| format!("line 1: {error}"))?;
    let mut suite = PrivacySuite::new().map_err(|error| error.to_string())?;
    let seeds = games::seeds(manifest)?;
    // If the run has the defence `attention` and its local model is at hand, this becomes the description of the
    // screener that reads the attention now. Otherwise, the recorded description remains.
    let mut screener = manifest.get("screener").cloned();
    let mut reads_attention = false;
    if let (Some(recorded), Some(local)) = (&screener, settings.local)
        && defences.contains(&privacy::PrivacyDefence::Attention)
        && let Some((reader, description)) = local.attention_reader(recorded)?
    {
        suite = suite.with_attention(reader);
        screener = Some(description);
        reads_attention = true;
    }
    let mut results = Vec::new();
    let is_repeated = |defence: &&privacy::PrivacyDefence| {
        reads_attention || **defence != privacy::PrivacyDefence::Attention
    };
    for defence in defences.iter().filter(is_repeated) {
        // Nothing interrupts the repeated run, so each defence has a result.
        let mut is_cancelled = || false;
        let found = suite.run_defence_seeds(*defence, (seed, seeds), source, &mut is_cancelled);
        results.extend(found.map_err(|error| error.to_string())?);
    }
    let model = recorded.as_deref().map(ChatModel::name);
    let mut repeated_manifest = privacy::manifest((seed, seeds), &defences, suite.tasks().len(), model);
    if let Some(screener) = screener {
        repeated_manifest = privacy::with_screener(repeated_manifest, screener);
    }
    let mut repeated = vec![repeated_manifest];
    // `&[]`: no lines about defences that are not measured, since the comparison leaves out such lines.
    repeated.extend(privacy::report::lines(&results, seed, &[]));
    if reads_attention {
        return Ok(compare(lines, &repeated, &[UNMEASURED]));
    }
    let mut result = compare(lines, &repeated, &[ATTENTION, UNMEASURED]);
    if is_of_other_screener(manifest) {
        result.differences.push(STALE_ATTENTION.to_owned());
    }
    Ok(result)
}

/// Returns whether the manifest of a run with the defence `attention` names another digest of the screener's code than
/// that of this program. If the lines of this defence are not compared, only the digest shows whether this program
/// would record the same lines.
fn is_of_other_screener(manifest: &Value) -> bool {
    let of_this_program = screener_digest();
    let recorded = manifest.get("sha256").and_then(|sums| sums.get("screener"));
    // The digest of this program is null if the program was built without the sources of all crates.
    manifest.get("screener").is_some() && !of_this_program.is_null() && recorded != Some(&of_this_program)
}

/// The difference that is reported if the lines of the defence `attention` are not repeated, and other code of the
/// screener recorded them.
const STALE_ATTENTION: &str = "line 1: other code of the screener recorded the lines of the defence `attention`, which are not repeated; \
    repeat them with a program that was built with the feature `local`, or record the run again";

/// The lines of the defence that reads the attention of a local model, and the comparisons with it.
const ATTENTION: SkippedLines = ("the defence `attention`, which needs its local model", |line| {
    let name = privacy::PrivacyDefence::Attention.name();
    text(line, "type") != "unmeasured" && ["defence", "second"].iter().any(|field| text(line, field) == name)
});

/// The lines of defences that were not measured. The features of the program that recorded the run determine these
/// lines, so another program need not repeat them.
const UNMEASURED: SkippedLines =
    ("defences that were not measured", |line| text(line, "type") == "unmeasured");

/// Repeats a run of the tasks of agents with the methods that the manifest names, and compares the lines with the
/// recorded ones.
fn verify_agents(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    let guards = string_list(manifest, "methods")?;
    let guards: Result<Vec<Guard>, String> = guards.iter().map(|name| Guard::parse(name)).collect();
    let guards = guards.map_err(|error| format!("line 1: {error}"))?;
    let suite = agents::TaskSuite::new()?;
    let mut rows = Vec::new();
    for guard in &guards {
        // The callback returns whether the user has interrupted the run; here nobody can.
        rows.extend(suite.run_guard(*guard, &mut || false)?);
    }
    let mut repeated = vec![agents::manifest(seed, &guards)];
    repeated.extend(agents::report::lines(&guards, &rows, seed));
    // No kind of lines is left out of the comparison.
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the detectors with the built-in policy, and compares the lines with the recorded ones.
fn verify_detectors(manifest: &Value, lines: &[Value]) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    if text(manifest, "policy") != detectors::BUILTIN {
        return Err(format!(
            "line 1: the run used the policy file `{}`, and only runs with the built-in policy can be repeated; run `flowgate bench detectors --policy FILE --format jsonl` again, and compare its output with this file",
            text(manifest, "policy").escape_debug()
        ));
    }
    let policy = Policy::parse(detectors::POLICY).map_err(|errors| {
        format!(
            "the built-in policy cannot be used; this is a defect of Flowgate; please report it: {}",
            policy_errors::one_line(&errors)
        )
    })?;
    let rows = detectors::rows()?;
    // `|| false`: nothing interrupts the repeated run.
    let judged = detectors::JudgedRow::all(&Arc::new(policy), &rows, &mut || false)?;
    let figures = detectors::DetectorFigures::of(&judged);
    let mut repeated = vec![detectors::manifest(seed, detectors::BUILTIN, detectors::POLICY)];
    repeated.extend(detectors::report::lines(&judged, &figures, detectors::BUILTIN, seed));
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the propagation suite, and compares the lines with the recorded ones. The manifest names the seeds,
/// the size, and the doubles or the model, which must be one that the program evaluates itself.
fn verify_propagation(
    manifest: &Value,
    lines: &[Value],
    settings: VerifySettings<'_>,
) -> Result<Verification, String> {
    let seed = number(manifest, "seed")?;
    // Returns a number of the manifest, which must be from `least` to 1000.
    let count = |name, least: u64| {
        let count = number(manifest, name)?;
        let count = usize::try_from(count).ok().filter(|_| (least..=1000).contains(&count));
        count.ok_or_else(|| {
            format!("line 1: `{name}` is not from {least} to 1000; give a file that `flowgate bench propagation` wrote")
        })
    };
    // The first question is only an example, and two pairs are fewer articles than a context holds. The upper limit
    // bounds the time that a manipulated file can cost.
    let size = Size { questions: count("questions", 2)?, pairs: count("pairs", 3)? };
    let doubles = named_doubles(manifest)?;
    let seeds = games::seeds(manifest)?;
    let news = match manifest.get("files") {
        Some(_) => {
            let folder = settings.folder.ok_or_else(|| needs_folder("bench propagation --news"))?;
            Some(load_news_pairs(folder).map_err(|error| error.to_string())?)
        }
        None => None,
    };
    // The suite of one of the seeds, by the number of the seed from 0.
    let suite = |number: u64| {
        let suite = PropagationSuite::new(seed.wrapping_add(number), size)?;
        match &news {
            Some(found) => suite.with_news_pairs(found, size.pairs),
            None => Ok(suite),
        }
    };
    let suites: Vec<PropagationSuite> = (0..seeds).map(suite).collect::<Result<_, String>>()?;
    // The manifest of a run of doubles may lack a model.
    let model = text(manifest, "model");
    if !model.is_empty() && model != propagation::DOUBLE {
        let run = PropagationRun { model, size, batch: count("batch", 1)? };
        return local::verify_propagation_model(run, suites, lines, settings);
    }
    let mut results = Vec::new();
    for double in &doubles {
        // Nothing interrupts the repeated run, so each suite has a result.
        let runs = suites.iter().filter_map(|suite| suite.run(*double, &mut || false).transpose());
        results.push(runs.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?);
    }
    let literal: Vec<_> = suites.iter().filter_map(PropagationSuite::literal_cost).collect();
    let mut repeated = vec![propagation::manifest(&suites, size, &doubles)];
    repeated.extend(propagation::report::lines(&results, &literal));
    Ok(compare(lines, &repeated, &[]))
}

/// Returns the doubles that the manifest of a run of the propagation suite names.
fn named_doubles(manifest: &Value) -> Result<Vec<CopyingErrors>, String> {
    let double = |name: &String| {
        let found = CopyingErrors::parse(name);
        found.ok_or_else(|| {
            format!(
                "line 1: `doubles`: there is no double `{}`; use the version of Flowgate that wrote the file",
                name.escape_debug()
            )
        })
    };
    string_list(manifest, "doubles")?.iter().map(double).collect()
}

#[cfg(test)]
mod tests;
