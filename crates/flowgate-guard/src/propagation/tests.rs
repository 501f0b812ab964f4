//! Tests of searches with a scoring model, and of the wrapper, over a double that copies.

use std::sync::Mutex;

use flowgate::label::{Label, LabelSpan};
use flowgate_lm::{BoxFuture, Error, Prefix, Score, ScoreRequest, ScoredToken, ScoringModel, block_on};

use super::test_labels::{documents, element, flat_labels};
use super::*;

/// A double: a word of the completion has probability 0.9 if the prompt has it, and 0.01 otherwise.
#[derive(Default)]
struct CopyingDouble {
    prompts: Mutex<Vec<String>>,
    /// The beginnings that were prepared.
    evaluated: Mutex<Vec<String>>,
    fails: bool,
}

impl ScoringModel for CopyingDouble {
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        let score = |request: &ScoreRequest<'_>| {
            let prompt = request.whole_prompt();
            let mut score = Score::default();
            for word in request.continuation.split_whitespace() {
                let is_known = prompt.split_whitespace().any(|known| known == word);
                let logprob = if is_known { 0.9_f64.ln() } else { 0.01_f64.ln() };
                score.tokens.push(ScoredToken { text: word.to_owned(), logprob });
                score.is_stopped = request.bound.is_some_and(|bound| score.logprob() < bound);
                if score.is_stopped {
                    break;
                }
            }
            self.prompts.lock().unwrap().push(prompt);
            score
        };
        let failed = Err(Error::Unsupported("scores"));
        let result = if self.fails { failed } else { Ok(requests.iter().map(score).collect()) };
        Box::pin(std::future::ready(result))
    }

    fn prefix<'a>(
        &'a self,
        parent: Option<&'a Prefix>,
        text: &'a str,
    ) -> BoxFuture<'a, Result<Prefix, Error>> {
        let prefix = Prefix::new(parent, text, None);
        self.evaluated.lock().unwrap().push(prefix.text().to_owned());
        Box::pin(std::future::ready(Ok(prefix)))
    }
}

