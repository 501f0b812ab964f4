//! Measures detectors, such as those for prompt injections, on customer feedback with attacks, and compares them with a flow rule, as Table 1 of *AI
//! Agents with Formal Security Guarantees* does. `flowgate bench detectors` is the command.
//!
//! A detector examines the text of a customer. A flow rule examines which answers of tools the agent had seen before it
//! sent its message. The monitor computes the rule's verdicts on the complete runs; none is taken from the paper
//! or written into the data.
//!
//! `feedback` builds the runs, `figures` computes the figures, [`report`] formats them, `manifest` identifies a run, and
//! `resume` reads the rows of an interrupted run. [`learned`](mod@learned) is a detector with learned weights, which is
//! trained on the texts of [`generated`].

mod feedback;
mod figures;
pub mod generated;
pub mod learned;
mod manifest;
pub mod report;
mod resume;

use std::sync::Arc;

use flowgate::detect::{self, Classifier, injection, markup, moderation, unicode};
use flowgate::monitor::{Judgement, Outcome};
use flowgate::policy::Policy;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::influence::everything::EverythingMethod;
use flowgate_guard::replay::replay;
use serde_json::{Map, Value, json};

use feedback::FeedbackScenario;

pub use feedback::{FeedbackRow, rows};
pub use figures::DetectorFigures;
pub use manifest::{BUILTIN, manifest};

/// The policy of the measurement, with the flow rule, if no other is named.
pub const POLICY: &str = include_str!("../data/link-preview.flow");

/// The result of one detector for a row.
#[derive(Debug, Default, PartialEq)]
struct DetectorResult {
    /// A score from 0 to 1, or the number of findings.
    score: f64,
    /// The kinds of the findings.
    kinds: Vec<String>,
}

impl DetectorResult {
    /// Returns the result of a detector that lists findings. `kinds` has the kind of each finding, and the score is
    /// their number.
    fn count(kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let kinds: Vec<String> = kinds.into_iter().map(Into::into).collect();
        Self { score: kinds.len() as f64, kinds }
    }

    /// Returns whether a rule of a policy would match: the score is at least 0.5, the default threshold of the policy
    /// language. For a detector that counts findings, one finding suffices.
    fn is_flagged(&self) -> bool {
        self.score >= 0.5
    }

