//! Notifications: each is rebuilt from the fields that may be forwarded. Free text in notifications is dropped.

use serde_json::{Map, Value, json};

use super::message::{Id, notice};
use super::session::Session;
use super::{Asked, Asking, Out, Proxy};

const DROPPED: &str = "dropped a notification of the server that is not passed";

impl Proxy {
    /// Handles a notification from the client.
    pub(super) fn client_notes(
        &mut self,
        session: &mut dyn Session,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<Out> {
        let only = |params: Value| match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        match method {
            "notifications/initialized" => vec![Out::Server(notice(method, &Map::new()))],
            "notifications/roots/list_changed" => vec![Out::Server(notice(method, &Map::new()))],
            "notifications/cancelled" => {
                let id = params.get("requestId").and_then(Id::of).and_then(|id| self.meant(id));
                let Some(id) = id else { return Vec::new() };
                match self.asked.get(&id) {
                    None => Vec::new(),
                    Some(Asked::Waiting) => {
                        self.asking.retain(
                            |_, asking| !matches!(asking, Asking::Person { id: of, .. } if *of == id),
                        );
                        self.asked.remove(&id);
                        Vec::new()
                    }
                    Some(asked) => {
                        Self::cancelled(session, asked);
                        let params = only(json!({"requestId": id.value()}));
                        self.abandon(id);
                        vec![Out::Server(notice(method, &params))]
                    }
                }
            }
            _ => vec![Out::Note("dropped a notification of the client that is not passed".to_owned())],
        }
    }

    /// Handles a notification from the server. Whether and how often the server sends it may depend on the running
    /// calls.
    pub(super) fn server_notes(
        &mut self,
        session: &mut dyn Session,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<Out> {
        let told = match self.told_subscriber(method, params) {
            Some(told) => told,
            None => match self.passed(method, params) {
                Some(told) => vec![Out::Client(notice(method, &told))],
                None => vec![Out::Note(DROPPED.to_owned())],
            },
        };
        if !told.iter().any(|out| matches!(out, Out::Client(_))) {
            return told;
        }
        if !self.raise_client(session.monitor()) {
            return vec![Out::Note(DROPPED.to_owned())];
        }
        if let Some(id) = self.taken_back(method, params) {
            self.asking.remove(&id);
        }
        told
    }

    /// Returns whether a notification would be forwarded to the client.
    pub(super) fn is_passed(&self, method: &str, params: &Map<String, Value>) -> bool {
        match self.told_subscriber(method, params) {
            Some(told) => told.iter().any(|out| matches!(out, Out::Client(_))),
            None => self.passed(method, params).is_some(),
        }
    }

    /// Returns the fields of a notification that are forwarded; `None` if it is dropped.
    fn passed(&self, method: &str, params: &Map<String, Value>) -> Option<Map<String, Value>> {
        match method {
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => Some(Map::new()),
            "notifications/resources/updated" => {
                let uri = params.get("uri").and_then(Value::as_str);
                let uri = uri.filter(|uri| self.subscribed.contains(*uri))?;
                Some(Map::from_iter([("uri".to_owned(), uri.into())]))
            }
            "notifications/progress" => self.progress_told(params),
            _ => {
                let id = self.taken_back(method, params)?;
                Some(Map::from_iter([("requestId".to_owned(), id.value())]))
            }
        }
    }

    /// Returns the ID of the server's request to the client that the notification cancels.
    pub(super) fn taken_back(&self, method: &str, params: &Map<String, Value>) -> Option<Id> {
        let id = params.get("requestId").and_then(Id::of).filter(|_| method == "notifications/cancelled");
        id.filter(|id| matches!(self.asking.get(id), Some(Asking::Server { .. })))
    }
}
