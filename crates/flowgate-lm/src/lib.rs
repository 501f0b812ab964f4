//! Defines the capabilities of language models as small traits, and implements models that are queried over HTTP,
//! recorded or scripted.
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
//!
//! Models are asynchronous. A caller that is not uses [`block_on`].
//!
//! # Features
//!
//! `remote`, which is on by default, has [`RemoteModel`], and with it the HTTP client, TLS and a runtime.

#![cfg_attr(
    not(feature = "remote"),
    expect(unused_imports, reason = "only the client uses some parts of the formats")
)]
#![cfg_attr(
    all(not(feature = "remote"), not(test)),
    expect(dead_code, reason = "only the client, and tests, use some parts of the formats")
)]

mod block_on;
pub mod chat;
mod estimate;
pub mod json;
mod model;
pub mod recorded;
#[cfg(feature = "remote")]
pub mod remote;
mod scripted;
pub mod sse;
pub mod wire;

pub use block_on::block_on;
pub use model::{
    AttentionModel, BoxFuture, ChatModel, Delta, Error, HiddenStateModel, Listener, ScoredToken,
    ScoringModel, ignore_deltas, send_completion,
};
pub use recorded::RecordedModel;
#[cfg(feature = "remote")]
pub use remote::RemoteModel;
pub use scripted::ScriptedModel;
