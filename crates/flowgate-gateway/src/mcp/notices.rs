//! Notifications: each is made again from what may be in it. What they say in words is not passed.

use serde_json::{Map, Value, json};

use super::message::{Id, notice};
use super::session::Session;
use super::{Asked, Asking, Out, Proxy};

impl Proxy {
    /// What a client tells the server.
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

    /// What a server tells the client.
    pub(super) fn server_notes(
        &mut self,
        session: &mut dyn Session,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<Out> {
        let dropped =
            || vec![Out::Note("dropped a notification of the server that is not passed".to_owned())];
        if let Some(told) = self.told_subscriber(method, params) {
            return told;
        }
        match method {
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => vec![Out::Client(notice(method, &Map::new()))],
            "notifications/resources/updated" => match params.get("uri") {
                Some(Value::String(uri)) if self.subscribed.contains(uri) => {
                    let mut told = Map::new();
                    told.insert("uri".to_owned(), Value::String(uri.clone()));
                    vec![Out::Client(notice(method, &told))]
                }
                _ => dropped(),
            },
            "notifications/progress" => match self.progressed(session.monitor(), params) {
                Some(told) => vec![Out::Client(notice(method, &told))],
                None => dropped(),
            },
            "notifications/cancelled" => {
                let id = params.get("requestId").and_then(Id::of);
                match id.filter(|id| matches!(self.asking.get(id), Some(Asking::Server { .. }))) {
                    Some(id) => {
                        let mut told = Map::new();
                        told.insert("requestId".to_owned(), id.value());
                        self.asking.remove(&id);
                        vec![Out::Client(notice(method, &told))]
                    }
                    None => dropped(),
                }
            }
            _ => dropped(),
        }
    }
}
