//! `flowgate audit`.

use std::path::PathBuf;

use clap::Subcommand;
use flowgate_gateway::audit::Hash;

/// What is done with an audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Check that a log is what was written: nothing changed, left out or put in between.
    ///
    /// Every line has the hash of the one before, and heads sign all that stands before them. If there is FILE.content, the content
    /// there is held against the log as well; content that was deleted is no objection.
    #[command(after_help = AUDIT_VERIFY_HELP)]
    Verify {
        /// The log; `-` is the standard input. With --config, the logs of all gateways that share the store.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The public key that must have signed: its digits, or a file that has them.
        #[arg(long, value_name = "FILE|HEX")]
        key: Option<String>,
        /// A line that the log must still have: its hash, or its hash and its number.
        #[arg(long, value_name = "HASH[:LINE]", value_parser = head)]
        head: Option<KeptHead>,
        /// Hold the log against the gateway's store: the lines that the store knows must be there, and everything that was judged in
        /// the conversations of the store is judged again, and must stand in the log.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Object to lines behind the last head, which nobody has signed.
        #[arg(long)]
        signed: bool,
    },
    /// Record that the log or its database has lost something, so that the gateway starts again.
    ///
    /// A gateway is not started if its log is behind its database, if the log is missing, or if the database does not know the log.
    /// Look for a copy first: what is lost cannot be verified any more. Then this writes to the log what is missing, and the log goes on.
    /// The gateway must not run meanwhile.
    #[command(after_help = AUDIT_ACCEPT_LOSS_HELP)]
    AcceptLoss {
        /// The gateway's configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// List what a log says. Each line is held against those before, and the list ends where they do not fit.
    #[command(after_help = AUDIT_SHOW_HELP)]
    Show {
        /// The log; `-` is the standard input.
        file: PathBuf,
        /// Only what was of this conversation.
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// Print whole records, one JSON object a line, heads as well.
        #[arg(long)]
        json: bool,
        /// Show what was said and called as well, as far as it is kept beside the log.
        #[arg(long)]
        content: bool,
    },
    /// Delete the content that is kept of a tenant, a client or a conversation. The log says that it was deleted, and stays whole.
    ///
    /// All that is named has to apply. The gateway must not have the log open meanwhile; while it runs, an admin asks it instead.
    #[command(after_help = AUDIT_FORGET_HELP)]
    #[command(group = clap::ArgGroup::new("whose").required(true).multiple(true))]
    Forget {
        /// The log.
        file: PathBuf,
        /// The content of this tenant.
        #[arg(long, value_name = "NAME", group = "whose")]
        tenant: Option<String>,
        /// The content of this client.
        #[arg(long, value_name = "NAME", group = "whose")]
        client: Option<String>,
        /// The content of this conversation; clients may have conversations of the same name.
        #[arg(long, value_name = "ID", group = "whose")]
        conversation: Option<String>,
        /// The file of the key that signs; the log's name with `.key` for its ending, unless it is named.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
}

/// A line of a log that somebody has kept elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptHead {
    pub(crate) hash: Hash,
    /// Its number, from 0.
    pub(crate) seq: Option<u64>,
}

fn head(text: &str) -> Result<KeptHead, String> {
    let (hash, line) = text.split_once(':').map_or((text, None), |(hash, line)| (hash, Some(line)));
    let hash = Hash::parse(&hash.to_ascii_lowercase()).ok_or(
        "expected the hash of a line: 64 hexadecimal digits, as `flowgate audit verify` prints them, with a colon and the number of the \
         line if that is known",
    )?;
    let seq = match line {
        None => None,
        Some(line) => {
            let number = line.parse::<u64>().ok().and_then(|line| line.checked_sub(1));
            Some(number.ok_or("expected the number of a line behind the colon, from 1")?)
        }
    };
    Ok(KeptHead { hash, seq })
}

const AUDIT_VERIFY_HELP: &str = "\
Examples:
  flowgate audit verify audit.jsonl                       whole in itself; the key is the log's own word
  flowgate audit verify audit.jsonl --key audit.key.pub   signed by the key that you know
  flowgate audit verify audit.jsonl --key audit.key.pub --head 5f2c...
                                                          and not cut off before the head that you kept

  flowgate audit verify audit.jsonl --key audit.key.pub --config gateway.toml
                                                          and held against the gateway's store
  flowgate audit verify a.jsonl b.jsonl --config gateway.toml
                                                          two gateways that share a store

A log that was cut off behind a head is whole. Only what was kept elsewhere shows that there was more: the gateway's
store, which knows how far the log has come, or a head: keep the one that is printed, and give it the next time.

Lines behind the last head are signed by nobody: whoever can write the file could have written them. A log that was
closed has none, and --signed objects to them. docs/audit.md says more.

Exit codes:
  0  the log is what was written
  1  it is not, and the line is printed; or the store knows something that is not in it
  2  the command line, the key or the file cannot be used";

const AUDIT_ACCEPT_LOSS_HELP: &str = "\
Examples:
  flowgate audit accept-loss --config gateway.toml

What it is for:
  a loss of power that took the last lines of the log, whose turns the store has kept
  a log that was moved away, so that another one begins: that is recorded as the loss of the first one
  a store that was deleted on purpose: what its stores and clients were known to carry is forgotten

Exit codes:
  0  the loss is recorded, or there is none
  2  the command line, the configuration, the key or a file cannot be used; a gateway is running";

const AUDIT_SHOW_HELP: &str = "\
Examples:
  flowgate audit show audit.jsonl                         a table, without heads
  flowgate audit show audit.jsonl --conversation 7d1f     what was of one conversation
  flowgate audit show audit.jsonl --json | jq 'select(.verdict == \"deny\")'
  flowgate audit show audit.jsonl --conversation 7d1f --content
                                                          and what was said and called there

How to read the table:
  tool      the tool, or what a kill switch stopped
  verdict   of a call; what somebody answered; how a kill switch was set
  who       who decided, or whose client asked

With --content, a line below says what is kept of a record, or that it is gone; in JSON, `said` is the text, or null.
Whether the key is the right one, and whether the end is missing, `flowgate audit verify` says.

Exit codes:
  0  everything was listed
  1  a line does not follow from those before; what stands before it was listed
  2  the command line or the file cannot be used";

const AUDIT_FORGET_HELP: &str = "\
Examples:
  flowgate audit forget audit.jsonl --client assistant
  flowgate audit forget audit.jsonl --client assistant --conversation 7d1f
  flowgate audit forget audit.jsonl --tenant acme --key-file /etc/flowgate/audit.key

While the gateway runs:
  curl -H \"Authorization: Bearer $ADMIN_KEY\" -H 'Content-Type: application/json' -d '{\"client\": \"assistant\"}' \\
      http://127.0.0.1:8000/api/v1/audit/forget

Copies of FILE.content are yours to delete, and so is what the store has of the conversations.

Exit codes:
  0  nothing of it is left, whether or not there was any
  2  the command line, the key or a file cannot be used; then the message says whether anything was deleted";
