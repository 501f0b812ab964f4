//! Policies.
pub mod diagnostic;
mod lexer;
mod parser;
pub(crate) mod syntax;
