//! Defines [`AuditEvent`], an event that an audit log records, such as a verdict or a person's decision. An event
//! contains names, labels as text (one phrase for each dimension), names of rules and digests, and no content of
//! messages or calls. The gateway creates events; [`AuditLog`](super::AuditLog) writes the fields of each into a line.

use flowgate::monitor::{Outcome, PersonDecision};

use super::configuration_cause::ConfigurationCause;
use super::loss::AuditLoss;
use super::record::RecordFields;
use super::record_kind::RecordKind;

/// An action of the gateway, or a decision or order that it received.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditEvent {
    /// A call was judged.
    Judged(JudgedCallRecord),
    /// A person was asked whether a call may run.
    Asked {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The tool.
        tool: String,
        /// The digest of the call.
        digest: String,
        /// The reasons of the question: names of rules, and labels as text.
        reasons: Vec<String>,
    },
    /// A question was decided.
    Decided {
        /// The conversation.
        conversation: String,
        /// The digest of the call.
        digest: String,
        /// The person who decided. For a call that a lasting grant covers, it is the person who gave the grant. For an
        /// answer in front of an MCP client, it is the client, because the gateway does not know the person.
        who: String,
        /// The role in which the person decided, as text for people: `approver`, "in front of the client" or `lasting
        /// grant ID`, for example.
        role: String,
        /// The decision.
        answer: PersonDecision,
    },
    /// A call ran because a person had allowed it.
    ApprovalUsed {
        /// The conversation.
        conversation: String,
        /// The tool.
        tool: String,
        /// The digest of the call.
        digest: String,
    },
    /// A call that a person had allowed does not run.
    ApprovalVoid {
        /// The conversation.
        conversation: String,
        /// The tool.
        tool: String,
        /// The digest of the call.
        digest: String,
        /// The cause: a phrase for people, such as "the call was refused when it was judged again".
        cause: String,
        /// The reasons when the call was judged again: names of rules, and labels as text. Empty for a call to an MCP
        /// server, whose verdict has a record of its own.
        reasons: Vec<String>,
    },
    /// A call needed a person's decision, and no person was asked.
    Unasked {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The tool.
        tool: String,
        /// The digest of the call.
        digest: String,
        /// The reason why no person was asked: a phrase for people.
        cause: String,
    },
    /// A call that was permitted in the chat, and that the client then made itself, was sent to its MCP server.
    RanBeside {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The tool.
        tool: String,
        /// The digest of the call.
        digest: String,
    },
    /// A text of the model was withheld.
    ReplyWithheld {
        /// The conversation.
        conversation: String,
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The names of the rules. The gateway leaves the list empty, because the message of a rule can quote the text.
        reasons: Vec<String>,
    },
    /// A person froze something or released it, or withdrew a lasting grant or a conversation grant.
    KillSwitch {
        /// The kind and the name of the target, such as `client NAME`, `lasting-grant ID` or
        /// `conversation-grant ID of CLIENT/CONVERSATION`.
        what: String,
        /// The person.
        who: String,
        /// Whether the target is frozen from now on. For the withdrawal of a grant, it is always `Set`.
        state: FreezeSwitch,
    },
    /// A person cleared the gateway's record of texts that a client was shown.
    QuotationsCleared {
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The source, or `all`.
        what: String,
        /// The person.
        who: String,
    },
    /// A person made a virtual key of a client. The record names the key, and does not contain it.
    KeyMade {
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The id and the name of the key, as `ID NAME`.
        what: String,
        /// The person.
        who: String,
    },
    /// A person revoked a virtual key of a client.
    KeyRevoked {
        /// The client.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The id and the name of the key, as `ID NAME`.
        what: String,
        /// The person.
        who: String,
    },
    /// An order or decision that was recorded before may not be in force: the database did not confirm it.
    OrderUnconfirmed {
        /// The order or decision.
        what: String,
        /// The person.
        who: String,
        /// The cause: the sentence of the error.
        cause: String,
    },
    /// A session began, ended, or was deleted.
    Session {
        /// The conversation.
        conversation: String,
        /// The client that owns it.
        client: String,
        /// The tenant of the client.
        tenant: String,
        /// The change of the session.
        phase: SessionPhase,
    },
    /// An operator accepted a loss of the log or its database.
    LossAccepted {
        /// The operator, who has access to the key.
        who: String,
        /// The loss.
        loss: AuditLoss,
    },
    /// The gateway loaded a configuration.
    ConfigurationLoaded {
        /// The digests of the clients' policies, each once, in the form of [`JudgedCallRecord::policy`].
        policies: Vec<String>,
        /// What made the gateway load it.
        cause: ConfigurationCause,
    },
}

