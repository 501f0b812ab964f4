//! Defines the revisions of MCP, and what each of them adds to the protocol: requests, parameters, capabilities,
//! notifications and harmless result fields.
//!
//! The proxy knows a method, a capability or a field if a row of [`Revision::additions`] names it. Anything else is
//! refused or dropped, so a revision that is not in the table adds nothing. A connection may also use the additions of
//! revisions that it did not negotiate: the policy decides about a method, whatever the revision.
//!
//! The handlers of requests and notifications (such as `client`, `server`, `notifications` and `initialize`) read the
//! table; the gateway reads the names of the methods, for its spans and for freezes.

use serde_json::Value;

use super::ProxyCallKind;

/// The field by which a client, when it sends a call again, refers to the answer that asked for input.
pub(super) const STATE: &str = "requestState";
/// The field with the client's responses to requested input. They are judged as an argument of this name.
pub(super) const RESPONSES: &str = "inputResponses";
/// The request by which a client asks for notifications over a stream.
pub const LISTEN_METHOD: &str = "subscriptions/listen";

/// A known revision of the protocol, by its date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Revision {
    /// The first revision: tools, resources, prompts, sampling and roots.
    V2024_11_05,
    /// Adds the capability for completions, and HTTP with streams.
    V2025_03_26,
    /// Adds elicitation and structured output of tools.
    V2025_06_18,
    /// Adds tasks, which the proxy does not forward.
    V2025_11_25,
    /// Has no sessions: each request declares the client's capabilities, and a server asks in its answer.
    V2026_07_28,
}

/// The handling of a request of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientRequestKind {
    /// Exchanges identities and capabilities.
    Initialize,
    /// Tests the connection.
    Ping,
    /// Lists the tools.
    ToolList,
    /// Calls a tool.
    ToolCall,
    /// Subscribes to notifications over a stream.
    Listen,
    /// Is judged as a call of a tool with the name of the method. No tool of a server may have this name.
    Judged(ProxyCallKind),
    /// Is refused. The method has a row so that spans can name it.
    Refused,
}

/// What a revision adds to those before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RevisionAdditions {
    /// The methods of the client's requests.
    client_requests: &'static [(&'static str, ClientRequestKind)],
    /// The names of the parameters of the client's requests.
    parameters: &'static [&'static str],
    /// The methods of the server's requests.
    server_requests: &'static [&'static str],
    /// The notifications of the client that are forwarded without parameters.
    client_notifications: &'static [&'static str],
    /// The notifications of the server that are forwarded without parameters.
    server_notifications: &'static [&'static str],
    /// The server capabilities that are forwarded, with their flags.
    capabilities: &'static [(&'static str, &'static [&'static str])],
    /// The result fields that are forwarded without a label, with the values that they may have. A field without a list
    /// of values is a duration for which a result may be cached.
    unlabelled_fields: &'static [(&'static str, &'static [&'static str])],
}

/// The additions of a revision that adds nothing.
const NO_ADDITIONS: RevisionAdditions = RevisionAdditions {
    client_requests: &[],
    parameters: &[],
    server_requests: &[],
    client_notifications: &[],
    server_notifications: &[],
    capabilities: &[],
    unlabelled_fields: &[],
};

impl Revision {
    /// All known revisions, from the oldest to the newest.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// Returns the date by which messages name the revision.
    #[must_use]
    pub fn date(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the revision of a date; `None` if no known one has it.
    #[must_use]
    pub fn of_date(date: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.date() == date)
    }

    /// Returns the revision that a JSON value names; `None` if it is not the date of a known one.
    pub(super) fn of_value(value: &Value) -> Option<Self> {
        value.as_str().and_then(Self::of_date)
    }

    /// Returns what the revision adds to those before it.
    fn additions(self) -> RevisionAdditions {
        use ClientRequestKind::{Initialize, Judged, Listen, Ping, Refused, ToolCall, ToolList};
        use ProxyCallKind::{Content, List, WithoutContent};
        match self {
            Self::V2024_11_05 => RevisionAdditions {
                client_requests: &[
                    ("initialize", Initialize),
                    ("ping", Ping),
                    ("tools/list", ToolList),
                    ("tools/call", ToolCall),
                    ("resources/list", Judged(List("resources"))),
                    ("resources/templates/list", Judged(List("resourceTemplates"))),
                    ("resources/read", Judged(Content)),
                    ("resources/subscribe", Judged(WithoutContent)),
                    ("resources/unsubscribe", Judged(WithoutContent)),
                    ("prompts/list", Judged(List("prompts"))),
                    ("prompts/get", Judged(Content)),
                    ("completion/complete", Judged(Content)),
                    ("logging/setLevel", Refused),
                ],
                parameters: &[
                    "name",
                    "arguments",
                    "_meta",
                    "uri",
                    "cursor",
                    "ref",
                    "argument",
                    "protocolVersion",
                    "capabilities",
                    "clientInfo",
                ],
                server_requests: &["sampling/createMessage", "roots/list"],
                client_notifications: &["notifications/initialized", "notifications/roots/list_changed"],
                server_notifications: &[
                    "notifications/tools/list_changed",
                    "notifications/resources/list_changed",
                    "notifications/prompts/list_changed",
                ],
                capabilities: &[
                    ("tools", &["listChanged"]),
                    ("resources", &["listChanged", "subscribe"]),
                    ("prompts", &["listChanged"]),
                ],
                ..NO_ADDITIONS
            },
            Self::V2025_03_26 => RevisionAdditions { capabilities: &[("completions", &[])], ..NO_ADDITIONS },
            Self::V2025_06_18 => RevisionAdditions {
                parameters: &["context"],
                server_requests: &["elicitation/create"],
                ..NO_ADDITIONS
            },
            Self::V2025_11_25 => RevisionAdditions { parameters: &["task"], ..NO_ADDITIONS },
            Self::V2026_07_28 => RevisionAdditions {
                client_requests: &[("server/discover", Initialize), (LISTEN_METHOD, Listen)],
                parameters: &[STATE, RESPONSES, "notifications"],
                unlabelled_fields: &[
                    ("resultType", &["complete"]),
                    ("cacheScope", &["public", "private"]),
                    ("ttlMs", &[]),
                ],
                ..NO_ADDITIONS
            },
        }
    }
}