    /// Returns the kinds of the findings, sorted, each once.
    fn distinct_kinds(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.kinds.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// A detector of this measurement.
struct Detector {
    /// Its name in the output.
    name: &'static str,
    /// Whether its score is a number of findings; otherwise it is between 0 and 1.
    counts: bool,
    detect: fn(&str) -> DetectorResult,
}

/// The detectors, in the order of the columns of the table.
const DETECTORS: [Detector; 7] = [
    Detector { name: "injection", counts: false, detect: injection },
    Detector { name: "learned", counts: false, detect: learned },
    Detector { name: "hidden", counts: true, detect: hidden },
    Detector { name: "moderation", counts: false, detect: moderation },
    Detector { name: "pii", counts: true, detect: |text| count_kinds(detect::personal_data(text)) },
    Detector { name: "secrets", counts: true, detect: |text| count_kinds(detect::secrets(text)) },
    Detector { name: "link", counts: true, detect: leaking_links },
];

/// Returns the result of a detector that lists findings: their number and kinds.
fn count_kinds(findings: impl IntoIterator<Item = detect::Finding>) -> DetectorResult {
    DetectorResult::count(findings.into_iter().map(|finding| finding.kind))
}

/// Detects prompt injections.
fn injection(text: &str) -> DetectorResult {
    let found = injection::find(text);
    DetectorResult { score: found.score, ..count_kinds(found.findings) }
}

/// Detects prompt injections by the small classifier with learned weights.
fn learned(text: &str) -> DetectorResult {
    let score = learned::score(text);
    let kinds = if score >= 0.5 { vec![learned::LABEL.to_owned()] } else { Vec::new() };
    DetectorResult { score, kinds }
}

/// Detects invisible characters, and text that HTML hides.
fn hidden(text: &str) -> DetectorResult {
    let characters = unicode::find_hidden(text).into_iter().map(|finding| finding.kind);
    DetectorResult::count(characters.chain(markup::parse(text).hidden_texts.iter().map(|_| "HIDDEN_MARKUP")))
}

/// Detects harmful content by a lexicon: the highest score of all categories counts.
fn moderation(text: &str) -> DetectorResult {
    let scores = moderation::lexicon().classify(text);
    let score = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    DetectorResult { score, kinds: scores.into_iter().map(|(category, _)| category).collect() }
}

/// Detects links and images whose URL looks like data exfiltration, each URL once.
fn leaking_links(text: &str) -> DetectorResult {
    let found = markup::parse(text);
    let mut urls: Vec<&str> = found.links.iter().chain(&found.images).map(|link| link.url.as_str()).collect();
    urls.sort_unstable();
    urls.dedup();
    DetectorResult::count(
        urls.into_iter().filter(|url| markup::is_exfiltration_shaped(url)).map(|_| "LEAKING_LINK"),
    )
}

/// Examines the feedback of one row with a detector. An attack may be split into several texts, which are examined
/// separately, as the agent reads them. The total score is the sum if the detector counts findings, and otherwise the
/// highest of the scores between 0 and 1.
fn examine(detector: &Detector, row: &FeedbackRow) -> DetectorResult {
    row.feedback.iter().map(|text| (detector.detect)(text)).fold(
        DetectorResult::default(),
        |mut total, result| {
            total.score =
                if detector.counts { total.score + result.score } else { total.score.max(result.score) };
            total.kinds.extend(result.kinds);
            total
        },
    )
}

/// Returns all ways to request a link preview, as values of the argument `link_preview`. They are the explicit `true`,
/// the default (`None`: the argument is missing), and two other values that a lenient messenger accepts as true.
fn previews() -> [Option<Value>; 4] {
    [Some(json!(true)), None, Some(json!("true")), Some(json!(1))]
}

/// The flow rule's verdicts on a message with and without a preview.
#[derive(Debug, Clone, PartialEq)]
struct PreviewVerdicts {
    /// The mildest verdict over all ways to request a preview.
    preview: Outcome,
    /// The verdict without a preview.
    plain: Outcome,
    /// The reason why a preview is not permitted.
    reason: Option<String>,
}

impl PreviewVerdicts {
    /// Judges the run in which the agent reads the feedback of `scene` and sends `text` to a messenger, once without a
    /// link preview and once for each way to request one. For a preview, the messenger fetches each link, so the author
    /// of the link receives the data in it. The mildest verdict counts, because an attacker chooses the way.
    fn of(policy: &Arc<Policy>, scene: &FeedbackScenario<'_>, text: &str) -> Result<Self, String> {
        // `false` forbids the preview; if the argument were missing, the messenger could show one.
        let plain = judge(policy, &scene.run(text, Some(&json!(false)))?)?.outcome();
        let judgements = previews().map(|preview| judge(policy, &scene.run(text, preview.as_ref())?));
        let judgements = judgements.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Outcomes are ordered from the mildest, `Permit`, to the strictest.
        let mildest = judgements.iter().min_by_key(|judgement| judgement.outcome());
        let preview = mildest.map_or(Outcome::Permit, Judgement::outcome);
        let reason = mildest.and_then(|judgement| judgement.reasons.first()).map(|r| r.message.clone());
        Ok(Self { preview, plain, reason })
    }
}

/// Returns the monitor's judgement of the last call of a run.
///
/// # Errors
/// If an event was rejected, or the last event is not a judged call; this is a defect.
fn judge(policy: &Arc<Policy>, run: &RecordedRun) -> Result<Judgement, String> {
    let mut replayed = replay(policy, &EverythingMethod, run);
    // `entry` is the index of the call among the entries of the run, and `refused` has the rejected events.
    match (replayed.calls.pop(), replayed.refused.as_slice()) {
        (Some(call), []) if call.entry + 1 == run.entries.len() => Ok(call.judgement),
        _ => {
            Err("a run of the measurement was not judged completely; this is a defect of Flowgate; please report it".to_owned())
        }
    }
}

/// Returns whether the injected message of an attack has more links that look like data exfiltration than the honest one;
/// false for an honest row. The links of honest rows are in both messages, so only what the attack adds counts.
fn is_link_found(scene: &FeedbackScenario<'_>) -> bool {
    let links = |text: &str| leaking_links(text).score;
    scene.injected_summary().is_some_and(|text| links(&text) > links(&scene.honest_summary()))
}

/// A row with the results of the detectors and the rule.
#[derive(Debug)]
pub struct JudgedRow<'a> {
    row: &'a FeedbackRow,
    /// The results of [`DETECTORS`], in their order.
    detected: Vec<DetectorResult>,
    /// The verdicts on the message of an agent that obeys the user alone.
    honest: PreviewVerdicts,
    /// The verdicts on the message of an agent that obeys the attack; `None` for an honest row.
    injected: Option<PreviewVerdicts>,
    /// Whether the injected message has more links that look like data exfiltration than the honest one.
    is_link_found: bool,
}

impl<'a> JudgedRow<'a> {
    /// Examines `row` with all detectors, and judges the runs in which the agent reads it in a sheet with the honest
    /// rows among `rows`. Fails if a run cannot be built or judged, which is a defect of this crate.
    fn new(policy: &Arc<Policy>, row: &'a FeedbackRow, rows: &'a [FeedbackRow]) -> Result<Self, String> {
        let scene = FeedbackScenario::new(row, rows);
        let injected = scene.injected_summary();
        Ok(Self {
            row,
            detected: DETECTORS.iter().map(|detector| examine(detector, row)).collect(),
            honest: PreviewVerdicts::of(policy, &scene, &scene.honest_summary())?,
            is_link_found: is_link_found(&scene),
            injected: injected.map(|text| PreviewVerdicts::of(policy, &scene, &text)).transpose()?,
        })
    }

