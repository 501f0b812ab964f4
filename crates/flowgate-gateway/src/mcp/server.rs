//! Messages from the server: answers, notifications and requests.
//!
//! Answers are matched with the client's requests; requests are rejected unless the policy names them. The caller of
//! the machine enters through [`Proxy::from_server`].

use flowgate::json::Numbers;
use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Entry, Message as Said, Output};
use serde_json::{Map, Value, json};

use super::answer::stops;
use super::asking;
use super::greeting::plain;
use super::message::{self, Id, Message, error, result};
use super::session::Session;
use super::unanswered::NO_ANSWER;
use super::{Asked, Asking, INVALID, Out, Proxy, REFUSED, Ruling, Running, UNKNOWN};

/// The requests that a server may send to the client, if a `require` of the policy names them.
pub(crate) const ASKABLE: [&str; 3] = ["sampling/createMessage", "elicitation/create", "roots/list"];

impl Proxy {
    /// Handles a message from the server: the bytes between two line ends, or of one body.
    pub fn from_server(&mut self, session: &mut dyn Session, bytes: &[u8]) -> Vec<Out> {
        let out = self.hear_server(session, bytes);
        self.under_their_names(out)
    }

    fn hear_server(&mut self, session: &mut dyn Session, bytes: &[u8]) -> Vec<Out> {
        if bytes.len() > self.settings.limits.message {
            return self.lost(session, bytes, "a message of the server is larger than one may be");
        }
        let (message, line) = match message::read(bytes, Numbers::Any) {
            Ok(read) => read,
            Err(unreadable) => {
                // The position of a syntax error depends on the content of the message, so it is not reported.
                let class = unreadable.why.split(" at line ").next().unwrap_or_default();
                return self.lost(session, bytes, class);
            }
        };
        if !self.has_room(bytes.len()) {
            return self.lost(session, bytes, "the session is too long; start the server again");
        }
        match message {
            Message::Request { id, method, params } => self.server_asks(session, id, &method, &params),
            Message::Notice { method, params } => self.server_notes(session, &method, &params),
            Message::Answer { id, answer } => match self.asked.remove(&id) {
                Some(Asked::Greeting { call }) => self.greeted(session.monitor(), &id, call.as_ref(), answer),
                Some(Asked::Nothing) => vec![Out::Client(match answer {
                    Ok(said) => result(&id, &Value::Object(said.as_object().map(plain).unwrap_or_default())),
                    Err(_) => error(Some(&id), REFUSED, NO_ANSWER, None),
                })],
                Some(Asked::Listening(_)) => vec![self.unsubscribed(&id, &answer)],
                Some(Asked::Tools { list }) => self.listed(session.monitor(), &id, list, answer),
                Some(Asked::Call(running)) => self.answered(session, &id, &running, answer, line),
                waiting => {
                    // A waiting call was not sent, so the server cannot answer it.
                    waiting.map(|waiting| self.asked.insert(id.clone(), waiting));
                    self.abandoned.remove(&id);
                    vec![Out::Note("dropped an answer that nobody had asked for".to_owned())]
                }
            },
        }
    }

    /// Handles a message that cannot be forwarded: the request that it answers ends without an answer. A message that
    /// is too large and has no readable ID may answer any request, so all of them end.
    fn lost(&mut self, session: &mut dyn Session, bytes: &[u8], class: &str) -> Vec<Out> {
        let known: Vec<Id> =
            message::ids(bytes).into_iter().filter(|id| self.asked.contains_key(id)).collect();
        let may_answer = bytes.len() > self.settings.limits.message;
        let lost: Vec<Id> = match known.is_empty() && may_answer {
            true => self.asked.keys().cloned().collect(),
            false => known,
        };
        let mut out = vec![Out::Note(format!("a message of the server is not passed on: {class}"))];
        for id in lost {
            let Some(asked) = self.asked.remove(&id) else { continue };
            if matches!(asked, Asked::Waiting) {
                self.asked.insert(id, asked);
                continue;
            }
            // The client's name for the request is needed until the error is on its way.
            out.extend(self.unanswered(session, &id, &asked, class));
            self.abandoned.insert(id);
        }
        out
    }

