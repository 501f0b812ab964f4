//! The capabilities of language models, as small traits.
//!
//! | trait | result | implemented by |
//! |---|---|---|
//! | [`ChatModel`] | the next message of a chat, with tool calls | every provider |
//! | [`ScoringModel`] | the log-probability of a given continuation | servers that return those of the prompt |
//! | [`HiddenStateModel`] | the vectors that a model computes for a text | local models |
//! | [`AttentionModel`] | which earlier token each token attended to | local models |
//!
//! A method depends only on the trait that it needs. This crate has no notion of labels and policies: the caller
//! decides what a model may see before it sends a request.
//!
//! [`RemoteModel`] queries a model over HTTP, in one of the three formats of [`wire`], which also implements their
//! server side. [`RecordedModel`] stores answers in a file and replays them; [`ScriptedModel`] returns fixed answers
//! for tests.

pub mod chat;
mod estimate;
pub mod json;
mod model;
pub mod recorded;
pub mod remote;
mod scripted;
pub mod sse;
pub mod wire;

pub use model::{
    AttentionModel, ChatModel, Delta, Error, HiddenStateModel, Listener, ScoredToken, ScoringModel,
    ignore_deltas, send_completion,
};
pub use recorded::RecordedModel;
pub use remote::RemoteModel;
pub use scripted::ScriptedModel;
