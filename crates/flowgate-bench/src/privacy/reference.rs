//! Holds the figures that RTBAS reports for its own tasks and model. The [report](super::report) prints them next to
//! those of a run, for orientation only.
//!
//! The figures are from RTBAS's Table 2 and section 8.2. The prose of 8.2 swaps the two error rates; both have all 37
//! cases as their denominator. Two columns of the table in 8.3.1 have the same name; this module reads the third column
//! as the attention screener, and the fourth as the judge.

/// The figures that RTBAS reports for one defence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperFigures {
    /// The name of the defence in RTBAS.
    pub name: &'static str,
    /// The name of the defence of this suite that corresponds to it; `None` if there is none.
    pub counterpart: Option<&'static str>,
    /// False negatives: the share of missed tasks, of 37.
    pub missed: f64,
    /// False positives: the share of tasks with a needless question, of 37.
    pub over_asked: f64,
    /// The share of completed tasks if the person allows every call; `None` if RTBAS does not report it.
    pub utility_allowed: Option<f64>,
    /// The share of completed tasks if the person refuses every call; `None` if RTBAS does not report it.
    pub utility_refused: Option<f64>,
    /// The share of calls with exact categories; `None` if RTBAS does not report it.
    pub exact: Option<f64>,
}

/// The number of RTBAS's tasks.
pub const PAPER_TASKS: usize = 37;

/// The figures of all defences that RTBAS reports.
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
        // Its error rates count a question only where private data is in the context; its utility counts every
        // question.
        counterpart: Some("everything"),
        missed: 0.0,
        over_asked: 0.297_297,
        // RTBAS says .91 in one sentence of 8.2 and .83 in another.
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
    use super::super::defence::PrivacyDefence;
    use super::*;

    /// The rates of the paper are whole tasks, and the rows that are named exist.
    #[test]
    fn rates_are_of_all_tasks() {
        for figures in PAPER {
            for rate in [figures.missed, figures.over_asked] {
                let tasks = rate * PAPER_TASKS as f64;
                assert!((tasks - tasks.round()).abs() < 1e-4, "{}: {tasks}", figures.name);
            }
            assert!(figures.counterpart.is_none_or(|name| PrivacyDefence::parse(name, 1).is_ok()));
        }
    }
}