/// A double that answers with the words of a fixed answer that the prompt has.
struct ExtractingDouble(&'static str);

impl AnswerModel for ExtractingDouble {
    fn answer<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, Result<String, Error>> {
        let is_known = |word: &&str| prompt.split_whitespace().any(|known| known == *word);
        let answer = self.0.split_whitespace().filter(is_known).collect::<Vec<_>>().join(" ");
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

fn context(texts: &[&str], labels: &[Label]) -> LabelledContext {
    let document =
        |(text, label): (&&str, &Label)| LabelledDocument { text: (*text).to_owned(), label: *label };
    LabelledContext {
        preamble: "Documents :\n".to_owned(),
        documents: texts.iter().zip(labels).map(document).collect(),
        question: "Answer :".to_owned(),
        question_label: Label::BOTTOM,
    }
}

/// Trusted and untrusted.
fn chain() -> [Label; 2] {
    let flat = flat_labels(1);
    [Label::BOTTOM, flat[0]]
}

fn search(
    model: &CopyingDouble,
    context: &LabelledContext,
    completion: &str,
    options: &PropagationOptions,
) -> (Vec<String>, SimilarLabels, Cost) {
    let span = LabelSpan::new(&context.labels()).unwrap();
    let task = ScoringTask { model, utility: &NegativePerplexity, context, completion, count: &words };
    let mut scorer = block_on(ContextScorer::new(task, span.clone())).unwrap();
    let found = block_on(find_labels(&mut scorer, options)).unwrap();
    let names = found.elements.iter().map(|element| documents(&span, *element)).collect();
    (names, found, scorer.cost())
}

/// Figure 4 of the paper: the facts of two people in four documents.
#[test]
fn both_searches_find_all_minimal_labels() {
    let texts = ["p1 ssn S1 dob D1", "p2 ssn S2", "p2 dob D2", "p2 ssn S2 dob D2"];
    let context = context(&texts, &flat_labels(4));
    for search_kind in [SearchKind::Literal, SearchKind::HittingSet] {
        for batch in [1, 3] {
            let options = PropagationOptions { search: search_kind, batch, ..PropagationOptions::default() };
            let (names, found, _) = search(&CopyingDouble::default(), &context, "S1 D1 S2 D2", &options);
            assert_eq!(names, ["abc", "ad"], "{search_kind:?}");
            assert!(found.is_complete);
        }
    }
}

#[test]
fn a_budget_falls_back_to_the_naive_label() {
    let texts = ["S1", "S2", "S3", "S4"];
    let context = context(&texts, &flat_labels(4));
    for search_kind in [SearchKind::Literal, SearchKind::HittingSet] {
        let options = PropagationOptions { search: search_kind, budget: 0, ..PropagationOptions::default() };
        let (names, found, cost) = search(&CopyingDouble::default(), &context, "S1", &options);
        assert_eq!((names, found.is_complete, cost.calls), (vec!["abcd".to_owned()], false, 1));
    }
}

#[test]
fn a_chain_costs_little_more_than_one_pass() {
    let [low, high] = chain();
    let long = "word ".repeat(200);
    let texts = [format!("{long} S1"), format!("{long} other")];
    let context = context(&[&texts[1], &texts[0]], &[high, low]);
    let (names, _, cost) = search(&CopyingDouble::default(), &context, "S1", &PropagationOptions::default());
    // The trusted document, which is the second one, is sufficient.
    assert_eq!(names, ["b"]);
    // The context, and the trusted document, whose label is the least one.
    assert_eq!((cost.calls, cost.stopped), (2, 0));
    assert!(cost.processed_tokens * 10 < cost.forward_tokens * 12, "{cost:?}");
    assert!(cost.unshared_tokens > cost.forward_tokens * 13 / 10, "{cost:?}");
}

/// A word that was said by an untrusted source alone is endorsed as soon as a trusted one repeats it (section 6.1).
#[test]
fn quoting_endorses() {
    let [low, high] = chain();
    let check = |trusted: &str, expected: &str| {
        let context = context(&["run pip-clean", trusted], &[high, low]);
        let (names, ..) =
            search(&CopyingDouble::default(), &context, "pip-clean", &PropagationOptions::default());
        assert_eq!(names, [expected], "{trusted}");
    };
    check("see the manual", "ab");
    check("IT confirms: run pip-clean", "b");
}

#[test]
fn a_goal_may_cost_more_utility() {
    let [low, high] = chain();
    let context = context(&["S1 S2 S3 S4", "S1 S2 S3"], &[high, low]);
    let find = |goal| {
        let options = PropagationOptions { goal, ..PropagationOptions::default() };
        search(&CopyingDouble::default(), &context, "S1 S2 S3 S4", &options).0
    };
    assert_eq!(find(None), ["ab"]);
    assert_eq!(find(Some(Goal { label: low, lambda: 1.0 })), ["ab"]);
    assert_eq!(find(Some(Goal { label: low, lambda: 5.0 })), ["b"]);
    let span = LabelSpan::new(&context.labels()).unwrap();
    let (model, count) = (CopyingDouble::default(), words);
    let task = ScoringTask {
        model: &model,
        utility: &NegativePerplexity,
        context: &context,
        completion: "S1 S2 S3 S4",
        count: &count,
    };
    let mut scorer = block_on(ContextScorer::new(task, span)).unwrap();
    let loss = block_on(loss_at(&mut scorer, &low)).unwrap();
    let perplexity = |known: i32| (0.9_f64.powi(known) * 0.01_f64.powi(4 - known)).powf(-0.25);
    assert!((loss - (perplexity(3) - perplexity(4))).abs() < 1e-9, "{loss}");
}

/// Prunings may lose labels, and never return one that is not sufficient.
#[test]
fn prunings_are_sound() {
    let texts = ["S1", "S2", "S1 S2", "none", "none"];
    let context = context(&texts, &flat_labels(5));
    let options = PropagationOptions { leave_one_in: Some(0.1), ..PropagationOptions::default() };
    assert_eq!(search(&CopyingDouble::default(), &context, "S1 S2", &options).0, ["ab", "c"]);
    // No single document adds as much: the whole context is searched.
    let options = PropagationOptions { leave_one_in: Some(1e9), ..PropagationOptions::default() };
    assert_eq!(search(&CopyingDouble::default(), &context, "S1 S2", &options).0, ["ab", "c"]);
    let prune = |threshold| {
        let shapley = Some(ShapleyPruning { threshold, permutations: 20, seed: 1 });
        let options = PropagationOptions { shapley, ..PropagationOptions::default() };
        search(&CopyingDouble::default(), &context, "S1 S2", &options).0
    };
    assert_eq!(prune(1e-6), ["ab", "c"]);
    // The third document has the greatest value.
    assert_eq!(prune(34.0), ["c"]);
    assert_eq!(prune(1e9), ["abcde"], "the naive label");
}

/// Whatever the options ask for, no more subcontexts are scored than the budget allows, besides the context, and a
/// result for which the budget was too small says so.
#[test]
fn one_budget_covers_the_search_and_the_prunings() {
    let texts = ["S1", "S2", "S1 S2", "none", "none"];
    let labels = flat_labels(5);
    let context = context(&texts, &labels);
    let shapley = Some(ShapleyPruning { threshold: 1e-6, permutations: 4, seed: 1 });
    let goal = Some(Goal { label: labels[3], lambda: 1e9 });
    let plain = PropagationOptions::default();
    for (name, options) in [
        ("plain", plain.clone()),
        ("shapley", PropagationOptions { shapley, ..plain.clone() }),
        ("leave one in", PropagationOptions { leave_one_in: Some(0.1), ..plain.clone() }),
        ("goal", PropagationOptions { goal, ..plain.clone() }),
        ("all", PropagationOptions { shapley, leave_one_in: Some(0.1), goal, ..plain }),
    ] {
        let find = |budget| {
            let options = PropagationOptions { budget, ..options.clone() };
            search(&CopyingDouble::default(), &context, "S1 S2", &options)
        };
        let (names, whole, _) = find(1000);
        assert!(whole.is_complete, "{name}");
        for budget in 0..=whole.tests {
            let (found, result, cost) = find(budget);
            assert!(result.tests <= budget, "{name} {budget}: {result:?}");
            assert!(cost.calls <= budget + 1, "{name} {budget}: {cost:?}");
            if budget == whole.tests {
                assert_eq!((&found, result.is_complete), (&names, true), "{name} {budget}");
            }
        }
    }
    // The values are exact where the budget allows it, sampled with an error where it does not, or missing.
    let values = |budget| {
        let options = PropagationOptions { shapley, budget, ..PropagationOptions::default() };
        let (_, result, _) = search(&CopyingDouble::default(), &context, "S1 S2", &options);
        (result.shapley.map(|values| values.errors.iter().any(|error| *error > 0.0)), result.is_complete)
    };
    assert_eq!(values(1000), (Some(false), true));
    assert_eq!(values(25), (Some(true), true));
    assert_eq!(values(3), (None, false));
}

fn propagator<'a>(
    answers: &'a ExtractingDouble,
    scores: &'a CopyingDouble,
    choose: &'a (dyn Fn(&[Candidate]) -> usize + Send + Sync),
) -> Propagator<'a> {
    let (utility, options) = (&NegativePerplexity, PropagationOptions::default());
    Propagator { answers, scores, utility, options, count: &words, choose }
}

#[test]
fn the_answer_is_regenerated_at_the_chosen_label() {
    let labels = flat_labels(3);
    let texts = ["S1 first", "S1 second", "other third"];
    let context = context(&texts, &labels);
    let (answers, scores) = (ExtractingDouble("S1 first second third"), CopyingDouble::default());
    for (bound, expected) in [(0, "S1 first"), (1, "S1 second")] {
        let choose = |candidates: &[Candidate]| prefer(candidates, &[labels[2], labels[bound]]);
        let result =
            block_on(propagator(&answers, &scores, &choose).propagate(&context, Some("S1"))).unwrap();
        assert_eq!((result.answer.as_str(), result.label), (expected, labels[bound]));
        assert_eq!((result.documents, result.candidates.len(), result.choice_bits), (vec![bound], 2, 3));
        assert_eq!(result.naive_label, labels[0].join(&labels[1]).join(&labels[2]));
    }
    // With the model's own answer, every document is needed.
    let choose = |_: &[Candidate]| 0;
    let result = block_on(propagator(&answers, &scores, &choose).propagate(&context, None)).unwrap();
    assert_eq!((result.answer.as_str(), result.label), ("S1 first second third", result.naive_label));
}

/// Whatever the scoring model says, an answer with a lower label contains nothing of the other documents; where it
/// fails, the label is the naive one.
#[test]
fn safety_does_not_depend_on_the_scores() {
    struct ContraryScores;
    impl ScoringModel for ContraryScores {
        fn score_batch<'a>(
            &'a self,
            requests: &'a [ScoreRequest<'a>],
        ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
            let token = ScoredToken { text: "all".to_owned(), logprob: -1.0 };
            let score = Score { tokens: vec![token], is_stopped: false };
            Box::pin(std::future::ready(Ok(vec![score; requests.len()])))
        }
    }
    let [low, high] = chain();
    let context = context(&["secret S1", "public S2"], &[high, low]);
    let answers = ExtractingDouble("secret S1 public S2");
    let choose = |_: &[Candidate]| 0;
    let copying = CopyingDouble::default();
    let contrary = Propagator { scores: &ContraryScores, ..propagator(&answers, &copying, &choose) };
    let result = block_on(contrary.propagate(&context, None)).unwrap();
    assert_eq!((result.answer.as_str(), result.label), ("public S2", low));
    let failing = CopyingDouble { fails: true, ..CopyingDouble::default() };
    let result = block_on(propagator(&answers, &failing, &choose).propagate(&context, None)).unwrap();
    assert_eq!((result.label, result.failure.is_some()), (high, true));
    assert_eq!(result.answer, "secret S1 public S2");
    // A label that is known beforehand: the other document is not retrieved.
    assert_eq!(block_on(answer_at(&answers, &context, &low)).unwrap(), "public S2");
}

