//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// An information-flow firewall for LLM agents: labels what an agent sees, and judges what it does.
#[derive(Debug, Parser)]
#[command(name = "flowgate", version, about, long_about = None, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

const AFTER_HELP: &str = "\
Start here:
  flowgate demo                              see an injected payment stopped, step by step
  flowgate check policy.flow trace.json      judge every call of a recorded run
  flowgate explain policy.flow trace.json    why, and what would change the verdict

Exit codes:
  0  nothing to object to
  1  a call needs confirmation or is denied, or a rule found something
  2  the command line, a policy or a trace cannot be used";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judge every call of recorded runs, and list what rules find.
    ///
    /// A trace is OpenAI or Anthropic messages as JSON, an MCP log, or JSON lines of any of them; gzip is read as
    /// well, and `-` is the standard input. Without a trace, only the policy is checked.
    Check {
        /// The policy.
        policy: PathBuf,
        /// The traces.
        traces: Vec<PathBuf>,
        /// How to tell what a call depends on.
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        /// Show the text of offending regions.
        #[arg(long)]
        content: bool,
        /// Leave permitted calls out of the text.
        #[arg(long)]
        objections: bool,
    },
    /// Judge whole corpora of runs in parallel, and print a table.
    ///
    /// A run that names its `suite` is judged by the policy whose file is called like the suite; runs of other suites
    /// are left out and counted. Runs without a suite are judged by the only policy. `NAME=FILE` gives a policy another
    /// name, and the name `*` stands for every suite.
    Replay {
        /// A policy, as FILE or NAME=FILE; may be given several times.
        #[arg(long = "policy", required = true, value_name = "[NAME=]FILE")]
        policies: Vec<String>,
        /// How to tell what a call depends on; may be given several times, or `all`.
        #[arg(long, default_value = "everything", value_parser = method_or_all)]
        influence: Vec<String>,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = TableFormat::Text)]
        format: TableFormat,
        /// List every injected call that is permitted without a question, and why.
        #[arg(long)]
        list_permitted: bool,
        /// List the questions of runs without attack.
        #[arg(long)]
        list_questions: bool,
        /// How many runs to judge at the same time; as many as there are processors by default.
        #[arg(long)]
        jobs: Option<usize>,
        /// The corpora.
        #[arg(required = true)]
        corpora: Vec<PathBuf>,
    },
    /// Show why each call got its verdict, and the smallest change of the policy that would permit it.
    Explain {
        /// The policy.
        policy: PathBuf,
        /// The trace.
        trace: PathBuf,
        /// Only the call with this id.
        #[arg(long)]
        call: Option<String>,
        /// How to tell what a call depends on.
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// Show the text of regions.
        #[arg(long)]
        content: bool,
    },
    /// Walk through an injected payment: labels, what the model may see, the call, its requirement, the verdict.
    Demo,
    /// List the influence methods, and what each guarantees.
    Methods,
    /// List the functions that policies can call.
    Functions,
    /// Print the script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How `check` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON object a line: calls and findings.
    Jsonl,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

/// How `replay` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// A table.
    Text,
    /// One JSON object a line, for each suite and method.
    Json,
}

fn method(name: &str) -> Result<String, String> {
    let known: Vec<&str> = flowgate_guard::influence::METHODS.iter().map(|method| method.name()).collect();
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("known methods are {}", known.join(", "))),
    }
}

fn method_or_all(name: &str) -> Result<String, String> {
    if name == "all" { Ok(name.to_owned()) } else { method(name).map_err(|error| format!("{error} and all")) }
}
