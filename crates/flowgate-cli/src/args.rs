//! Declares the commands of the program and their arguments, which `clap` parses. Each submodule declares the arguments
//! and the help of one command, or options that several commands share. `main` parses [`Args`], and `command::run` runs
//! the command.

#[cfg(feature = "run")]
mod approvals;
mod attack;
#[cfg(feature = "gateway")]
mod audit;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "bench")]
mod bench_model;
#[cfg(feature = "run")]
mod clients;
#[cfg(feature = "bench")]
mod corpus;
#[cfg(feature = "gateway")]
mod database;
#[cfg(feature = "local")]
mod device;
#[cfg(feature = "run")]
mod doctor;
#[cfg(feature = "bench")]
mod extended;
#[cfg(feature = "bench")]
mod games;
mod help;
#[cfg(feature = "run")]
mod hook;
mod influence_model;
#[cfg(feature = "run")]
mod init;
#[cfg(feature = "run")]
pub(crate) mod keys;
mod labels;
#[cfg(all(feature = "bench", any(feature = "local", feature = "run")))]
mod lm;
#[cfg(feature = "run")]
mod login_link;
#[cfg(feature = "run")]
mod mcp;
#[cfg(feature = "local")]
mod paper;
#[cfg(feature = "bench")]
mod privacy;
#[cfg(feature = "bench")]
mod propagation;
mod report;
#[cfg(feature = "run")]
mod run;
#[cfg(feature = "run")]
mod scoring_server;
#[cfg(feature = "local")]
mod screen;
#[cfg(feature = "local")]
mod screeners;
#[cfg(feature = "gateway")]
mod serve;
#[cfg(feature = "gateway")]
mod trace;

use crate::display_mode::{Color, ProgressMode};
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::parameter_args::{ParameterArgs, parameter};
use crate::predicate_args::PredicateArgs;
#[cfg(feature = "run")]
pub(crate) use approvals::{
    ApprovalsCommand, ApprovalsFormat, GatewayArgs, PERSON_KEY, QuestionStateArg, SumADay,
};
pub(crate) use attack::{AttackArgs, AttackFormat};
#[cfg(feature = "gateway")]
pub(crate) use audit::{AuditCommand, ExternalHead};
#[cfg(feature = "bench")]
pub(crate) use bench::{
    AgentsArgs, BenchCommand, DetectorsArgs, InjectionsArgs, InterpreterArgs, VerifyArgs,
};
#[cfg(feature = "bench")]
pub(crate) use bench_model::{AttackerArgs, BenchModelArgs};
#[cfg(feature = "run")]
pub(crate) use clients::{ClientArgs, ScanArgs, ScanFormat, WrapArgs};
#[cfg(feature = "bench")]
pub(crate) use corpus::CorpusArgs;
#[cfg(feature = "gateway")]
pub(crate) use database::DatabaseCommand;
#[cfg(feature = "run")]
pub(crate) use doctor::DoctorOptions;
#[cfg(feature = "bench")]
pub(crate) use extended::ExtendedArgs;
#[cfg(feature = "bench")]
pub(crate) use games::{GamesArgs, ReportFormat};
#[cfg(feature = "run")]
pub(crate) use hook::{AGENT_KEY, Harness, HookArgs};
pub(crate) use influence_model::{ESTIMATED_METHODS, InfluenceModelArgs};
#[cfg(feature = "run")]
pub(crate) use init::InitArgs;
pub(crate) use labels::{LabelsArgs, LabelsFormat};
#[cfg(feature = "local")]
pub(crate) use lm::{EvaluateArgs, TrainArgs};
#[cfg(all(feature = "bench", any(feature = "local", feature = "run")))]
pub(crate) use lm::{LmCommand, TuneArgs};
#[cfg(feature = "run")]
pub(crate) use login_link::LoginLinkArgs;
#[cfg(feature = "run")]
pub(crate) use mcp::{McpArgs, McpGuardArgs, McpLoginCommand, McpServerArgs};
#[cfg(feature = "local")]
pub(crate) use paper::PaperArgs;
#[cfg(feature = "bench")]
pub(crate) use privacy::PrivacyArgs;
#[cfg(feature = "bench")]
pub(crate) use propagation::{NewsQuestionsArgs, PropagationArgs};
pub(crate) use report::ReportArgs;
#[cfg(feature = "run")]
pub(crate) use run::RunArgs;
#[cfg(feature = "run")]
pub(crate) use scoring_server::ScoringServerArgs;
#[cfg(feature = "local")]
pub(crate) use screen::{ScreenCommand, ScreenFeatures, ScreenTimeArgs, ScreenTrainArgs};
#[cfg(feature = "local")]
pub(crate) use screeners::ScreenersArgs;
#[cfg(feature = "gateway")]
pub(crate) use serve::ServeArgs;
#[cfg(feature = "gateway")]
pub(crate) use trace::TraceCommand;

