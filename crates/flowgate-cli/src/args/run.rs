//! Declares the arguments and the help of `flowgate run`, a guarded chat in the terminal. `clap` parses the arguments.

use std::path::PathBuf;

use super::parameter;
use crate::predicate_args::PredicateArgs;

use clap::ValueEnum;
use flowgate_lm::wire::Api;

pub(super) const RUN_HELP: &str = "\
Examples:
  flowgate run --policy examples/run/policy.flow --config examples/run/servers.json \\
      --url http://localhost:8080/v1 --model qwen3 --labels
                                          chat with a local model that uses the tools of two servers
  flowgate run --policy p.flow --config servers.json --url https://api.openai.com/v1 \\
      --key-from OPENAI_API_KEY --model gpt-5 'Send Bob a summary of example.org'
                                          run one turn; the reply goes to the standard output
  flowgate run --policy p.flow ... --record answers.jsonl --trace run.jsonl 'Hello'
  flowgate run --policy p.flow ... --replay answers.jsonl 'Hello'
                                          repeat the turn with the recorded answers
  flowgate check p.flow run.jsonl         judge the calls in the file of --trace

The file of --config has the form that MCP clients use:
  {\"mcpServers\": {
    \"mail\": {\"command\": \"uvx\", \"args\": [\"mail-server\"], \"env\": {\"KEY\": \"${MAIL_KEY}\"}},
    \"web\": {\"url\": \"https://example.org/mcp\"}}}

A policy for a chat needs these statements (see docs/run.md):
  label message as trusted, public if:    # messages of the user
      (message: Message)
      message.role in [\"system\", \"user\"]
  label tool as trusted, public if:       # the descriptions of a server's tools
      (tool: Tool)
      tool.server == \"mail\"

In the chat, /help lists the commands. Ctrl-C stops the turn, Ctrl-C again quits.
Without a terminal, the answer to every question is no.

Exit codes:
  0    the turn is complete
  1    the turn is incomplete, or a reply of the model was withheld
  2    the command line, a file, a server or the policy cannot be used
  130  ended by the second Ctrl-C; calls that had run before cannot be undone";

/// The options of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The policy file.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The name of the model on its server.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A smaller model at the same address that screens hidden regions and fills slots.
    #[arg(long, value_name = "NAME")]
    pub(crate) small_model: Option<String>,
    /// The folder of a screener that reads the attention of a local model, as `flowgate screen train` writes it. It
    /// needs `--method judge`, and the smaller model then writes the preliminary messages.
    #[cfg(feature = "local")]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) screener: Option<PathBuf>,
    #[cfg(feature = "local")]
    #[command(flatten)]
    pub(crate) device: super::device::DeviceArgs,
    /// The address of the model's server, including the version, such as http://localhost:8080/v1.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The API of the model's server.
    #[arg(long, default_value = "chat-completions", value_parser = api_parser())]
    pub(crate) api: Api,
    /// The environment variable that contains the key of the model's server. MCP servers do not receive it.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) key_from: Option<String>,
    /// The file of MCP servers; without it there are no tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The method that chooses what the model sees.
    #[arg(long, default_value = "lowest-first", value_parser = method_parser())]
    method: flowgate_guard::conversation::Method,
    /// How the steps are labelled: by what they are shown, or by all that they could be shown.
    #[arg(long, value_enum, default_value_t = StepLabelsArg::Floating)]
    step_labels: StepLabelsArg,
    /// The system message, or @ and a file that contains it.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) system: Option<String>,
    /// Record the model's answers in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Use the answers recorded in this file and send no request to a model.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Print the labels of each step and the number of hidden regions, and a summary at the end of the turn.
    #[arg(long)]
    pub(crate) labels: bool,
    /// A file for the labels of stores, shared by all chats of one account; it is read and updated.
    #[arg(long, value_name = "FILE")]
    pub(crate) stores: Option<PathBuf>,
    /// Write the events to this file, for `flowgate check`.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// A parameter of the policy, `input.NAME`. The value is read as JSON if it is JSON, otherwise as text. May be
    /// given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: PredicateArgs,
    /// The time limit for an answer of a tool, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400), help_heading = "Limits")]
    pub(crate) call_time: u32,
    /// The largest size of a tool's answer, in MiB.
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=8), help_heading = "Limits")]
    pub(crate) max_answer: u32,
    /// The user's message; without it, messages are read from the standard input, one per line.
    pub(crate) prompt: Option<String>,
}

impl RunArgs {
    /// Returns the method of the conversation.
    pub(crate) fn method(&self) -> flowgate_guard::conversation::Method {
        self.method
    }

    /// Returns how steps are labelled, as `flowgate_guard` names it: the enum of the command line also has the help of
    /// each value.
    pub(crate) fn step_labels(&self) -> flowgate_guard::conversation::StepLabelling {
        use flowgate_guard::conversation::StepLabelling;
        match self.step_labels {
            StepLabelsArg::Floating => StepLabelling::Floating,
            StepLabelsArg::Fixed => StepLabelling::Fixed,
        }
    }
}

/// How steps are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StepLabelsArg {
    /// A step carries what it is shown, and what decided that.
    Floating,
    /// Every step carries all that it could be shown: the strictest requirement on offer.
    Fixed,
}

/// Returns the parser of the value of `--api`: it accepts the names of the wire forms, and the help lists them with
/// what each is.
fn api_parser() -> impl clap::builder::TypedValueParser<Value = Api> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    let values = Api::ALL.map(|api| PossibleValue::new(api.form().name).help(api.form().description));
    // clap accepts only the names above, so the fallback is never used.
    PossibleValuesParser::new(values).map(|name| Api::named(&name).unwrap_or(Api::ChatCompletions))
}

/// Returns the parser of the value of `--method`: it accepts the names of the methods, and the help lists them with
/// what each does.
fn method_parser() -> impl clap::builder::TypedValueParser<Value = flowgate_guard::conversation::Method> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    use flowgate_guard::method::{Method, MethodRegistry};
    let methods = MethodRegistry::builtin();
    let values = methods.methods().iter().map(|method| PossibleValue::new(method.name()).help(method.doc()));
    PossibleValuesParser::new(values.collect::<Vec<_>>())
        // clap accepts only the names above, so the fallback is never used.
        .map(move |name| methods.find(&name).unwrap_or(Method::LowestFirst))
}
