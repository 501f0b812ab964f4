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

pub mod chat;
mod model;

pub use model::{Attend, Complete, Delta, Error, Hidden, Listener, Score, Token, ignore};
