//! The capabilities of language models, as small traits.
//!
//! | trait | result | implemented by |
//! |---|---|---|
//! | [`Complete`] | the next message of a chat, with tool calls | every provider |
//! | [`Score`] | the log-probability of a given continuation | servers that return those of the prompt |
//! | [`Hidden`] | the vectors that a model computes for a text | local models |
//! | [`Attend`] | which earlier token each token attended to | local models |
//!
//! A method depends only on the trait that it needs. This crate has no notion of labels and policies: the caller
//! decides what a model may see before it sends a request.
//!
//! [`Remote`] queries a model over HTTP, in one of the three formats of [`wire`], which also implements their server
//! side. [`Recorded`] stores answers in a file and replays them; [`Scripted`] returns fixed answers for tests.

pub mod chat;
mod estimate;
pub mod json;
mod model;
pub mod recorded;
pub mod remote;
mod scripted;
pub mod sse;
pub mod wire;

pub use model::{Attend, Complete, Delta, Error, Hidden, Listener, Score, Token, ignore, tell};
pub use recorded::Recorded;
pub use remote::Remote;
pub use scripted::Scripted;
