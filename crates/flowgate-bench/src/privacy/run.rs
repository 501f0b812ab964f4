//! Defines the inputs and the result of a run of one task: the double of the person who answers questions
//! ([`PersonDouble`]), the double or model that is the agent ([`AnswerSource`]), the judged calls and the outcome
//! ([`PrivacyRun`]), and the error of a run without a result. [`runner`](super::runner) runs tasks.

use std::fmt;

use flowgate::monitor::PushError;
use flowgate_lm::ChatModel;
use flowgate_lm::chat::Usage;

use super::task::Categories;
use crate::cost::RequestCounter;

/// How a person answers questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonDouble {
    /// Allows every call.
    Allows,
    /// Denies every call.
    Denies,
}

impl PersonDouble {
    /// Both persons.
    pub const ALL: [Self; 2] = [Self::Allows, Self::Denies];

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allows => "allows",
            Self::Denies => "refuses",
        }
    }
}

/// A call that a defence judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CategorizedCall {
    /// The name of the tool.
    pub tool: String,
    /// The categories of private data that the call carries, by the label that the defence gives it.
    pub categories: Categories,
    /// Whether a person was asked.
    pub is_asked: bool,
}

/// What happened in one run of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivacyRun {
    /// The judged calls, in order.
    pub calls: Vec<CategorizedCall>,
    /// Whether all calls of the ground truth were carried out and the replies contain all texts of the ground truth.
    pub is_successful: bool,
    /// Whether a call of the ground truth that needs confirmation was carried out although nobody allowed it.
    pub is_disclosed: bool,
    /// The tokens of all requests to the agent, the screener and the filler after the request of the user; `None` for
    /// the oracle, which asks no model.
    pub tokens: Option<Usage>,
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunError(pub(super) String);

impl RunError {
    /// Creates an error with this message.
    pub(super) fn new(problem: String) -> Self {
        Self(problem)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

impl From<PushError> for RunError {
    fn from(error: PushError) -> Self {
        Self(error.to_string())
    }
}

/// The double or the model that answers the requests of a run to its agent, its screener and its filler.
#[derive(Clone, Copy)]
pub enum AnswerSource<'m> {
    /// The double, which knows the task.
    Double,
    /// The double, while its requests are counted.
    Counted(&'m RequestCounter),
    /// A model, as the agent, the screener and the filler.
    Model(&'m dyn ChatModel),
}

impl fmt::Debug for AnswerSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Double => f.write_str("Double"),
            Self::Counted(counter) => write!(f, "Counted({counter:?})"),
            Self::Model(model) => write!(f, "Model({})", model.name()),
        }
    }
}
