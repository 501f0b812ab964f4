//! What is recorded. Nothing here is content: names, phrases of labels, names of rules, digests.

use flowgate::monitor::Outcome;

use super::anchor::Loss;
use super::record::Fields;

/// Something that the gateway did, or was told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call was judged.
    Judged(Judged),
    /// A person was asked whether a call may run.
    Asked {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// What the client belongs to.
        tenant: String,
        /// The tool.
        tool: String,
        /// Stands for the call.
        digest: String,
        /// Names of rules and phrases of labels.
        reasons: Vec<String>,
    },
    /// A question was decided.
    Decided {
        /// The conversation.
        conversation: String,
        /// Stands for the call.
        digest: String,
        /// Who decided.
        who: String,
        /// As what, such as `approver`.
        role: String,
        /// What they said.
        answer: Answer,
    },
    /// A call ran because a person had allowed it.
    ApprovalUsed {
        /// The conversation.
        conversation: String,
        /// The tool.
        tool: String,
        /// Stands for the call.
        digest: String,
    },
    /// A person had allowed a call, and it does not run.
    ApprovalVoid {
        /// The conversation.
        conversation: String,
        /// The tool.
        tool: String,
        /// Stands for the call.
        digest: String,
        /// Why it does not run.
        cause: String,
        /// What was found when it was judged again: names of rules and phrases of labels.
        reasons: Vec<String>,
    },
    /// A person should have decided whether a call may run, and nobody was asked.
    Unasked {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// What the client belongs to.
        tenant: String,
        /// The tool.
        tool: String,
        /// Stands for the call.
        digest: String,
        /// Why nobody was asked.
        cause: String,
    },
    /// A call that the chat had permitted went to its server beside the chat.
    RanBeside {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// What the client belongs to.
        tenant: String,
        /// The tool.
        tool: String,
        /// Stands for the call.
        digest: String,
    },
    /// Something that the model said was not passed on.
    ReplyWithheld {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// What the client belongs to.
        tenant: String,
        /// Names of the rules.
        reasons: Vec<String>,
    },
    /// Somebody stopped something, or let it go on.
    KillSwitch {
        /// What: a client, a tenant, a tool, or everything.
        what: String,
        /// Who did it.
        who: String,
        /// Whether it is stopped now.
        state: Switch,
    },
    /// Somebody cleared what was remembered of what a client was shown.
    QuotationsCleared {
        /// The client.
        client: String,
        /// What it belongs to.
        tenant: String,
        /// The source, or `all`.
        what: String,
        /// Who did it.
        who: String,
    },
    /// A session began, ended, or was deleted.
    Session {
        /// The conversation.
        conversation: String,
        /// Whose it is.
        client: String,
        /// What the client belongs to.
        tenant: String,
        /// What happened to it.
        phase: Phase,
    },
    /// Somebody accepted that the log or its database has lost something.
    LossAccepted {
        /// Who: whoever can read the key.
        who: String,
        /// What was lost.
        loss: Loss,
    },
    /// The gateway took a configuration into use.
    ConfigurationLoaded {
        /// The digests of its policies.
        policies: Vec<String>,
    },
}

/// A call that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The conversation.
    pub conversation: String,
    /// The client.
    pub client: String,
    /// What the client belongs to.
    pub tenant: String,
    /// The digest of the policy.
    pub policy: String,
    /// The tool.
    pub tool: String,
    /// The verdict.
    pub verdict: Outcome,
    /// Names of rules and phrases of labels.
    pub reasons: Vec<String>,
    /// What the call carries, one phrase for each dimension.
    pub label: Vec<String>,
    /// Stands for the call, and tells nothing of it to who lacks the key of the digest.
    pub digest: String,
    /// The number of the event in the trace.
    pub event: u64,
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call may run, once.
    Allow,
    /// It must not.
    Deny,
}

/// What a kill switch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// It is stopped.
    Set,
    /// It goes on.
    Unset,
}

/// What becomes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It began.
    Begun,
    /// It ended.
    Ended,
    /// It was deleted.
    Deleted,
}

