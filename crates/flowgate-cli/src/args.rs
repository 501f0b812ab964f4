//! The command line.

#[cfg(feature = "gateway")]
mod audit;
mod help;
#[cfg(feature = "run")]
mod hook;
#[cfg(all(feature = "gateway", feature = "run"))]
mod mcp;
#[cfg(feature = "run")]
mod run;
#[cfg(feature = "gateway")]
mod serve;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::answering::Answering;
#[cfg(feature = "gateway")]
pub(crate) use audit::{Audit, KeptHead};
#[cfg(feature = "run")]
pub(crate) use hook::HookArgs;
#[cfg(all(feature = "gateway", feature = "run"))]
pub(crate) use mcp::McpArgs;
#[cfg(feature = "run")]
pub(crate) use run::RunArgs;
#[cfg(feature = "gateway")]
pub(crate) use serve::ServeArgs;

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
  flowgate run --policy policy.flow ...      chat with a guarded agent (see `flowgate run --help`)

  flowgate man check | man -l -              the manual page of a command

Exit codes (each command's help says more):
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
    #[command(after_help = help::CHECK)]
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
        /// Exit with 1 where there is a warning, of the policy or of what it names and the traces do not have.
        #[arg(long)]
        deny_warnings: bool,
        #[command(flatten)]
        answering: Answering,
    },
    /// Judge whole corpora of runs in parallel, and print a table.
    ///
    /// A run that names its `suite` is judged by the policy whose file is called like the suite; runs of other suites
    /// are left out and counted. Runs without a suite are judged by the only policy. `NAME=FILE` gives a policy another
    /// name, and the name `*` stands for every suite.
    #[command(after_help = help::REPLAY)]
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
        /// Exit with 1 where there is a warning, of a policy or of what it names and the runs do not have.
        #[arg(long)]
        deny_warnings: bool,
        /// The corpora.
        #[arg(required = true)]
        corpora: Vec<PathBuf>,
    },
    /// List what the rules of a policy find in recorded runs, with the places: no call is judged, and labels gate nothing.
    ///
    /// This is how the policies of Invariant's analyzer are run. A place is an address in the list of messages, in
    /// characters: `messages.1.content:5-10`.
    #[command(after_help = help::ANALYZE)]
    Analyze {
        /// The policy.
        policy: PathBuf,
        /// The traces.
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// A parameter of the policy, `input.NAME`; the value is JSON, or else text. May be given several times.
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
        parameters: Vec<(String, serde_json::Value)>,
        #[command(flatten)]
        answering: Answering,
        /// Read the policy as invariant-ai 0.3.5 did.
        #[arg(long)]
        compat: bool,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = AnalyzeFormat::Text)]
        format: AnalyzeFormat,
    },
    /// Show why each call got its verdict, and the smallest change of the policy that would permit it.
    #[command(after_help = help::EXPLAIN)]
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
        #[command(flatten)]
        answering: Answering,
    },
    /// Make a measurement again.
    #[command(after_help = help::BENCH)]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        bench: Bench,
    },
    /// Walk through an injected payment: labels, what the model may see, the call, its requirement, the verdict.
    #[command(after_help = help::DEMO)]
    Demo,
    /// Talk to a model whose tools come from MCP servers: what it sees and does is guarded by a policy.
    ///
    /// The model is shown what the policy lets flow into the strictest tool on offer; the rest gives way to placeholders, and it
    /// may look, which taints what it does next, or pass hidden text on without reading it. Each call is judged before it runs;
    /// where the policy asks, you are asked.
    #[cfg(feature = "run")]
    #[command(after_help = run::RUN_HELP)]
    Run(Box<RunArgs>),
    /// Stand between an MCP client and a server: what they say to each other passes the guard.
    ///
    /// In the client's configuration, put `flowgate` in place of the server's command, and the command behind `--`. Calls are judged as if
    /// all that this client was shown had influenced them; answers are labelled; tools that change are hidden.
    #[cfg(all(feature = "gateway", feature = "run"))]
    #[command(after_help = mcp::MCP_HELP)]
    Mcp(McpArgs),
    /// Judge the calls of Claude Code, as a hook that it runs before a tool runs, and after.
    ///
    /// It reads what Claude Code says on the standard input, puts the whole transcript under the policy, and judges the call as if all of it
    /// had influenced it. It answers with a decision, or with nothing where the policy has no objection. Whatever goes wrong is
    /// answered with a no.
    #[cfg(feature = "run")]
    #[command(after_help = hook::HOOK_HELP)]
    Hook(HookArgs),
    /// Serve over HTTP: model routes that guard agents of others, and the policy API.
    ///
    /// With --config, agents change the base address of their model's client, and nothing else. The policy API is
    /// that of Invariant's policy service: clients send a trace and a policy, and are told what its rules find. Ctrl-C lets
    /// the requests that have begun end, and takes no more.
    #[cfg(feature = "gateway")]
    #[command(after_help = serve::SERVE_HELP)]
    Serve(ServeArgs),
    /// Read the log that the gateway keeps of what was judged and decided, and check that nobody changed it.
    #[cfg(feature = "gateway")]
    #[command(after_help = help::AUDIT)]
    Audit {
        /// What to do with it.
        #[command(subcommand)]
        audit: Audit,
    },
    /// List the influence methods, and what each guarantees.
    #[command(after_help = help::METHODS)]
    Methods,
    /// List the functions that policies can call.
    #[command(after_help = help::FUNCTIONS)]
    Functions,
    /// Print the script that completes commands in a shell.
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of a command, or write those of all.
    #[command(after_help = help::MAN)]
    Man {
        /// The command; without it, the page of flowgate itself.
        #[arg(value_name = "COMMAND", conflicts_with = "out")]
        command: Vec<String>,
        /// Write the pages of all commands into this folder, which is made if it is not there.
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
}

