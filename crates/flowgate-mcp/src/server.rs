//! Handles messages from the server: answers, notifications and requests.
//!
//! An answer is passed to the module that handles the client's request. A `ping` is answered here. Any other request of
//! the server is rejected if the policy does not name it, and is judged like a call if the policy does; no person is
//! asked about it. This module also handles the client's answer to such a request. The caller of the proxy enters
//! through [`Proxy::handle_server_message`].

use flowgate::json::Numbers;
use flowgate::monitor::Monitor;
use flowgate::trace::{Message, Output, TraceEntry};
use flowgate_audit::watch::WatchedSubject;
use serde_json::{Map, Value, json};

use super::answer::has_objection;
use super::elicitation;
use super::failed_requests::NO_ANSWER;
use super::initialize::unlabelled_fields;
use super::message::{self, McpMessage, RequestId, error, result};
use super::revision;
use super::session::MonitoredSession;
use super::{
    CallRuling, INVALID_REQUEST, METHOD_NOT_FOUND, OutgoingRequest, PendingClientRequest, PermittedRequest,
    Proxy, ProxyAction, REFUSED, RunningCall,
};

impl Proxy {
    /// Handles a message from the server: the bytes of one line of a stream, or of one HTTP body. Returns what the
    /// caller is to send, ask or report, in order. Answers to the client have the IDs that the client chose.
    pub fn handle_server_message(
        &mut self,
        session: &mut dyn MonitoredSession,
        bytes: &[u8],
    ) -> Vec<ProxyAction> {
        let out = self.process_server_message(session, bytes);
        self.restore_client_ids(out)
    }

    /// Parses a message of the server and passes it to the handler of its kind, and an answer to the handler of the
    /// request that it answers. A message that cannot be parsed, is too large or exceeds the session's limit is not
    /// forwarded.
    fn process_server_message(
        &mut self,
        session: &mut dyn MonitoredSession,
        bytes: &[u8],
    ) -> Vec<ProxyAction> {
        if bytes.len() > self.settings.limits.message {
            let limit = self.settings.limits.message;
            let class = format!("the message is larger than {limit} bytes; let the server send smaller ones");
            return self.handle_unforwardable_message(session, bytes, &class);
        }
        // Accepts numbers that parsers may round differently: most messages of a server contain no arguments of calls.
        let (message, line) = match message::read(bytes, Numbers::Any) {
            Ok(read) => read,
            Err(unreadable) => {
                // The position of a syntax error depends on the content of the message, so it is not reported.
                let class = unreadable.why.split(" at line ").next().unwrap_or_default();
                return self.handle_unforwardable_message(session, bytes, class);
            }
        };
        if !self.has_room(bytes.len()) {
            return self.handle_unforwardable_message(
                session,
                bytes,
                "the session has reached its size limit; restart the MCP server to begin another session",
            );
        }
        match message {
            McpMessage::Request { id, method, params } => {
                self.handle_server_request(session, id, &method, &params)
            }
            McpMessage::Notice { method, params } => {
                self.handle_server_notification(session, &method, &params)
            }
            McpMessage::Answer { id, answer } => self.handle_server_answer(session, &id, answer, line),
        }
    }