impl Event {
    /// The word for it in the log.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Judged(_) => "judged",
            Self::Asked { .. } => "asked",
            Self::Decided { .. } => "decided",
            Self::ApprovalUsed { .. } => "approval-used",
            Self::ApprovalVoid { .. } => "approval-void",
            Self::Unasked { .. } => "unasked",
            Self::RanBeside { .. } => "ran-beside",
            Self::ReplyWithheld { .. } => "reply-withheld",
            Self::KillSwitch { .. } => "kill-switch",
            Self::QuotationsCleared { .. } => "quotations-cleared",
            Self::Session { phase: Phase::Begun, .. } => "session-begun",
            Self::Session { phase: Phase::Ended, .. } => "session-ended",
            Self::Session { phase: Phase::Deleted, .. } => "session-deleted",
            Self::LossAccepted { .. } => "loss-accepted",
            Self::ConfigurationLoaded { .. } => "configuration-loaded",
        }
    }

    /// The conversation that it is of.
    pub fn conversation(&self) -> Option<&str> {
        match self {
            Self::Judged(judged) => Some(&judged.conversation),
            Self::Asked { conversation, .. }
            | Self::Decided { conversation, .. }
            | Self::ApprovalUsed { conversation, .. }
            | Self::ApprovalVoid { conversation, .. }
            | Self::Unasked { conversation, .. }
            | Self::RanBeside { conversation, .. }
            | Self::ReplyWithheld { conversation, .. }
            | Self::Session { conversation, .. } => Some(conversation),
            Self::KillSwitch { .. }
            | Self::QuotationsCleared { .. }
            | Self::LossAccepted { .. }
            | Self::ConfigurationLoaded { .. } => None,
        }
    }

    /// The client that it is of.
    pub fn client(&self) -> Option<&str> {
        self.whose().map(|(client, _)| client)
    }

    /// What its client belongs to.
    pub fn tenant(&self) -> Option<&str> {
        self.whose().map(|(_, tenant)| tenant)
    }

    fn whose(&self) -> Option<(&str, &str)> {
        match self {
            Self::Judged(Judged { client, tenant, .. })
            | Self::Asked { client, tenant, .. }
            | Self::Unasked { client, tenant, .. }
            | Self::RanBeside { client, tenant, .. }
            | Self::ReplyWithheld { client, tenant, .. }
            | Self::QuotationsCleared { client, tenant, .. }
            | Self::Session { client, tenant, .. } => Some((client, tenant)),
            Self::Decided { .. }
            | Self::ApprovalUsed { .. }
            | Self::ApprovalVoid { .. }
            | Self::KillSwitch { .. }
            | Self::LossAccepted { .. }
            | Self::ConfigurationLoaded { .. } => None,
        }
    }

    /// Whether somebody answers for it: it has to be on the disk before anything follows from it.
    pub(super) fn is_decision(&self) -> bool {
        matches!(
            self,
            Self::Decided { .. }
                | Self::ApprovalUsed { .. }
                | Self::KillSwitch { .. }
                | Self::LossAccepted { .. }
                | Self::QuotationsCleared { .. }
        )
    }

    pub(super) fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        fields
            .some("conversation", self.conversation())
            .some("client", self.client())
            .some("tenant", self.tenant());
        match self {
            Self::Judged(judged) => {
                fields
                    .text("policy", &judged.policy)
                    .text("tool", &judged.tool)
                    .text("verdict", judged.verdict.name())
                    .list("reasons", &judged.reasons)
                    .list("label", &judged.label)
                    .text("digest", &judged.digest)
                    .number("event", judged.event);
            }
            Self::Asked { tool, digest, reasons, .. } => {
                fields.text("tool", tool).text("digest", digest).list("reasons", reasons);
            }
            Self::Decided { digest, who, role, answer, .. } => {
                let answer = match answer {
                    Answer::Allow => "allow",
                    Answer::Deny => "deny",
                };
                fields.text("digest", digest).text("who", who).text("role", role).text("answer", answer);
            }
            Self::ApprovalUsed { tool, digest, .. } | Self::RanBeside { tool, digest, .. } => {
                fields.text("tool", tool).text("digest", digest);
            }
            Self::ApprovalVoid { tool, digest, cause, reasons, .. } => {
                fields
                    .text("tool", tool)
                    .text("digest", digest)
                    .text("cause", cause)
                    .list("reasons", reasons);
            }
            Self::Unasked { tool, digest, cause, .. } => {
                fields.text("tool", tool).text("digest", digest).text("cause", cause);
            }
            Self::ReplyWithheld { reasons, .. } => {
                fields.list("reasons", reasons);
            }
            Self::KillSwitch { what, who, state } => {
                let state = match state {
                    Switch::Set => "set",
                    Switch::Unset => "unset",
                };
                fields.text("what", what).text("who", who).text("state", state);
            }
            Self::QuotationsCleared { what, who, .. } => {
                fields.text("what", what).text("who", who);
            }
            Self::Session { .. } => {}
            Self::LossAccepted { who, loss } => {
                fields.text("who", who).text("what", loss.name());
                if let Some(known) = loss.known() {
                    fields
                        .text("log", &known.log.to_string())
                        .number("line", known.head.seq.saturating_add(1))
                        .text("hash", &known.head.hash.to_string());
                }
                fields.number("lines", loss.lines());
            }
            Self::ConfigurationLoaded { policies } => {
                fields.list("policies", policies);
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::Hash;
    use super::super::record::{MAX_LINE, Time, line};
    use super::*;

    #[test]
    fn a_line_says_what_happened() {
        let check = |event: Event, expected: &str| {
            let line = line(0, Time(1), event.kind(), Hash::NONE, event.fields());
            let previous = format!(r#","previous":"{}""#, Hash::NONE);
            assert_eq!(line.replace(&previous, "").replace(r#"{"seq":0,"time":1,"#, "{"), expected);
        };
        let s = str::to_owned;
        let conversation = s("c1");
        check(
            Event::Judged(Judged {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                policy: s("p"),
                tool: s("mail/send"),
                verdict: Outcome::Confirm,
                reasons: vec![s("no secrets")],
                label: vec![s("untrusted")],
                digest: s("d"),
                event: 7,
            }),
            r#"{"kind":"judged","conversation":"c1","client":"agent","tenant":"acme","policy":"p","tool":"mail/send","verdict":"confirm","reasons":["no secrets"],"label":["untrusted"],"digest":"d","event":7}"#,
        );
        check(
            Event::Asked {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                tool: s("send"),
                digest: s("d"),
                reasons: vec![s("no secrets")],
            },
            r#"{"kind":"asked","conversation":"c1","client":"agent","tenant":"acme","tool":"send","digest":"d","reasons":["no secrets"]}"#,
        );
        check(
            Event::Decided {
                conversation: s("c1"),
                digest: s("d"),
                who: s("ann"),
                role: s("owner"),
                answer: Answer::Deny,
            },
            r#"{"kind":"decided","conversation":"c1","digest":"d","who":"ann","role":"owner","answer":"deny"}"#,
        );
        check(
            Event::ApprovalUsed { conversation: s("c1"), tool: s("send"), digest: s("d") },
            r#"{"kind":"approval-used","conversation":"c1","tool":"send","digest":"d"}"#,
        );
        check(
            Event::ApprovalVoid {
                conversation: s("c1"),
                tool: s("send"),
                digest: s("d"),
                cause: s("judged again"),
                reasons: vec![s("stale")],
            },
            r#"{"kind":"approval-void","conversation":"c1","tool":"send","digest":"d","cause":"judged again","reasons":["stale"]}"#,
        );
        check(
            Event::Unasked {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                tool: s("send"),
                digest: s("d"),
                cause: s("too many questions are open"),
            },
            r#"{"kind":"unasked","conversation":"c1","client":"agent","tenant":"acme","tool":"send","digest":"d","cause":"too many questions are open"}"#,
        );
        check(
            Event::RanBeside {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                tool: s("send"),
                digest: s("d"),
            },
            r#"{"kind":"ran-beside","conversation":"c1","client":"agent","tenant":"acme","tool":"send","digest":"d"}"#,
        );
        check(
            Event::ReplyWithheld {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                reasons: vec![],
            },
            r#"{"kind":"reply-withheld","conversation":"c1","client":"agent","tenant":"acme","reasons":[]}"#,
        );
        check(
            Event::KillSwitch { what: s("everything"), who: s("ann"), state: Switch::Set },
            r#"{"kind":"kill-switch","what":"everything","who":"ann","state":"set"}"#,
        );
        check(
            Event::QuotationsCleared { client: s("agent"), tenant: s("acme"), what: s("all"), who: s("ann") },
            r#"{"kind":"quotations-cleared","client":"agent","tenant":"acme","what":"all","who":"ann"}"#,
        );
        check(
            Event::Session { conversation, client: s("agent"), tenant: s("acme"), phase: Phase::Deleted },
            r#"{"kind":"session-deleted","conversation":"c1","client":"agent","tenant":"acme"}"#,
        );
        check(
            Event::ConfigurationLoaded { policies: vec![s("p")] },
            r#"{"kind":"configuration-loaded","policies":["p"]}"#,
        );
    }

    #[test]
    fn no_event_is_longer_than_a_line() {
        let long = "\"\u{1}é".repeat(9000);
        let list = vec![long.clone(); 9000];
        let event = Event::Judged(Judged {
            conversation: long.clone(),
            client: long.clone(),
            tenant: long.clone(),
            policy: long.clone(),
            tool: long.clone(),
            verdict: Outcome::Permit,
            reasons: list.clone(),
            label: list,
            digest: long,
            event: u64::MAX,
        });
        // A line may carry the hash of a content besides.
        let line = line(u64::MAX, Time(u64::MAX), event.kind(), Hash::NONE, event.fields());
        assert!(line.len() + 100 < MAX_LINE, "{}", line.len());
        assert!(line.contains(r#""cut":["conversation","#), "{line}");
    }
}
