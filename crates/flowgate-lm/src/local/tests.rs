//! Tests of local models on tiny models with weights from a formula.

mod chat;
mod gguf;
mod gradients;
mod hostile;
mod oracle;
mod parity;
mod scoring;
mod tiny;
