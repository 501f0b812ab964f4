//! Formats the two error rates, missed and needless questions, under both definitions of section 8.2 of RTBAS. The
//! suite uses the definition of Table 2; the prose of the section swaps the names of the two rates.
//! [`report`](super::report) prints the table and the columns.

use super::measure::PrivacyFigures;
use super::reference::{PAPER, PAPER_TASKS};
use super::suite::{DefenceResults, TaskGroup};
use crate::games::interval::Rate;
use crate::games::report::interval_cell;
use crate::games::text_table::{Table, cell, table};

/// Returns the rates as the prose of section 8.2 defines them, each with the name of its column in JSON lines and
/// CSV. There, a false positive is a task in which a call that discloses something was missed, and a false negative
/// is a task with a needless question.
pub(super) fn prose_rates(figures: &PrivacyFigures) -> [(&'static str, Rate); 2] {
    [("prose_false_negatives", figures.over_asked), ("prose_false_positives", figures.missed)]
}

/// Returns the table with both pairs of rates for each defence, then for RTBAS's figures, whose counts are computed
/// from its Table 2. By Table 2, false negatives (FN) are missed tasks, and false positives (FP) tasks with a needless
/// question; by the prose, it is the other way round. `name` returns the name of a defence in tables, and `variant`
/// begins the title.
pub(super) fn definition_table(
    all: &[DefenceResults],
    variant: &str,
    name: &dyn Fn(&DefenceResults) -> String,
) -> Table {
    let header =
        ["defence", "Table 2: FN", "rate", "95 %", "FP", "rate", "95 %", "prose: FN", "rate", "FP", "rate"];
    let counted = |rate: Rate| format!("{}/{}", rate.hits, rate.of);
    let row = |name: String, missed: Rate, over_asked: Rate| {
        let mut row = vec![name];
        for rate in [missed, over_asked] {
            row.extend([counted(rate), cell(rate.value()), interval_cell(rate)]);
        }
        // In the prose of the paper, FN and FP are swapped.
        for rate in [over_asked, missed] {
            row.extend([counted(rate), cell(rate.value())]);
        }
        row
    };
    let mut rows: Vec<Vec<String>> = all
        .iter()
        .map(|results| {
            let figures = results.figures(TaskGroup::All);
            row(name(results), figures.missed, figures.over_asked)
        })
        .collect();
    // The paper's tasks have no planted instructions, so its rows follow only the rows of the suite's own data.
    if variant.is_empty() {
        let tasks = |rate: f64| Rate { hits: (rate * PAPER_TASKS as f64).round() as usize, of: PAPER_TASKS };
        rows.extend(PAPER.map(|paper| {
            row(format!("paper: {}", paper.name), tasks(paper.missed), tasks(paper.over_asked))
        }));
    }
    let title = "both definitions of the error rates, of all tasks; this suite uses that of Table 2, in which FN is missed; the prose of 8.2 swaps FN and FP";
    table(&format!("{variant}{title}"), &header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two definitions differ in nothing but the names of the rates.
    #[test]
    fn the_prose_swaps_the_rates() {
        let rate = |hits| Rate { hits, of: 37 };
        let figures = PrivacyFigures { missed: rate(3), over_asked: rate(5), ..PrivacyFigures::of(&[]) };
        assert_eq!(
            prose_rates(&figures),
            [("prose_false_negatives", rate(5)), ("prose_false_positives", rate(3))]
        );
        let table = definition_table(&[], "", &|_| String::new()).to_text();
        // RTBAS with the judge: 4 tasks are missed, 3 have a needless question.
        let judge = table.lines().find(|line| line.contains("LM-judge")).unwrap();
        let cells: Vec<&str> = judge.split_whitespace().filter(|cell| cell.contains('/')).collect();
        assert_eq!(cells, ["4/37", "3/37", "3/37", "4/37"], "{table}");
    }
}
