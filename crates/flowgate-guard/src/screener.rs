//! Dependency screeners: which hidden regions the next step depends on (RTBAS, Algorithm 2).
//!
//! Where [lowest first](crate::conversation::Method::LowestFirst) lets the model ask, a screener decides before every step of
//! which something is hidden; the step is shown what flows to the join of the labels of these regions. A screener that
//! errs costs utility or questions, and lets no call run that may not.
//!
//! What it guarantees is less: *given the sequence of chosen labels*, every byte and verdict below is independent of hidden
//! text. The sequence itself is computed from that text, and carries at most the logarithm of the number of labels a step,
//! which is counted ([`Spent::bits`](crate::conversation::Spent)).
//!
//! | screener | what it asks | whom |
//! |---|---|---|
//! | [`judge`] | which of the tagged regions the next step needs; with reasoning first, and a forced tool call for the answer | any model, a smaller one as well |
//! | [`introspection`] | to cite the regions that the next step would be based on | any model; the agent's own as in Permissive Information-Flow Analysis |
//! | [provenance](crate::conversation::Method::Provenance) | nothing: it reads a draft of the step that was shown everything | the agent's own model, which writes the draft |
//!
//! Beside them stands a [`tool_filter`], which hides tools and not text.

pub mod introspection;
pub mod judge;
pub mod tool_filter;

use std::fmt::Debug;

use flowgate_lm::chat::{Completion, Message, Part, Request};

/// A way of telling what a step depends on, by asking a model that is shown everything.
pub trait Screener: Debug + Sync {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// One sentence on what it asks.
    fn doc(&self) -> &'static str;

    /// The question about a chat in which every region that could be hidden is tagged: see [`open`] and [`close`].
    fn question(&self, tagged: Tagged) -> Request;

    /// The names of the regions in the answer; `None` if it cannot be understood, and then every region counts.
    fn answer(&self, completion: &Completion) -> Option<Vec<String>>;
}

/// A chat with tags around every region that could be hidden.
#[derive(Debug, Clone, PartialEq)]
pub struct Tagged {
    /// The chat and the tools of the agent.
    pub request: Request,
    /// What is in every tag, and in no text: content cannot forge a region.
    pub nonce: String,
    /// The names of the regions.
    pub names: Vec<String>,
}

/// The tag before a region.
pub fn open(nonce: &str, name: &str) -> String {
    format!("<<REGION_{nonce}_{name}>>")
}

/// The tag behind a region.
pub fn close(nonce: &str, name: &str) -> String {
    format!("<</REGION_{nonce}_{name}>>")
}

/// The chat between two copies of the instructions, so that nothing in it is said last (prompt sandwiching).
fn sandwich(request: &mut Request, instructions: &str) {
    let part = |text: &str| vec![Part::Text(text.to_owned())];
    request.messages.edit().insert(0, Message::System(part(instructions)));
    request
        .messages
        .push(Message::User(part(&format!("This is the end of the chat to be judged. {instructions}"))));
}