/// `NAME=VALUE`
fn parameter(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    if name.is_empty() {
        return Err("the parameter has no name; write it as NAME=VALUE".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// How `analyze` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnalyzeFormat {
    /// For people.
    Text,
    /// One document.
    Json,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Hold detectors and a flow rule against the same attack in many disguises.
    ///
    /// Customers write feedback, and some of it tells the agent that summarizes it to put a link into its message, with what
    /// other customers wrote behind it. The messenger fetches the link to draw a preview, and the data is gone.
    ///
    /// The attack and the rule against it are those of "AI Agents with Formal Security Guarantees", sections 2 and 4.2; its
    /// Table 1 holds one detector against a few rows.
    #[command(after_help = DETECTORS_HELP)]
    Detectors {
        /// Another policy than the one that is built in; the tools are `gsheets_read` and `send_slack_message`.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = TableFormat::Text)]
        format: TableFormat,
        /// Show what the rows say, and what was found in them.
        #[arg(long)]
        content: bool,
    },
    /// Run an agent that obeys every instruction it sees over tasks in which strangers have written instructions.
    ///
    /// The model is a test double: it does a task's next step as soon as a method lets it, and obeys whoever it reads. So
    /// the table tells what each method prevents, asks about and costs, not how clever a model is. Every figure is
    /// computed as it runs.
    #[command(after_help = AGENTS_HELP)]
    Agents,
}

const AGENTS_HELP: &str = "\
Examples:
  flowgate bench agents

Exit codes:
  0  it was measured
  2  the command line cannot be used

How to read the table:
  foreign     acting calls that the task does not have
  altered     acting calls of the task with another value where it matters
  payload     calls of the task that pass strangers' text on as text
  idle        calls that only look something up, and that the task does not have
  questions   what a person was asked; they allow exactly what the task has
  done        tasks that were done all the same
  bits        what the choice of labels, and questions, could tell of hidden text";

const DETECTORS_HELP: &str = "\
How to read the table:
  injection, moderation    a score from 0 to 1 for the row alone
  hidden, pii, secrets     how many were found in the row alone
  link                     how many links there look made to carry data
  !                        flagged: a score of 0.5 or more, or something found
  injected message         the rule's verdict when the agent obeys: the mildest
                           over all ways to switch previews on
                           (true, left out, \"true\", 1)
  honest message           its verdict on the plain summary, previews off

What to make of it:
  A detector of attacks should flag every attack and no honest row. That is what
  `injection`, `hidden` and `link` are for; `moderation`, `pii` and `secrets`
  look for other things, and may be right about an honest row.

  The detectors know phrases and forms; a trained one errs on other rows. The
  rows were written to show how easily that happens, so the figures are no rates
  for feedback at large.

  The rule asks what was read before, not what it said, so no wording gets past
  it. It stops honest previews as well, and does nothing about a link that
  somebody clicks: the lines below the table count both.

  The agent is no model: a row says what its attack demands, and it does that.

Examples:
  flowgate bench detectors --content           what the rows say, with invisible
                                               characters written out
  flowgate bench detectors --policy mine.flow  the same runs, a rule of yours

Exit codes:
  0  the rule stopped every injected message, and let every honest one pass
  1  it did not
  2  the command line or the policy cannot be used";

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

/// How `replay` and `bench` print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// A table.
    Text,
    /// One JSON object a line: for each suite and method, or for each row and for all of them.
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every command, a new one as well, teaches: what it does, how it is called, what its exit codes mean, and what each option is.
    #[test]
    fn every_command_says_what_it_does_and_how_it_ends() {
        let mut root = Args::command();
        root.build();
        let mut open = vec![("flowgate".to_owned(), &root)];
        let mut count = 0;
        while let Some((name, command)) = open.pop() {
            let below = command.get_subcommands().filter(|command| command.get_name() != "help");
            open.extend(below.map(|below| (format!("{name} {}", below.get_name()), below)));
            count += 1;
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.len() > 20, "`{name} --help` does not say what it does");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let teaches = help.contains(&name) || help.contains("\"flowgate\"");
            assert!(teaches, "`{name} --help` shows no example of it:\n{help}");
            let codes = help.split_once("Exit codes").map(|(_, codes)| codes).unwrap_or_default();
            let says = |code: &str| codes.lines().any(|line| line.trim_start().starts_with(code));
            assert!(says("0  ") && says("2  "), "`{name} --help` does not say what 0 and 2 mean:\n{help}");
            for argument in command.get_arguments() {
                let said = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(said.len() > 5, "`{name} --help` does not say what {} is", argument.get_id());
            }
        }
        assert!(count >= 12, "{count} commands");
    }
}
