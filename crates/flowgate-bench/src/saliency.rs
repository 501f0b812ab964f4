//! Measures how well screeners tell on which regions of a prompt an output depends. Most screeners read the attention or the gradients of a model (RTBAS,
//! sections 3.3 and 7.2), one needs no model. `flowgate bench screeners` calls [`run`] or [`run_traces`].
//!
//! The dependencies are known by construction; [`CaseSet`] lists what makes each set difficult. The unit is a region, such as a document or the output of a
//! tool. Accuracy alone says little, since most regions are no dependency, so the rows also have the area under the curve and the false positives if no
//! dependency is missed: a missed dependency would be a wrong label, while a false one costs a question.
//!
//! * `case`: the cases; `score`: the scores of their regions; `split`: what is trained, chosen and reported on which cases; `measure`: the figures.
//! * `traces`: cases from runs of AgentDojo's ground truth.
//! * `instruction` and `distribution`: RTBAS's Figures 2 and 3.
//! * `report`: the tables; `drawing`: the charts.

pub mod case;
pub mod distribution;
mod drawing;
mod instruction;
pub(crate) mod measure;
mod report;
mod score;
mod split;
pub mod traces;

use flowgate_lm::{AttentionModel, Error, JacobianModel, RegionClassifier, RegionFeatures, ScoringModel};

pub use case::{CaseSet, DependencyCase};
pub use distribution::ScoreDistribution;
pub use drawing::{chart_files, page};
pub use measure::ScreenerFigures;
pub use report::{csv_text, lines, manifest, table_text, trace_manifest};
pub use traces::{TraceCase, TraceCases};

use score::{ScoredCase, score};
use split::{Split, measure};

/// A way to score the regions of a prompt: the higher the score of a region, the more likely the output depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenerScore {
    /// The share of the output's values that the region contains, without those of the request. It needs no model.
    SharedValues,
    /// The highest saliency of a token (RTBAS, Figure 2).
    Peak,
    /// The share of the saliency of all tokens that the tokens of the region have.
    Sum,
    /// The share of the saliency, where each token of the output has the same weight.
    SumPerToken,
    /// The share of the saliency per token of the output, with the margin to the likeliest other token as the loss.
    Margin,
    /// The upper bound on what the output reveals of the region ([`JacobianModel`]), in nats.
    JacobianBound,
    /// The bound of [`JacobianBound`](Self::JacobianBound), divided by the sum of the bounds of all regions.
    JacobianShare,
    /// The probability of the output after this region alone.
    LeaveOneIn,
    /// The network of RTBAS, section 7.2, which reads the features of all regions.
    Network,
}

impl ScreenerScore {
    /// All screeners.
    pub const ALL: [Self; 9] = [
        Self::SharedValues,
        Self::Peak,
        Self::Sum,
        Self::SumPerToken,
        Self::Margin,
        Self::JacobianBound,
        Self::JacobianShare,
        Self::LeaveOneIn,
        Self::Network,
    ];

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedValues => "shared values",
            Self::Peak => "saliency/peak",
            Self::Sum => "saliency/sum",
            Self::SumPerToken => "saliency/per-token",
            Self::Margin => "saliency/margin",
            Self::JacobianBound => "jacobian/bound",
            Self::JacobianShare => "jacobian/share",
            Self::LeaveOneIn => "leave-one-in",
            Self::Network => "network",
        }
    }
}

/// The regions of a prompt, each with its features and whether the output depends on it.
pub type LabelledPrompt = Vec<(RegionFeatures, bool)>;

/// A function that trains a network on prompts and returns it. The command line passes one that calls `flowgate_lm::local::classifier`.
pub type TrainClassifier<'a> = dyn FnMut(&[LabelledPrompt]) -> Result<Box<dyn RegionClassifier>, Error> + 'a;

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
    /// The ROC curve: for each threshold the share of the other regions and the share of the dependencies that are named.
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

/// A number that is combined with the seed of the run, so that the network is trained on other cases than the reported
/// ones.
const TRAINING: u64 = 0x7472_6169;
/// A number that is combined with the seed of the run, so that the thresholds are chosen on other cases than the
/// reported ones.
const THRESHOLDS: u64 = 0x7468_7265;

