//! `flowgate run`.

use std::path::PathBuf;

use super::parameter;
use crate::answering::Answering;

use clap::ValueEnum;

pub(super) const RUN_HELP: &str = "\
Examples:
  flowgate run --policy examples/run/policy.flow --config examples/run/servers.json \\
      --url http://localhost:8080/v1 --model qwen3 --labels
                                          a chat with a local model, tools from two servers
  flowgate run --policy p.flow --config servers.json --url https://api.openai.com/v1 \\
      --key-from OPENAI_API_KEY --model gpt-5 'Send Bob a summary of example.org'
                                          one turn; the reply is on the standard output
  flowgate run --policy p.flow ... --record answers.jsonl --trace run.jsonl 'Hello'
  flowgate run --policy p.flow ... --replay answers.jsonl 'Hello'
                                          the same again, without asking the model
  flowgate check p.flow run.jsonl         judges what was written by --trace

The file of --config is the one that MCP clients use:
  {\"mcpServers\": {
    \"mail\": {\"command\": \"uvx\", \"args\": [\"mail-server\"], \"env\": {\"KEY\": \"${MAIL_KEY}\"}},
    \"web\": {\"url\": \"https://example.org/mcp\"}}}

What a policy for a chat needs (docs/run.md says more):
  label message as trusted, public if:    # what you say
      (message: Message)
      message.role in [\"system\", \"user\"]
  label tool as trusted, public if:       # what a server says of its tools
      (tool: Tool)
      tool.server == \"mail\"

In the chat, /help lists what else there is.
Without a terminal nobody can be asked, and the answer to every question is no.

Exit codes:
  0  the turn came to its end
  1  it did not, or something that the model said is withheld
  2  the command line, a file, a server or the policy cannot be used";

/// How `run` runs.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The model, as its server calls it.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A smaller model at the same address, to screen and to fill slots.
    #[arg(long, value_name = "NAME")]
    pub(crate) small_model: Option<String>,
    /// The address of the model's server, up to the version, such as http://localhost:8080/v1.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The form in which the model is asked.
    #[arg(long, value_enum, default_value_t = ModelApi::ChatCompletions)]
    api: ModelApi,
    /// The variable of the environment that has the key of the model's server. MCP servers do not see it.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) key_from: Option<String>,
    /// The MCP servers; without it there are no tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What the model is shown.
    #[arg(long, default_value = "lowest-first", value_parser = run_methods())]
    method: flowgate_guard::conversation::Method,
    /// Your instructions to the model, or @ and the file that has them.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) system: Option<String>,
    /// Keep the model's answers in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Give the answers that were kept in this file, and ask no model.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Say after each step what it carried and what was hidden, and at the end what the turn took.
    #[arg(long)]
    pub(crate) labels: bool,
    /// What earlier chats of this account wrote to stores: read from this file, and kept in it.
    #[arg(long, value_name = "FILE")]
    pub(crate) stores: Option<PathBuf>,
    /// Write what happens to this file, for `flowgate check`.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// A parameter of the policy, `input.NAME`; the value is JSON, or else text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: Answering,
    /// Seconds for a tool to answer.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400), help_heading = "Limits")]
    pub(crate) call_time: u32,
    /// The largest answer of a tool, in MiB.
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=8), help_heading = "Limits")]
    pub(crate) max_answer: u32,
    /// What to say to the model; without it, what you say is read line by line.
    pub(crate) prompt: Option<String>,
}

impl RunArgs {
    pub(crate) fn api(&self) -> flowgate_lm::wire::Api {
        use flowgate_lm::wire::Api;
        match self.api {
            ModelApi::ChatCompletions => Api::ChatCompletions,
            ModelApi::Responses => Api::Responses,
            ModelApi::Messages => Api::Messages,
        }
    }

    pub(crate) fn method(&self) -> flowgate_guard::conversation::Method {
        self.method
    }
}

/// The forms in which models are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelApi {
    /// OpenAI's chat completions, which nearly every server of local models has.
    ChatCompletions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

/// Reads the name of a method, and shows all of them in the help.
fn run_methods() -> impl clap::builder::TypedValueParser<Value = flowgate_guard::conversation::Method> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    use flowgate_guard::conversation::Method;
    let values = Method::ALL.map(|method| PossibleValue::new(method.name()).help(method.doc()));
    PossibleValuesParser::new(values).map(|name| {
        Method::ALL.into_iter().find(|method| method.name() == name).unwrap_or(Method::LowestFirst)
    })
}
