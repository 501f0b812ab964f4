//! Declares the arguments and the help of `flowgate approvals`, by which a person answers the questions of a gateway in
//! a terminal. `clap` parses them. Also defines [`GatewayArgs`], which all commands that ask a running gateway share.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// The environment variable with the key of the person.
pub(crate) const PERSON_KEY: &str = "FLOWGATE_PERSON_KEY";

/// The running gateway that a command asks, and the key of the person who asks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GatewayArgs {
    /// The address of the running gateway.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub(crate) gateway: String,
    /// A file that contains the key of the person, as `[people.NAME]` of the gateway has it; alternatively, set
    /// FLOWGATE_PERSON_KEY.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The certificates (PEM) of the authorities that may vouch for the gateway, instead of the well-known ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// How `approvals` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalsFormat {
    /// Text for people.
    Text,
    /// JSON: one document, or with `watch` one object per line.
    Json,
}

/// The states of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuestionStateArg {
    /// Nobody has decided yet.
    Open,
    /// Allowed, and the call was not sent yet.
    Allowed,
    /// Denied.
    Denied,
    /// Allowed, and the call was sent.
    Used,
    /// The conversation continued without the answer.
    Void,
    /// Nobody decided in time, or the answer was not used in time.
    Expired,
}

/// The operations on questions.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the questions of a gateway: the open ones, or those in another state.
    #[command(after_help = LIST_HELP)]
    List {
        /// The state of the questions.
        #[arg(long, value_enum, default_value_t = QuestionStateArg::Open)]
        state: QuestionStateArg,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Show a question: what the call would do, why a person is asked, what would be sent, and which text had a hand in
    /// it.
    #[command(after_help = SHOW_HELP)]
    Show {
        /// The id of the question.
        id: String,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Allow the call of a question, after it was shown and confirmed at the terminal.
    ///
    /// Without a terminal, --digest is needed: the digest of the question that was shown before, so that nothing is
    /// allowed unseen.
    #[command(after_help = ALLOW_HELP)]
    Allow {
        /// The id of the question.
        id: String,
        /// Also allow equal calls of the same conversation, where the policy says `grant conversation`.
        #[arg(long, conflicts_with = "lasting")]
        conversation: bool,
        /// Also allow equal calls of all conversations from now on, where the policy says `grant N days` or
        /// `grant always`.
        #[arg(long)]
        lasting: bool,
        /// With --lasting: for how many days; 0 means until the grant is withdrawn.
        #[arg(long, requires = "lasting", value_name = "NUMBER")]
        days: Option<u32>,
        /// With --lasting: the most calls a day.
        #[arg(long, requires = "lasting", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        calls_a_day: Option<u32>,
        /// The digest of the question as it was shown, from `show --format json`. Nothing is asked then.
        #[arg(long, value_name = "DIGEST")]
        digest: Option<String>,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Deny the call of a question.
    #[command(after_help = DENY_HELP)]
    Deny {
        /// The id of the question.
        id: String,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Show the open questions, and each new one as it is asked; at a terminal, ask for the answer to each.
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// The format of the result. With JSON, nothing is asked.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
}

pub(super) const APPROVALS_HELP: &str = "\
Examples:
  export FLOWGATE_PERSON_KEY=...                 the key of [people.NAME] of the gateway's configuration
  flowgate approvals watch                       answer questions as they are asked
  flowgate approvals list                        what waits for a decision
  flowgate approvals show ID                     one question, with the text that had a hand in it
  flowgate approvals allow ID                    allow the call once, after a look at it
  flowgate approvals deny ID

Exit codes:
  0    the operation is done
  1    there is an objection; see the help of the operation
  2    the command line or the key cannot be used, or the gateway does not answer";

const LIST_HELP: &str = "\
Examples:
  flowgate approvals list
  flowgate approvals list --state denied
  flowgate approvals list --format json --gateway https://gateway.example

Exit codes:
  0    the questions are listed
  1    the gateway refuses the request
  2    the command line or the key cannot be used, or the gateway does not answer";

const SHOW_HELP: &str = "\
Examples:
  flowgate approvals show ID
  flowgate approvals show ID --format json          with the digest that `allow --digest` needs
  flowgate explain --question ID                    with the reasons and regions of its verdict

Exit codes:
  0    the question is shown
  1    the gateway refuses the request, or there is no such question
  2    the command line or the key cannot be used, or the gateway does not answer";

const ALLOW_HELP: &str = "\
Examples:
  flowgate approvals allow ID
  flowgate approvals allow ID --conversation
  flowgate approvals allow ID --lasting --days 30 --calls-a-day 5
  flowgate approvals allow ID --digest DIGEST       for programs: the question was shown before

Exit codes:
  0    the call is allowed
  1    it is not: the answer at the terminal was no, the gateway refuses it, or the question is no longer open
  2    the command line or the key cannot be used, or the gateway does not answer";

const DENY_HELP: &str = "\
Examples:
  flowgate approvals deny ID

Exit codes:
  0    the call is denied
  1    the gateway refuses that, or the question is no longer open
  2    the command line or the key cannot be used, or the gateway does not answer";

const WATCH_HELP: &str = "\
Examples:
  flowgate approvals watch
  flowgate approvals watch --format json | my-notifier

Exit codes:
  0    the input at the terminal has ended
  1    the gateway refuses the request
  2    the command line or the key cannot be used, or the gateway does not answer at the start
  130  interrupted by Ctrl-C";
