//! Declares the arguments and the help of `flowgate login-link`, which makes a link to the page of a running gateway.
//! `clap` parses the arguments.

use super::GatewayArgs;

pub(super) const LOGIN_LINK_HELP: &str = "\
Examples:
  export FLOWGATE_PERSON_KEY=...                 the key of [people.NAME] of the gateway's configuration
  flowgate login-link                            a link to the page of the gateway on this machine
  flowgate login-link --gateway https://gateway.example --key-file ann.key
  xdg-open \"$(flowgate login-link)\"             open the page in a browser

The link is a secret: it logs its first reader in to the page as the person with the key. It works once, within five
minutes; after that, make another one.

Exit codes:
  0    the link is printed
  1    the gateway refuses to make it
  2    the command line or the key cannot be used, or the gateway does not answer";

/// The options of `login-link`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LoginLinkArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}