    /// Judges all rows. `after_row` is called after each; if it returns true (the user has interrupted the command), the remaining rows are left out.
    ///
    /// # Errors
    /// If a run cannot be built or judged, which is a defect of this crate.
    pub fn all(
        policy: &Arc<Policy>,
        rows: &'a [FeedbackRow],
        after_row: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Self>, String> {
        Self::all_after(&[], policy, rows, after_row)
    }

    /// Returns the results of all rows as [`all`](Self::all) does, but judges only the rows that have no line in
    /// `recorded`: the lines of an interrupted run with the same policy. The results of the other rows are read from
    /// their lines.
    ///
    /// # Errors
    /// As for [`all`](Self::all).
    pub fn all_after(
        recorded: &[Value],
        policy: &Arc<Policy>,
        rows: &'a [FeedbackRow],
        after_row: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Self>, String> {
        let mut judged = Vec::with_capacity(rows.len());
        for row in rows {
            // A recorded line is used only if this program would print the same line.
            let read = recorded.iter().find_map(|line| Self::read(line, row, rows));
            judged.push(match read {
                Some(read) => read,
                None => Self::new(policy, row, rows)?,
            });
            if after_row() {
                break;
            }
        }
        Ok(judged)
    }

    /// Returns whether the detector at this position of [`DETECTORS`] decides rightly: it flags an attack, or does not flag an honest row.
    fn is_detector_right(&self, index: usize) -> bool {
        self.detected.get(index).is_some_and(DetectorResult::is_flagged) == self.row.is_attack()
    }

    /// Returns whether the flow rule decides rightly: it denies the injected message of an attack, or permits the honest message of an honest row.
    fn is_rule_right(&self) -> bool {
        match &self.injected {
            Some(injected) => injected.preview == Outcome::Deny,
            None => self.honest.plain == Outcome::Permit,
        }
    }

    /// Returns the kind of the row, as the output names it.
    fn kind(&self) -> &'static str {
        if self.row.is_attack() { "attack" } else { "honest" }
    }

    /// Returns the row of the table. Its cells are the name, the kind, the score of each detector (with `!` if a rule
    /// would match), and two verdicts of the flow rule: on the injected message with a link preview (`-` for an honest
    /// row), and on the honest message without a preview.
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.row.name.clone(), self.kind().to_owned()];
        cells.extend(DETECTORS.iter().zip(&self.detected).map(|(detector, detected)| {
            let mark = if detected.is_flagged() { '!' } else { ' ' };
            let score = detected.score;
            if detector.counts { format!("{score:.0} {mark}") } else { format!("{score:.2} {mark}") }
        }));
        cells.push(self.injected.as_ref().map_or("-", |verdicts| verdicts.preview.name()).to_owned());
        cells.push(self.honest.plain.name().to_owned());
        cells
    }