/// A call that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedCallRecord {
    /// The conversation.
    pub conversation: String,
    /// The client.
    pub client: String,
    /// The tenant of the client.
    pub tenant: String,
    /// The digest of the client's policy with all settings on which a replay of its conversations depends. It is not
    /// that of [`policy_digest`](crate::policy_digest()).
    pub policy: String,
    /// The tool.
    pub tool: String,
    /// The verdict.
    pub verdict: Outcome,
    /// The reasons of the verdict: names of rules, and labels as text.
    pub reasons: Vec<String>,
    /// The label of the call, one phrase for each dimension.
    pub label: Vec<String>,
    /// The keyed digest of the call, which reveals nothing of it without the key.
    pub digest: String,
    /// The number of the event in the trace.
    pub event: u64,
}

/// The state of a kill switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreezeSwitch {
    /// The target is frozen.
    Set,
    /// The target is released.
    Unset,
}

/// A change of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionPhase {
    /// The session began.
    Begun,
    /// The session ended.
    Ended,
    /// The session was deleted.
    Deleted,
}

impl AuditEvent {
    /// Returns the kind of the event's record.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::Judged(_) => RecordKind::Judged,
            Self::Asked { .. } => RecordKind::Asked,
            Self::Decided { .. } => RecordKind::Decided,
            Self::ApprovalUsed { .. } => RecordKind::ApprovalUsed,
            Self::ApprovalVoid { .. } => RecordKind::ApprovalVoid,
            Self::Unasked { .. } => RecordKind::Unasked,
            Self::RanBeside { .. } => RecordKind::RanBeside,
            Self::ReplyWithheld { .. } => RecordKind::ReplyWithheld,
            Self::KillSwitch { .. } => RecordKind::KillSwitch,
            Self::QuotationsCleared { .. } => RecordKind::QuotationsCleared,
            Self::KeyMade { .. } => RecordKind::KeyMade,
            Self::KeyRevoked { .. } => RecordKind::KeyRevoked,
            Self::OrderUnconfirmed { .. } => RecordKind::OrderUnconfirmed,
            Self::Session { phase: SessionPhase::Begun, .. } => RecordKind::SessionBegun,
            Self::Session { phase: SessionPhase::Ended, .. } => RecordKind::SessionEnded,
            Self::Session { phase: SessionPhase::Deleted, .. } => RecordKind::SessionDeleted,
            Self::LossAccepted { .. } => RecordKind::LossAccepted,
            Self::ConfigurationLoaded { .. } => RecordKind::ConfigurationLoaded,
        }
    }

    /// Returns the conversation of the event; `None` for an event without this field, such as one that concerns a client
    /// or the whole gateway.
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
            | Self::KeyMade { .. }
            | Self::KeyRevoked { .. }
            | Self::OrderUnconfirmed { .. }
            | Self::LossAccepted { .. }
            | Self::ConfigurationLoaded { .. } => None,
        }
    }

    /// Returns the client of the event; `None` for an event that does not name one.
    pub fn client(&self) -> Option<&str> {
        self.client_and_tenant().map(|(client, _)| client)
    }

    /// Returns the tenant of the event's client; `None` for an event that does not name one.
    pub fn tenant(&self) -> Option<&str> {
        self.client_and_tenant().map(|(_, tenant)| tenant)
    }

    /// Returns the client of the event and the tenant of the client; `None` for an event without these fields. A decision
    /// or an approval, for example, names a conversation and the digest of a call, and an order of a person names its
    /// target in the field `what`.
    fn client_and_tenant(&self) -> Option<(&str, &str)> {
        match self {
            Self::Judged(JudgedCallRecord { client, tenant, .. })
            | Self::Asked { client, tenant, .. }
            | Self::Unasked { client, tenant, .. }
            | Self::RanBeside { client, tenant, .. }
            | Self::ReplyWithheld { client, tenant, .. }
            | Self::QuotationsCleared { client, tenant, .. }
            | Self::KeyMade { client, tenant, .. }
            | Self::KeyRevoked { client, tenant, .. }
            | Self::Session { client, tenant, .. } => Some((client, tenant)),
            Self::Decided { .. }
            | Self::ApprovalUsed { .. }
            | Self::ApprovalVoid { .. }
            | Self::KillSwitch { .. }
            | Self::OrderUnconfirmed { .. }
            | Self::LossAccepted { .. }
            | Self::ConfigurationLoaded { .. } => None,
        }
    }

    /// Returns whether a person is accountable for the event, by a decision or an order. Unless the operator chose
    /// `SyncPolicy::Heads`, such an event is synced to disk before it takes effect.
    pub(super) fn is_decision(&self) -> bool {
        matches!(
            self,
            Self::Decided { .. }
                | Self::ApprovalUsed { .. }
                | Self::KillSwitch { .. }
                | Self::LossAccepted { .. }
                | Self::QuotationsCleared { .. }
                | Self::KeyMade { .. }
                | Self::KeyRevoked { .. }
                | Self::ConfigurationLoaded { cause: ConfigurationCause::Order(_), .. }
        )
    }

    /// Returns the fields that the line of this event has in addition to those of every line, such as the tool of a
    /// call.
    pub(super) fn fields(&self) -> RecordFields {
        let mut fields = RecordFields::default();
        fields
            .optional_text("conversation", self.conversation())
            .optional_text("client", self.client())
            .optional_text("tenant", self.tenant());
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
                fields
                    .text("digest", digest)
                    .text("who", who)
                    .text("role", role)
                    .text("answer", answer.name());
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
                    FreezeSwitch::Set => "set",
                    FreezeSwitch::Unset => "unset",
                };
                fields.text("what", what).text("who", who).text("state", state);
            }
            Self::QuotationsCleared { what, who, .. }
            | Self::KeyMade { what, who, .. }
            | Self::KeyRevoked { what, who, .. } => {
                fields.text("what", what).text("who", who);
            }
            Self::OrderUnconfirmed { what, who, cause } => {
                fields.text("what", what).text("who", who).text("cause", cause);
            }
            Self::Session { .. } => {}
            Self::LossAccepted { who, loss } => {
                fields.text("who", who).text("what", loss.name());
                if let Some(anchor) = loss.contradicted_anchor() {
                    fields
                        .text("log", &anchor.log.to_string())
                        .number("line", anchor.head.seq.saturating_add(1))
                        .text("hash", &anchor.head.hash.to_string());
                }
                fields.number("lines", loss.lines());
            }
            Self::ConfigurationLoaded { policies, cause } => {
                fields
                    .list("policies", policies)
                    .text("cause", cause.name())
                    .optional_text("who", cause.person());
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::super::line_hash::LineHash;
    use super::super::record::{MAX_LINE, Timestamp, serialize_record};
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_its_event() {
        let check = |event: AuditEvent, expected: &str| {
            let line = serialize_record(0, Timestamp(1), &event.kind(), LineHash::NONE, event.fields());
            let previous = format!(r#","previous":"{}""#, LineHash::NONE);
            assert_eq!(line.replace(&previous, "").replace(r#"{"seq":0,"time":1,"#, "{"), expected);
        };
        let s = str::to_owned;
        let conversation = s("c1");
        check(
            AuditEvent::Judged(JudgedCallRecord {
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
            AuditEvent::Asked {
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
            AuditEvent::Decided {
                conversation: s("c1"),
                digest: s("d"),
                who: s("ann"),
                role: s("owner"),
                answer: PersonDecision::Deny,
            },
            r#"{"kind":"decided","conversation":"c1","digest":"d","who":"ann","role":"owner","answer":"deny"}"#,
        );
        check(
            AuditEvent::ApprovalUsed { conversation: s("c1"), tool: s("send"), digest: s("d") },
            r#"{"kind":"approval-used","conversation":"c1","tool":"send","digest":"d"}"#,
        );
        check(
            AuditEvent::ApprovalVoid {
                conversation: s("c1"),
                tool: s("send"),
                digest: s("d"),
                cause: s("judged again"),
                reasons: vec![s("stale")],
            },
            r#"{"kind":"approval-void","conversation":"c1","tool":"send","digest":"d","cause":"judged again","reasons":["stale"]}"#,
        );
        check(
            AuditEvent::Unasked {
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
            AuditEvent::RanBeside {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                tool: s("send"),
                digest: s("d"),
            },
            r#"{"kind":"ran-beside","conversation":"c1","client":"agent","tenant":"acme","tool":"send","digest":"d"}"#,
        );
        check(
            AuditEvent::ReplyWithheld {
                conversation: s("c1"),
                client: s("agent"),
                tenant: s("acme"),
                reasons: vec![],
            },
            r#"{"kind":"reply-withheld","conversation":"c1","client":"agent","tenant":"acme","reasons":[]}"#,
        );
        check(
            AuditEvent::KillSwitch { what: s("everything"), who: s("ann"), state: FreezeSwitch::Set },
            r#"{"kind":"kill-switch","what":"everything","who":"ann","state":"set"}"#,
        );
        check(
            AuditEvent::QuotationsCleared {
                client: s("agent"),
                tenant: s("acme"),
                what: s("all"),
                who: s("ann"),
            },
            r#"{"kind":"quotations-cleared","client":"agent","tenant":"acme","what":"all","who":"ann"}"#,
        );
        let (client, tenant, what, who) = (s("agent"), s("acme"), s("0a1b ci"), s("ann"));
        let made = AuditEvent::KeyMade { client, tenant, what, who };
        assert!(made.is_decision());
        check(made, r#"{"kind":"key-made","client":"agent","tenant":"acme","what":"0a1b ci","who":"ann"}"#);
        let (client, tenant, what, who) = (s("agent"), s("acme"), s("0a1b ci"), s("ann"));
        let revoked = AuditEvent::KeyRevoked { client, tenant, what, who };
        assert!(revoked.is_decision());
        check(
            revoked,
            r#"{"kind":"key-revoked","client":"agent","tenant":"acme","what":"0a1b ci","who":"ann"}"#,
        );
        check(
            AuditEvent::OrderUnconfirmed {
                what: s("decision d"),
                who: s("ann"),
                cause: s("no answer in time"),
            },
            r#"{"kind":"order-unconfirmed","what":"decision d","who":"ann","cause":"no answer in time"}"#,
        );
        check(
            AuditEvent::Session {
                conversation,
                client: s("agent"),
                tenant: s("acme"),
                phase: SessionPhase::Deleted,
            },
            r#"{"kind":"session-deleted","conversation":"c1","client":"agent","tenant":"acme"}"#,
        );
        check(
            AuditEvent::ConfigurationLoaded { policies: vec![s("p")], cause: ConfigurationCause::Start },
            r#"{"kind":"configuration-loaded","policies":["p"],"cause":"start"}"#,
        );
        check(
            AuditEvent::ConfigurationLoaded { policies: vec![s("p")], cause: ConfigurationCause::Signal },
            r#"{"kind":"configuration-loaded","policies":["p"],"cause":"signal"}"#,
        );
        let cause = ConfigurationCause::Order(s("ann"));
        let ordered = AuditEvent::ConfigurationLoaded { policies: vec![s("p")], cause };
        assert!(ordered.is_decision());
        check(ordered, r#"{"kind":"configuration-loaded","policies":["p"],"cause":"api","who":"ann"}"#);
    }

    #[test]
    fn no_event_is_longer_than_a_line() {
        let long = "\"\u{1}é".repeat(9000);
        let list = vec![long.clone(); 9000];
        let event = AuditEvent::Judged(JudgedCallRecord {
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
        // A line may also contain the hash of a content.
        let line =
            serialize_record(u64::MAX, Timestamp(u64::MAX), &event.kind(), LineHash::NONE, event.fields());
        assert!(line.len() + 100 < MAX_LINE, "{}", line.len());
        assert!(line.contains(r#""cut":["conversation","#), "{line}");
    }
}
