//! Declares the arguments and the help of `flowgate database`, which encrypts what a gateway has stored. `clap` parses
//! the arguments.

use std::path::PathBuf;

use clap::Subcommand;

/// The operations on the database of a gateway.
#[derive(Debug, Subcommand)]
pub(crate) enum DatabaseCommand {
    /// Encrypt all stored content with the first key of the configuration.
    ///
    /// It encrypts what was stored before there was a key, and what is encrypted with one of the other keys. Everything is decrypted on
    /// the way, so a value that was altered is reported. An interrupted run is continued by the next one. A gateway with a SQLite file
    /// must not run at the same time; gateways that share a PostgreSQL database may run, with the same keys. If the configuration has an
    /// audit log, the command also encrypts the contents next to it; stop the gateway that writes this log first.
    #[command(after_help = DATABASE_ENCRYPT_HELP)]
    Encrypt {
        /// The gateway's configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Accept values that are not encrypted in a database that was encrypted as a whole: a gateway without the key has written
        /// them. Somebody who can write to the database could have done so as well.
        #[arg(long)]
        accept_unencrypted: bool,
    },
}

const DATABASE_ENCRYPT_HELP: &str = "\
Examples:
  openssl rand -base64 32 > store.key && chmod 600 store.key
                                                    a key, for `encryption-key-file = \"store.key\"` in [store]
  flowgate database encrypt --config gateway.toml   encrypt what was stored before

To replace a key, write a new one before it, separated by a space or a new line; start the gateways again; run this command;
and remove the old key.

Exit codes:
  0    everything is encrypted with the first key
  1    interrupted; the next run continues
  2    the command line, the configuration or the database cannot be used, or a stored value was altered";
