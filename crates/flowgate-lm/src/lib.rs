//! Defines the capabilities of language models as small traits, and implements models: queried over HTTP, evaluated in
//! this process, recorded or scripted.
//!
//! | trait | result | implemented by |
//! |---|---|---|
//! | [`ChatModel`] | the next message of a chat, with tool calls | every model of this crate |
//! | [`BlockingModel`] | the next message of a chat; blocked parts of it influence no other part | local models |
//! | [`ContinuationModel`] | the most probable continuation of a plain text | local models |
//! | [`ScoringModel`] | the log-probability of a given continuation | some servers, local models |
//! | [`TextEmbedder`] | one vector for each text | local models, as [`MeanHiddenState`] |
//! | [`HiddenStateModel`] | the vectors that a model computes for a text | local models |
//! | [`AttentionModel`] | the attention between tokens, and how much the output depends on it | local models |
//! | [`JacobianModel`] | a bound on what an output reveals of each token of its prompt | local models |
//! | [`TextLabelModel`] | the probability that each label applies to a text | [`TextClassifier`], local classifiers |
//!
//! A caller depends only on the trait that it needs. This crate has no notion of labels and policies: the caller
//! decides what a model may see before it sends a request.
//!
//! [`chat`] defines the requests and answers of chats, in the terms that all providers share. [`wire`] translates them
//! to and from the formats of providers, both as a client and as a server.
//!
//! [`RemoteModel`] queries a model over HTTP in one of these formats. `LocalModel` evaluates a model in this process.
//! [`RecordedModel`] stores answers in a file and replays them. [`ScriptedModel`] returns fixed answers for tests.
//!
//! [`json`] and [`sse`] parse JSON and event streams for [`wire`] and for the gateway. [`estimated_usage`] and
//! [`estimated_tokens`] estimate numbers of tokens that a server does not report.
//!
//! [`TextClassifier`] is a small classifier of texts with weights that a program trains itself. [`RegionClassifier`]
//! decides from attention which regions of a prompt an output depends on.
//!
//! The traits for chats, continuations and scores are asynchronous. A synchronous caller uses [`block_on`].
//!
//! # Features
//!
//! `remote`, which is on by default, adds [`RemoteModel`] with its HTTP client, TLS and a runtime. `local` adds
//! `LocalModel`: models in a folder or a GGUF file, evaluated in this process. `cuda` lets `LocalModel` use a GPU.

#![cfg_attr(
    not(feature = "remote"),
    expect(unused_imports, reason = "only the client uses some parts of the formats")
)]
#![cfg_attr(
    all(not(feature = "remote"), not(test)),
    expect(dead_code, reason = "only the client, and tests, use some parts of the formats")
)]

mod block_on;
mod blocking;
pub mod chat;
mod continuation;
mod embedder;
mod estimate;
mod interior;
mod jacobian;
pub mod json;
#[cfg(feature = "local")]
pub mod local;
mod model;
pub mod recorded;
mod region_features;
#[cfg(feature = "remote")]
pub mod remote;
mod score;
mod scripted;
pub mod sse;
mod text_classifier;
pub mod wire;

pub use block_on::block_on;
pub use blocking::{BlockedText, BlockingModel};
pub use continuation::{ContinuationEnd, ContinuationModel};
pub use embedder::{MeanHiddenState, TextEmbedder};
pub use estimate::{input as estimated_input_tokens, tokens as estimated_tokens, usage as estimated_usage};
pub use interior::{
    Attention, AttentionLoss, AttentionModel, AttentionRequest, HiddenStateModel, HiddenStates,
};
pub use jacobian::{InformationBounds, JacobianModel, JacobianRequest};
#[cfg(feature = "local")]
pub use local::LocalModel;
pub use model::{BoxFuture, ChatModel, Delta, Error, Listener, ignore_deltas, send_completion};
pub use recorded::RecordedModel;
pub use region_features::{
    FeatureSet, RegionClassifier, RegionFeatures, RegionSummary, TokenWeighting, region_features,
    region_summaries,
};
#[cfg(feature = "remote")]
pub use remote::RemoteModel;
pub use score::{Prefix, Score, ScoreRequest, ScoredToken, ScoringModel};
pub use scripted::ScriptedModel;
pub use text_classifier::{ClassifiedText, TextClassifier, TextLabelModel};
