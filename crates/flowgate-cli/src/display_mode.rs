//! Declares the values of `--color` and `--progress`: when commands use colours, and when they show progress. `args`
//! has the options, and `output` and `progress` apply them.

use clap::ValueEnum;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal and NO_COLOR is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// When to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// If the standard error is a terminal and the command takes longer than a second.
    Auto,
    /// Always; elsewhere than on a terminal, a line for each tenth of the work.
    Always,
    /// Never.
    Never,
}
