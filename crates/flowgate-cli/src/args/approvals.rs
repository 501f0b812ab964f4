//! Declares the arguments and the help of `flowgate approvals`, by which a person answers the questions of a gateway in
//! a terminal. `clap` parses the arguments. Also defines [`GatewayArgs`], the options of all commands that send
//! requests to a running gateway for a person.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Subcommand, ValueEnum};
use serde_json::Number;

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
        /// With --lasting: the largest sum of an argument in a day (UTC). Equal calls may then have any value of this
        /// argument within the sum. It must be an amount, by its role in the policy; `show` names such arguments.
        #[arg(long, requires = "lasting", value_name = "ARGUMENT=NUMBER")]
        sum_a_day: Option<SumADay>,
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
    /// List the grants: what people have allowed for the rest of a conversation or from now on, with the limits.
    #[command(after_help = GRANTS_HELP)]
    Grants {
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Withdraw a grant: equal calls are asked about again.
    #[command(after_help = WITHDRAW_HELP)]
    Withdraw {
        /// The id of the grant, from `flowgate approvals grants`.
        id: String,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = ApprovalsFormat::Text)]
        format: ApprovalsFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
}

/// The value of `--sum-a-day`: the largest sum of one argument in a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SumADay {
    /// The name of the argument.
    pub(crate) argument: String,
    /// The largest sum.
    pub(crate) most: Number,
}

impl FromStr for SumADay {
    type Err = String;

    /// Parses `ARGUMENT=NUMBER`. The name is the text before the last `=`. The number has digits and at most one
    /// point: the gateway converts no other form to an exact sum.
    ///
    /// # Errors
    /// If the text has another form.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |number: &&str| number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let parts = text.rsplit_once('=').filter(|(argument, _)| !argument.is_empty());
        parts
            .and_then(|(argument, number)| {
                let most = Some(number).filter(is_plain).and_then(|number| number.parse().ok())?;
                Some(Self { argument: argument.to_owned(), most })
            })
            .ok_or_else(|| "write the name of an argument and a number, such as `amount=50`".to_owned())
    }
}

pub(super) const APPROVALS_HELP: &str = "\
Examples:
  export FLOWGATE_PERSON_KEY=...                 the key of [people.NAME] of the gateway's configuration
  flowgate approvals watch                       answer questions as they are asked
  flowgate approvals list                        what waits for a decision
  flowgate approvals show ID                     one question, with the text that had a hand in it
  flowgate approvals allow ID                    allow the call once, after a look at it
  flowgate approvals deny ID
  flowgate approvals grants                      what was allowed for longer than one call
  flowgate approvals withdraw ID                 withdraw such a grant

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
  flowgate approvals allow ID --lasting --sum-a-day amount=50
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

const GRANTS_HELP: &str = "\
Examples:
  flowgate approvals grants
  flowgate approvals grants --format json

Exit codes:
  0    the grants are listed
  1    the gateway refuses the request
  2    the command line or the key cannot be used, or the gateway does not answer";

const WITHDRAW_HELP: &str = "\
Examples:
  flowgate approvals withdraw ID

Exit codes:
  0    the grant is withdrawn
  1    the gateway refuses that, or there is no such grant
  2    the command line or the key cannot be used, or the gateway does not answer";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_a_day_is_a_name_and_a_plain_number() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let parsed = text.parse::<SumADay>();
            let found = parsed.as_ref().ok().map(|sum| (sum.argument.as_str(), sum.most.to_string()));
            assert_eq!(found, expected.map(|(name, most)| (name, most.to_owned())), "{text}: {parsed:?}");
        };
        check("amount=50", Some(("amount", "50")));
        check("amount=12.5", Some(("amount", "12.5")));
        check("a=b=5", Some(("a=b", "5")));
        for wrong in [
            "amount",
            "amount=",
            "=5",
            "amount=-5",
            "amount=1e3",
            "amount=.5",
            "amount=5.",
            "amount=05",
            "amount= 5",
            "amount=five",
        ] {
            check(wrong, None);
        }
    }
}