/// An information-flow firewall for LLM agents: it labels what an agent reads and judges what the agent does.
#[derive(Debug, Parser)]
#[command(name = "flowgate", version, about, long_about = None, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
    /// When to show progress and the time left, on the standard error.
    #[arg(long, global = true, value_enum, default_value_t = ProgressMode::Auto, value_name = "WHEN")]
    pub(crate) progress: ProgressMode,
}

/// What `flowgate --help` shows after the list of commands.
const AFTER_HELP: &str = "\
Start here:
  flowgate demo                              see an injected payment stopped, step by step
  flowgate init tools.json                   draft a policy from what describes your tools
  flowgate check policy.flow trace.json      judge every call of a recorded run
  flowgate explain policy.flow trace.json    why, and which change of the policy would permit it
  flowgate run --policy policy.flow ...      chat with a guarded agent (see `flowgate run --help`)

  flowgate man check | man -l -              show the manual page of a command

Exit codes (each command's help says more):
  0    success; nothing was found
  1    a call needs confirmation or is denied, a rule matched, or a measurement failed
  2    the command line, a policy or another file cannot be used
  130  interrupted by Ctrl-C; the results so far are printed";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judge every call of recorded runs and list the matches of rules.
    ///
    /// A trace is a list of OpenAI or Anthropic messages as JSON, an MCP log, or JSON lines of either, compressed with gzip or not;
    /// `-` is the standard input. Without a trace, only the policy is checked.
    ///
    /// With --tools, the policy is compared with the schemas of the tools: a tool or an argument that the policy names and no schema
    /// contains is an error. Notes list the tools that no `require` and no `label` covers.
    #[command(after_help = help::CHECK)]
    Check {
        /// The policy file.
        policy: PathBuf,
        /// The trace files.
        traces: Vec<PathBuf>,
        /// The influence method: how to determine what a call depends on (see `flowgate methods`).
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
        /// Show the text of the regions that a verdict objects to.
        #[arg(long)]
        content: bool,
        /// Do not list permitted calls (text format only).
        #[arg(long)]
        objections: bool,
        /// Exit with 1 if there is a warning about the policy, or about names in it that do not occur in the traces.
        #[arg(long)]
        deny_warnings: bool,
        /// A JSON file with tools: the result of MCP `tools/list`, or a request to a model with `tools` (OpenAI, Anthropic). `NAME=FILE`
        /// means the tools of the server NAME, which the policy calls `tool:NAME/...`. May be given several times.
        #[arg(long = "tools", value_name = "[NAME=]FILE")]
        tools: Vec<String>,
        #[command(flatten)]
        parameters: ParameterArgs,
        #[command(flatten)]
        answering: PredicateArgs,
    },
    /// Judge corpora of runs in parallel and print a table.
    ///
    /// A run with a `suite` is judged by the policy whose file name is the name of the suite; runs of other suites are skipped and
    /// counted. A run without a suite is judged by the only policy. `NAME=FILE` gives a policy another name, and the name `*`
    /// means every suite.
    #[command(after_help = help::REPLAY)]
    Replay {
        /// A policy, as FILE or NAME=FILE. May be given several times.
        #[arg(long = "policy", required = true, value_name = "[NAME=]FILE")]
        policies: Vec<String>,
        /// The influence method: how to determine what a call depends on. May be given several times, or as `all`.
        /// `lambda`, `knn-lm` and `introspection` ask a model and are not in `all`. [default: everything, without --method]
        #[arg(long, value_parser = method_or_all)]
        influence: Vec<String>,
        #[command(flatten)]
        model: InfluenceModelArgs,
        /// The method of a guarded conversation (see `flowgate run --help`): the run is replayed in a real conversation, whose model is a
        /// double that repeats each recorded call if what the call needs is in its view, in a slot or behind a look (open loop). May be
        /// given several times, or as `all`.
        #[arg(long = "method", value_name = "METHOD", value_parser = step_method_or_all)]
        methods: Vec<String>,
        /// How far the answer to a question goes, with --method: a grant covers equal calls of the rest of the run, where the policy
        /// allows it. Without this option, every question is answered once.
        #[arg(long, value_name = "SCOPE", value_parser = ["conversation"], requires = "methods")]
        grant: Option<String>,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = TableFormat::Text)]
        format: TableFormat,
        /// List every injected call that is permitted without a question, with the reason.
        #[arg(long)]
        list_permitted: bool,
        /// List the questions of runs without attack.
        #[arg(long)]
        list_questions: bool,
        #[command(flatten)]
        parameters: ParameterArgs,
        /// The number of runs to judge at the same time [default: the number of processors].
        #[arg(long)]
        jobs: Option<usize>,
        /// Exit with 1 if there is a warning about a policy, or about names in it that do not occur in the runs.
        #[arg(long)]
        deny_warnings: bool,
        /// The files of runs.
        #[arg(required = true)]
        corpora: Vec<PathBuf>,
    },
    /// List the matches of a policy's rules in recorded runs, with their positions. No call is judged, and labels are not enforced.
    ///
    /// This command runs policies of Invariant's analyzer. A position is a path into the list of messages with a range of
    /// characters: `messages.1.content:5-10`.
    #[command(after_help = help::ANALYZE)]
    Analyze {
        /// The policy file.
        policy: PathBuf,
        /// The trace files.
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// A parameter of the policy, `input.NAME`. The value is read as JSON if it is JSON, otherwise as text. May be given several times.
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
        parameters: Vec<(String, serde_json::Value)>,
        #[command(flatten)]
        answering: PredicateArgs,
        /// Read the policy as invariant-ai 0.3.5 does.
        #[arg(long)]
        compat: bool,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = AnalyzeFormat::Text)]
        format: AnalyzeFormat,
    },
    /// Show the reasons for each verdict, the changes of the policy that would permit the call, and what an attacker gains by each change.
    ///
    /// With --question, shows a question of a running gateway instead, with the reasons of its verdict and the regions that influenced
    /// the call.
    #[command(after_help = help::EXPLAIN)]
    Explain {
        /// The policy file.
        #[cfg_attr(feature = "run", arg(required_unless_present = "question"))]
        #[cfg_attr(not(feature = "run"), arg(required = true))]
        policy: Option<PathBuf>,
        /// The trace file.
        #[cfg_attr(feature = "run", arg(required_unless_present = "question"))]
        #[cfg_attr(not(feature = "run"), arg(required = true))]
        trace: Option<PathBuf>,
        /// The id of a question of a running gateway, in place of a policy and a trace.
        #[cfg(feature = "run")]
        #[arg(long, value_name = "ID", conflicts_with_all = ["policy", "trace", "call", "against"])]
        question: Option<String>,
        #[cfg(feature = "run")]
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Explain only the call with this id.
        #[arg(long)]
        call: Option<String>,
        /// The influence method: how to determine what a call depends on (see `flowgate methods`).
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// Show the text of the regions.
        #[arg(long)]
        content: bool,
        /// Replay these corpora under each suggested change: what it frees, and which recorded attacks it lets pass.
        #[arg(long, value_name = "RUNS", num_args = 1..)]
        against: Vec<PathBuf>,
        #[command(flatten)]
        parameters: ParameterArgs,
        #[command(flatten)]
        answering: PredicateArgs,
    },
    /// Find the least changes of a policy that would have let the useful calls of recorded runs pass, and what an attacker gains by each.
    ///
    /// Each change is tried over the runs. No change is suggested that lets the author of a text choose a recipient, an account, a URL, a
    /// path, code or a credential, or that lets a recorded attack do more.
    #[command(after_help = help::SUGGEST)]
    Suggest {
        /// The policy file.
        policy: PathBuf,
        /// The trace files of ordinary work. Runs that are marked as attacks count as attacks.
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// The influence method: how to determine what a call depends on (see `flowgate methods`).
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// Recorded attacks, of which none may do more with a change than without.
        #[arg(long, value_name = "RUNS", num_args = 1..)]
        against: Vec<PathBuf>,
        #[command(flatten)]
        parameters: ParameterArgs,
        #[command(flatten)]
        answering: PredicateArgs,
    },
    /// Train and measure small models, which tell what an answer depends on.
    #[cfg(all(feature = "bench", any(feature = "local", feature = "run")))]
    #[command(after_help = lm::LM_HELP)]
    Lm {
        /// The operation.
        #[command(subcommand)]
        lm: LmCommand,
    },
    /// Train screeners that read the attention of a local model, for `flowgate run`.
    #[cfg(feature = "local")]
    #[command(after_help = screen::SCREEN_HELP)]
    Screen {
        /// The operation.
        #[command(subcommand)]
        screen: ScreenCommand,
    },
    /// Repeat a measurement of the guard, or of detectors.
    #[cfg(feature = "bench")]
    #[command(after_help = help::BENCH)]
    Bench {
        /// The measurement.
        #[command(subcommand)]
        bench: BenchCommand,
    },
    /// Write a first policy for tools, with its reasons as comments.
    ///
    /// The policy is drafted from what describes the tools: the roles of their arguments, the annotations of MCP servers, and names.
    /// What these do not say stays closed, and a comment says so. No description can add anything else to the policy.
    #[cfg(feature = "run")]
    #[command(after_help = init::INIT_HELP)]
    Init(InitArgs),
    /// List the MCP servers and hooks of the clients on this machine, and the combinations that can leak or be steered.
    #[cfg(feature = "run")]
    #[command(after_help = clients::SCAN_HELP)]
    Scan(ScanArgs),
    /// Put the MCP servers of a client behind `flowgate mcp`: change its configuration, and keep a backup.
    #[cfg(feature = "run")]
    #[command(after_help = clients::WRAP_HELP)]
    Wrap(WrapArgs),
    /// Let the MCP servers of a client run without `flowgate mcp` again.
    #[cfg(feature = "run")]
    #[command(after_help = clients::UNWRAP_HELP)]
    Unwrap(ClientArgs),
    /// Say what is wrong with a setup, and the line or the command that helps.
    ///
    /// Examines a configuration of the gateway, a policy with a sample request, or the MCP servers of a client: keys, files,
    /// certificates, permissions, errors of policies, and what policies hide from the model although a line would show it.
    #[cfg(feature = "run")]
    #[command(after_help = doctor::DOCTOR_HELP)]
    Doctor(DoctorOptions),
    /// Try known injections on a policy: a double obeys each of them, and the policy judges the call.
    #[command(after_help = attack::ATTACK_HELP)]
    Attack(AttackArgs),
    /// Show every field of a recorded run with its label, the statement that gave it, and what a step at the base label is shown.
    #[command(after_help = labels::LABELS_HELP)]
    Labels(LabelsArgs),
    /// Show step by step how an injected payment is stopped: labels, the model's view, the call, its requirement and the verdict.
    #[command(after_help = help::DEMO)]
    Demo,
    /// Chat with a model that uses the tools of MCP servers, guarded by a policy.
    ///
    /// The model sees the text that may flow into the strictest tool on offer; placeholders replace the rest. The model can look at
    /// hidden text, which taints its next steps, or pass it on without reading it. Each call is judged before it runs; if the policy
    /// requires confirmation, you are asked at the terminal.
    #[cfg(feature = "run")]
    #[command(after_help = run::RUN_HELP)]
    Run(Box<RunArgs>),
    /// Guard one MCP server: a proxy between the server and its client.
    ///
    /// In the client's configuration, replace the server's command by `flowgate mcp`, followed by `--` and the command. Each call is
    /// judged as if everything that the client has received had influenced it; answers are labelled; tools whose descriptions change
    /// are hidden.
    #[cfg(feature = "run")]
    #[command(after_help = mcp::MCP_HELP)]
    Mcp(McpArgs),
    /// Judge the tool calls of Claude Code and other coding agents, as a hook that runs before and after each tool.
    ///
    /// The command reads the event from the standard input, labels the whole transcript by the policy, and judges the call as if the whole
    /// transcript had influenced it. It prints a decision, or nothing if the policy has no objection. On any failure the decision is
    /// `deny`.
    #[cfg(feature = "run")]
    #[command(after_help = hook::HOOK_HELP)]
    Hook(HookArgs),
    /// Answer the questions of a running gateway in the terminal: list and show them, allow and deny calls.
    ///
    /// This is the page for people without a browser: the same questions, with the same parts, over the same routes. What is shown of
    /// a question, and what may be answered, depends on the role and the clearance of the person.
    #[cfg(feature = "run")]
    #[command(after_help = approvals::APPROVALS_HELP)]
    Approvals {
        /// The operation.
        #[command(subcommand)]
        approvals: ApprovalsCommand,
    },
    /// Make a link by which a person logs in to the page of a running gateway, once and within five minutes.
    #[cfg(feature = "run")]
    #[command(after_help = login_link::LOGIN_LINK_HELP)]
    LoginLink(LoginLinkArgs),
    /// Make, list and revoke virtual keys of a running gateway: further keys of its clients.
    ///
    /// A virtual key has the policy of its client, and can be limited further. Only admins of the client's tenant may use this command.
    #[cfg(feature = "run")]
    #[command(after_help = keys::KEYS_HELP)]
    Keys {
        /// The operation.
        #[command(subcommand)]
        keys: keys::KeysCommand,
    },
    /// Sum up what a guard that only watched would have asked about and denied.
    #[command(after_help = report::REPORT_HELP)]
    Report(ReportArgs),
    /// Run the gateway: model routes that guard existing agents, and the policy API, over HTTP.
    ///
    /// With --config, an agent only changes the base address of its model client. The policy API is that of Invariant's policy service:
    /// a client sends a trace and a policy and receives the matches of its rules. On Ctrl-C the gateway accepts no more
    /// requests and finishes those that have begun.
    #[cfg(feature = "gateway")]
    #[command(after_help = serve::SERVE_HELP)]
    Serve(ServeArgs),
    /// Read and verify the audit log, in which the gateway records verdicts and decisions.
    #[cfg(feature = "gateway")]
    #[command(after_help = help::AUDIT)]
    Audit {
        /// The operation.
        #[command(subcommand)]
        audit: AuditCommand,
    },
    /// Encrypt the content that a gateway has stored.
    #[cfg(feature = "gateway")]
    #[command(after_help = help::DATABASE)]
    Database {
        /// The operation.
        #[command(subcommand)]
        database: DatabaseCommand,
    },
    /// Export the traces of conversations that a gateway has stored, for `replay`, `explain` and `suggest`.
    #[cfg(feature = "gateway")]
    #[command(after_help = help::TRACE)]
    Trace {
        /// The operation.
        #[command(subcommand)]
        trace: TraceCommand,
    },
    /// List the influence methods and what each guarantees.
    #[command(after_help = help::METHODS)]
    Methods,
    /// List the functions that policies can call.
    #[command(after_help = help::FUNCTIONS)]
    Functions,
    /// Print a script that completes flowgate's commands and options in a shell.
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of a command, or write the pages of all commands.
    #[command(after_help = help::MAN)]
    Man {
        /// The command [default: flowgate itself].
        #[arg(value_name = "COMMAND", conflicts_with = "out")]
        command: Vec<String>,
        /// Write the pages of all commands to this folder; it is created if necessary.
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
}

