//! Measures how well screeners tell which regions of a prompt an output depends on, from the inside of a model (RTBAS, sections 3.3 and 7.2) and without
//! one.
//!
//! The dependencies are known by construction; [`CaseSet`] lists what makes each set difficult. The unit is a region, such as a document or the output of a
//! tool. Accuracy alone says little, since most regions are no dependency, so the rows also have the area under the curve and the false positives if no
//! dependency is missed: a missed dependency would be a wrong label, while a false one costs a question.
//!
//! * `case`: the cases; `measure`: the figures; `report`: the tables.

pub mod case;
mod measure;
mod report;

use flowgate_lm::{
    AttentionLoss, AttentionModel, AttentionRequest, Error, RegionClassifier, RegionFeatures, ScoreRequest,
    ScoringModel, TokenWeighting, block_on, region_features,
};

pub use case::{CaseSet, DependencyCase};
pub use measure::ScreenerFigures;
use measure::{best_threshold, figures};
pub use report::{lines, manifest, table_text};

/// A way to score regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screener {
    /// The share of the output's values that the region has, and the request has not: no model.
    SharedValues,
    /// The highest saliency of a token (RTBAS, Figure 2).
    Peak,
    /// The share of the saliency.
    Sum,
    /// The same, where each token of the output counts the same.
    SumPerToken,
    /// The same, with the margin to the likeliest other token as the loss.
    Margin,
    /// The probability of the output after this region alone.
    LeaveOneIn,
    /// The network of RTBAS, section 7.2, which reads the features of all regions.
    Network,
}

impl Screener {
    /// All screeners.
    pub const ALL: [Self; 7] = [
        Self::SharedValues,
        Self::Peak,
        Self::Sum,
        Self::SumPerToken,
        Self::Margin,
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
            Self::LeaveOneIn => "leave-one-in",
            Self::Network => "network",
        }
    }
}

/// The regions of a prompt, each with its features and whether the output depends on it.
pub type LabelledPrompt = Vec<(RegionFeatures, bool)>;

/// Trains a network on prompts.
pub type TrainClassifier<'a> = dyn FnMut(&[LabelledPrompt]) -> Result<Box<dyn RegionClassifier>, Error> + 'a;

/// A model that exposes its attention and scores texts.
pub trait InsideModel: AttentionModel + ScoringModel {}

impl<T: AttentionModel + ScoringModel> InsideModel for T {}

/// The figures of one screener on one set.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreenerRow {
    /// The set.
    pub set: CaseSet,
    /// The screener.
    pub screener: Screener,
    /// The threshold, which was chosen on other cases.
    pub threshold: f64,
    /// The figures.
    pub figures: ScreenerFigures,
}

/// The scores of the regions of one case.
struct ScoredCase {
    /// By the order of [`Screener::ALL`]; empty for the network, which is trained later.
    scores: Vec<Vec<f64>>,
    features: Vec<RegionFeatures>,
    depends: Vec<bool>,
}

/// The seeds of the cases on which the network is trained, and on which thresholds are chosen; the reported ones have the seed of the run.
const TRAINING: u64 = 0x7472_6169;
const THRESHOLDS: u64 = 0x7468_7265;

/// Returns the number of steps of a run, by which the command line shows progress.
pub fn steps(cases: usize) -> usize {
    3 * CaseSet::ALL.len() * cases
}

