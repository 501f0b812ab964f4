//! Defines the dialects of the policy language: Flowgate's own, and that of invariant-ai, whose policies Flowgate also
//! reads. The parser, the compiler and the evaluator ask for the dialect where the two differ.

/// The dialect of the policy language in which a policy is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// The language as this project documents it.
    #[default]
    Flowgate,
    /// The language as the Invariant analyzer (invariant-ai 0.3.5) reads it, including defects that policies may rely
    /// on.
    Compat,
}
