//! Declares the arguments and the help of `flowgate audit`, which reads and verifies audit logs, records that an
//! operator accepts the loss of lines, and deletes contents. `clap` parses the arguments.

use std::path::PathBuf;

use clap::Subcommand;
use flowgate_audit::LineHash;

/// The operations on an audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no line of a log was changed, removed or inserted.
    ///
    /// Each line contains the hash of the previous line, and each head signs all lines before it. If the file FILE.content exists, its
    /// contents are checked against the log as well; deleted contents are no objection.
    #[command(after_help = AUDIT_VERIFY_HELP)]
    Verify {
        /// The log; `-` is the standard input. With --config, the logs of all gateways that share the database.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The public key that must have signed the log, in hexadecimal digits or as a file.
        #[arg(long, value_name = "FILE|HEX")]
        key: Option<String>,
        /// A line that the log must contain: its hash, or its hash and its number.
        #[arg(long, value_name = "HASH[:LINE]", value_parser = parse_head)]
        head: Option<ExternalHead>,
        /// Check the log against the heads that a witness received: the file of [audit.witness], or what its url was sent, one line
        /// each.
        #[arg(long, value_name = "FILE")]
        witness: Option<PathBuf>,
        /// Check the log against the gateway's database: it must contain the lines that the database knows, and every call in the
        /// database's conversations is judged again and must have the verdict that the log has.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Object to unsigned lines after the last head.
        #[arg(long)]
        signed: bool,
    },
    /// Record a loss of the log or of the database, so that the gateway can start again.
    ///
    /// The gateway does not start if its log is behind its database or its witness, if the log is missing, or if the database does not
    /// know the log. Look for a copy first: lost lines cannot be verified any more. This command writes to the log what is missing, and
    /// the log continues. The gateway must not run at the same time.
    #[command(after_help = AUDIT_ACCEPT_LOSS_HELP)]
    AcceptLoss {
        /// The gateway's configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// List the records of a log. Each line is checked against the previous one; the list ends at the first line that does not follow.
    #[command(after_help = AUDIT_SHOW_HELP)]
    Show {
        /// The log; `-` is the standard input.
        file: PathBuf,
        /// Only records of this conversation.
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// Print complete records, including heads, as one JSON object per line.
        #[arg(long)]
        json: bool,
        /// Also show the contents of messages and calls, if they are kept in FILE.content.
        #[arg(long)]
        content: bool,
        /// The gateway's configuration, which names the keys of encrypted contents in its section `store`.
        #[arg(long, value_name = "FILE", requires = "content")]
        config: Option<PathBuf>,
    },
    /// Delete the contents of a tenant, a client or a conversation. The log records the deletion and remains verifiable.
    ///
    /// If several options are given, all of them must match. The gateway must not have the log open; while it runs, an admin sends it a
    /// request instead.
    #[command(after_help = AUDIT_FORGET_HELP)]
    #[command(group = clap::ArgGroup::new("whose").required(true).multiple(true))]
    Forget {
        /// The log.
        file: PathBuf,
        /// Delete contents of this tenant.
        #[arg(long, value_name = "NAME", group = "whose")]
        tenant: Option<String>,
        /// Delete contents of this client.
        #[arg(long, value_name = "NAME", group = "whose")]
        client: Option<String>,
        /// Delete contents of this conversation. Several clients can have a conversation of the same name.
        #[arg(long, value_name = "ID", group = "whose")]
        conversation: Option<String>,
        /// The file of the signing key [default: the log's name with the extension `.key`].
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
}

/// A line of a log as a person noted it outside the log: its hash, and its number if that was noted too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExternalHead {
    pub(crate) hash: LineHash,
    /// The number of the line, from 0; `None` if it was not noted.
    pub(crate) seq: Option<u64>,
}

/// Parses the value of `--head`, a line that the log must contain: `HASH` or `HASH:LINE`. The number of the line counts
/// from 1; [`ExternalHead`] counts from 0.
fn parse_head(text: &str) -> Result<ExternalHead, String> {
    let (hash, line) = text.split_once(':').map_or((text, None), |(hash, line)| (hash, Some(line)));
    let hash = LineHash::parse(&hash.to_ascii_lowercase()).ok_or(
        "expected the hash of a line: 64 hexadecimal digits, as `flowgate audit verify` prints them; write HASH or, if the number \
         of the line is known, HASH:LINE",
    )?;
    let seq = match line {
        None => None,
        Some(line) => {
            let number = line.parse::<u64>().ok().and_then(|line| line.checked_sub(1));
            Some(number.ok_or("expected the number of a line after the colon, from 1; write HASH:LINE")?)
        }
    };
    Ok(ExternalHead { hash, seq })
}