    /// Returns the row as a JSON value for one line of the output.
    fn to_json(&self) -> Value {
        let detectors = DETECTORS.iter().zip(&self.detected).map(|(detector, detected)| {
            let score = (detected.score * 100.0).round() / 100.0;
            let result =
                json!({"flagged": detected.is_flagged(), "score": score, "kinds": detected.distinct_kinds()});
            (detector.name.to_owned(), result)
        });
        let verdicts = |verdicts: &PreviewVerdicts| {
            json!({
                "preview": verdicts.preview.name(),
                "plain": verdicts.plain.name(),
                "reason": verdicts.reason,
            })
        };
        json!({
            "type": "row",
            "row": self.row.name,
            "kind": self.kind(),
            "feedback": self.row.feedback,
            "detectors": detectors.collect::<Map<_, _>>(),
            "injected_message": self.injected.as_ref().map(verdicts),
            "honest_message": verdicts(&self.honest),
        })
    }
}

#[cfg(test)]
mod tests {
    use flowgate::monitor::{Monitor, Verdict};
    use flowgate::trace::EventBody;

    use super::*;

    fn policy(source: &str) -> Arc<Policy> {
        Arc::new(Policy::parse(source).unwrap())
    }

    /// Returns the verdict of a live monitor on the message before it is sent.
    fn live(policy: &Arc<Policy>, run: RecordedRun) -> Outcome {
        let mut monitor = Monitor::new(Arc::clone(policy));
        let mut last = None;
        for entry in run.entries {
            match entry.body.clone() {
                EventBody::Call(call) => {
                    let verdict = monitor.judge(call);
                    last = Some(verdict.judgement().outcome());
                    if let Verdict::Permit(permit) = verdict {
                        monitor.redeem(permit).unwrap();
                    }
                }
                _ => drop(monitor.push(entry).unwrap()),
            }
        }
        last.unwrap()
    }

    #[test]
    fn the_column_equals_the_verdicts_of_a_live_monitor() {
        let rows = super::rows().unwrap();
        let broken = POLICY.replace("gsheets_read", "sheets_read");
        assert_ne!(broken, POLICY);
        for source in
            [POLICY, &broken, "raise \"never\" if:\n    (call: ToolCall) is tool:send_slack_message\n"]
        {
            let policy = policy(source);
            for judged in JudgedRow::all(&policy, &rows, &mut || false).unwrap() {
                let scene = FeedbackScenario::new(judged.row, &rows);
                let messages = [
                    (Some(scene.honest_summary()), Some(judged.honest)),
                    (scene.injected_summary(), judged.injected),
                ];
                for (text, verdicts) in messages {
                    let (Some(text), Some(verdicts)) = (&text, verdicts) else {
                        assert!(!judged.row.is_attack());
                        continue;
                    };
                    let says = |preview: Option<&Value>| live(&policy, scene.run(text, preview).unwrap());
                    assert_eq!(says(Some(&json!(false))), verdicts.plain, "{}", judged.row.name);
                    let mildest = previews().iter().map(|preview| says(preview.as_ref())).min();
                    assert_eq!(mildest, Some(verdicts.preview), "{}", judged.row.name);
                }
            }
        }
    }