/// Returns the rows that `pick` selects from the additions of each revision, from the oldest to the newest.
fn of_all<T: 'static>(pick: impl Fn(RevisionAdditions) -> &'static [T]) -> impl Iterator<Item = &'static T> {
    Revision::ALL.into_iter().flat_map(move |revision| pick(revision.additions()))
}

/// Returns the methods of all requests that a client can send.
pub fn client_methods() -> impl Iterator<Item = &'static str> {
    of_all(|added| added.client_requests).map(|(method, _)| *method)
}

/// Returns the requests that a server may send to the client, if a `require` of the policy names them.
pub fn server_request_methods() -> impl Iterator<Item = &'static str> {
    of_all(|added| added.server_requests).copied()
}

/// Returns the methods that an admin can freeze like a tool: the judged requests of the client, the list of tools, and
/// the requests of the server.
pub fn freezable_methods() -> impl Iterator<Item = &'static str> {
    let of_client = of_all(|added| added.client_requests)
        .filter(|(_, kind)| matches!(kind, ClientRequestKind::Judged(_) | ClientRequestKind::ToolList));
    of_client.map(|(method, _)| *method).chain(server_request_methods())
}

/// Returns a method of the client's requests and its handling; `None` if no revision has the method.
pub(super) fn client_request(method: &str) -> Option<(&'static str, ClientRequestKind)> {
    of_all(|added| added.client_requests).copied().find(|(name, _)| *name == method)
}

/// Returns whether a method is judged as a tool of the same name. A real tool of this name would share its statements
/// in the policy.
pub(super) fn is_judged_as_tool(method: &str) -> bool {
    let of_client = client_request(method).is_some_and(|(_, kind)| {
        matches!(kind, ClientRequestKind::Judged(_) | ClientRequestKind::Initialize)
    });
    of_client || server_request_methods().any(|name| name == method)
}

/// Returns whether MCP defines a request of servers with this method.
pub(super) fn is_server_request(method: &str) -> bool {
    server_request_methods().any(|name| name == method)
}

/// Returns the names of the parameters of all requests of the client.
pub(super) fn parameters() -> impl Iterator<Item = &'static str> {
    of_all(|added| added.parameters).copied()
}

/// Returns whether a notification of the client is forwarded, without its parameters.
pub(super) fn is_bare_client_notification(method: &str) -> bool {
    of_all(|added| added.client_notifications).any(|name| *name == method)
}

/// Returns whether a notification of the server is forwarded, without its parameters.
pub(super) fn is_bare_server_notification(method: &str) -> bool {
    of_all(|added| added.server_notifications).any(|name| *name == method)
}

/// Returns the server capabilities that are forwarded, with their flags.
pub(super) fn forwarded_capabilities() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    of_all(|added| added.capabilities).copied()
}

/// Returns the result fields that are forwarded without a label, with the values that they may have. A field without a
/// list of values is a duration for which a result may be cached.
pub(super) fn unlabelled_fields() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    of_all(|added| added.unlabelled_fields).copied()
}

/// Returns whether a text has the form of a revision's date, such as `2025-06-18`. The revision need not be a known
/// one. A text of this form is safe to forward: it has no room for words.
#[must_use]
pub fn is_revision_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_names_its_revision() {
        assert!(Revision::ALL.is_sorted());
        for revision in Revision::ALL {
            assert!(is_revision_date(revision.date()), "{revision:?}");
            assert_eq!(Revision::of_date(revision.date()), Some(revision));
        }
        for (text, has_form) in [
            ("4803-11-05", true),
            ("2025-6-180", false),
            ("2025/06/18", false),
            ("", false),
            ("----------", false),
        ] {
            assert_eq!(Revision::of_date(text), None, "{text}");
            assert_eq!(is_revision_date(text), has_form, "{text}");
        }
    }

    #[test]
    fn a_method_has_one_row() {
        let mut methods: Vec<_> = client_methods().chain(server_request_methods()).collect();
        methods.sort_unstable();
        assert!(methods.windows(2).all(|pair| pair.first() != pair.last()), "{methods:?}");
    }

    #[test]
    fn a_method_is_handled_as_its_row_says() {
        for (method, is_known, is_freezable, is_tool_name) in [
            ("tools/call", true, false, false),
            ("tools/list", true, true, false),
            ("initialize", true, false, true),
            ("server/discover", true, false, true),
            ("resources/read", true, true, true),
            ("elicitation/create", false, true, true),
            ("logging/setLevel", true, false, false),
            ("tasks/list", false, false, false),
        ] {
            assert_eq!(client_request(method).is_some(), is_known, "{method}");
            assert_eq!(freezable_methods().any(|name| name == method), is_freezable, "{method}");
            assert_eq!(is_judged_as_tool(method), is_tool_name, "{method}");
        }
    }
}
