//! Handles messages from the client: requests, notifications and answers.
//!
//! Rejects messages that can be read in several ways, judges requests, and sends permitted ones as they were judged.
//! `notifications` handles the notifications, and `server` the answers to requests of the server. The caller of the
//! proxy enters through [`Proxy::handle_client_message`].

use std::sync::LazyLock;

use flowgate::json::Numbers;
use flowgate_guard::arguments::{self, AmbiguousArgumentsError};
use serde_json::{Map, Value, json};

use super::input_required::{RoundContinuation, SentCall};
use super::message::{self, McpMessage, MessageError, RequestId, error};
use super::refusal::{self, unjudged_refusal};
use super::revision::{self, ClientRequestKind, RESPONSES, STATE};
use super::ruling::ProxyRuling;
use super::session::MonitoredSession;
use super::{
    CallRuling, INVALID_REQUEST, JudgedRequest, METHOD_NOT_FOUND, PendingClientRequest, PermittedRequest,
    Proxy, ProxyAction, ProxyCallKind, REFUSED, RunningCall, initialize,
};

/// The protocol's parameter names, as the properties of a JSON schema, the form that [`arguments::check`] takes: a
/// parser that ignores case could take another parameter for one of them.
static PARAMETERS: LazyLock<Value> = LazyLock::new(|| {
    let names = revision::parameters().map(|name| (name.to_owned(), json!({})));
    json!({"properties": names.collect::<Map<_, _>>()})
});

/// A field that would turn a call into a task, and the reason that is given when a call with this field is refused.
const TASK: (&str, &str) =
    ("task", "the call has the field `task`, but tasks are not supported; call the tool without `task`");

impl Proxy {
    /// Handles a message from the client: the bytes of one line of a stream, or of one HTTP body. Returns what the
    /// caller is to send, ask or report, in order. Answers to the client have the IDs that the client chose.
    pub fn handle_client_message(
        &mut self,
        session: &mut dyn MonitoredSession,
        bytes: &[u8],
    ) -> Vec<ProxyAction> {
        let out = self.process_client_message(session, bytes);
        self.restore_client_ids(out)
    }

    /// Parses a message of the client and passes it to the handler of its kind. A request is rejected before it is
    /// judged or recorded if its id is in use, or if the session or the number of open requests has reached its limit.
    fn process_client_message(
        &mut self,
        session: &mut dyn MonitoredSession,
        bytes: &[u8],
    ) -> Vec<ProxyAction> {
        if bytes.len() > self.settings.limits.message {
            let why = format!(
                "the message is larger than {} bytes; send a smaller one",
                self.settings.limits.message
            );
            return self.answer_unreadable(&MessageError { why, ids: message::find_ids(bytes) });
        }
        // `line` is the text of the message as one line, for a message that is forwarded unchanged.
        let (message, line) = match message::read(bytes, Numbers::Exact) {
            Ok(read) => read,
            Err(unreadable) => return self.answer_unreadable(&unreadable),
        };
        // Counts every message; beyond the limit, only further requests are rejected, so that open ones can end.
        let has_room = self.has_room(bytes.len());
        match message {
            McpMessage::Request { id, method, params } => {
                let id = self.server_side_id(id);
                self.make_room();
                // `client_requests` has the requests without an answer; `abandoned` has those that no client waits for
                // any more, but that the server may still answer.
                if self.client_requests.contains_key(&id) || self.abandoned.contains(&id) {
                    // The error has no `id`: the client would take it for the answer to the other request.
                    let why = "the `id` of this request belongs to another request that has no answer yet; \
                        use another `id`";
                    return vec![ProxyAction::Client(error(None, INVALID_REQUEST, why, None))];
                }
                if !has_room {
                    let why = "the session has reached its size limit; restart the MCP server to begin \
                        another session";
                    return vec![ProxyAction::Client(error(Some(&id), REFUSED, why, None))];
                }
                let limit = self.settings.limits.outstanding;
                if self.client_requests.len() >= limit {
                    let why = format!(
                        "too many requests have no answer yet (limit {limit}); send this one again after some are answered"
                    );
                    return vec![ProxyAction::Client(error(Some(&id), REFUSED, &why, None))];
                }
                self.handle_request(session, id, &method, params)
            }
            McpMessage::Notice { method, params } => {
                self.handle_client_notification(session, &method, &params)
            }
            McpMessage::Answer { id, answer } => self.handle_client_answer(session, &id, answer, line),
        }
    }

