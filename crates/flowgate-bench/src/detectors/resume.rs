//! Reads the rows that an interrupted run of `flowgate bench detectors` has judged, from its recorded lines. When the
//! command resumes the run, only the other rows are judged.

use flowgate::monitor::Outcome;
use serde_json::Value;

use super::feedback::FeedbackScenario;
use super::{DETECTORS, DetectorResult, FeedbackRow, JudgedRow, PreviewVerdicts, is_link_found};

impl<'a> JudgedRow<'a> {
    /// Returns the judged row that a line of the format jsonl describes; `None` if the line describes a row other than
    /// `row`, or if this program would print a different line for the same values. `rows` are all rows.
    pub(super) fn read(line: &Value, row: &'a FeedbackRow, rows: &'a [FeedbackRow]) -> Option<Self> {
        let results = line.get("detectors")?;
        let detected = DETECTORS.iter().map(|detector| DetectorResult::read(results.get(detector.name)?));
        let verdicts = |message: &str| PreviewVerdicts::read(line.get(message)?);
        let injected = match row.is_attack() {
            true => Some(verdicts("injected_message")?),
            false => None,
        };
        let read = Self {
            row,
            detected: detected.collect::<Option<_>>()?,
            honest: verdicts("honest_message")?,
            injected,
            is_link_found: is_link_found(&FeedbackScenario::new(row, rows)),
        };
        // A line that this program would not print is not used: another version wrote it, or it is damaged.
        (read.to_json() == *line).then_some(read)
    }
}

impl DetectorResult {
    /// Reads the result of a detector from its object in a line; `None` if the object has another form. The score is
    /// the printed one, which has two decimals.
    fn read(result: &Value) -> Option<Self> {
        let kinds = result.get("kinds")?.as_array()?;
        let kinds = kinds.iter().map(|kind| kind.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        Some(Self { score: result.get("score")?.as_f64()?, kinds })
    }
}

impl PreviewVerdicts {
    /// Reads the verdicts on a message from their object in a line; `None` if the object has another form.
    fn read(verdicts: &Value) -> Option<Self> {
        let outcome = |field: &str| {
            let name = verdicts.get(field)?.as_str()?;
            [Outcome::Permit, Outcome::Confirm, Outcome::Deny]
                .into_iter()
                .find(|outcome| outcome.name() == name)
        };
        let reason = match verdicts.get("reason")? {
            Value::Null => None,
            reason => Some(reason.as_str()?.to_owned()),
        };
        Some(Self { preview: outcome("preview")?, plain: outcome("plain")?, reason })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;
    use serde_json::json;

    use super::super::report::{interrupted_lines, lines};
    use super::super::{BUILTIN, DetectorFigures, POLICY, rows};
    use super::*;

    /// An interrupted run that continues has the lines of one that was not interrupted, and judges only the rest. A line that
    /// was changed is judged again.
    #[test]
    fn a_run_continues_after_its_rows() {
        let (rows, policy) = (rows().unwrap(), Arc::new(Policy::parse(POLICY).unwrap()));
        let run = |recorded: &[Value], stop_after: usize| {
            let mut count = 0;
            let mut step = || {
                count += 1;
                count == stop_after
            };
            JudgedRow::all_after(recorded, &policy, &rows, &mut step).unwrap()
        };
        let printed = |judged: &[JudgedRow<'_>]| lines(judged, &DetectorFigures::of(judged), BUILTIN, 1);
        let all = run(&[], 0);
        let cut_off = interrupted_lines(&run(&[], 4));
        assert_eq!(cut_off.len(), 5);
        assert_eq!(printed(&run(&cut_off, 0)), printed(&all));
        for (row, judged) in rows.iter().zip(&all) {
            let line = judged.to_json();
            let read = JudgedRow::read(&line, row, &rows).unwrap();
            assert_eq!((read.is_link_found, read.cells()), (judged.is_link_found, judged.cells()));
            let refused = |change: &dyn Fn(&mut Value)| {
                let mut changed = line.clone();
                change(&mut changed);
                assert!(JudgedRow::read(&changed, row, &rows).is_none(), "{changed}");
            };
            refused(&|line| line["row"] = json!("another"));
            refused(&|line| line["honest_message"]["plain"] = json!("maybe"));
            refused(&|line| line["detectors"]["injection"]["flagged"] = json!(7));
            refused(&|line| drop(line["detectors"].take()));
        }
    }
}