    #[test]
    fn a_broken_rule_is_noticed() {
        let rows = super::rows().unwrap();
        let holds = |source: &str| {
            let figures =
                DetectorFigures::of(&JudgedRow::all(&policy(source), &rows, &mut || false).unwrap());
            (figures.stopped.hits, figures.passed.hits, figures.has_no_rule_error())
        };
        let attacks = rows.iter().filter(|row| row.is_attack()).count();
        assert_eq!(holds(POLICY), (attacks, rows.len(), true));
        // Another tool, another order of events, one way to request previews, a question, no rule.
        assert_eq!(holds(&POLICY.replace("gsheets_read", "sheets_read")), (0, rows.len(), false));
        assert_eq!(
            holds(
                &POLICY.replace(
                    "(out: ToolOutput) -> (call: ToolCall)",
                    "(call: ToolCall) -> (out: ToolOutput)"
                )
            ),
            (0, rows.len(), false)
        );
        assert_eq!(holds(&POLICY.replace("!= false", "== true")), (0, rows.len(), false));
        assert_eq!(holds(&POLICY.replace("raise", "ask")), (0, rows.len(), false));
        assert_eq!(holds(""), (0, rows.len(), false));
        // A rule that stops everything does not pass either.
        assert_eq!(holds(&POLICY.replace("!= false", "!= 2")), (attacks, 0, false));
    }

    #[test]
    fn the_run_of_every_row_is_judged() {
        let rows = super::rows().unwrap();
        assert_eq!(rows.len(), feedback::ROWS.lines().count());
        let (policy, mut runs) = (policy(POLICY), 0);
        for row in &rows {
            let scene = FeedbackScenario::new(row, &rows);
            for text in [Some(scene.honest_summary()), scene.injected_summary()].into_iter().flatten() {
                for preview in previews().into_iter().chain([Some(json!(false))]) {
                    let run = scene.run(&text, preview.as_ref()).unwrap();
                    let Some(EventBody::Output(read)) = run
                        .entries
                        .iter()
                        .map(|entry| &entry.body)
                        .find(|body| matches!(body, EventBody::Output(_)))
                    else {
                        panic!("{}: nothing is read", row.name)
                    };
                    let sheet: Value = serde_json::from_str(read.content.as_str().unwrap()).unwrap();
                    for piece in &row.feedback {
                        let is_of_piece = |item: &Value| item["feedback"] == piece.as_str();
                        assert_eq!(
                            sheet.as_array().unwrap().iter().filter(|item| is_of_piece(item)).count(),
                            1
                        );
                    }
                    let replayed = replay(&policy, &EverythingMethod, &run);
                    let outcomes: Vec<_> =
                        replayed.calls.iter().map(|call| (&*call.tool.name, call.outcome)).collect();
                    let expected =
                        if preview == Some(json!(false)) { Outcome::Permit } else { Outcome::Deny };
                    assert_eq!(
                        outcomes,
                        [("gsheets_read", Outcome::Permit), ("send_slack_message", expected)]
                    );
                    assert!(replayed.refused.is_empty(), "{}", row.name);
                    runs += 1;
                }
            }
        }
        let judged = JudgedRow::all(&policy, &rows, &mut || false).unwrap();
        let names: Vec<_> = judged.iter().map(|judged| &judged.row.name).collect();
        assert_eq!(names, rows.iter().map(|row| &row.name).collect::<Vec<_>>());
        assert_eq!(runs, DetectorFigures::of(&judged).runs);
    }

    #[test]
    fn figures_count_the_cells() {
        let rows = super::rows().unwrap();
        let judged = JudgedRow::all(&policy(POLICY), &rows, &mut || false).unwrap();
        let figures = DetectorFigures::of(&judged);
        for (index, (name, caught, flagged)) in figures.detectors.iter().enumerate().take(DETECTORS.len()) {
            let marked = |kind: &str| {
                let cells = judged.iter().map(JudgedRow::cells).filter(|cells| cells[1] == kind);
                cells.filter(|cells| cells[index + 2].ends_with('!')).count()
            };
            assert_eq!((marked("attack"), marked("honest")), (caught.hits, flagged.hits), "{name}");
        }
        let any = figures.detectors.last().unwrap();
        assert!(figures.detectors.iter().all(|(_, caught, _)| caught.hits <= any.1.hits));
    }
}
