//! Declares the arguments and the help of `flowgate keys`, by which an admin makes, lists and revokes virtual keys of a
//! running gateway. `clap` parses the arguments.

use clap::{Subcommand, ValueEnum};

use super::GatewayArgs;

/// How `keys` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeysFormat {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
}

/// The operations on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List the virtual keys: their ids, clients, names, makers and limits, never the keys themselves.
    #[command(after_help = LIST_HELP)]
    List {
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = KeysFormat::Text)]
        format: KeysFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Make a virtual key of a client, and print it. The gateway cannot show it again.
    #[command(after_help = CREATE_HELP)]
    Create {
        /// The client of the gateway's configuration for which the key stands.
        client: String,
        /// What the key is for: a name that no other key of the client has.
        name: String,
        /// After how many days the key expires; without this option, it is valid until it is revoked.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        days: Option<u32>,
        /// The most requests in a minute, in addition to the limit of the client.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        requests_per_minute: Option<u32>,
        /// The most tokens in a day, in addition to the budget of the client.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        tokens_per_day: Option<u64>,
        /// The most that the models may cost in a day, in the currency of `[prices]`, in addition to the budget of the
        /// client.
        #[arg(long, value_name = "NUMBER", value_parser = positive_number)]
        cost_per_day: Option<f64>,
        /// A model that may be asked for, of those that the client may ask for; can be repeated. Without this option,
        /// all of them.
        #[arg(long = "model", value_name = "NAME")]
        models: Vec<String>,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = KeysFormat::Text)]
        format: KeysFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
    /// Revoke a virtual key: its next request is refused, by every gateway that shares the database.
    #[command(after_help = REVOKE_HELP)]
    Revoke {
        /// The id of the key, as `list` shows it.
        id: String,
        /// The format of the result.
        #[arg(long, value_enum, default_value_t = KeysFormat::Text)]
        format: KeysFormat,
        #[command(flatten)]
        gateway: GatewayArgs,
    },
}

/// Parses a finite number above zero, the cost that a key may cause on one day. Any other number would not limit the
/// key.
fn positive_number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "write a number above zero".to_owned())
}

pub(super) const KEYS_HELP: &str = "\
Examples:
  export FLOWGATE_PERSON_KEY=...                 the key of an admin, [people.NAME] of the gateway's configuration
  flowgate keys create assistant ci-runner       make a key, and print it
  flowgate keys list                             which keys there are, who made them, and when they were used
  flowgate keys revoke ID

Exit codes:
  0    the operation is done
  1    the gateway refuses it
  2    the command line or the key cannot be used, or the gateway does not answer";

const LIST_HELP: &str = "\
Examples:
  flowgate keys list
  flowgate keys list --format json --gateway https://gateway.example

Exit codes:
  0    the keys are listed
  1    the gateway refuses the request
  2    the command line or the key cannot be used, or the gateway does not answer";

const CREATE_HELP: &str = "\
Examples:
  flowgate keys create assistant ci-runner --days 30
  flowgate keys create assistant ann --requests-per-minute 20 --tokens-per-day 100000 --model qwen3
  flowgate keys create assistant ci-runner > ci-runner.key    the standard output has the key alone

Exit codes:
  0    the key is made
  1    the gateway refuses the request
  2    the command line or the key cannot be used, or the gateway does not answer";

const REVOKE_HELP: &str = "\
Examples:
  flowgate keys revoke ID

Exit codes:
  0    the key is revoked
  1    the gateway refuses the request, or there is no such key
  2    the command line or the key cannot be used, or the gateway does not answer";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_positive_number() {
        let check =
            |text: &str, expected: Option<f64>| assert_eq!(positive_number(text).ok(), expected, "{text}");
        check("0.5", Some(0.5));
        check("3", Some(3.0));
        for wrong in ["0", "-1", "nan", "inf", "1e999", "", "x"] {
            check(wrong, None);
        }
    }
}