    /// Passes the server's answer (a result or an error) to the handler of the client's request `id`. `line` is the
    /// message as it was received. An answer that belongs to no open request is dropped.
    fn handle_server_answer(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        answer: Result<Value, Value>,
        line: String,
    ) -> Vec<ProxyAction> {
        match self.client_requests.remove(id) {
            // In watch mode, an error reaches the client as the server sent it. The error of a call must be recorded
            // first, so it goes to the handler of calls below. A request that waits for a person was not sent to the
            // server, so this is no answer to it.
            Some(pending)
                if self.is_watching()
                    && answer.is_err()
                    && !matches!(pending, PendingClientRequest::Call(_) | PendingClientRequest::Waiting) =>
            {
                vec![ProxyAction::Client(line)]
            }
            Some(PendingClientRequest::Initialize { call }) => {
                self.handle_initialize_answer(session.monitor(), id, call.as_ref(), answer)
            }
            // The answer to a ping: it has no content, so only constant fields are forwarded.
            Some(PendingClientRequest::Nothing) => vec![ProxyAction::Client(match answer {
                Ok(answer) => {
                    result(id, &Value::Object(answer.as_object().map(unlabelled_fields).unwrap_or_default()))
                }
                Err(_) => error(Some(id), REFUSED, NO_ANSWER, None),
            })],
            Some(PendingClientRequest::Listening(_)) => vec![self.end_subscription(id, &answer)],
            Some(PendingClientRequest::Tools { list }) => {
                self.handle_tool_list(session.monitor(), id, list, answer)
            }
            Some(PendingClientRequest::Call(running)) => {
                self.handle_call_answer(session, id, &running, answer, line)
            }
            waiting => {
                // The request is unknown or abandoned, or it waits for a person. A waiting request was not sent, so
                // the server cannot answer it, and it stays open.
                waiting.map(|waiting| self.client_requests.insert(id.clone(), waiting));
                self.abandoned.remove(id);
                vec![ProxyAction::Note(
                    "dropped a response of the server whose `id` belongs to no open request".to_owned(),
                )]
            }
        }
    }

    /// Handles a message (`bytes`) that cannot be forwarded: the request that it answers ends without an answer. A
    /// message that is too large and has no readable ID may answer any request, so all requests that the server has
    /// received end. `class` names the reason for the operator.
    fn handle_unforwardable_message(
        &mut self,
        session: &mut dyn MonitoredSession,
        bytes: &[u8],
        class: &str,
    ) -> Vec<ProxyAction> {
        let answered: Vec<RequestId> =
            message::find_ids(bytes).into_iter().filter(|id| self.client_requests.contains_key(id)).collect();
        let is_too_large = bytes.len() > self.settings.limits.message;
        let ended: Vec<RequestId> = match answered.is_empty() && is_too_large {
            true => self.client_requests.keys().cloned().collect(),
            false => answered,
        };
        let mut out = vec![ProxyAction::Note(format!("a message of the server is not forwarded: {class}"))];
        for id in ended {
            // A request that waits for a person has not been sent, so this is not its answer.
            let Some(pending) = self.client_requests.remove(&id) else { continue };
            if matches!(pending, PendingClientRequest::Waiting) {
                self.client_requests.insert(id, pending);
                continue;
            }
            // Not `abandon`, which would drop the client's own ID: the caller still writes it into the error.
            out.extend(self.end_without_answer(session, &id, &pending, class));
            self.abandoned.insert(id);
        }
        out
    }

    /// Returns whether a server may send the request `method`: MCP must define it as a request of servers, and the
    /// policy must name it unless the proxy only watches.
    pub(super) fn allows_server_request(&mut self, monitor: &Monitor, method: &str) -> bool {
        if !revision::is_server_request(method) {
            return false;
        }
        let is_named = monitor.is_named(&self.tool(method));
        // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
        self.is_watching() || self.tape.rule(is_named)
    }