/// How `analyze` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnalyzeFormat {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
}

/// How `check` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON object per line, for each call and each match.
    Jsonl,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

/// How `replay` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// A table.
    Text,
    /// One JSON object per line, for each suite and method.
    Json,
}

/// Checks the value of `--influence`, the name of an influence method, and returns it as it is. The error lists the
/// known methods.
fn method(name: &str) -> Result<String, String> {
    let methods = flowgate_guard::method::MethodRegistry::builtin();
    let known: Vec<&str> = methods.influence_methods().iter().map(|method| method.name()).collect();
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("there is no method of this name; known methods are {}", known.join(", "))),
    }
}

/// Checks the value of `--method`, the name of a method of a guarded conversation or `all`, and returns it as it is.
/// The error lists the known methods.
fn step_method_or_all(name: &str) -> Result<String, String> {
    let known = flowgate_guard::method::MethodRegistry::builtin();
    let known: Vec<&str> = known.methods().iter().map(|method| method.name()).collect();
    match name == "all" || known.contains(&name) {
        true => Ok(name.to_owned()),
        false => {
            Err(format!("there is no method of this name; known methods are {} and all", known.join(", ")))
        }
    }
}

/// Checks the value of `--influence` of `replay` like [`method`]; it can also be `all`, or a method that asks a model.
fn method_or_all(name: &str) -> Result<String, String> {
    if name == "all" || ESTIMATED_METHODS.contains(&name) {
        return Ok(name.to_owned());
    }
    // The error of `method` ends with the list of methods, so further names can follow.
    let further = ESTIMATED_METHODS.map(|name| format!(", {name}")).concat();
    method(name).map_err(|error| format!("{error}{further} and all"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every command documents what it does, how it is called, what its exit codes mean, and what each option is; new
    /// commands are covered as well.
    #[test]
    fn every_command_documents_its_purpose_and_exit_codes() {
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
            let codes: Vec<&str> = exit_codes(&help).into_iter().map(|(code, _)| code).collect();
            let known = ["0", "1", "2", "130"];
            let ordered: Vec<&str> = known.into_iter().filter(|code| codes.contains(code)).collect();
            assert!(
                codes.contains(&"0") && codes.contains(&"2"),
                "`{name} --help` does not say what 0 and 2 mean"
            );
            assert_eq!(codes, ordered, "`{name} --help` has other exit codes than docs/commands.md");
            for argument in command.get_arguments() {
                let said = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(said.len() > 5, "`{name} --help` does not say what {} is", argument.get_id());
            }
        }
        assert!(count >= 12, "{count} commands");
    }

    /// Returns the exit codes that a help text explains, with the explanations. An explanation may have several lines.
    fn exit_codes(help: &str) -> Vec<(&str, String)> {
        let (_, codes) = help.split_once("Exit codes").unwrap_or_default();
        let mut found: Vec<(&str, String)> = Vec::new();
        for line in codes.lines().skip(1).take_while(|line| !line.is_empty()) {
            let (code, text) = line.trim_start().split_once("  ").unwrap_or(("", line));
            match found.last_mut() {
                Some((_, explanation)) if code.is_empty() => {
                    explanation.push(' ');
                    explanation.push_str(text.trim());
                }
                _ => found.push((code, text.trim().to_owned())),
            }
        }
        found
    }

    /// The table of the documentation matches the help of each command.
    #[test]
    #[cfg(all(feature = "gateway", feature = "run"))]
    fn the_documentation_has_the_exit_codes_of_every_command() {
        let mut root = Args::command();
        root.build();
        let mut open = vec![(String::new(), &root)];
        let mut rows = Vec::new();
        while let Some((name, command)) = open.pop() {
            let below = command.get_subcommands().filter(|command| command.get_name() != "help");
            open.extend(below.map(|below| (format!("{name} {}", below.get_name()), below)));
            if name.is_empty() || command.is_subcommand_required_set() {
                continue;
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let codes = exit_codes(&help);
            let cell = |code: &str| {
                codes.iter().find(|(known, _)| *known == code).map_or("", |(_, text)| text.as_str())
            };
            let cells = ["0", "1", "2", "130"].map(cell).join(" | ");
            rows.push(format!("| `{}` | {cells} |\n", name.trim_start()));
        }
        rows.sort();
        let table = rows.concat();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once("|---|---|---|---|---|\n").unwrap();
        let (written, after) = rest.split_once("\n\n").unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let written = format!("{before}|---|---|---|---|---|\n{table}\n{after}");
            std::fs::write(path, written).unwrap();
            return;
        }
        assert_eq!(format!("{written}\n"), table, "UPDATE_GOLDEN=1 cargo test writes the table anew");
    }
}