const AUDIT_VERIFY_HELP: &str = "\
Examples:
  flowgate audit verify audit.jsonl                       check the log with the key that it names itself
  flowgate audit verify audit.jsonl --key audit.key.pub   check it with the key that you know
  flowgate audit verify audit.jsonl --key audit.key.pub --head 5f2c...
                                                          and that it was not cut off before a head that you noted

  flowgate audit verify audit.jsonl --key audit.key.pub --config gateway.toml
                                                          and against the gateway's database
  flowgate audit verify a.jsonl b.jsonl --config gateway.toml
                                                          the logs of two gateways that share a database
  flowgate audit verify audit.jsonl --key audit.key.pub --witness /mnt/elsewhere/heads.jsonl
                                                          and against the heads that a witness received

A log that was cut off directly after a head is consistent. Only information that is kept elsewhere reveals the
missing lines: the gateway's database, which knows the length of the log, or a head: note the head that this command
prints, and pass it with --head the next time. A log and a database that were restored together to an earlier state
agree with each other: only a noted head reveals that, or a witness, to which the gateway sends its heads
([audit.witness] in the configuration).

Contents that are encrypted are compared with the log only with --config, which names their keys, and counted otherwise.

Lines after the last head are unsigned: anyone who can write to the file could have added them. A closed log has no
such lines; with --signed they are an objection. See docs/audit.md.

Exit codes:
  0    the log was not changed
  1    the log was changed, and the line is printed; or it differs from the database
  2    the command line, the key or a file cannot be used
  130  interrupted by Ctrl-C; the log was not verified";

const AUDIT_ACCEPT_LOSS_HELP: &str = "\
Examples:
  flowgate audit accept-loss --config gateway.toml

When to use it:
  after a power failure that destroyed the last lines of the log, while the database kept their turns
  after moving the log away: a new log begins, which records the loss of the first one
  after deleting the database on purpose: the labels of its stores and clients are forgotten

Exit codes:
  0    the loss is recorded, or there is none
  2    the command line, the configuration, the key or a file cannot be used, or a gateway is running";

const AUDIT_SHOW_HELP: &str = "\
Examples:
  flowgate audit show audit.jsonl                         a table without heads
  flowgate audit show audit.jsonl --conversation 7d1f     records of one conversation
  flowgate audit show audit.jsonl --json | jq 'select(.verdict == \"deny\")'
  flowgate audit show audit.jsonl --conversation 7d1f --content
                                                          with the contents of messages and calls
  flowgate audit show audit.jsonl --content --config gateway.toml
                                                          contents that are encrypted with the gateway's keys

How to read the table:
  tool      the tool, or the target of a kill switch
  verdict   the verdict of a call, the answer to a question, or the state of a kill switch
  who       the person who decided, or the client that asked

With --content, the line below a record has its content, or says that it was deleted; in JSON, `said` is the text, or null.
To check the key and the end of the log, use `flowgate audit verify`.

Exit codes:
  0    all records were listed
  1    a line does not follow from the previous one, or its content cannot be read; the records before it were listed
  2    the command line or a file cannot be used";

const AUDIT_FORGET_HELP: &str = "\
Examples:
  flowgate audit forget audit.jsonl --client assistant
  flowgate audit forget audit.jsonl --client assistant --conversation 7d1f
  flowgate audit forget audit.jsonl --tenant acme --key-file /etc/flowgate/audit.key

While the gateway runs:
  curl -H \"Authorization: Bearer $ADMIN_KEY\" -H 'Content-Type: application/json' -d '{\"client\": \"assistant\"}' \\
      http://127.0.0.1:8000/api/v1/audit/forget

This command deletes neither copies of FILE.content nor the conversations in the gateway's database.

Exit codes:
  0    no such content is left
  2    the command line, the key or a file cannot be used; the message says whether content was deleted";
