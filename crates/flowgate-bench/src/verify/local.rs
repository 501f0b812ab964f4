//! Repeats, for [`verify`](super), the runs whose model is evaluated in this process and not by a server: the screeners of
//! `flowgate bench screeners`, and the propagation suite with a model in a folder. [`LocalModels`] supplies the models.
//! Other submodules also take models from it, for the defence `attention` of the privacy suite and for attention
//! blocking in the games.
//!
//! This crate loads no weights: the program that calls it implements [`LocalModels`].

use std::sync::Arc;

use flowgate_guard::screener::attention::AttentionReader;
use flowgate_lm::BlockingModel;
use serde_json::Value;

use super::lines::{compare, number, text};
use super::{Verification, VerifySettings};
use crate::propagation::{PropagationSuite, Size};

/// The maximum number of cases of a set in a run of `bench screeners`, which is also that of the option `--cases`. It
/// bounds the time that a manipulated file can cost.
const MAX_CASES: u64 = 10_000;
/// The suite of a run over recorded calls.
const OF_TRACES: &str = "attention-screeners/traces";

/// A run of `flowgate bench screeners`, as its manifest describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenerRun<'a> {
    /// The name of the model.
    pub model: &'a str,
    /// The seed.
    pub seed: u64,
    /// The number of cases of each set, or the maximum number of calls drawn from each suite.
    pub cases: usize,
    /// The maximum length of a prompt in bytes, if the cases are calls of recorded runs; `None` if they are generated.
    pub prompt_limit: Option<usize>,
}

/// A run of the propagation suite with a model, as its manifest describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropagationRun<'a> {
    /// The name of the model.
    pub model: &'a str,
    /// The numbers of questions.
    pub size: Size,
    /// The most subcontexts that the model scores at once.
    pub batch: usize,
}

/// The models that a program can evaluate itself.
pub trait LocalModels {
    /// Returns the reader of attention for a run of the privacy suite, and its description for the manifest. `screener`
    /// is the description in the manifest of the recorded run. `None` if the model or the network of the reader is not
    /// at hand.
    ///
    /// # Errors
    /// If the model or the network cannot be loaded, or the training fails.
    fn attention_reader(&self, screener: &Value) -> Result<Option<(AttentionReader, Value)>, String>;

    /// Repeats a run of `flowgate bench screeners`, and returns its lines from the manifest on. `None` if the model is
    /// not at hand.
    ///
    /// # Errors
    /// If the model cannot be loaded, the recorded calls are not at hand or have another form, or the run fails.
    fn screener_lines(&self, run: ScreenerRun<'_>) -> Result<Option<Vec<Value>>, String>;

    /// Runs the propagation suites, one for each seed, with a model, and returns the lines of the run from the manifest
    /// on. `None` if the model is not at hand.
    ///
    /// # Errors
    /// If the model cannot be loaded, or the run fails.
    fn propagation_lines(
        &self,
        run: PropagationRun<'_>,
        suites: Vec<PropagationSuite>,
    ) -> Result<Option<Vec<Value>>, String>;

    /// Returns the model of this name as one that can block attention; `None` if it is not at hand.
    ///
    /// # Errors
    /// If the model cannot be loaded.
    fn blocking_model(&self, model: &str) -> Result<Option<Arc<dyn BlockingModel>>, String>;
}

/// Repeats a run of the screeners, and compares the lines with the recorded ones. The manifest names the model, the
/// seed, the number of cases and, for a run over recorded calls, the maximum length of a prompt.
pub(super) fn verify_screeners(
    manifest: &Value,
    lines: &[Value],
    settings: VerifySettings<'_>,
) -> Result<Verification, String> {
    let model = text(manifest, "model");
    let cases = number(manifest, "cases")?;
    let cases = usize::try_from(cases).ok().filter(|_| (1..=MAX_CASES).contains(&cases));
    let cases = cases.ok_or_else(|| {
        format!("line 1: `cases` is not from 1 to {MAX_CASES}; give a file that `flowgate bench` wrote")
    })?;
    let prompt_limit = match text(manifest, "suite") {
        OF_TRACES => Some(usize::try_from(number(manifest, "prompt_limit")?).unwrap_or(usize::MAX)),
        _ => None,
    };
    let run = ScreenerRun { model, seed: number(manifest, "seed")?, cases, prompt_limit };
    let local = settings.local.ok_or_else(|| not_at_hand(model, settings))?;
    let repeated = local.screener_lines(run)?.ok_or_else(|| not_at_hand(model, settings))?;
    Ok(compare(lines, &repeated, &[]))
}

/// Repeats a run of the propagation suite with a model, and compares the lines with the recorded ones.
pub(super) fn verify_propagation_model(
    run: PropagationRun<'_>,
    suites: Vec<PropagationSuite>,
    lines: &[Value],
    settings: VerifySettings<'_>,
) -> Result<Verification, String> {
    let missing = || not_at_hand(run.model, settings);
    // The error is the same if the program evaluates no models at all and if it does not have this one.
    let repeated = settings.local.ok_or_else(missing)?.propagation_lines(run, suites)?.ok_or_else(missing)?;
    Ok(compare(lines, &repeated, &[]))
}

/// Returns the error for a run of a model that the program cannot evaluate: it has no local models at all, or not this
/// one.
fn not_at_hand(model: &str, settings: VerifySettings<'_>) -> String {
    let advice = match settings.local {
        Some(_) => {
            "if the model is in a folder or a GGUF file, name it with `--local`; if the model is on a server, its \
             answers are not kept, so run the command that wrote this file again"
        }
        None => {
            "if the model is in a folder or a GGUF file, use a program that was built with the feature `local`, and \
             name the model with `--local`; if the model is on a server, its answers are not kept, so run the command \
             that wrote this file again"
        }
    };
    format!(
        "line 1: the run of the model `{}` cannot be repeated without this model; {advice}",
        model.escape_debug()
    )
}
