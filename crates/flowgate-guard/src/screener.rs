//! Defines dependency screeners, models that name the hidden regions that the next step depends on (Algorithm 2 of the
//! paper RTBAS).
//!
//! With [lowest first](crate::conversation::Method::LowestFirst), the model itself requests hidden regions. A screener
//! is asked before every step for which something is hidden; the view of the step then shows what flows to the join of
//! the labels of the chosen regions. An error of a screener costs utility or questions, and never permits a call that
//! the policy denies.
//!
//! With a screener, the guarantee is weaker than with lowest first: *given the sequence of chosen labels*, every byte
//! and verdict that is visible at a label is independent of the text that is hidden there. The sequence itself is
//! computed from that text: each step reveals at most log2(number of labels) bits, which are counted
//! ([`TurnUsage::bits`](crate::conversation::TurnUsage)).
//!
//! * [`judge`] asks a model which of the tagged regions the next step needs. The model reasons first, and answers by a
//!   forced tool call. It can be smaller than the agent's own.
//! * [`introspection`] asks a model to cite the regions that the next step would be based on. In Permissive
//!   Information-Flow Analysis, this is the agent's own model.
//! * [`attention`] answers the question of `judge` in place of a model, from the attention of a local model that reads
//!   the chat and a preliminary message.
//! * [Provenance](crate::conversation::Method::Provenance) asks no question: it reads a draft of the step, which the
//!   agent's own model has written from everything.
//!
//! A separate [`tool_filter`] hides tools instead of text.

pub mod attention;
pub mod introspection;
pub mod judge;
pub mod tool_filter;

use std::fmt::Debug;

use flowgate_lm::chat::{Completion, Message, Part, Request};

/// A method that estimates which hidden regions a step depends on, by asking a model that is shown everything.
pub trait Screener: Debug + Sync {
    /// Returns the name of the screener on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Describes in one sentence what the screener asks the model.
    fn doc(&self) -> &'static str;

    /// Returns the question about a chat in which every region that could be hidden is tagged: see [`opening_tag`] and
    /// [`closing_tag`].
    fn question(&self, tagged: TaggedChat) -> Request;

    /// Parses the names of the regions from the answer. `None` if the answer is malformed: the caller then counts every
    /// region as needed.
    fn parse_answer(&self, completion: &Completion) -> Option<Vec<String>>;
}

/// A method that selects the tools of a turn, by asking a model before the turn has read any answer of a tool.
pub trait ToolSelector: Debug + Sync {
    /// Returns the question which tools of a request are needed.
    fn question(&self, request: Request) -> Request;

    /// Parses the names of the tools from the answer. A malformed answer names none.
    fn parse_answer(&self, completion: &Completion) -> Vec<String>;
}

/// A chat with tags around every region that could be hidden.
#[derive(Debug, Clone, PartialEq)]
pub struct TaggedChat {
    /// The chat and the tools of the agent.
    pub request: Request,
    /// The string that is in every tag and in no text: content cannot forge a region.
    pub nonce: String,
    /// The names of the regions.
    pub names: Vec<String>,
}

/// Returns the tag before a region. Nobody can predict `nonce`, so no text can forge the tag.
pub fn opening_tag(nonce: &str, name: &str) -> String {
    format!("<<REGION_{nonce}_{name}>>")
}

/// Returns the tag after a region. Nobody can predict `nonce`, so no text can forge the tag.
pub fn closing_tag(nonce: &str, name: &str) -> String {
    format!("<</REGION_{nonce}_{name}>>")
}

/// Puts the chat between two copies of the instructions (prompt sandwiching), so that the last words are never the
/// chat's, which may be an adversary's.
fn sandwich(request: &mut Request, instructions: &str) {
    let part = |text: &str| vec![Part::Text(text.to_owned())];
    request.messages.edit().insert(0, Message::System(part(instructions)));
    request
        .messages
        .push(Message::User(part(&format!("This is the end of the chat to be judged. {instructions}"))));
}