    /// Answers an unreadable message with an error for each request ID in it, so that the client does not wait for an
    /// answer. An ID that belongs to another open or abandoned request is left out, because the client would take the
    /// error for the answer to that request. If several clients use the proxy, all IDs are left out. If no ID remains,
    /// returns one error without an ID.
    fn answer_unreadable(&self, unreadable: &MessageError) -> Vec<ProxyAction> {
        let free = |id: &&RequestId| !self.client_requests.contains_key(id) && !self.abandoned.contains(id);
        // With several clients, the IDs in a message do not identify requests of this proxy.
        let usable = unreadable.ids.iter().filter(|_| self.settings.id_word.is_none());
        let ids: Vec<Option<&RequestId>> = match usable.filter(free).collect::<Vec<_>>() {
            ids if ids.is_empty() => vec![None],
            ids => ids.into_iter().map(Some).collect(),
        };
        ids.into_iter()
            .map(|id| ProxyAction::Client(error(id, INVALID_REQUEST, &unreadable.why, None)))
            .collect()
    }

    /// Handles the request `id` of the client, whose ID is free and which is within the limits: passes it to the
    /// handler of its method. Refuses a method that is not known, and parameters that two parsers could read
    /// differently.
    fn handle_request(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        method: &str,
        mut params: Map<String, Value>,
    ) -> Vec<ProxyAction> {
        // The names of all parameters are compared with those of the protocol, to find names that a parser could
        // confuse. A tool's arguments are left out here; they are compared with the tool's schema later.
        let is_arguments_of_tool = |name: &str| method == "tools/call" && name == "arguments";
        let compared = params.iter().map(|(name, value)| {
            (name.clone(), if is_arguments_of_tool(name) { Value::Null } else { value.clone() })
        });
        if let Err(AmbiguousArgumentsError { message, advice }) =
            arguments::check(&compared.collect(), &PARAMETERS)
        {
            let why = format!("the parameters of the request are ambiguous: {message}; {advice}");
            return vec![ProxyAction::Client(error(Some(&id), INVALID_REQUEST, &why, None))];
        }
        // The proxy may ask a person without a permission of the policy. `can_retry` is therefore determined before the
        // capabilities are restricted to those that the policy lets the server use.
        let can_retry = initialize::can_elicit(&params);
        if !self.is_watching() {
            self.limit_meta(session.monitor(), &mut params);
        }
        let allowed_inputs = initialize::askable_capabilities(&params);
        match revision::client_request(method) {
            Some((_, ClientRequestKind::Initialize)) => self.handle_initialize(session, id, method, params),
            Some((_, ClientRequestKind::Ping)) => {
                self.client_requests.insert(id.clone(), PendingClientRequest::Nothing);
                vec![ProxyAction::Server(message::request(&id, method, &Map::new()))]
            }
            Some((_, ClientRequestKind::Listen)) => self.subscribe(session, id, params),
            Some((_, ClientRequestKind::ToolList)) => self.list_tools(id, &params),
            Some((_, ClientRequestKind::ToolCall)) => {
                self.handle_tool_call(session, id, params, can_retry, allowed_inputs)
            }
            Some((name, ClientRequestKind::Judged(kind))) => {
                let (progress, continuation) = (progress_token(&params), self.take_continuation(&mut params));
                // All parameters but the metadata are judged as the arguments of the call.
                let meta = params.shift_remove("_meta").map(|meta| ("_meta".to_owned(), meta));
                let metadata: Map<String, Value> = meta.into_iter().collect();
                let (method, tool) = (method.to_owned(), self.tool(name));
                let pending = JudgedRequest {
                    method,
                    tool,
                    kind,
                    params: metadata,
                    progress,
                    // Only `tools/call` can be sent again with a person's answer.
                    can_retry: false,
                    allowed_inputs,
                    round: None,
                    objection: None,
                };
                self.judge_round(session, id, continuation, params, pending)
            }
            None | Some((_, ClientRequestKind::Refused)) => vec![ProxyAction::Client(error(
                Some(&id),
                METHOD_NOT_FOUND,
                "Flowgate does not forward requests with this method; use another method of MCP",
                None,
            ))],
        }
    }

