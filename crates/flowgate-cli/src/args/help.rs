//! What the help of commands says besides their options: examples, and exit codes.

pub(super) const CHECK: &str = "\
Examples:
  flowgate check policy.flow                              is it a policy, and what is odd about it?
  flowgate check policy.flow trace.json                   the verdict of each call
  flowgate check policy.flow runs/*.jsonl --objections    only what is not permitted
  flowgate check policy.flow trace.json --deny-warnings   fails where the policy names a tool, a role, a field or an
                                                          argument that the traces do not have: it may be misspelled
  flowgate check policy.flow trace.json --format sarif > flowgate.sarif
                                                          for code scanning
  agent --trace | flowgate check policy.flow -            from the standard input

Exit codes:
  0  every call is permitted, and no rule found anything
  1  a call needs confirmation or is denied, a rule found something, or there is a warning and --deny-warnings
  2  the command line, the policy or a trace cannot be used";

pub(super) const REPLAY: &str = "\
Examples:
  flowgate replay --policy bank.flow runs.jsonl.gz                       one policy for all runs
  flowgate replay --policy bank.flow --policy mail.flow runs.jsonl       by the suite that a run names
  flowgate replay --policy '*=all.flow' --influence all runs.jsonl       every influence method next to each other
  flowgate replay --policy bank.flow runs.jsonl --list-permitted         which injected calls pass, and why
  flowgate replay --policy bank.flow runs.jsonl --format json | jq .questions

Exit codes:
  0  all runs were judged, whatever the verdicts are
  1  there is a warning, and --deny-warnings
  2  the command line, a policy or a run cannot be used, or no run was judged";

pub(super) const ANALYZE: &str = "\
Examples:
  flowgate analyze rules.flow trace.json                        what the rules find, and where
  flowgate analyze rules.flow runs/*.json --format json         the same for a program
  flowgate analyze rules.flow trace.json --param user=alice     with `input.user`
  flowgate analyze --compat old.policy trace.json               a policy that relies on the old readings
  flowgate analyze rules.flow trace.json --predicate is_customer=http://127.0.0.1:9000/
                                                                with `extern is_customer(email: str) -> bool`

Exit codes:
  0  no rule found anything
  1  a rule found something, or could not be evaluated
  2  the command line, the policy or a trace cannot be used";

pub(super) const EXPLAIN: &str = "\
Examples:
  flowgate explain policy.flow trace.json                 each call, what it carries, and what would permit it
  flowgate explain policy.flow trace.json --call c2       one of them
  flowgate explain policy.flow trace.json --content       with the text that is in the way

Exit codes:
  0  every call is permitted
  1  a call needs confirmation or is denied
  2  the command line, the policy or the trace cannot be used, or there is no such call";

pub(super) const BENCH: &str = "\
Examples:
  flowgate bench detectors      detectors and a flow rule against one attack in many disguises
  flowgate bench agents         what each method prevents, asks about and costs

Exit codes:
  0  it was measured, and holds what it is to show
  1  it does not
  2  the command line or a policy cannot be used";

pub(super) const DEMO: &str = "\
Examples:
  flowgate demo                 nothing is needed: no model, no key, no file

Exit codes:
  0  it was shown
  2  the command line cannot be used";

pub(super) const AUDIT: &str = "\
Examples:
  flowgate audit verify audit.jsonl --key audit.key.pub      nobody changed it
  flowgate audit show audit.jsonl                            what was judged and decided

Exit codes:
  0  nothing to object to
  1  something was found; see the command
  2  the command line, the log or a key cannot be used";

pub(super) const METHODS: &str = "\
Examples:
  flowgate methods
  flowgate check policy.flow trace.json --influence provenance

Exit codes:
  0  they were listed
  2  the command line cannot be used";

pub(super) const FUNCTIONS: &str = "\
Examples:
  flowgate functions
  flowgate functions | grep date

Exit codes:
  0  they were listed
  2  the command line cannot be used";

pub(super) const COMPLETIONS: &str = "\
Examples:
  flowgate completions bash > ~/.local/share/bash-completion/completions/flowgate
  flowgate completions fish > ~/.config/fish/completions/flowgate.fish
  flowgate completions zsh > ~/.zfunc/_flowgate

Exit codes:
  0  the script was printed
  2  the command line cannot be used";

pub(super) const MAN: &str = "\
Examples:
  flowgate man | man -l -                          the page of flowgate itself
  flowgate man check | man -l -                    the page of a command
  flowgate man audit verify | man -l -
  flowgate man --out ~/.local/share/man/man1       the pages of all commands, as files

Exit codes:
  0  the page was printed, or the pages were written
  2  there is no such command, or the folder cannot be written to";
