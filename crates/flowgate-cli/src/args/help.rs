//! Contains the examples and exit codes that `--help` of a command shows below its arguments, for the commands that
//! `args` declares itself. The other commands have this text next to their arguments, in the other files of this
//! folder.

pub(super) const CHECK: &str = "\
Examples:
  flowgate check policy.flow                              check the policy itself
  flowgate check policy.flow trace.json                   judge each call
  flowgate check policy.flow runs/*.jsonl --objections    list only calls that are not permitted
  flowgate check policy.flow trace.json --deny-warnings   fail if the policy names a tool, role, field or argument
                                                          that does not occur in the traces: it may be misspelled
  flowgate check policy.flow --tools request.json         fail if the policy names a tool or an argument that the tools do
                                                          not have, and list the tools that it does not cover
  flowgate check policy.flow --tools mail=mail.json --tools bank=bank.json
                                                          the tools of the servers `mail` and `bank`, as `tools/list` of MCP
                                                          returns them; the policy calls them `tool:mail/send_mail`
  flowgate check policy.flow trace.json --format sarif > flowgate.sarif
                                                          a file for code scanning services
  agent --trace | flowgate check policy.flow -            read the trace from the standard input

Exit codes:
  0    every call is permitted, and no rule matched
  1    a call needs confirmation or is denied, a rule matched, or there is a warning with --deny-warnings
  2    the command line, the policy or a trace cannot be used, or --tools lacks a tool or an argument that the policy names
  130  interrupted by Ctrl-C; the results so far are printed";

pub(super) const REPLAY: &str = "\
Examples:
  flowgate replay --policy bank.flow runs.jsonl.gz                       one policy for all runs
  flowgate replay --policy bank.flow --policy mail.flow runs.jsonl       choose the policy by the suite of the run
  flowgate replay --policy '*=all.flow' --influence all runs.jsonl       compare all influence methods
  flowgate replay --policy bank.flow --influence lambda --model qwen3 --url http://localhost:8000/v1 runs.jsonl
                                                                         as a model on a server estimates
  flowgate replay --policy agent.flow --method lowest-first runs.jsonl     in guarded conversations, with their views
  flowgate replay --policy bank.flow runs.jsonl --list-permitted         list injected calls that are permitted, with reasons
  flowgate replay --policy bank.flow runs.jsonl --format json | jq .questions

Exit codes:
  0    all runs were judged, with any verdicts
  1    there is a warning with --deny-warnings
  2    the command line, a policy or a run cannot be used, or no run was judged
  130  interrupted by Ctrl-C; the table covers the runs judged so far";

pub(super) const ANALYZE: &str = "\
Examples:
  flowgate analyze rules.flow trace.json                        list the matches of rules and their positions
  flowgate analyze rules.flow runs/*.json --format json         the same as JSON
  flowgate analyze rules.flow trace.json --param user=alice     set `input.user`
  flowgate analyze --compat old.policy trace.json               read the policy as invariant-ai does
  flowgate analyze rules.flow trace.json --predicate is_customer=http://127.0.0.1:9000/
                                                                a service for `extern is_customer(email: str) -> bool`

Exit codes:
  0    no rule matched
  1    a rule matched
  2    the command line, the policy or a trace cannot be used, or a rule cannot be evaluated
  130  interrupted by Ctrl-C; the results so far are printed";

pub(super) const EXPLAIN: &str = "\
Examples:
  flowgate explain policy.flow trace.json                 each call, its labels, and changes that would permit it
  flowgate explain policy.flow trace.json --call c2       one call
  flowgate explain policy.flow trace.json --content       with the text of the regions
  flowgate explain policy.flow trace.json --against runs.jsonl.gz
                                                          what each change frees, and which recorded attacks it lets pass
  flowgate explain --question ID --gateway http://127.0.0.1:8000
                                                          a question of a running gateway (see `flowgate approvals`)

Exit codes:
  0    every call is permitted
  1    a call needs confirmation or is denied; a question was shown
  2    the command line, the policy or the trace cannot be used, or there is no call with that id, or no such question
  130  interrupted by Ctrl-C; the results so far are printed";

pub(super) const SUGGEST: &str = "\
Examples:
  flowgate suggest policy.flow week.jsonl.gz               changes that would have let the week's calls pass
  flowgate suggest policy.flow week.jsonl.gz --against attacks.jsonl.gz
                                                           only those that let no recorded attack do more
  flowgate report watch.jsonl                              what a guard that only watched would have stopped

Traces are recorded runs, as `flowgate replay` reads them. A watch log has no content, so it cannot be judged again.

Exit codes:
  0    every call of the useful runs is permitted already
  1    a call is not: changes are printed, or the reason why there is none
  2    the command line, the policy or a trace cannot be used, or a run could not be read
  130  interrupted by Ctrl-C";

pub(super) const BENCH: &str = "\
Examples:
  flowgate bench detectors      detectors and a flow rule on one attack in many disguises
  flowgate bench agents         what each method prevents, asks and costs
  flowgate bench games          what defences close and what takes effect, in three games
  flowgate bench privacy        which defence asks before private data is disclosed, and only then
  flowgate bench propagation    which labels an answer needs, and how many model calls tell
  flowgate bench corpus injecagent FOLDER    what a drafted policy decides on a public benchmark
  flowgate bench verify run.jsonl    whether this program repeats a recorded run

Exit codes:
  0    the measurement is complete and confirms the claim that it tests
  1    the measurement contradicts the claim
  2    the command line or a policy cannot be used
  130  interrupted by Ctrl-C; the results so far are printed";

pub(super) const DEMO: &str = "\
Examples:
  flowgate demo                 needs no model, no key and no file

Exit codes:
  0    the demonstration is complete
  2    the command line cannot be used";

#[cfg(feature = "gateway")]
pub(super) const AUDIT: &str = "\
Examples:
  flowgate audit verify audit.jsonl --key audit.key.pub      check that the log was not changed
  flowgate audit show audit.jsonl                            list verdicts and decisions

Exit codes:
  0    no objection
  1    there is an objection; see the help of the operation
  2    the command line, the log or a key cannot be used";

#[cfg(feature = "gateway")]
pub(super) const DATABASE: &str = "\
Examples:
  flowgate database encrypt --config gateway.toml

Exit codes:
  0    the operation is done
  1    it was interrupted; see the help of the operation
  2    the command line, the configuration or the database cannot be used";

#[cfg(feature = "gateway")]
pub(super) const TRACE: &str = "\
Examples:
  flowgate trace export --config gateway.toml --client assistant --conversation c1 > c1.jsonl

Exit codes:
  0    the operation is done
  1    there is an objection; see the help of the operation
  2    the command line, the configuration or the database cannot be used";

pub(super) const METHODS: &str = "\
Examples:
  flowgate methods
  flowgate check policy.flow trace.json --influence provenance

Exit codes:
  0    the list is complete
  2    the command line cannot be used";

pub(super) const FUNCTIONS: &str = "\
Examples:
  flowgate functions
  flowgate functions | grep date

Exit codes:
  0    the list is complete
  2    the command line cannot be used";

pub(super) const COMPLETIONS: &str = "\
Examples:
  flowgate completions bash > ~/.local/share/bash-completion/completions/flowgate
  flowgate completions fish > ~/.config/fish/completions/flowgate.fish
  flowgate completions zsh > ~/.zfunc/_flowgate

Exit codes:
  0    the script was printed
  2    the command line cannot be used";

pub(super) const MAN: &str = "\
Examples:
  flowgate man | man -l -                          the page of flowgate itself
  flowgate man check | man -l -                    the page of a command
  flowgate man audit verify | man -l -
  flowgate man --out ~/.local/share/man/man1       the pages of all commands, as files

Exit codes:
  0    the page was printed, or the pages were written
  2    there is no such command, or the folder cannot be written";