/// Measures every screener on every set, with `cases` cases each. The network and the thresholds come from other cases: of every set but that of unseen
/// phrasings. `step` is called after each case; if it returns true (the user has interrupted the command), the result is `None`.
///
/// # Errors
/// If the model or the network fails.
pub fn run(
    model: &dyn InsideModel,
    train: &mut TrainClassifier<'_>,
    seed: u64,
    cases: usize,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<ScreenerRow>>, Error> {
    let mut score_all = |seed: u64| -> Result<Option<Vec<(CaseSet, ScoredCase)>>, Error> {
        let mut scored = Vec::new();
        for set in CaseSet::ALL {
            let generated = set.generate(seed, cases);
            let built = generated.ok_or(Error::Unsupported("these cases; use another seed"))?;
            for case in &built {
                scored.push((set, score(model, case)?));
                if step() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(scored))
    };
    let Some(training) = score_all(seed ^ TRAINING)? else { return Ok(None) };
    let Some(mut choosing) = score_all(seed ^ THRESHOLDS)? else { return Ok(None) };
    let Some(mut reported) = score_all(seed)? else { return Ok(None) };
    let is_seen = |(set, _): &&(CaseSet, ScoredCase)| *set != CaseSet::UnseenPhrasing;
    let prompt = |(_, case): &(CaseSet, ScoredCase)| -> LabelledPrompt {
        case.features.iter().copied().zip(case.depends.iter().copied()).collect()
    };
    let prompts: Vec<_> = training.iter().filter(is_seen).map(prompt).collect();
    let network = train(&prompts)?;
    // The network is the last of the screeners, so its scores follow theirs.
    for (_, case) in choosing.iter_mut().chain(&mut reported) {
        case.scores.push(network.probabilities(&case.features)?);
    }
    // The scores of the screener with this index, each with whether the output depends on the region.
    let pairs = |scored: &[(CaseSet, ScoredCase)],
                 index: usize,
                 is_in: &dyn Fn(CaseSet) -> bool|
     -> Vec<(f64, bool)> {
        let cases = scored.iter().filter(|(set, _)| is_in(*set)).map(|(_, case)| case);
        cases
            .flat_map(|case| {
                case.scores
                    .get(index)
                    .into_iter()
                    .flatten()
                    .copied()
                    .zip(case.depends.iter().copied())
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let mut rows = Vec::new();
    for set in CaseSet::ALL {
        for (index, screener) in Screener::ALL.into_iter().enumerate() {
            let threshold = best_threshold(&pairs(&choosing, index, &|set| set != CaseSet::UnseenPhrasing));
            let found = figures(&pairs(&reported, index, &|other| other == set), threshold);
            rows.extend(found.map(|figures| ScreenerRow { set, screener, threshold, figures }));
        }
    }
    Ok(Some(rows))
}

/// Scores the regions of a case by every screener but the network, in the order of [`Screener::ALL`].
fn score(model: &dyn InsideModel, case: &DependencyCase) -> Result<ScoredCase, Error> {
    let attention = |loss| {
        model.attention(&AttentionRequest {
            prefix: None,
            prompt: &case.prompt,
            continuation: &case.output,
            loss,
        })
    };
    let plain = attention(AttentionLoss::NegativeLogProbability)?;
    let features = region_features(&plain, &case.regions, TokenWeighting::Plain);
    let per_token = region_features(&plain, &case.regions, TokenWeighting::PerToken);
    let margin = region_features(&attention(AttentionLoss::Margin)?, &case.regions, TokenWeighting::PerToken);
    let sums = |features: &[RegionFeatures]| features.iter().map(|region| region.sum).collect::<Vec<f64>>();
    let scores = vec![
        shared_values(case),
        features.iter().map(|region| region.peak).collect(),
        sums(&features),
        sums(&per_token),
        sums(&margin),
        leave_one_in(model, case)?,
    ];
    Ok(ScoredCase { scores, features, depends: case.depends.clone() })
}

/// Returns for each region the share of the output's values that the region contains. A value is a word with a digit
/// that the request does not contain.
fn shared_values(case: &DependencyCase) -> Vec<f64> {
    let values = |text: &str| -> Vec<String> {
        let is_inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ',');
        let pieces = text.split(|c| !is_inside(c)).map(|word| word.trim_matches(['.', ',', '-']));
        pieces.filter(|word| word.contains(|c: char| c.is_ascii_digit())).map(str::to_lowercase).collect()
    };
    let request = values(&case.request);
    let own: Vec<String> =
        values(&case.output).into_iter().filter(|value| !request.contains(value)).collect();
    let share = |region: &std::ops::Range<usize>| {
        let known = values(case.prompt.get(region.clone()).unwrap_or_default());
        own.iter().filter(|value| known.contains(value)).count() as f64 / own.len().max(1) as f64
    };
    case.regions.iter().map(share).collect()
}

/// Returns for each region the mean log-probability of a token of the output, if the prompt had no other region.
fn leave_one_in(model: &dyn InsideModel, case: &DependencyCase) -> Result<Vec<f64>, Error> {
    let (start, end) =
        (case.regions.first().map_or(0, |first| first.start), case.regions.last().map_or(0, |last| last.end));
    let text = |range: std::ops::Range<usize>| case.prompt.get(range).unwrap_or_default();
    let prompts: Vec<String> = case
        .regions
        .iter()
        .map(|region| format!("{}{}{}", text(0..start), text(region.clone()), text(end..case.prompt.len())))
        .collect();
    let request = |prompt| ScoreRequest { prefix: None, prompt, continuation: &case.output, bound: None };
    let requests: Vec<_> = prompts.iter().map(|prompt| request(prompt.as_str())).collect();
    let scores = block_on(model.score_batch(&requests))?;
    Ok(scores.iter().map(|score| -score.perplexity().ln()).collect())
}

#[cfg(test)]
mod tests {
    use flowgate_lm::{Attention, BoxFuture, Score, ScoredToken};

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
        let rows = rows.unwrap().unwrap();
        assert_eq!((calls, trained), (steps(6), 4 * 6));
        assert_eq!(rows.len(), CaseSet::ALL.len() * Screener::ALL.len());
        let area = |set, screener| {
            rows.iter().find(|row| row.set == set && row.screener == screener).unwrap().figures.area
        };
        assert!(area(CaseSet::Calls, Screener::SharedValues) > 0.99);
        // Values cannot tell the two regions with the same values apart.
        assert!(area(CaseSet::SameValue, Screener::SharedValues) < 0.95);
        assert_eq!(area(CaseSet::Calls, Screener::Network), 0.5);
        assert_eq!(area(CaseSet::Calls, Screener::LeaveOneIn), 0.5);
        let text = table_text("a double", &rows);
        assert!(text.contains("same value twice") && text.contains("saliency/margin"), "{text}");
        assert_eq!(lines(&rows).len(), rows.len());
        assert_eq!(run(&DigitModel, &mut |_| Ok(Box::new(Constant)), 1, 6, &mut || true).unwrap(), None);
    }
}