/// The documents of a subcontext follow each other in the order of their labels, and an element is scored once.
#[test]
fn subcontexts_share_their_beginnings() {
    let texts = ["S1", "S2", "S3"];
    let context = context(&texts, &flat_labels(3));
    let model = CopyingDouble::default();
    let span = LabelSpan::new(&context.labels()).unwrap();
    let task = ScoringTask {
        model: &model,
        utility: &NegativePerplexity,
        context: &context,
        completion: "S1",
        count: &words,
    };
    let mut scorer = block_on(ContextScorer::new(task, span.clone())).unwrap();
    let elements = [element(&span, "ab"), element(&span, "ac"), element(&span, "ab")];
    block_on(scorer.utilities(&elements[..2])).unwrap();
    block_on(scorer.utilities(&elements)).unwrap();
    let prompts = model.prompts.lock().unwrap().clone();
    assert_eq!(prompts[1..], ["Documents :\nS1\nS2\nAnswer :", "Documents :\nS1\nS3\nAnswer :"]);
    // The preamble of two words and three documents once; S3 again after S1; three questions and answers.
    assert_eq!(scorer.cost().processed_tokens, 2 + 3 + 1 + 3 * (2 + 1));
    assert_eq!(scorer.cost().calls, 3);
}

/// The beginning that all subcontexts share is evaluated once, also where there are far more subcontexts than
/// beginnings that are stored.
#[test]
fn the_shared_beginning_is_evaluated_once() {
    let texts = ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10"];
    let context = context(&texts, &flat_labels(texts.len()));
    let model = CopyingDouble::default();
    let span = LabelSpan::new(&context.labels()).unwrap();
    let task = ScoringTask {
        model: &model,
        utility: &NegativePerplexity,
        context: &context,
        completion: "S1",
        count: &words,
    };
    let all = span.elements(usize::MAX).unwrap();
    assert!(all.len() > 3 * MAX_PREFIXES, "{}", all.len());
    let mut scorer = block_on(ContextScorer::new(task, span)).unwrap();
    block_on(scorer.utilities(&all)).unwrap();
    let evaluated = model.evaluated.lock().unwrap().clone();
    assert_eq!(evaluated.iter().filter(|text| *text == "Documents :\n").count(), 1);
}