    /// Handles `tools/call`: refuses a call that is malformed, ambiguous or of an unlisted tool; runs or refuses a call
    /// that was sent again with a person's answer; judges every other call. In watch mode, an ambiguous call and a call
    /// of an unlisted tool are judged as well, with the objection to them.
    ///
    /// `can_retry` is whether the client can receive a question in the answer. `allowed_inputs` are the kinds of input
    /// that the client can provide to the server; `None` if the request declares no capabilities, as in the revisions
    /// with sessions.
    fn handle_tool_call(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        mut params: Map<String, Value>,
        can_retry: bool,
        allowed_inputs: Option<Vec<&'static str>>,
    ) -> Vec<ProxyAction> {
        let refuse = |kind: &str, says: &str| {
            vec![refusal::refusal_answer(&id, ProxyCallKind::Tool, &unjudged_refusal(kind, says))]
        };
        let answered_question = self.take_retry(&mut params);
        // `judge_round` refuses an invalid continuation.
        let continuation = self.take_continuation(&mut params);
        let (task_field, why_no_tasks) = TASK;
        if params.contains_key(task_field) {
            return refuse("malformed", why_no_tasks);
        }
        let Some(name) = params.get("name").and_then(Value::as_str).map(str::to_owned) else {
            return refuse("malformed", "the call names no tool; write its name as `name`");
        };
        let arguments = match params.shift_remove("arguments") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => {
                return refuse(
                    "malformed",
                    "the `arguments` of the call are not a JSON object; send them as one",
                );
            }
        };
        if let Some((question, answer)) = answered_question {
            return self.handle_retry(session.monitor(), id, question, &name, &arguments, &answer);
        }
        // The kind of the refusal, and its text.
        let refusal = match self.listing.schema_of(&name).map(|schema| arguments::check(&arguments, schema)) {
            Some(Ok(())) => None,
            Some(Err(AmbiguousArgumentsError { message, advice })) => {
                Some(("malformed", format!("{message}; {advice}")))
            }
            None => {
                let says = "the server offers no tool of this name; list the tools, and call one of those";
                Some(("undeclared", says.to_owned()))
            }
        };
        let objection = match refusal {
            Some((kind, says)) if !self.is_watching() => return refuse(kind, &says),
            Some((_, says)) => Some(says),
            None => None,
        };
        let (method, tool, progress) = ("tools/call".to_owned(), self.tool(&name), progress_token(&params));
        let pending = JudgedRequest {
            method,
            tool,
            kind: ProxyCallKind::Tool,
            params,
            progress,
            can_retry,
            allowed_inputs,
            round: None,
            objection,
        };
        self.judge_round(session, id, continuation, arguments, pending)
    }

    /// Judges a request. If the request continues a *round*, in which the server has requested input, the client's
    /// responses are recorded and become arguments that are judged with the others. `continuation` is the result of
    /// [`Proxy::take_continuation`] for the request. If it is an error or does not fit its round, the request is
    /// refused. `pending` is the request without its verdict.
    fn judge_round(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        continuation: Result<Option<RoundContinuation>, &'static str>,
        mut arguments: Map<String, Value>,
        mut pending: JudgedRequest,
    ) -> Vec<ProxyAction> {
        let round = continuation.and_then(|continuation| {
            continuation
                .map(|continuation| self.record_continuation(session, continuation, &pending, &mut arguments))
                .transpose()
        });
        match round {
            Ok(round) => pending.round = round,
            Err(says) => {
                return vec![refusal::refusal_answer(
                    &id,
                    pending.kind,
                    &unjudged_refusal("malformed", says),
                )];
            }
        }
        self.judge_request(session, id, arguments, pending)
    }

    /// Judges a request with these arguments, and sends it, asks a person about it, or refuses it. A call that was
    /// already judged in the conversation's chat, and that the chat handed over to the client to be run, is sent under
    /// the verdict of the chat. `pending` is the request without its verdict.
    fn judge_request(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        arguments: Map<String, Value>,
        pending: JudgedRequest,
    ) -> Vec<ProxyAction> {
        // While inputs of an earlier conversation are processed again, the tape says whether the call ran under the
        // verdict of the chat. Otherwise this is decided here, and recorded on the tape.
        let of_chat = match pending.kind == ProxyCallKind::Tool && pending.round.is_none() {
            true if self.tape.take_if(ProxyRuling::Chat) => {
                self.take_earlier_call_of_chat(session, &pending.tool, &arguments)
            }
            true if !self.tape.is_following() => session.take_handed_over_call(&pending.tool, &arguments),
            _ => None,
        };
        if let Some(call) = of_chat {
            if !self.tape.is_following() {
                self.tape.choose(ProxyRuling::Chat);
            }
            // The chat knows what influenced the call, and its verdict permits the call once. The other parameters of
            // the request were not judged there, so they are not sent.
            let pending = JudgedRequest { params: name_and_metadata(&pending), ..pending };
            let (call_id, arguments) = (call.id, call.arguments.unwrap_or_default());
            return self.run(id, PermittedRequest { call_id, arguments }, pending);
        }
        let objection = pending.objection.as_deref();
        match self.judge(session, &pending.tool, arguments, pending.params.clone(), objection) {
            CallRuling::Run(permitted) => self.run(id, permitted, pending),
            CallRuling::Ask(question) => self.ask(session.monitor(), id, question, pending),
            CallRuling::No(refusal) => vec![refusal::refusal_answer(&id, pending.kind, &refusal)],
        }
    }

    /// Sends a permitted call to the server, with exactly the judged arguments, and records that its answer is
    /// awaited. `id` is the ID of the client's request, and `pending` the request without its arguments. A call that
    /// continues a round, in which the server has requested input, is refused if that round was already used, or was
    /// dropped.
    pub(super) fn run(
        &mut self,
        id: RequestId,
        permitted: PermittedRequest,
        pending: JudgedRequest,
    ) -> Vec<ProxyAction> {
        let PermittedRequest { call_id, mut arguments } = permitted;
        // The call in the form in which the client has to repeat it; `None` if the server may not request input.
        let mut sent = SentCall::new(&pending, &call_id, &arguments);
        let JudgedRequest {
            method,
            tool,
            kind,
            mut params,
            progress,
            allowed_inputs,
            round: continued_round,
            ..
        } = pending;
        if let Some(continued_round) = continued_round {
            // A round continues once: another request may have taken it while this one waited for a person.
            let Some((state, next_round)) = self.take_round(&continued_round, allowed_inputs) else {
                let says = "the input for this `requestState` was already provided; call without \
                    `requestState` and `inputResponses`";
                return vec![refusal::refusal_answer(&id, kind, &unjudged_refusal("malformed", says))];
            };
            sent = next_round;
            params.extend(state.map(|state| (STATE.to_owned(), state)));
            // The responses were judged as one of the arguments, but are sent as a parameter of the request.
            params
                .extend(arguments.shift_remove(RESPONSES).map(|responses| (RESPONSES.to_owned(), responses)));
        }
        self.note_subscription(&method, &arguments);
        if kind == ProxyCallKind::Tool {
            // From now on, a tool that is not yet listed counts as new.
            self.listing.freeze_initial_list();
            params.insert("arguments".to_owned(), Value::Object(arguments));
        } else {
            params = arguments.into_iter().chain(params).collect();
        }
        let (request, sent) = (message::request(&id, &method, &params), sent.map(Box::new));
        let tells_label = self.tells_labels;
        let running = RunningCall { tool, call_id, kind, progress, has_raised: false, tells_label, sent };
        self.client_requests.insert(id, PendingClientRequest::Call(running));
        vec![ProxyAction::Server(request)]
    }

    /// Remembers the resource to which a sent request subscribes, or forgets the one from which it unsubscribes; does
    /// nothing for other requests. Notifications are forwarded only for the resources that are remembered. Above the
    /// limit, the request is sent, but its notifications are dropped.
    fn note_subscription(&mut self, method: &str, arguments: &Map<String, Value>) {
        let Some(uri) = arguments.get("uri").and_then(Value::as_str) else { return };
        match method {
            "resources/subscribe" if self.subscribed.len() < self.settings.limits.outstanding => {
                self.subscribed.insert(uri.to_owned());
            }
            "resources/unsubscribe" => {
                self.subscribed.remove(uri);
            }
            _ => {}
        }
    }
}

/// Returns the parameters of a call except its arguments: the tool's name, the metadata that the protocol requires, and
/// the progress token if it is a text or a natural number. Other parameters of the client are dropped, since they were
/// not judged.
fn name_and_metadata(pending: &JudgedRequest) -> Map<String, Value> {
    let mut params = Map::new();
    params.insert("name".to_owned(), Value::from(&*pending.tool.name));
    let mut meta = pending.params.get("_meta").map(initialize::required_metadata).unwrap_or_default();
    if let Some(token) = pending.progress.as_ref().filter(|token| token.is_u64() || token.is_string()) {
        meta.insert("progressToken".to_owned(), token.clone());
    }
    if !meta.is_empty() {
        params.insert("_meta".to_owned(), Value::Object(meta));
    }
    params
}

/// Returns the token by which the server reports progress on a request; `None` if the client wants no progress
/// notifications.
fn progress_token(params: &Map<String, Value>) -> Option<Value> {
    params.get("_meta")?.get("progressToken").cloned()
}
