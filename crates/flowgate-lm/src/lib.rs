//! What a language model can do, as small traits.
//!
//! | trait | what it gives | who has it |
//! |---|---|---|
//! | [`Complete`] | the next message of a chat, with tool calls | every provider |
//! | [`Score`] | the log-probability of a given continuation | servers that return those of the prompt |
//! | [`Hidden`] | the vectors that a model computes for a text | local models |
//! | [`Attend`] | which earlier token each token attended to | local models |
//!
//! A method asks for the trait that it needs and no more. This crate knows nothing of labels and policies: what
//! a model may see is decided before it is asked.

//!
//! [`Remote`] asks a model behind an address, in one of the three forms of [`wire`], which also has the server's side of
//! them. [`Recorded`] keeps answers in a file, [`Scripted`] makes them up.

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
