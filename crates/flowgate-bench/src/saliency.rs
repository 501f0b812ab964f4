//! Measures how well screeners find the regions of a prompt on which an output depends. Most screeners read the
//! attention or the gradients of a model (RTBAS, sections 3.3 and 7.2); one needs no model. `flowgate bench screeners`
//! calls [`run`] or [`run_traces`].
//!
//! A region is, for example, a document or the output of a tool. How a case is built determines which regions are
//! dependencies; [`CaseSet`] says what makes each set of cases difficult. Accuracy alone says little, since most
//! regions are not dependencies. The rows therefore also have the area under the ROC curve, and the false positives at
//! the threshold at which no dependency is missed: a missed dependency would be a wrong label, while a false positive
//! costs a question.
//!
//! * `labelled_prompt`, `case` and `beyond_values` generate the cases, and `traces` reads cases from runs of
//!   AgentDojo's ground truth.
//! * `score` scores the regions of a case; `split` trains the networks and chooses the thresholds, on cases that are
//!   not reported; `measure` computes the figures.
//! * `trained` trains a network for a conversation, without figures.
//! * `instruction` and `distribution` compute RTBAS's Figures 2 and 3.
//! * `report` formats the tables, and `drawing` draws the charts.

mod beyond_values;
pub mod case;
pub mod distribution;
mod drawing;
mod instruction;
mod labelled_prompt;
pub(crate) mod measure;
mod report;
mod score;
mod split;
pub mod traces;
mod trained;

use std::fmt;

use flowgate_lm::{
    AttentionModel, Error, FeatureSet, JacobianModel, RegionClassifier, RegionSummary, ScoringModel,
};

pub use case::{CaseSet, case_of_length};
pub use distribution::ScoreDistribution;
pub use drawing::{chart_files, page};
pub(crate) use instruction::INJECTION;
pub use labelled_prompt::DependencyCase;
pub use measure::ScreenerFigures;
pub use report::{csv_text, lines, manifest, table_text, trace_manifest};
pub use traces::{TraceCase, TraceCases};
pub use trained::{TrainedNetwork, train_screener, training_steps};

use score::{ScoredCase, score};
use split::{Split, measure};

/// A way to score the regions of a prompt: the higher the score of a region, the more likely the output depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenerScore {
    /// The share of the output's values that the region contains; values that the request contains do not count. Values
    /// are compared as in the guard's screener ([`DraftValues`](flowgate_guard::screener::attention::DraftValues)). It
    /// needs no model.
    SharedValues,
    /// The highest saliency of a token (RTBAS, Figure 2).
    Peak,
    /// The share of the saliency of all tokens that the tokens of the region have.
    Sum,
    /// The share of the saliency of all tokens that the tokens of the region have, where each token of the output has
    /// the same weight.
    SumPerToken,
    /// The share of the saliency that the region has for one token of the output: for the token with the greatest
    /// share.
    Strongest,
    /// The score of [`SumPerToken`](Self::SumPerToken), where the loss whose gradients are read is the margin between
    /// each token of the output and the likeliest other token.
    Margin,
    /// The attention of a token of the output to the region, in the head that attends most to it, averaged over the
    /// output.
    AttentionMass,
    /// The upper bound on what the output reveals of the region ([`JacobianModel`]), in nats.
    JacobianBound,
    /// The bound of [`JacobianBound`](Self::JacobianBound), divided by the sum of the bounds of all regions.
    JacobianShare,
    /// The low-rank estimate of what the output reveals of the region ([`JacobianModel`]), in nats.
    JacobianLowRank,
    /// The mean log-probability of a token of the output after a prompt from which all other regions are removed.
    LeaveOneIn,
    /// The network of RTBAS, section 7.2, which reads the features of all regions.
    Network,
    /// The same network, which also reads the features with equal weight of each token of the output, and the
    /// attention.
    NetworkExtended,
    /// The shared values, and then the extended network: a region that shares values scores above all regions that
    /// share none, and these have the score of the network. So a model can only add dependencies to those that shared
    /// values show. With the threshold of the extended network, this is the screener of a conversation.
    ValuesThenNetwork,
}

impl ScreenerScore {
    /// All screeners.
    pub const ALL: [Self; 14] = [
        Self::SharedValues,
        Self::Peak,
        Self::Sum,
        Self::SumPerToken,
        Self::Strongest,
        Self::Margin,
        Self::AttentionMass,
        Self::JacobianBound,
        Self::JacobianShare,
        Self::JacobianLowRank,
        Self::LeaveOneIn,
        Self::Network,
        Self::NetworkExtended,
        Self::ValuesThenNetwork,
    ];

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedValues => "shared values",
            Self::Peak => "saliency/peak",
            Self::Sum => "saliency/sum",
            Self::SumPerToken => "saliency/per-token",
            Self::Strongest => "saliency/strongest",
            Self::AttentionMass => "attention/mass",
            Self::Margin => "saliency/margin",
            Self::JacobianBound => "jacobian/bound",
            Self::JacobianShare => "jacobian/share",
            Self::JacobianLowRank => "jacobian/low-rank",
            Self::LeaveOneIn => "leave-one-in",
            Self::Network => "network",
            Self::NetworkExtended => "network/extended",
            Self::ValuesThenNetwork => "values, then network",
        }
    }
}

