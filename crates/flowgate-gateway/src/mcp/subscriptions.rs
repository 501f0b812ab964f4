//! What a client wants to hear of, in the revision without connections: one request, whose answer is a stream of what happens.
//!
//! A server is asked only for what it may be: each resource is judged as where clients subscribe to one at a time. What it tells is made again,
//! under the id by which the client knows its request, and only what that client has asked for.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::greeting::envelope;
use super::message::{Id, error, notice, request, result};
use super::session::Session;
use super::unanswered::NO_ANSWER;
use super::{Asked, INVALID, Out, Proxy, REFUSED, Ruling};

pub(crate) const LISTEN: &str = "subscriptions/listen";
/// Where a notification says which request it belongs to.
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const UPDATED: &str = "notifications/resources/updated";
const RESOURCES: &str = "resourceSubscriptions";
/// What can be asked for, and what is told then.
const KINDS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];
/// How many resources one request may be about.
const MAX_RESOURCES: usize = 64;

/// What a client wants to hear of.
#[derive(Debug)]
pub(super) struct Subscription {
    kinds: Vec<&'static str>,
    uris: BTreeSet<String>,
}

impl Subscription {
    /// What of a filter is in it.
    fn only(&self, filter: &Value) -> Value {
        let kinds = self.kinds.iter().filter(|kind| filter.get(**kind) == Some(&json!(true)));
        let mut only: Map<String, Value> = kinds.map(|kind| ((*kind).to_owned(), json!(true))).collect();
        if let Some(uris) = filter.get(RESOURCES).and_then(Value::as_array) {
            let known = uris.iter().filter(|uri| uri.as_str().is_some_and(|uri| self.uris.contains(uri)));
            only.insert(RESOURCES.to_owned(), known.cloned().collect());
        }
        Value::Object(only)
    }

    /// What of a notification the client is told.
    fn tell(&self, method: &str, params: &Map<String, Value>) -> Option<Map<String, Value>> {
        let mut told = Map::new();
        match method {
            ACKNOWLEDGED => {
                told.insert("notifications".to_owned(), self.only(params.get("notifications")?));
            }
            UPDATED => {
                let uri = params
                    .get("uri")
                    .filter(|uri| uri.as_str().is_some_and(|uri| self.uris.contains(uri)))?;
                told.insert("uri".to_owned(), uri.clone());
            }
            _ => {
                KINDS.iter().find(|(kind, told)| *told == method && self.kinds.contains(kind))?;
            }
        }
        Some(told)
    }
}

impl Proxy {
    /// A client wants to hear of something.
    pub(super) fn subscribe(
        &mut self,
        session: &mut dyn Session,
        id: Id,
        mut params: Map<String, Value>,
    ) -> Vec<Out> {
        let refuse = |code: i64, why: &str| vec![Out::Client(error(Some(&id), code, why, None))];
        let Some(filter) = params.shift_remove("notifications").filter(Value::is_object) else {
            return refuse(INVALID, "the request does not say what it wants to hear of in `notifications`");
        };
        let kinds =
            KINDS.into_iter().map(|(kind, _)| kind).filter(|kind| filter.get(*kind) == Some(&json!(true)));
        let mut subscription = Subscription { kinds: kinds.collect(), uris: BTreeSet::new() };
        let uris = filter.get(RESOURCES).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if uris.len() > MAX_RESOURCES {
            return refuse(REFUSED, "the request is about too many resources; ask for fewer of them");
        }
        let tool = self.tool("resources/subscribe");
        for uri in uris.iter().filter_map(Value::as_str) {
            let mut arguments = Map::new();
            arguments.insert("uri".to_owned(), uri.into());
            if let Ruling::Run(_) = self.judge(session, &tool, arguments, Map::new()) {
                subscription.uris.insert(uri.to_owned());
            }
        }
        let mut sent = Map::new();
        sent.insert("notifications".to_owned(), subscription.only(&filter));
        // Nothing else beside the request is judged, so nothing else goes out with it.
        let envelope = params.get("_meta").map(envelope).filter(|envelope| !envelope.is_empty());
        sent.extend(envelope.map(|envelope| ("_meta".to_owned(), Value::Object(envelope))));
        let sent = request(&id, LISTEN, &sent);
        self.asked.insert(id, Asked::Listening(subscription));
        vec![Out::Server(sent)]
    }

    /// What a server tells those who listen; `None` if it does not say that it belongs to such a request.
    pub(super) fn told_subscriber(&self, method: &str, params: &Map<String, Value>) -> Option<Vec<Out>> {
        let of = params.get("_meta")?.get(SUBSCRIPTION)?;
        let told = Id::of(of).and_then(|id| match self.asked.get(&id) {
            Some(Asked::Listening(subscription)) => Some((subscription.tell(method, params)?, id)),
            _ => None,
        });
        Some(match told {
            Some((mut told, id)) => {
                told.insert("_meta".to_owned(), self.of_subscription(&id));
                vec![Out::Client(notice(method, &told))]
            }
            None => vec![Out::Note("dropped a notification that nobody had asked for".to_owned())],
        })
    }

    /// The server has no more to tell.
    pub(super) fn unsubscribed(&self, id: &Id, answer: &Result<Value, Value>) -> Out {
        Out::Client(match answer {
            Ok(_) => result(id, &json!({"resultType": "complete", "_meta": self.of_subscription(id)})),
            Err(_) => error(Some(id), REFUSED, NO_ANSWER, None),
        })
    }

    fn of_subscription(&self, id: &Id) -> Value {
        json!({SUBSCRIPTION: self.names.get(id).unwrap_or(id).value()})
    }
}
