//! Holds the figures of the paper, which the [report](super::report) prints beside ours for orientation: they are of other tasks and of another model.
//!
//! They are from Table 2 and section 8.2 of RTBAS. The prose of 8.2 swaps the two error rates; both have all 37 cases as their denominator. Two columns
//! of the table in 8.3.1 have the same name; here the third column is read as the attention screener, and the fourth as the judge.

/// What the paper reports of one defence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperFigures {
    /// Its name there.
    pub name: &'static str,
    /// The row of ours that corresponds to it, if one does.
    pub counterpart: Option<&'static str>,
    /// False negatives: missed tasks of 37.
    pub missed: f64,
    /// False positives of 37.
    pub over_asked: f64,
    /// Utility while the person allows every call, as far as it is reported.
    pub utility_allowed: Option<f64>,
    /// Utility while the person refuses every call.
    pub utility_refused: Option<f64>,
    /// Calls with exact categories.
    pub exact: Option<f64>,
}

/// The number of the paper's tasks.
pub const PAPER_TASKS: usize = 37;

/// All rows of the paper.
pub const PAPER: [PaperFigures; 4] = [
    PaperFigures {
        name: "Confirm Never - redact-all",
        counterpart: Some("paper/redact-all"),
        missed: 0.513_514,
        over_asked: 0.0,
        utility_allowed: Some(0.35),
        utility_refused: Some(0.35),
        exact: Some(0.223),
    },
    PaperFigures {
        name: "Confirm Every Time (GPTs)",
        // Its error rates count a question only where private data is in the context; its utility counts every question.
        counterpart: Some("everything"),
        missed: 0.0,
        over_asked: 0.297_297,
        // .91 in one sentence of 8.2, .83 in another.
        utility_allowed: Some(0.91),
        utility_refused: Some(0.0),
        exact: Some(0.567),
    },
    PaperFigures {
        name: "RTBAS (LM-judge)",
        counterpart: None,
        missed: 0.108_108,
        over_asked: 0.081_081,
        utility_allowed: Some(0.83),
        utility_refused: Some(0.40),
        exact: Some(0.700),
    },
    PaperFigures {
        name: "RTBAS (Attention)",
        counterpart: None,
        missed: 0.108_108,
        over_asked: 0.162_162,
        utility_allowed: Some(0.75),
        utility_refused: Some(0.43),
        exact: Some(0.573),
    },
];

#[cfg(test)]
mod tests {
    use super::super::defence::Defence;
    use super::*;

    /// The rates of the paper are whole tasks, and the rows that are named exist.
    #[test]
    fn rates_are_of_all_tasks() {
        for figures in PAPER {
            for rate in [figures.missed, figures.over_asked] {
                let tasks = rate * PAPER_TASKS as f64;
                assert!((tasks - tasks.round()).abs() < 1e-4, "{}: {tasks}", figures.name);
            }
            assert!(figures.counterpart.is_none_or(|name| Defence::parse(name, 1).is_ok()));
        }
    }
}