/// The regions of a prompt, each with its summary and whether the output depends on it.
pub type LabelledPrompt = Vec<(RegionSummary, bool)>;

/// A function that trains a network on prompts and returns it. The network reads the features of the given set. The
/// command line passes a function that calls `flowgate_lm::local::classifier`.
pub type TrainClassifier<'a> =
    dyn FnMut(FeatureSet, &[LabelledPrompt]) -> Result<Box<dyn RegionClassifier>, Error> + 'a;

/// A model that exposes its attention and its gradients, and scores texts.
pub trait InsideModel: AttentionModel + ScoringModel + JacobianModel {}

impl<T: AttentionModel + ScoringModel + JacobianModel> InsideModel for T {}

/// The figures of one screener on one set.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreenerRow {
    /// The name of the set.
    pub set: String,
    /// The screener.
    pub screener: ScreenerScore,
    /// The threshold, which was chosen on other cases.
    pub threshold: f64,
    /// The figures.
    pub figures: ScreenerFigures,
    /// The ROC curve, from the highest to the lowest threshold. A point has the share of the other regions that are
    /// named, and the share of the dependencies that are named.
    pub curve: Vec<(f64, f64)>,
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreenerResults {
    /// The figures of each screener on each set.
    pub rows: Vec<ScreenerRow>,
    /// The distributions of RTBAS's Figures 2 and 3.
    pub distributions: Vec<ScoreDistribution>,
}

/// Why a run has no results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenerError {
    /// The model or a network failed.
    Model(Error),
    /// The cases cannot be built or measured; with the reason, and what to do.
    Cases(String),
}

impl From<Error> for ScreenerError {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}