/// Returns the number of calls of `step` that [`run`] makes with `cases` cases of each set, by which the command line
/// shows progress. Every case is scored for training, for thresholds and for the report, and RTBAS's Figure 3 has two
/// further cases for each.
pub fn steps(cases: usize) -> usize {
    (3 * CaseSet::ALL.len() + 2) * cases
}

/// Measures every screener on every set, with `cases` cases each. The network is trained, and the thresholds are
/// chosen, on other cases of all sets except unseen phrasings. RTBAS's Figure 2 has the regions of all reported cases,
/// and its Figure 3 has `cases` calls that follow the user and as many that follow an attacker. `step` is called after
/// each case; if it returns true (the user has interrupted the command), the result is `None`.
///
/// # Errors
/// If the model or the network fails.
pub fn run(
    model: &dyn InsideModel,
    train: &mut TrainClassifier<'_>,
    seed: u64,
    cases: usize,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<ScreenerResults>, Error> {
    // Builds the cases of all sets from a seed, and scores them; `None` if the user has interrupted the command.
    let mut score_all = |case_seed: u64| -> Result<Option<Vec<(CaseSet, ScoredCase)>>, Error> {
        let mut scored = Vec::new();
        for set in CaseSet::ALL {
            let generated = set.generate(case_seed, cases);
            let built = generated.ok_or_else(|| {
                Error::Failed(format!(
                    "no cases of the set `{}` can be built from the seed {case_seed}; use another seed",
                    set.name()
                ))
            })?;
            for case in &built {
                scored.push((set, score(model, case, seed)?));
                if step() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(scored))
    };
    let Some(training) = score_all(seed ^ TRAINING)? else { return Ok(None) };
    let Some(choosing) = score_all(seed ^ THRESHOLDS)? else { return Ok(None) };
    let Some(reported) = score_all(seed)? else { return Ok(None) };
    let rows = measure(&split_by_set(&training, &choosing, &reported), train)?;
    let peaks: Vec<(f64, bool)> = reported.iter().flat_map(|(_, case)| case.peaks()).collect();
    let mut distributions = distribution::figure_2(&peaks).to_vec();
    let followed = instruction::generate(seed, cases);
    let Some(figure_3) = distribution::figure_3(model, &followed, step)? else { return Ok(None) };
    distributions.extend(figure_3);
    Ok(Some(ScreenerResults { rows, distributions }))
}

/// Returns the number of calls of `step` that [`run_traces`] makes: two for each recorded call, one when it is scored
/// and one when RTBAS's Figure 3 counts it.
pub fn trace_steps(traces: &TraceCases) -> usize {
    2 * traces.cases.len()
}

/// Measures every screener on the calls of each suite of recorded runs. For each suite, the network and the thresholds come from the calls of the other
/// suites. The distributions have the calls of all suites. `step` is called twice for each call; if it returns true (the user has interrupted the
/// command), the result is `None`.
///
/// # Errors
/// If there are fewer than two suites, or the model or the network fails.
pub fn run_traces(
    model: &dyn InsideModel,
    train: &mut TrainClassifier<'_>,
    seed: u64,
    traces: &TraceCases,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<ScreenerResults>, Error> {
    let suites = traces.suites();
    if suites.len() < 2 {
        let problem = "the traces have calls of fewer than two suites, but a suite is measured with what was learned from others; record more suites";
        return Err(Error::Failed(problem.to_owned()));
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
    for suite in &suites {
        let split = split_by_suite(traces, &scored, suite);
        rows.extend(measure(&split, train)?);
    }
    let peaks: Vec<(f64, bool)> = scored.iter().flat_map(ScoredCase::peaks).collect();
    let mut distributions = distribution::figure_2(&peaks).to_vec();
    let followed: Vec<_> = traces.cases.iter().map(TraceCase::instruction).collect();
    let Some(figure_3) = distribution::figure_3(model, &followed, step)? else { return Ok(None) };
    distributions.extend(figure_3);
    Ok(Some(ScreenerResults { rows, distributions }))
}

/// Divides scored calls: the calls of `suite` are reported. In the other suites, the calls of every second task train
/// the network, and the remaining calls choose the thresholds. `scored` has the scores of the calls of `traces`, in the
/// same order.
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
/// network, and those of `choosing` choose the thresholds, except those with unseen phrasings.
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
mod tests {
    use flowgate_lm::{
        Attention, AttentionRequest, BoxFuture, InformationBounds, JacobianRequest, Score, ScoreRequest,
        ScoredToken,
    };

    use super::*;

    /// A double that attends to each byte of the prompt that is a digit, and scores nothing.
    struct DigitModel;

    impl AttentionModel for DigitModel {
        fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
            let tokens: Vec<_> = (0..request.prompt.len()).map(|at| at..at + 1).collect();
            let weights = request.prompt.bytes().map(|byte| f32::from(u8::from(byte.is_ascii_digit())));
            let weights: Vec<f32> = weights.collect();
            let gradients = vec![1.0; weights.len()];
            let output = std::iter::once(0..request.continuation.len()).collect();
            Attention::new(tokens, output, (1, 1), weights, gradients).ok_or(Error::Unsupported("this shape"))
        }
    }

    impl JacobianModel for DigitModel {
        /// Each digit has a bound of 1 nat.
        fn information_bounds(&self, request: &JacobianRequest<'_>) -> Result<InformationBounds, Error> {
            let tokens = (0..request.prompt.len()).map(|at| at..at + 1).collect();
            let bounds =
                request.prompt.bytes().map(|byte| f64::from(u8::from(byte.is_ascii_digit()))).collect();
            Ok(InformationBounds { tokens, bounds })
        }
    }

    impl ScoringModel for DigitModel {
        fn score_batch<'a>(
            &'a self,
            requests: &'a [ScoreRequest<'a>],
        ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
            let token = ScoredToken { text: String::new(), logprob: -1.0 };
            let score = Score { tokens: vec![token], is_stopped: false };
            Box::pin(async move { Ok(vec![score; requests.len()]) })
        }
    }

    struct Constant;

    impl RegionClassifier for Constant {
        fn probabilities(&self, regions: &[RegionFeatures]) -> Result<Vec<f64>, Error> {
            Ok(vec![0.5; regions.len()])
        }
    }

    #[test]
    fn a_run_has_every_row_and_shared_values_find_copies() {
        let mut calls = 0;
        let mut trained = 0;
        let rows = run(
            &DigitModel,
            &mut |prompts| {
                trained = prompts.len();
                Ok(Box::new(Constant))
            },
            1,
            6,
            &mut || {
                calls += 1;
                false
            },
        );
        let results = rows.unwrap().unwrap();
        let rows = &results.rows;
        assert_eq!((calls, trained), (steps(6), 4 * 6));
        assert_eq!(rows.len(), CaseSet::ALL.len() * ScreenerScore::ALL.len());
        let area = |set: CaseSet, screener| {
            rows.iter().find(|row| row.set == set.name() && row.screener == screener).unwrap().figures.area
        };
        assert!(area(CaseSet::Calls, ScreenerScore::SharedValues) > 0.99);
        // Values cannot tell the two regions with the same values apart.
        assert!(area(CaseSet::SameValue, ScreenerScore::SharedValues) < 0.95);
        assert_eq!(area(CaseSet::Calls, ScreenerScore::Network), 0.5);
        // The bound and its share differ by a factor that is the same within a case.
        assert!(area(CaseSet::Calls, ScreenerScore::JacobianBound) > 0.0);
        assert_eq!(area(CaseSet::Calls, ScreenerScore::LeaveOneIn), 0.5);
        // Every region of a case counts in Figure 2, and each case of Figure 3 in two of its distributions.
        let count = |figure: &str| -> Vec<usize> {
            let of = results.distributions.iter().filter(|distribution| distribution.figure == figure);
            of.map(|distribution| distribution.scores.len()).collect()
        };
        let regions = |screener| -> usize {
            let of = rows.iter().filter(|row| row.screener == screener);
            of.map(|row| row.figures.counts.0 + row.figures.counts.1).sum()
        };
        assert_eq!(count("2").iter().sum::<usize>(), regions(ScreenerScore::Peak));
        assert_eq!((count("3a"), count("3b")), (vec![6, 6], vec![6, 6]));
        let text = table_text("a double", &results);
        assert!(text.contains("same value twice") && text.contains("saliency/margin"), "{text}");
        // A line for each row, for each curve and for each distribution.
        assert_eq!(lines(&results).len(), 2 * rows.len() + 6);
        assert_eq!(csv_text(&results).lines().count(), 1 + rows.len());
        let page = page("a double", &results, &manifest(1, 6, "a double"));
        assert!(
            page.contains("Figure 3b") && page.matches("<svg").count() == CaseSet::ALL.len() + 3,
            "{page}"
        );
        assert!(!page.contains("http"));
        let names: Vec<String> = chart_files(&results).into_iter().map(|(name, _)| name).collect();
        let expected = [
            "roc-documents.svg",
            "roc-unseen-phrasing.svg",
            "roc-calls.svg",
            "roc-same-value-twice.svg",
            "roc-reformatted.svg",
            "figure-2.svg",
            "figure-3a.svg",
            "figure-3b.svg",
        ];
        assert_eq!(names, expected);
        assert_eq!(run(&DigitModel, &mut |_| Ok(Box::new(Constant)), 1, 6, &mut || true).unwrap(), None);
    }

    /// Two suites of two tasks, whose calls copy from one of two outputs.
    #[test]
    fn a_suite_is_measured_with_what_others_teach() {
        let call = |name: &str, value: &str| {
            let arguments = serde_json::json!({"value": value}).to_string();
            let function = serde_json::json!({"name": name, "arguments": arguments});
            serde_json::json!({"role": "assistant", "tool_calls": [{"function": function}], "origin": "user"})
        };
        let output = |text: &str| serde_json::json!({"role": "tool", "content": text});
        let mut traces = TraceCases::default();
        for (suite, task) in
            [("banking", "1"), ("slack", "1"), ("banking", "2"), ("slack", "2"), ("slack", "3")]
        {
            let messages = serde_json::json!([
                {"role": "user", "content": "Copy the number."},
                call("read", "number"), output("nothing"),
                call("read", "number"), output("it is 4711"),
                call("write", "4711"),
            ]);
            let run = serde_json::json!({"suite": suite, "user_task_id": task, "messages": messages});
            traces.add_run(&run, 1000).unwrap();
        }
        // The second reading has an output before it, on which it does not depend; the first has none.
        assert_eq!((traces.cases.len(), traces.without_outputs, traces.unknown), (10, 5, 0));
        let mut trained = Vec::new();
        let mut train =
            |prompts: &[Vec<(RegionFeatures, bool)>]| -> Result<Box<dyn RegionClassifier>, Error> {
                trained.push(prompts.len());
                Ok(Box::new(Constant))
            };
        let mut calls = 0;
        let mut step = || {
            calls += 1;
            false
        };
        let results = run_traces(&DigitModel, &mut train, 1, &traces, &mut step).unwrap().unwrap();
        // Of three and two tasks, two and one train, with two calls each.
        assert_eq!((trained, calls), (vec![4, 2], trace_steps(&traces)));
        assert_eq!(results.rows.len(), 2 * ScreenerScore::ALL.len());
        let copied =
            results.rows.iter().find(|row| row.set == "slack" && row.screener == ScreenerScore::SharedValues);
        assert_eq!(copied.unwrap().figures.area, 1.0);
        assert_eq!(copied.unwrap().figures.counts, (3, 6));
        let injected = results.distributions.iter().filter(|distribution| distribution.figure == "3b");
        assert_eq!(injected.map(|distribution| distribution.scores.len()).sum::<usize>(), 0);
        traces.cases.retain(|case| case.suite == "slack");
        let error =
            run_traces(&DigitModel, &mut |_| Ok(Box::new(Constant)), 1, &traces, &mut || false).unwrap_err();
        assert!(error.to_string().contains("fewer than two suites"), "{error}");
    }
}
