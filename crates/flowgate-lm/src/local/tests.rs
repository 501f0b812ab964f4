//! Tests of local models. They use tiny models whose weights are computed by a formula.

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
