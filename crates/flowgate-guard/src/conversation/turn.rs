//! Defines the outcome of a turn ([`Turn`]): the replies, the verdicts, the calls that the caller runs itself, what
//! ended the turn, and the resources that it used. The driver of the conversation receives it when the turn ends.

use flowgate::label::Label;
use flowgate::monitor::{AuthorizedCall, Outcome, Reason};
use flowgate::trace::Tool;
use flowgate_lm::chat::{CitedPiece, Stop, Usage};
use serde_json::{Map, Value};

/// The outcome of a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// The replies of the model, in order.
    pub replies: Vec<ModelReply>,
    /// The readable reasoning of the model, in order, judged like a reply. The parts that only the model's server can
    /// read stay in the conversation, because no rule can judge them.
    pub thoughts: Vec<ModelReply>,
    /// The texts of the withheld replies, for a record that only the operator reads.
    pub withheld: Vec<String>,
    /// Why the model stopped writing its last message.
    pub stop: Stop,
    /// Calls that may run and that the caller runs itself.
    pub calls: Vec<HandedOverCall>,
    /// Messages of rules that forbid a message or a tool's answer. Such an answer is withheld from the model.
    pub rule_messages: Vec<String>,
    /// URLs in filled slots that were disarmed: the tool, the argument, the URL.
    pub disarmed: Vec<(String, String, String)>,
    /// The calls that were judged, in order, whatever their outcome.
    pub judged: Vec<CallVerdict>,
    /// Approved calls that did not run.
    pub void: Vec<VoidedCall>,
    /// The resources used.
    pub spent: TurnUsage,
    /// Why the turn ended, if not with the model's last message.
    pub ended: Option<TurnEnd>,
}

/// A call that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallVerdict {
    /// The tool.
    pub tool: Tool,
    /// The arguments, as they were judged.
    pub arguments: Map<String, Value>,
    /// The verdict.
    pub outcome: Outcome,
    /// The reasons of the verdict, and those that a person has granted for the rest of the conversation.
    pub reasons: Vec<Reason>,
    /// The label of the call, one phrase for each dimension.
    pub label: Vec<String>,
    /// The label of the verdict itself: the call's label, joined with everything that the verdict depends on. Only an
    /// observer who may see that much may learn of the verdict.
    pub decided: Label,
    /// The keyed digest of the tool and these arguments; reveals nothing of them without the key.
    pub digest: String,
    /// The number of events in the trace before the call was judged.
    pub event: usize,
}

/// A call that a person approved and that did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidedCall {
    /// The tool.
    pub tool: Tool,
    /// The keyed digest of the tool and its arguments.
    pub digest: String,
    /// The reasons of the monitor when it judged the call again; empty if something else prevented the call.
    pub reasons: Vec<Reason>,
    /// What prevented the call: a phrase for people, which the audit log records. The program that voids the call
    /// writes this phrase.
    pub cause: String,
}

/// A text of the model for the user: a reply, or its reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    /// The text; empty if it is withheld.
    pub text: String,
    /// The label of the reply, one phrase for each dimension.
    pub label: Vec<String>,
    /// The messages of the rules that withhold the reply; empty if it is shown.
    pub withheld: Vec<String>,
    /// The URLs in the text that were disarmed, so that they do not work as links.
    pub disarmed: Vec<String>,
    /// The pieces of the text that cite documents of the client; none of reasoning, or of a reply that is withheld.
    pub citations: Vec<CitedPiece>,
}

/// Why a turn ended before the model's last message.
///
/// The list is exhaustive on purpose: a program has to act on each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// The limit on the number of messages was reached.
    Steps,
    /// The session has no room.
    Full,
    /// The model gave no answer.
    Model,
    /// The model is not cleared for what the next step would show.
    Clearance,
    /// A person was asked, and has not decided yet.
    Asked,
}

/// The resources that the steps of a turn used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnUsage {
    /// Messages that the model wrote.
    pub messages: usize,
    /// Slots filled by the filler.
    pub fills: usize,
    /// Answers of the screener's model.
    pub screenings: usize,
    /// Tokens of all of these.
    pub tokens: Usage,
    /// Looks at hidden regions.
    pub looks: usize,
    /// Hidden regions, summed over all steps.
    pub hidden: usize,
    /// Questions to a person.
    pub questions: usize,
    /// Questions that were answered with an approval.
    pub allowed: usize,
    /// Calls that were released to run: by a tool here, or by the caller.
    pub ran: usize,
    /// Calls that were refused.
    pub refused: usize,
    /// An upper bound on the bits of hidden text that an observer of the steps at the base label can learn:
    ///
    /// * Each label chosen by a screener counts at most the logarithm of the number of labels.
    /// * Each draft of the provenance method counts the same, and one more if it is accepted because its rewrite made
    ///   no call.
    /// * Each draft of the cheapest-first method counts one.
    /// * Each filled slot of an argument that an endorsement is about counts the bits that the author of a hidden text
    ///   can choose in an endorsed value (the value as a whole if there is no bound), and one for whether the value is
    ///   endorsed.
    /// * A call with slots counts one if a part of its answer depends on no argument: that part shows that the slots
    ///   could be filled.
    /// * With the lowest-first method, each question asked above the base label counts one, because its answer can
    ///   change the label of a store.
    pub bits: usize,
}

/// A call that may run, for the caller that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOverCall {
    /// The id that its answer must have.
    pub id: String,
    /// The tool.
    pub tool: Tool,
    /// Its arguments as JSON, printed from what was judged.
    pub arguments: String,
    /// The digest of the call in the approval question, if a person approved it.
    pub approved: Option<String>,
}

impl From<&AuthorizedCall> for HandedOverCall {
    fn from(call: &AuthorizedCall) -> Self {
        // `RunningTurn::hand_over` adds the approval, if the call has one.
        let (id, tool) = (call.call().id.clone(), call.call().tool.clone());
        Self { id, tool, arguments: call.arguments_json(), approved: None }
    }
}
