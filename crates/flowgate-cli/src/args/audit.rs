//! `flowgate audit`.

use std::path::PathBuf;

use clap::Subcommand;

/// What is done with an audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Check that a log is what was written: nothing changed, left out or put in between.
    ///
    /// Every line has the hash of the one before, and heads sign all that stands before them. If there is FILE.content, the content
    /// there is held against the log as well; content that was deleted is no objection.
    #[command(after_help = AUDIT_VERIFY_HELP)]
    Verify {
        /// The log; `-` is the standard input.
        file: PathBuf,
        /// The public key that must have signed: its digits, or a file that has them.
        #[arg(long, value_name = "FILE|HEX")]
        key: Option<String>,
        /// The hash of a line that the log must still have.
        #[arg(long, value_name = "HASH", value_parser = hash)]
        head: Option<flowgate_gateway::audit::Hash>,
        /// Judge everything again that the log says was judged, with the gateway's configuration and its store.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
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

fn hash(text: &str) -> Result<flowgate_gateway::audit::Hash, String> {
    flowgate_gateway::audit::Hash::parse(&text.to_ascii_lowercase()).ok_or_else(|| {
        "expected the hash of a line: 64 hexadecimal digits, as `flowgate audit verify` prints them"
            .to_owned()
    })
}

const AUDIT_VERIFY_HELP: &str = "\
Examples:
  flowgate audit verify audit.jsonl                       whole in itself; the key is the log's own word
  flowgate audit verify audit.jsonl --key audit.key.pub   signed by the key that you know
  flowgate audit verify audit.jsonl --key audit.key.pub --head 5f2c...
                                                          and not cut off before the head that you kept

A log that was cut off behind a head is whole. Only a head that was kept elsewhere shows that there was more: keep
the one that is printed, and give it the next time.

Lines behind the last head are signed by nobody: whoever can write the file could have written them. A log that was
closed has none. docs/audit.md says more.

Exit codes:
  0  the log is what was written
  1  it is not, and the line is printed
  2  the command line, the key or the file cannot be used";

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
