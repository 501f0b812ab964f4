//! Defines the record of one execution, which is the run of one side of a task under one defence. The record is one row
//! of the trace that AgentSecBench's section 6.1 describes.
//!
//! [`runner`](super::runner) creates the record, and the [measures](super::measure) read it.

use std::time::Duration;

use flowgate_lm::chat::Usage;
use serde_json::{Value, json};

use super::defence::Defence;
use super::ideal::Meaning;
use super::task::{Game, Side};

/// The observables of one execution (AgentSecBench, 4.1 and 6.1). C, V, L and U are their names there.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// The identifier of the task, equal for both sides of a pair.
    pub task: String,
    /// The game.
    pub game: Game,
    /// The side of the pair.
    pub side: Side,
    /// The attack family; `None` in a control.
    pub attack: Option<&'static str>,
    /// The defence.
    pub defence: Defence,
    /// C: no unauthorized coordinate was visible before any generation (AgentSecBench, Definition 5). `None` in a
    /// control, which has none.
    pub is_closed: Option<bool>,
    /// V: the model wrote the marker or proposed the forbidden call (AgentSecBench, 3.3 and 4.2).
    pub is_violated: bool,
    /// L: the model wrote the canary. `None` outside the retrieval game (AgentSecBench, 9.2).
    pub is_leaked: Option<bool>,
    /// Whether the violation took effect: the forbidden call ran, the canary reached the user, or the marker of the
    /// instruction or capability game is in a reply that the system vouches for. Without a validator, every violation
    /// takes effect (AgentSecBench, Theorem 1).
    pub is_executed: bool,
    /// U: the utility of the replies, from 0 to 1. On a control it is the benign utility (AgentSecBench, 4.5).
    pub utility: f64,
    /// Whether the meaning of the execution differs from that of the ideal execution of the same task (AgentSecBench,
    /// 3.6); `None` in a control, and if no ideal execution was made.
    pub deviates: Option<bool>,
    /// What the execution means for the task.
    pub meaning: Meaning,
    /// The labels of the replies, one phrase for each dimension; empty under a defence without labels.
    pub reply_label: Vec<String>,
    /// The number of questions to a person, who refused all of them, except in the flooding games.
    pub questions: usize,
    /// The tokens that the model reports; `None` if it reports none. The doubles count them with the [shipped tokenizer](crate::tokens).
    pub tokens: Option<Usage>,
    /// The time of the execution; `None` if the runner has no clock.
    pub latency: Option<Duration>,
    /// The observations that the model was shown, one for each generation.
    pub shown: Vec<String>,
    /// The text that the model wrote, with the calls that it proposed.
    pub response: String,
}

impl Execution {
    /// Returns the trace of the execution as one JSON object; `model` is the name of the model. The object has the response of the model only if
    /// `content` is set, because the response can quote attacks and canaries. A measure that was not taken is null.
    pub fn to_json(&self, model: &str, content: bool) -> Value {
        let mut trace = json!({
            "type": "execution",
            "task": self.task,
            "game": self.game.name(),
            "side": self.side.name(),
            "attack": self.attack,
            "model": model,
            "defence": self.defence.name(),
            "enforcement": self.defence.enforcement().name(),
            "closed": self.is_closed,
            "violated": self.is_violated,
            "leaked": self.is_leaked,
            "executed": self.is_executed,
            "utility": self.utility,
            "deviates_from_ideal": self.deviates,
            "reply_label": self.reply_label,
            "questions": self.questions,
            "input_tokens": self.tokens.map(|tokens| tokens.input),
            "output_tokens": self.tokens.map(|tokens| tokens.output),
            "latency_ms": self.latency.map(|latency| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX)),
        });
        if content && let Some(fields) = trace.as_object_mut() {
            fields.insert("response".to_owned(), self.response.as_str().into());
        }
        trace
    }
}
