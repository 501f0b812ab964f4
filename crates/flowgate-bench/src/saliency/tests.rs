//! Tests of the measurement of screeners, with a double in place of a model.

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
        let bounds = request.prompt.bytes().map(|byte| f64::from(u8::from(byte.is_ascii_digit()))).collect();
        Ok(InformationBounds { tokens, bounds, products: Vec::new() })
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
    fn probabilities(&self, regions: &[RegionSummary]) -> Result<Vec<f64>, Error> {
        Ok(vec![0.5; regions.len()])
    }
}

#[test]
fn a_run_has_every_row_and_shared_values_find_copies() {
    let mut calls = 0;
    let mut trained = 0;
    let rows = run(
        &DigitModel,
        &mut |_, prompts| {
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
    assert_eq!((calls, trained), (steps(6), 7 * 6));
    assert_eq!(rows.len(), CaseSet::ALL.len() * ScreenerScore::ALL.len());
    let area = |set: CaseSet, screener| {
        rows.iter().find(|row| row.set == set.name() && row.screener == screener).unwrap().figures.area
    };
    assert!(area(CaseSet::Calls, ScreenerScore::SharedValues) > 0.99);
    // Values cannot tell the two regions with the same values apart.
    assert!(area(CaseSet::SameValue, ScreenerScore::SharedValues) < 0.95);
    // The guard compares dates by their meaning.
    assert_eq!(area(CaseSet::Reformatted, ScreenerScore::SharedValues), 1.0);
    // No region has a value of the output, or all values are in the request.
    for set in [CaseSet::Derived, CaseSet::InWords, CaseSet::ToolChoice] {
        assert_eq!(area(set, ScreenerScore::SharedValues), 0.5, "{}", set.name());
    }
    // The guard names a region with any shared value, and otherwise by the threshold of its network.
    let threshold = |screener| -> Vec<f64> {
        rows.iter().filter(|row| row.screener == screener).map(|row| row.threshold).collect()
    };
    assert_eq!(threshold(ScreenerScore::SharedValues), vec![f64::MIN_POSITIVE; CaseSet::ALL.len()]);
    assert_eq!(threshold(ScreenerScore::NetworkExtended), vec![0.5; CaseSet::ALL.len()]);
    assert_eq!(threshold(ScreenerScore::ValuesThenNetwork), vec![0.5; CaseSet::ALL.len()]);
    // The constant network changes nothing where values decide.
    assert!(area(CaseSet::Calls, ScreenerScore::ValuesThenNetwork) > 0.99);
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
    assert!(page.contains("Figure 3b") && page.matches("<svg").count() == CaseSet::ALL.len() + 3, "{page}");
    assert!(!page.contains("http"));
    let names: Vec<String> = chart_files(&results).into_iter().map(|(name, _)| name).collect();
    let expected = [
        "roc-documents.svg",
        "roc-unseen-phrasing.svg",
        "roc-calls.svg",
        "roc-same-value-twice.svg",
        "roc-reformatted.svg",
        "roc-derived.svg",
        "roc-in-words.svg",
        "roc-choice-of-the-tool.svg",
        "figure-2.svg",
        "figure-3a.svg",
        "figure-3b.svg",
    ];
    assert_eq!(names, expected);
    assert_eq!(run(&DigitModel, &mut |_, _| Ok(Box::new(Constant)), 1, 6, &mut || true).unwrap(), None);
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
    for (suite, task) in [("banking", "1"), ("slack", "1"), ("banking", "2"), ("slack", "2"), ("slack", "3")]
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
    let mut train = |_: FeatureSet, prompts: &[LabelledPrompt]| -> Result<Box<dyn RegionClassifier>, Error> {
        trained.push(prompts.len());
        Ok(Box::new(Constant))
    };
    let mut calls = 0;
    let mut step = || {
        calls += 1;
        false
    };
    let results = run_traces(&DigitModel, &mut train, 1, &traces, None, &mut step).unwrap().unwrap();
    // Of three and two tasks, two and one train two networks, with two calls each.
    assert_eq!((trained, calls), (vec![4, 4, 2, 2], trace_steps(&traces)));
    assert_eq!(results.rows.len(), 2 * ScreenerScore::ALL.len());
    let copied =
        results.rows.iter().find(|row| row.set == "slack" && row.screener == ScreenerScore::SharedValues);
    assert_eq!(copied.unwrap().figures.area, 1.0);
    assert_eq!(copied.unwrap().figures.counts, (3, 6));
    let injected = results.distributions.iter().filter(|distribution| distribution.figure == "3b");
    assert_eq!(injected.map(|distribution| distribution.scores.len()).sum::<usize>(), 0);
    let one = |suite: &str| {
        let train =
            &mut |_: FeatureSet, _: &[LabelledPrompt]| Ok(Box::new(Constant) as Box<dyn RegionClassifier>);
        run_traces(&DigitModel, train, 1, &traces, Some(suite), &mut || false)
    };
    let of_slack = one("slack").unwrap().unwrap();
    assert_eq!(of_slack.rows, results.rows[ScreenerScore::ALL.len()..]);
    let error = one("travel").unwrap_err();
    assert!(
        error.to_string().contains("no calls of the suite `travel`; use one of banking, slack"),
        "{error}"
    );
    traces.cases.retain(|case| case.suite == "slack");
    let error = run_traces(&DigitModel, &mut |_, _| Ok(Box::new(Constant)), 1, &traces, None, &mut || false)
        .unwrap_err();
    assert!(error.to_string().contains("fewer than two suites"), "{error}");
}