    /// Returns whether the policy names this request of a server.
    pub(super) fn may_ask(&self, monitor: &Monitor, method: &str) -> bool {
        ASKABLE.contains(&method) && monitor.is_named(&self.tool(method))
    }

    /// Handles a request of the server: it is rejected unless the policy names it, and judged as a call otherwise.
    pub(super) fn server_asks(
        &mut self,
        session: &mut dyn Session,
        id: Id,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<Out> {
        let refuse = |code: i64, why: &str| vec![Out::Server(error(Some(&id), code, why, None))];
        if method == "ping" {
            return vec![Out::Server(result(&id, &json!({})))];
        }
        if self.asking.contains_key(&id) || id.is_own() {
            return vec![Out::Server(error(None, INVALID, "the id belongs to another request", None))];
        }
        let tool = self.tool(method);
        if !self.may_ask(session.monitor(), method) {
            let mut out = refuse(UNKNOWN, "the policy does not let servers ask for this");
            if ASKABLE.contains(&method) {
                out.push(Out::Note(format!(
                    "the server asked for {method}, which no `require` of the policy names"
                )));
            }
            return out;
        }
        if self.asking.len() >= self.settings.limits.outstanding {
            return refuse(REFUSED, "too many requests are not answered yet");
        }
        // The content of the request comes from the server, and the client is shown it.
        let content = Value::Object(params.clone());
        let mut entry = Entry::from(Body::Message(Said { role: "mcp".to_owned(), content }));
        entry.extra.insert("method".to_owned(), method.into());
        // Whether the server asks, and for what, may depend on the running calls.
        let label = self.running_carries(session.monitor());
        let Ok((_, findings)) = session.monitor().push_raised(entry, &label.into()) else {
            return refuse(REFUSED, "the session is too long; start the server again");
        };
        if stops(&findings) {
            return refuse(REFUSED, "a rule of the policy stops the request");
        }
        match self.judge(session, &tool, params.clone(), Map::new()) {
            Ruling::Run(authorized) => {
                let call_id = authorized.call().id.clone();
                let arguments = authorized.call().arguments.clone().unwrap_or_default();
                let asked = message::request(&id, method, &arguments);
                let running = Running::plain(tool, call_id);
                self.asking.insert(id, Asking::Server { running });
                vec![Out::Client(asked)]
            }
            Ruling::Ask(_) | Ruling::No(_) => refuse(REFUSED, "the policy does not let this pass"),
        }
    }

    /// Handles the client's answer to a request of the server or to a question whether a call may run.
    pub(super) fn client_answers(
        &mut self,
        session: &mut dyn Session,
        id: &Id,
        answer: Result<Value, Value>,
        line: String,
    ) -> Vec<Out> {
        match self.asking.remove(id) {
            None => vec![Out::Note("dropped an answer that nobody had asked for".to_owned())],
            Some(Asking::Person { question, id, pending }) => {
                let is_yes =
                    answer.as_ref().is_ok_and(|result| result.get("action") == Some(&json!("accept")));
                let said = if is_yes { asking::Said::Yes } else { asking::Said::No };
                self.person_said(session.monitor(), question, id, *pending, &said)
            }
            Some(Asking::Server { running }) => {
                let is_error = Some(answer.is_err());
                let content = answer.unwrap_or_else(|error| error);
                let (call_id, tool, structured) = (running.call_id, None, None);
                let output = Output { call_id, tool, content, structured, is_error };
                match session.monitor().push(Entry::from(Body::Output(output))) {
                    Ok((_, findings)) if !stops(&findings) => vec![Out::Server(line)],
                    _ => vec![Out::Server(error(Some(id), REFUSED, "a rule stops the answer", None))],
                }
            }
        }
    }
}
