//! Handles the subscriptions of a client in the revision of MCP without sessions (2026-07-28): a request for
//! notifications of changes, whose answer is a stream of them. `client`, `notifications` and `server` call this module.
//!
//! Each resource is judged like a `resources/subscribe` request, and only permitted ones are requested from the server.
//! Notifications are rebuilt under the client's own ID of the request, and only those that the client subscribed to are
//! forwarded.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::failed_requests::NO_ANSWER;
use super::initialize::required_metadata;
use super::message::{RequestId, error, notification, request, result};
use super::revision::LISTEN_METHOD;
use super::session::MonitoredSession;
use super::{CallRuling, INVALID_REQUEST, PendingClientRequest, Proxy, ProxyAction, REFUSED};

/// The metadata key by which a notification names its subscription.
pub const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// The notification by which the server confirms a subscription.
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// The notification that a resource has changed.
const UPDATED: &str = "notifications/resources/updated";
/// The field of a filter that lists the addresses of resources.
const RESOURCES: &str = "resourceSubscriptions";
/// The kinds of changes that can be subscribed to, and their notifications.
const KINDS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];
/// The maximum number of resources in one request.
const MAX_RESOURCES: usize = 64;

/// The changes that a client subscribed to.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The kinds of changes, as [`KINDS`] names them.
    kinds: Vec<&'static str>,
    /// The addresses of the permitted resources.
    uris: BTreeSet<String>,
}

impl Subscription {
    /// Returns the part of `filter` that this subscription contains. A filter is a JSON object that names kinds of
    /// changes, and resources; the client sends one in its request, and the server one in its confirmation.
    fn intersect(&self, filter: &Value) -> Value {
        let kinds = self.kinds.iter().filter(|kind| filter.get(**kind) == Some(&json!(true)));
        let mut only: Map<String, Value> = kinds.map(|kind| ((*kind).to_owned(), json!(true))).collect();
        if let Some(uris) = filter.get(RESOURCES).and_then(Value::as_array) {
            let permitted = uris.iter().filter(|uri| uri.as_str().is_some_and(|uri| self.uris.contains(uri)));
            only.insert(RESOURCES.to_owned(), permitted.cloned().collect());
        }
        Value::Object(only)
    }

    /// Returns the fields of a notification that are forwarded to the client; `None` if the subscription does not
    /// contain the notification.
    fn notification_fields(&self, method: &str, params: &Map<String, Value>) -> Option<Map<String, Value>> {
        let mut fields = Map::new();
        match method {
            ACKNOWLEDGED => {
                fields.insert("notifications".to_owned(), self.intersect(params.get("notifications")?));
            }
            UPDATED => {
                let uri = params
                    .get("uri")
                    .filter(|uri| uri.as_str().is_some_and(|uri| self.uris.contains(uri)))?;
                fields.insert("uri".to_owned(), uri.clone());
            }
            // Any other method must announce a kind of change that the client has subscribed to.
            _ => {
                KINDS
                    .iter()
                    .find(|(kind, notification)| *notification == method && self.kinds.contains(kind))?;
            }
        }
        Some(fields)
    }
}

impl Proxy {
    /// Handles a client's request for a subscription: forwards it with the resources that the policy permits. No person
    /// is asked about the other resources. Refuses a request without the object `notifications`, or with too many
    /// resources.
    pub(super) fn subscribe(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        mut params: Map<String, Value>,
    ) -> Vec<ProxyAction> {
        let refuse = |code: i64, why: &str| vec![ProxyAction::Client(error(Some(&id), code, why, None))];
        let Some(filter) = params.shift_remove("notifications").filter(Value::is_object) else {
            return refuse(
                INVALID_REQUEST,
                "the request has no object `notifications`; add one that names what to subscribe to",
            );
        };
        // Kinds of changes are not judged: their notifications are forwarded without content.
        let kinds =
            KINDS.into_iter().map(|(kind, _)| kind).filter(|kind| filter.get(*kind) == Some(&json!(true)));
        let mut subscription = Subscription { kinds: kinds.collect(), uris: BTreeSet::new() };
        let uris = filter.get(RESOURCES).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if uris.len() > MAX_RESOURCES {
            let why =
                format!("the request subscribes to more than {MAX_RESOURCES} resources; name fewer of them");
            return refuse(REFUSED, &why);
        }
        let tool = self.tool("resources/subscribe");
        // Each resource is judged as a call with its URI as the only parameter. Resources that need a question to a
        // person are left out: one request may name many.
        for uri in uris.iter().filter_map(Value::as_str) {
            let mut arguments = Map::new();
            arguments.insert("uri".to_owned(), uri.into());
            if let CallRuling::Run(_) = self.judge(session, &tool, arguments, Map::new(), None) {
                subscription.uris.insert(uri.to_owned());
            }
        }
        let mut sent = Map::new();
        sent.insert("notifications".to_owned(), subscription.intersect(&filter));
        // The rest of the request is not judged, so it is not sent.
        let envelope = params.get("_meta").map(required_metadata).filter(|envelope| !envelope.is_empty());
        sent.extend(envelope.map(|envelope| ("_meta".to_owned(), Value::Object(envelope))));
        let sent = request(&id, LISTEN_METHOD, &sent);
        self.client_requests.insert(id, PendingClientRequest::Listening(subscription));
        vec![ProxyAction::Server(sent)]
    }

    /// Returns the actions for a notification that names a subscription; `None` if it names none. The notification is
    /// forwarded under the client's ID of the subscription. It is dropped with a note if the subscription is unknown or
    /// does not contain the notification.
    pub(super) fn handle_subscription_notification(
        &self,
        method: &str,
        params: &Map<String, Value>,
    ) -> Option<Vec<ProxyAction>> {
        let subscription_id = params.get("_meta")?.get(SUBSCRIPTION_ID_KEY)?;
        let fields =
            RequestId::from_value(subscription_id).and_then(|id| match self.client_requests.get(&id) {
                Some(PendingClientRequest::Listening(subscription)) => {
                    Some((subscription.notification_fields(method, params)?, id))
                }
                _ => None,
            });
        Some(match fields {
            Some((mut fields, id)) => {
                fields.insert("_meta".to_owned(), self.subscription_metadata(&id));
                vec![ProxyAction::Client(notification(method, &fields))]
            }
            None => {
                vec![ProxyAction::Note(
                    "dropped a notification of the server that belongs to no subscription of the client"
                        .to_owned(),
                )]
            }
        })
    }

    /// Returns the message to the client that a subscription has ended, since the server has answered its request: an
    /// empty result, or an error if the answer is one.
    pub(super) fn end_subscription(&self, id: &RequestId, answer: &Result<Value, Value>) -> ProxyAction {
        ProxyAction::Client(match answer {
            Ok(_) => result(id, &json!({"resultType": "complete", "_meta": self.subscription_metadata(id)})),
            Err(_) => error(Some(id), REFUSED, NO_ANSWER, None),
        })
    }

    /// Returns the metadata that name a subscription, by the client's own ID of its request.
    fn subscription_metadata(&self, id: &RequestId) -> Value {
        json!({SUBSCRIPTION_ID_KEY: self.client_ids.get(id).unwrap_or(id).value()})
    }
}
