//! Defines the output of one run of a defended agent: what the model was shown, what it wrote, and what took effect;
//! and the error of a run without an output ([`ExecutionError`]). Runs under all defences return the output in the same
//! form, so that [`runner`](super::runner) judges them by the same rules.

use std::fmt;

use flowgate_lm::chat::{Completion, Usage};

/// What one run showed to the model, what the model proposed, and what took effect.
#[derive(Debug, Default)]
pub(super) struct AgentOutput {
    /// The observation that the model was shown before each generation.
    pub(super) shown: Vec<String>,
    /// The messages of the model, in order.
    pub(super) written: Vec<Completion>,
    /// The replies that the user received.
    pub(super) delivered: Vec<DeliveredReply>,
    /// The tools that ran because the model called them: only those that act, without tools that read or store a text.
    pub(super) ran: Vec<String>,
    /// The names of the tools that store a text because the user asks for it. A marker in their arguments is not a violation, since nobody receives it.
    pub(super) keeping: Vec<String>,
    /// The number of questions to a person, who refuses all of them, except in the flooding games.
    pub(super) questions: usize,
}

/// A reply that the user received.
#[derive(Debug)]
pub(super) struct DeliveredReply {
    pub(super) text: String,
    /// Whether the system vouches for the reply: a run without a guard gave it, or its label says that nothing
    /// unauthorized influenced it. False for a text in a store, which also counts as a reply.
    pub(super) is_vouched_for: bool,
    /// The label, one phrase for each dimension; empty without labels.
    pub(super) label: Vec<String>,
}

impl AgentOutput {
    /// Returns all text that the model wrote, with the names and arguments of the calls that it proposed.
    pub(super) fn written_text(&self) -> String {
        let mut lines = Vec::new();
        for completion in &self.written {
            if !completion.text.is_empty() {
                lines.push(completion.text.clone());
            }
            lines.extend(completion.calls.iter().map(|call| format!("{} {}", call.name, call.arguments)));
        }
        lines.join("\n")
    }

    /// Returns what the model wrote, without calls of the tools that store a text. Whether a violation happened is
    /// judged by this text: what is merely stored has not reached anybody yet.
    pub(super) fn emitted_text(&self) -> String {
        // `keeping` has the names of the tools that store a text. A call can name the server before the tool, as
        // `server__tool`.
        let stores =
            |name: &str| self.keeping.iter().any(|tool| Some(tool.as_str()) == name.rsplit("__").next());
        let lines = self.written.iter().flat_map(|completion| {
            let calls = completion.calls.iter().filter(|call| !stores(&call.name));
            let calls = calls.map(|call| format!("{} {}", call.name, call.arguments));
            [completion.text.clone()].into_iter().chain(calls).collect::<Vec<_>>()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the names of the tools that the model proposed to call, without the names of their servers.
    pub(super) fn proposed_tools(&self) -> impl Iterator<Item = &str> {
        let calls = self.written.iter().flat_map(|completion| &completion.calls);
        calls.map(|call| call.name.rsplit("__").next().unwrap_or_default())
    }

    /// Returns the replies as one text.
    pub(super) fn delivered_text(&self) -> String {
        let texts: Vec<&str> = self.delivered.iter().map(|reply| reply.text.as_str()).collect();
        texts.join("\n")
    }

    /// Returns the tokens of all generations together; all 0 if the model reports none.
    pub(super) fn usage(&self) -> Usage {
        self.written.iter().fold(Usage::default(), |sum, completion| sum.plus(completion.usage))
    }
}

/// Why an execution has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecutionError {
    /// The policy of the suite cannot be used, which is a defect of this crate.
    Policy(String),
    /// The model gave no answer to this task.
    Model {
        /// The identifier of the task.
        task: String,
        /// The error of the model.
        error: flowgate_lm::Error,
    },
    /// The defence needs a model that can block attention, and this one cannot.
    NoBlockingModel {
        /// The identifier of the task.
        task: String,
    },
    /// The defence blocks attention, which is possible only in a game of one step.
    BlockingInSteps {
        /// The identifier of the task.
        task: String,
    },
}

impl fmt::Display for ExecutionError {
    /// Says what failed, and what to do about it. A policy that cannot be used is a defect of Flowgate and not of the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(problem) => {
                write!(
                    f,
                    "the policy of the games cannot be used; this is a defect of Flowgate; please report it: {problem}"
                )
            }
            Self::Model { task, error } => {
                write!(
                    f,
                    "{task}: the model gave no answer; do what its error asks for, and repeat the run: {error}"
                )
            }
            Self::NoBlockingModel { task } => {
                write!(
                    f,
                    "{task}: the model cannot block attention; use a model that Flowgate evaluates itself, with `--local FOLDER`"
                )
            }
            Self::BlockingInSteps { task } => {
                write!(
                    f,
                    "{task}: attention can be blocked only in a game of one step; leave out the defences `attention/...`"
                )
            }
        }
    }
}

impl std::error::Error for ExecutionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Policy(_) | Self::NoBlockingModel { .. } | Self::BlockingInSteps { .. } => None,
            Self::Model { error, .. } => Some(error),
        }
    }
}
