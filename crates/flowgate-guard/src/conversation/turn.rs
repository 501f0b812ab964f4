//! What a turn came to, and what it took.

use flowgate::monitor::{Outcome, Reason};
use flowgate::trace::Tool;
use flowgate_lm::chat::{Stop, Usage};
use serde_json::{Map, Value};

use super::Handed;

/// What a turn came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// What the model said, in order.
    pub replies: Vec<Reply>,
    /// The texts of those that are withheld: for a record that only the operator reads.
    pub withheld: Vec<String>,
    /// Why the model stopped writing its last message.
    pub stop: Stop,
    /// Calls that may run and that the caller runs itself.
    pub calls: Vec<Handed>,
    /// What rules say that object to a message or to a tool's answer. Such an answer is kept from the model.
    pub found: Vec<String>,
    /// Addresses in what slots were filled with that must not lead anywhere: the tool, the argument, the address.
    pub disarmed: Vec<(String, String, String)>,
    /// The calls that were judged, in order, whatever became of them.
    pub judged: Vec<Judged>,
    /// Approved calls that did not run.
    pub void: Vec<Void>,
    /// What it took.
    pub spent: Spent,
    /// Why it ended, if not because the model had said its last word.
    pub ended: Option<Ended>,
}

/// A call that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The tool.
    pub tool: Tool,
    /// The arguments, as they were judged.
    pub arguments: Map<String, Value>,
    /// The verdict.
    pub outcome: Outcome,
    /// Why.
    pub reasons: Vec<Reason>,
    /// What the call carries, one phrase for each dimension.
    pub label: Vec<String>,
    /// Stands for the tool and these arguments, and tells nothing of them to who lacks the key.
    pub digest: String,
    /// How many events there were.
    pub event: usize,
}

/// A call that a person allowed and that did not run all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Void {
    /// The tool.
    pub tool: Tool,
    /// Stands for the tool and its arguments.
    pub digest: String,
    /// What the monitor said when it judged the call again; empty if something else kept it from running.
    pub reasons: Vec<Reason>,
    /// What kept it from running.
    pub cause: String,
}

/// Something that the model said to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The text; empty if it is withheld.
    pub text: String,
    /// What it carries, one phrase for each dimension.
    pub label: Vec<String>,
    /// Why it is not shown: what the rules say that stopped it.
    pub withheld: Vec<String>,
    /// Addresses that it must not lead to. They stand in the text so that they do not work.
    pub disarmed: Vec<String>,
}

/// Why a turn ended before the model had said its last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It had written as many messages as it may.
    Steps,
    /// The session has no room.
    Full,
    /// The model gave no answer.
    Model,
    /// The model may not be shown what it would take to go on.
    Clearance,
    /// A person was asked, and has not answered yet.
    Asked,
}

/// What steps took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Messages that the model wrote.
    pub messages: usize,
    /// Slots that were filled by another generation.
    pub fills: usize,
    /// Answers of a screener's model.
    pub screenings: usize,
    /// Tokens of all of these.
    pub tokens: Usage,
    /// Looks at hidden regions.
    pub looks: usize,
    /// Regions that were hidden, added over all steps.
    pub hidden: usize,
    /// Questions to a person.
    pub questions: usize,
    /// Of these, allowed.
    pub allowed: usize,
    /// Calls that ran.
    pub ran: usize,
    /// Calls that did not.
    pub refused: usize,
    /// Bits that somebody who sees the lowest steps could at most learn of hidden text: for each label that a screener
    /// chose, the logarithm of the number of labels; for each step that was shown everything first, one; where the model looks by itself, one for each question that was
    /// asked above the lowest level, whose answer can change what a store carries.
    pub bits: usize,
}