impl fmt::Display for ScreenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(error) => write!(f, "{error}"),
            Self::Cases(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for ScreenerError {}

/// A number that is combined with the seed of the run, so that the network is trained on cases that are not reported.
const TRAINING: u64 = 0x7472_6169;
/// A number that is combined with the seed of the run, so that the thresholds are chosen on cases that are not
/// reported.
const THRESHOLDS: u64 = 0x7468_7265;

/// Returns the number of calls of `step` that [`run`] makes with `cases` cases of each set, by which the command line
/// shows progress. In each set, `cases` cases are scored for training, as many for the thresholds, and as many for the
/// report. RTBAS's Figure 3 has `cases` calls that follow the user, and as many that follow an attacker.
pub fn steps(cases: usize) -> usize {
    (3 * CaseSet::ALL.len() + 2) * cases
}

/// Measures every screener on every set, with `cases` cases each. `seed` determines the cases and the projections of
/// the Jacobian bound. `train` trains the network. The training and the choice of the thresholds use further cases
/// that are not reported, from all sets but the one with unseen phrasings. RTBAS's Figure 2 has the regions of all
/// reported cases, and its Figure 3 has `cases` calls that follow the user and as many that follow an attacker. `step`
/// is called after each case; if it returns true (the user has interrupted the command), the result is `None`.
///
/// # Errors
/// If the model or the network fails, or the cases cannot be built from the seed.
pub fn run(
    model: &dyn InsideModel,
    train: &mut TrainClassifier<'_>,
    seed: u64,
    cases: usize,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<ScreenerResults>, ScreenerError> {
    // Builds the cases of all sets from a seed, and scores them; `None` if the user has interrupted the command.
    let mut score_all = |case_seed: u64| -> Result<Option<Vec<(CaseSet, ScoredCase)>>, ScreenerError> {
        let mut scored = Vec::new();
        for set in CaseSet::ALL {
            let generated = set.generate(case_seed, cases);
            let built = generated.ok_or_else(|| not_generated(set, case_seed))?;
            for case in &built {
                scored.push((set, score(model, case, seed)?));
                if step() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(scored))
    };
    // Seeds of their own give other cases to the training and to the choice of the thresholds.
    let Some(training) = score_all(seed ^ TRAINING)? else { return Ok(None) };
    let Some(choosing) = score_all(seed ^ THRESHOLDS)? else { return Ok(None) };
    let Some(reported) = score_all(seed)? else { return Ok(None) };
    let rows = measure(&split_by_set(&training, &choosing, &reported), train)?;
    let peaks: Vec<(f64, bool)> = reported.iter().flat_map(|(_, case)| case.peaks()).collect();
    let mut distributions = distribution::figure_2(&peaks).to_vec();
    let instruction_cases = instruction::generate(seed, cases);
    let Some(figure_3) = distribution::figure_3(model, &instruction_cases, step)? else { return Ok(None) };
    distributions.extend(figure_3);
    Ok(Some(ScreenerResults { rows, distributions }))
}

/// Returns the error for a seed from which no cases of a set can be built.
fn not_generated(set: CaseSet, seed: u64) -> ScreenerError {
    ScreenerError::Cases(format!(
        "no cases of the set `{}` can be built from the seed {seed}; use another seed",
        set.name()
    ))
}

/// Returns the number of calls of `step` that [`run_traces`] makes: two for each recorded call, one when it is scored
/// and one when RTBAS's Figure 3 counts it.
pub fn trace_steps(traces: &TraceCases) -> usize {
    2 * traces.cases.len()
}

/// Measures every screener on the calls of each suite of recorded runs, or of `suite` alone. For each suite, the
/// networks, which `train` trains, and the thresholds come from the calls of the other suites. The distributions have
/// the calls of all suites. `seed` determines the projections of the Jacobian bound. `step` is called twice for each
/// call; if it returns true (the user has interrupted the command), the result is `None`.
///
/// # Errors
/// If there are fewer than two suites or none of this name, or the model or a network fails.
pub fn run_traces(
    model: &dyn InsideModel,
    train: &mut TrainClassifier<'_>,
    seed: u64,
    traces: &TraceCases,
    suite: Option<&str>,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<ScreenerResults>, ScreenerError> {
    let suites = traces.suites();
    if suites.len() < 2 {
        let problem = "the traces have calls of fewer than two suites, but a screener is trained on suites other than the one on which it is measured; record a second suite";
        return Err(ScreenerError::Cases(problem.to_owned()));
    }
    if let Some(unknown) = suite.filter(|suite| !suites.iter().any(|known| known == suite)) {
        return Err(ScreenerError::Cases(format!(
            "the traces have no calls of the suite `{unknown}`; use one of {}",
            suites.join(", ")
        )));
    }
    let mut scored = Vec::with_capacity(traces.cases.len());
    for case in &traces.cases {
        scored.push(score(model, &case.case, seed)?);
        if step() {
            return Ok(None);
        }
    }
    // Each suite is measured with what was learned from the other ones.
    let mut rows = Vec::new();
    for suite in suites.iter().filter(|known| suite.is_none_or(|suite| suite == *known)) {
        let split = split_by_suite(traces, &scored, suite);
        rows.extend(measure(&split, train)?);
    }
    let peaks: Vec<(f64, bool)> = scored.iter().flat_map(ScoredCase::peaks).collect();
    let mut distributions = distribution::figure_2(&peaks).to_vec();
    let instruction_cases: Vec<_> = traces.cases.iter().map(TraceCase::instruction).collect();
    let Some(figure_3) = distribution::figure_3(model, &instruction_cases, step)? else { return Ok(None) };
    distributions.extend(figure_3);
    Ok(Some(ScreenerResults { rows, distributions }))
}

/// Divides scored calls: the calls of `suite` are reported. In the other suites, the calls of every second task train
/// the network, and the remaining calls choose the thresholds. The calls of one task stay together, because their
/// prompts share outputs of tools. `scored` has the scores of the calls of `traces`, in the same order.
fn split_by_suite<'c>(traces: &TraceCases, scored: &'c [ScoredCase], suite: &str) -> Split<'c> {
    // The tasks of the other suites, in the order of their first call. The position of a task is its number.
    let mut tasks: Vec<(&str, &str)> = Vec::new();
    let (mut training, mut choosing, mut reported) = (Vec::new(), Vec::new(), Vec::new());
    for (case, scored) in traces.cases.iter().zip(scored) {
        if case.suite == suite {
            reported.push(scored);
            continue;
        }
        let task = (case.suite.as_str(), case.task.as_str());
        let number = tasks.iter().position(|known| *known == task).unwrap_or_else(|| {
            tasks.push(task);
            tasks.len() - 1
        });
        if number % 2 == 0 { training.push(scored) } else { choosing.push(scored) }
    }
    Split { training, choosing, reported: vec![(suite.to_owned(), reported)] }
}

/// Divides generated cases: each set of `reported` is reported under its name. The cases of `training` train the
/// network, and those of `choosing` choose the thresholds. Cases with unseen phrasings do neither: their set measures
/// screeners on phrasings that the network was not trained on.
fn split_by_set<'c>(
    training: &'c [(CaseSet, ScoredCase)],
    choosing: &'c [(CaseSet, ScoredCase)],
    reported: &'c [(CaseSet, ScoredCase)],
) -> Split<'c> {
    let seen = |scored: &'c [(CaseSet, ScoredCase)]| -> Vec<&'c ScoredCase> {
        let seen = scored.iter().filter(|(set, _)| *set != CaseSet::UnseenPhrasing);
        seen.map(|(_, case)| case).collect()
    };
    let of_set = |set: CaseSet| {
        let cases = reported.iter().filter(|(other, _)| *other == set).map(|(_, case)| case);
        (set.name().to_owned(), cases.collect())
    };
    Split { training: seen(training), choosing: seen(choosing), reported: CaseSet::ALL.map(of_set).to_vec() }
}

#[cfg(test)]
mod tests;
