//! Tests of local models. Each submodule tests one part, such as scores, chats or damaged files. The module `tiny`
//! creates the tiny models that the tests use, with weights that a formula gives.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::needless_range_loop,
    clippy::string_slice,
    clippy::unreachable,
    reason = "numbers are small, indices name what the formulas name, and a mistake fails the test"
)]

mod blocking;
mod chat;
mod digest;
mod encoders;
mod gguf;
mod gradients;
mod hostile;
mod jacobian;
mod oracle;
mod parity;
mod scoring;
mod text_labels;
mod tiny;

pub(super) use tiny::TempFolder;