    /// Handles a request of the server to the client. A `ping` is answered here. A request that the policy does not
    /// name is rejected. Any other becomes an event, is judged as a call, and is forwarded if it is permitted; no
    /// person is asked about it. In watch mode, it is forwarded whatever the verdict is.
    pub(super) fn handle_server_request(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<ProxyAction> {
        let refuse = |code: i64, why: &str| vec![ProxyAction::Server(error(Some(&id), code, why, None))];
        if method == "ping" {
            return vec![ProxyAction::Server(result(&id, &json!({})))];
        }
        // The proxy generates the IDs of its own questions to the client, so a server must not use such an ID.
        if self.outgoing_requests.contains_key(&id) || id.is_generated() {
            // The error has no `id`: the server could take it for the answer to the other request.
            return vec![ProxyAction::Server(error(
                None,
                INVALID_REQUEST,
                "the `id` of this request is reserved for Flowgate, or belongs to another request that has no \
                answer yet; use another `id`",
                None,
            ))];
        }
        let tool = self.tool(method);
        if !self.allows_server_request(session.monitor(), method) {
            let why = "the policy does not permit this request of a server; its operator can permit it by a `require`";
            let mut out = refuse(METHOD_NOT_FOUND, why);
            if revision::is_server_request(method) {
                out.push(ProxyAction::Note(format!(
                    "the request `{method}` of the server `{}` was refused, since no `require` of the policy names it; \
                    to permit it, add `require ... if: (call: ToolCall) is tool:SERVER/{method}`",
                    self.settings.server
                )));
            }
            return out;
        }
        let limit = self.settings.limits.outstanding;
        if self.outgoing_requests.len() >= limit {
            let why = format!(
                "too many requests have no answer yet (limit {limit}); send this one again after some are answered"
            );
            return refuse(REFUSED, &why);
        }
        // The content of the request comes from the server, and the client is shown it.
        let content = Value::Object(params.clone());
        let mut entry = TraceEntry::from(Message::new("mcp", content));
        entry.extra.insert("method".to_owned(), method.into());
        // Whether the server sends a request, and which, may depend on the answers of the running calls.
        let label = self.running_calls_label(session.monitor());
        let Ok((_, findings)) = session.monitor().push_with_floors(entry, &label.into()) else {
            self.tape.note_divergence();
            return refuse(
                REFUSED,
                "the session has reached its size limit; restart the MCP server to begin another session",
            );
        };
        let is_objected = self.tape.rule(has_objection(&findings));
        let objection = is_objected.then_some("a rule of the policy denies this request");
        if let Some(why) = objection.filter(|_| !self.is_watching()) {
            return refuse(REFUSED, why);
        }
        // All parameters are judged as arguments, so there are no others.
        match self.judge(session, &tool, params.clone(), Map::new(), objection) {
            CallRuling::Run(PermittedRequest { call_id, arguments }) => {
                let forwarded = message::request(&id, method, &arguments);
                let running = RunningCall::without_progress(tool, call_id);
                self.outgoing_requests.insert(id, OutgoingRequest::Server { running });
                vec![ProxyAction::Client(forwarded)]
            }
            CallRuling::Ask(_) | CallRuling::No(_) => {
                refuse(REFUSED, "the policy does not permit this request")
            }
        }
    }

    /// Handles the client's answer to a request of the server, or to a question whether a call may run. The answer to
    /// the server becomes an event, and is forwarded as it was received (`line`) unless a rule forbids it; in watch
    /// mode, it is always forwarded.
    pub(super) fn handle_client_answer(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        answer: Result<Value, Value>,
        line: String,
    ) -> Vec<ProxyAction> {
        // The question is put to a person elsewhere, so the client must not answer it.
        let is_elsewhere = matches!(
            self.outgoing_requests.get(id),
            Some(OutgoingRequest::Person { is_at_client: false, .. })
        );
        let request = if is_elsewhere { None } else { self.outgoing_requests.remove(id) };
        match request {
            None => {
                vec![ProxyAction::Note(
                    "dropped a response of the client whose `id` belongs to no open request".to_owned(),
                )]
            }
            Some(OutgoingRequest::Person { question, id, pending, .. }) => {
                let action = answer.as_ref().ok().and_then(|result| result.get("action"));
                let decision = elicitation::elicited_decision(action).into();
                self.count_decision(&decision);
                self.handle_person_decision(session.monitor(), question, id, *pending, &decision)
            }
            Some(OutgoingRequest::Server { running }) => {
                let is_error = Some(answer.is_err());
                let content = answer.unwrap_or_else(|error| error);
                let (call_id, tool, structured) = (running.call_id, None, None);
                let output = Output { call_id, tool, content, structured, is_error };
                let pushed = session.monitor().push(TraceEntry::from(output));
                if pushed.is_err() {
                    self.tape.note_divergence();
                }
                let is_permitted = pushed.is_ok_and(|(_, findings)| !has_objection(&findings));
                let why = "the policy does not permit the client's answer to this request";
                self.watch_text(WatchedSubject::Output, &running.tool, (!is_permitted).then_some(why));
                vec![ProxyAction::Server(match is_permitted || self.is_watching() {
                    true => line,
                    false => error(Some(id), REFUSED, why, None),
                })]
            }
        }
    }
}
