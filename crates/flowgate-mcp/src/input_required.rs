//! Handles answers in which a server asks for input before it completes a call (*input required*), and the call that
//! the client then sends again with its responses. Servers of the MCP revision 2026-07-28 ask in this way, since they
//! cannot send requests.
//!
//! A *round* is one such request for input with the call that the client sends in response. Each requested input is
//! judged like a server's request in the other revisions. The call in each round is judged separately: as influenced by
//! everything that the client was shown up to that point, with the client's responses among its arguments. A person who
//! is asked about the call sees the responses, and an approval covers exactly these.
//!
//! The server's `requestState`, its own note about the call, stays in this proxy. The client receives a generated name
//! in its place, which is valid once, in this proxy only, for a repetition of the same call. `answer` passes requests
//! for input to this module, `client` the calls that continue a round.

use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor};
use flowgate::trace::{Call, Message, Output, Tool, TraceEntry};
use flowgate_audit::watch::WatchedSubject;
use serde_json::{Map, Value, json};

use super::answer::{NOT_SHOWABLE, has_objection, is_cleared, with_label};
use super::failed_requests::withheld_answer;
use super::message::{RequestId, result};
use super::refusal;
use super::revision::{self, RESPONSES, STATE};
use super::session::MonitoredSession;
use super::{CallRuling, JudgedRequest, Proxy, ProxyAction, RunningCall};

/// The field with the inputs that a server requests.
const REQUESTS: &str = "inputRequests";

/// The requests that a server may answer by requesting input.
const METHODS: [&str; 3] = ["tools/call", "resources/read", "prompts/get"];
/// The maximum number of inputs that one answer may request.
const MAX_INPUTS: usize = 16;
/// The maximum length of the key of an input, in bytes.
const MAX_KEY_BYTES: usize = 256;
/// The maximum length of a server's state, in bytes.
const MAX_STATE_BYTES: usize = 64 << 10;
/// The maximum number of rounds that are remembered. Older rounds are dropped; calls that continue them are refused.
const MAX_OPEN_ROUNDS: usize = 64;
/// The maximum number of times that one call may be sent.
const MAX_ROUNDS: usize = 16;

/// The refusal of a call that continues no remembered round.
const UNKNOWN_STATE: &str =
    "this `requestState` is unknown or has expired; call again without `requestState` and `inputResponses`";

/// A call that a server may answer by requesting input.
#[derive(Debug, Clone)]
pub(super) struct SentCall {
    method: String,
    /// The judged arguments, without the client's responses.
    arguments: Map<String, Value>,
    /// The client's capabilities that the server may use.
    allowed_inputs: Vec<&'static str>,
    /// How often the call has been sent: 1 if it was not yet repeated with responses.
    rounds: usize,
    /// The ID in the trace under which the call was sent the first time.
    pub(super) first: String,
}

/// A call whose answer requested input.
#[derive(Debug)]
pub(super) struct InputRound {
    /// The name by which the client refers to this round.
    name: String,
    tool: Tool,
    /// The call that the client has to repeat.
    sent: SentCall,
    /// The server's `requestState`, which the server gets back with the responses.
    state: Option<Value>,
    /// The inputs that the server has requested.
    inputs: Vec<RequestedInput>,
    /// The client's responses, once the client has sent them; they cannot be changed then.
    responses: Option<Map<String, Value>>,
}

/// One input that the server requests from the client.
#[derive(Debug)]
struct RequestedInput {
    /// The server's name for the input, under which the client responds.
    key: String,
    /// The method of the request that the input is equivalent to, such as `elicitation/create`.
    method: &'static str,
    params: Map<String, Value>,
    /// The ID of the question in the trace.
    call_id: String,
}

/// What the parameters of a call say about the round that the call continues.
pub(super) struct RoundContinuation {
    /// The name of the round.
    name: String,
    /// The client's responses, by the keys of the inputs.
    responses: Map<String, Value>,
}

/// The refusal of a call whose responses to the server the policy does not permit.
const UNPERMITTED_RESPONSES: &str = "the policy does not permit sending these `inputResponses` to the server: call again without `requestState` and `inputResponses`";

impl SentCall {
    /// Describes a call that is about to be sent for the first time, so that a repetition of it by the client can be
    /// recognised. `arguments` are the judged ones, and `call_id` is the ID of the call in the trace. Returns `None` if
    /// the server may not answer the call by requesting input: the method or the client does not support that.
    pub(super) fn new(
        pending: &JudgedRequest,
        call_id: &str,
        arguments: &Map<String, Value>,
    ) -> Option<Self> {
        let allowed_inputs =
            pending.allowed_inputs.clone().filter(|_| METHODS.contains(&pending.method.as_str()))?;
        // The call is sent for the first time, so `rounds` is 1. Repetitions of the call get other IDs, and refer to
        // the first one.
        let (method, arguments) = (pending.method.clone(), arguments.clone());
        Some(Self { method, arguments, allowed_inputs, rounds: 1, first: call_id.to_owned() })
    }
}

/// Returns the arguments of a judged call without the client's responses to the server, which are judged as the
/// argument `inputResponses`.
pub(super) fn without_responses(arguments: &Map<String, Value>) -> Map<String, Value> {
    let mut arguments = arguments.clone();
    arguments.shift_remove(RESPONSES);
    arguments
}

impl Proxy {
    /// Handles an answer that requests input: judges each requested input like a request of the server, and forwards
    /// the inputs if all are permitted; otherwise the call ends. The answer and each input become events. The label of
    /// each event includes those before it, so that the client's responses carry all of them. In watch mode, objections
    /// are only reported; a malformed answer ends the call in that mode, too. `answer_label` is the label that the
    /// server states for the answer.
    pub(super) fn handle_input_required(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &RequestId,
        running: &RunningCall,
        answer: &Value,
        answer_label: Label,
    ) -> Vec<ProxyAction> {
        let is_watching = self.is_watching();
        let Some(sent) = &running.sent else {
            let class = "the server requests input, but the client did not declare that it can provide input; use a client \
                that can, or configure the server to ask for none";
            return self.end_failed_call(session, id, running, class);
        };
        let (mut inputs, state) = match decode_inputs(answer, sent) {
            Ok(decoded) => decoded,
            Err(class) => return self.end_failed_call(session, id, running, &class),
        };
        // The policy must name each kind of input, as it must name the requests of a server.
        for RequestedInput { method, .. } in &inputs {
            let is_named = session.monitor().is_named(&self.tool(method));
            // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
            if !is_watching && !self.tape.rule(is_named) {
                let note = format!(
                    "the request `{method}` of the server `{}` was refused, since no `require` of the policy names it; \
                    to permit it, add `require ... if: (call: ToolCall) is tool:SERVER/{method}`",
                    self.settings.server
                );
                let mut out = self.end_failed_call(
                    session,
                    id,
                    running,
                    "no `require` of the policy names the server's request for input",
                );
                out.insert(0, ProxyAction::Note(note));
                return out;
            }
        }
        // The request for input is the output of the call; each item of it is a message as well.
        let judged = inputs.iter().map(|input| (input.key.clone(), to_judged_form(input))).collect();
        let content = json!({REQUESTS: Value::Object(judged)});
        let call_id = running.call_id.clone();
        let output = Output::result(call_id, content);
        let Some((event, is_shown)) = self.record_answer(session.monitor(), output, running, answer_label)
        else {
            self.tape.note_divergence();
            return vec![withheld_answer(id, running.kind)];
        };
        session.record_output(&sent.first, event);
        let objection = NOT_SHOWABLE;
        self.watch_text(WatchedSubject::Output, &running.tool, (!is_shown).then_some(objection));
        if !is_watching && !self.tape.rule(is_shown) {
            let note =
                format!("an answer of `{}` is not shown to the client, since {NOT_SHOWABLE}", running.tool);
            return vec![ProxyAction::Note(note), withheld_answer(id, running.kind)];
        }
        let monitor = session.monitor();
        // The join of the labels of the answer and of the inputs so far. Each input becomes an event with at least this
        // label.
        let mut carries =
            monitor.trace().event(event).map_or(monitor.policy().space().top(), |event| event.label);
        for input in &mut inputs {
            let content = Value::Object(input.params.clone());
            let mut entry = TraceEntry::from(Message::new("mcp", content));
            entry.extra.insert("method".to_owned(), input.method.into());
            let monitor = session.monitor();
            let Ok((event, findings)) = monitor.push_with_floors(entry, &carries.into()) else {
                self.tape.note_divergence();
                return vec![withheld_answer(id, running.kind)];
            };
            let is_objected = self.tape.rule(has_objection(&findings) || !is_cleared(monitor, event));
            if is_objected && !is_watching {
                let note = format!(
                    "the server's requests for input in an answer of `{}` are not shown to the client, since \
                    a rule of the policy matches them or their label exceeds the client's clearance; if you trust the \
                    server, change the rule, or raise the clearance of `model`",
                    running.tool
                );
                return vec![ProxyAction::Note(note), withheld_answer(id, running.kind)];
            }
            carries = monitor.trace().event(event).map_or(carries, |event| event.label.join(&carries));
            let tool = self.tool(input.method);
            match self.judge(
                session,
                &tool,
                input.params.clone(),
                Map::new(),
                is_objected.then_some(objection),
            ) {
                CallRuling::Run(permitted) => input.call_id = permitted.call_id,
                // As for a request of the server in the other revisions, no person is asked.
                CallRuling::Ask(question) => {
                    let refusal = self.asked_refusal(session.monitor(), "nobody was asked", &question);
                    return vec![refusal::refusal_answer(id, running.kind, &refusal)];
                }
                CallRuling::No(refusal) => return vec![refusal::refusal_answer(id, running.kind, &refusal)],
            }
        }
        // All inputs are permitted. The client receives them with a generated name in place of the server's state.
        let name = self.generated_id().value().as_str().unwrap_or_default().to_owned();
        let mut answer = json!({"resultType": "input_required", STATE: name});
        if let Some(answer) = answer.as_object_mut().filter(|_| !inputs.is_empty()) {
            answer.insert(
                REQUESTS.to_owned(),
                inputs.iter().map(|input| (input.key.clone(), to_judged_form(input))).collect(),
            );
        }
        let (tool, sent) = (running.tool.clone(), SentCall::clone(sent));
        self.rounds.push_back(InputRound { name, tool, sent, state, inputs, responses: None });
        // The oldest round is dropped: a request that continues it is then refused.
        if self.rounds.len() > MAX_OPEN_ROUNDS {
            self.rounds.pop_front();
        }
        let answer = result(id, &answer);
        vec![ProxyAction::Client(match running.tells_label {
            true => with_label(session.monitor(), &carries, answer),
            false => answer,
        })]
    }

    /// Removes the name of the round and the client's responses from the parameters of a request, and returns both. (In
    /// a *round*, the server has requested input, and the client sends its call again with responses.) Returns `None`
    /// for a request that continues no round. The round itself stays until the call is sent.
    ///
    /// # Errors
    /// With the refusal for the client, if the round is unknown, the responses are malformed, or one of them belongs to
    /// none of the round's inputs.
    pub(super) fn take_continuation(
        &self,
        params: &mut Map<String, Value>,
    ) -> Result<Option<RoundContinuation>, &'static str> {
        let (state, responses) = (params.shift_remove(STATE), params.shift_remove(RESPONSES));
        if state.is_none() && responses.is_none() {
            return Ok(None);
        }
        let name = state.as_ref().and_then(Value::as_str).ok_or(UNKNOWN_STATE)?;
        let round = self.rounds.iter().find(|round| round.name == name).ok_or(UNKNOWN_STATE)?;
        let responses = match responses {
            None => Map::new(),
            Some(Value::Object(responses)) => responses,
            Some(_) => {
                return Err(
                    "`inputResponses` is not a JSON object; send one with the keys of `inputRequests`",
                );
            }
        };
        if responses.keys().any(|key| !round.inputs.iter().any(|input| input.key == *key)) {
            return Err(
                "`inputResponses` has a key that `inputRequests` did not have; use only the keys of `inputRequests`",
            );
        }
        Ok(Some(RoundContinuation { name: name.to_owned(), responses }))
    }

    /// Adds the client's responses to the trace and to the judged arguments (`arguments`) of the call `pending`, which
    /// continues a round. Returns the name of the round.
    ///
    /// # Errors
    /// With the refusal for the client, in four cases: the call is not the call of the round; its arguments contain the
    /// reserved name `inputResponses`; other responses were sent before; or the policy does not permit sending the
    /// responses to the server. In watch mode, the last case is only reported.
    pub(super) fn record_continuation(
        &mut self,
        session: &mut dyn MonitoredSession,
        continuation: RoundContinuation,
        pending: &JudgedRequest,
        arguments: &mut Map<String, Value>,
    ) -> Result<String, &'static str> {
        let (RoundContinuation { name, responses }, is_watching) = (continuation, self.is_watching());
        let Some(round) = self.rounds.iter_mut().find(|round| round.name == name) else {
            return Err(UNKNOWN_STATE);
        };
        let is_same_call = round.tool == pending.tool
            && round.sent.method == pending.method
            && round.sent.arguments == *arguments;
        if !is_same_call {
            return Err(
                "this `requestState` belongs to a call of another tool or with other arguments; call without \
                `requestState` and `inputResponses`",
            );
        }
        if arguments.contains_key(RESPONSES) {
            return Err(
                "the arguments contain `inputResponses`, a name that is reserved for the responses to the server: send the \
                responses beside `arguments`",
            );
        }
        let mut is_permitted = true;
        // A request that was sent before, and waited for a person meanwhile, repeats its responses: they are recorded
        // once.
        match &round.responses {
            Some(sent) if *sent != responses => {
                return Err("different responses were already sent for this `requestState`; call without \
                    `requestState` and `inputResponses`");
            }
            Some(_) => {}
            None => {
                round.responses = Some(responses.clone());
                for (key, response) in &responses {
                    let input = round.inputs.iter().find(|input| input.key == *key);
                    let call_id = input.map(|input| input.call_id.clone()).unwrap_or_default();
                    let recorded = record_response(session.monitor(), call_id, response);
                    if recorded.is_none() {
                        self.tape.note_divergence();
                    }
                    let is_response_permitted = recorded == Some(true);
                    if is_watching {
                        is_permitted &= is_response_permitted;
                    } else if !self.tape.rule(is_response_permitted) {
                        self.rounds.retain(|round| round.name != name);
                        return Err(UNPERMITTED_RESPONSES);
                    }
                }
            }
        }
        // The client was shown more since the inputs were requested, so the requests that the responses answer are
        // judged again.
        let server = &self.settings.server;
        let answered_requests =
            round.inputs.iter().filter(|input| responses.contains_key(&input.key)).map(|input| {
                let arguments = Ok(input.params.clone());
                // Each request has an ID of its own, since calls with equal IDs are not permitted together.
                let id = format!("{name}/{}", input.key);
                let call = Call { id, tool: Tool::of(server, input.method), arguments };
                (TraceEntry::from(call), Attribution::everything())
            });
        let would_permit = session.monitor().would_permit(answered_requests);
        is_permitted &= if is_watching { would_permit } else { self.tape.rule(would_permit) };
        if !is_permitted {
            if !is_watching {
                return Err(UNPERMITTED_RESPONSES);
            }
            self.watch_text(WatchedSubject::Output, &pending.tool, Some(UNPERMITTED_RESPONSES));
        }
        if !responses.is_empty() {
            arguments.insert(RESPONSES.to_owned(), Value::Object(responses));
        }
        Ok(name)
    }

    /// Ends the round of this name, since the call that continues it with the requested input is about to be sent.
    /// Returns the server's `requestState`, if it sent one, and the call as it is sent this time, if the client still
    /// allows the server to request input (`allowed_inputs`). Returns `None` if the round was already used, or was
    /// dropped.
    pub(super) fn take_round(
        &mut self,
        name: &str,
        allowed_inputs: Option<Vec<&'static str>>,
    ) -> Option<(Option<Value>, Option<SentCall>)> {
        let at = self.rounds.iter().position(|round| round.name == name)?;
        let InputRound { state, sent, .. } = self.rounds.remove(at)?;
        // How often the call has been sent, this time included.
        let rounds = sent.rounds.saturating_add(1);
        Some((state, allowed_inputs.map(|allowed_inputs| SentCall { allowed_inputs, rounds, ..sent })))
    }
}

/// Adds a response of the client to the trace, as the output of the call `call_id`, as which the requested input was
/// judged. Returns whether the rules of the policy permit the response; `None` if the trace has no room.
fn record_response(monitor: &mut Monitor, call_id: String, response: &Value) -> Option<bool> {
    let (content, tool, structured) = (response.clone(), None, None);
    let output = Output { call_id, tool, content, structured, is_error: Some(false) };
    let entry = TraceEntry::from(output);
    // The responses may contain anything that the client was shown since the question.
    let context_label = monitor.trace().position_of(&entry).map(|position| position.context);
    let context_label = context_label.unwrap_or(monitor.policy().space().top());
    let (_, findings) = monitor.push_with_floors(entry, &context_label.into()).ok()?;
    Some(!has_objection(&findings))
}

/// Returns the inputs that an answer to the call `sent` requests, and the server's `requestState`, which is sent back
/// to the server with the client's responses; in its place `None`, if the answer has none.
///
/// # Errors
/// With the reason, for the operator, if the answer is malformed, exceeds a limit, or requests an input that the client
/// did not declare.
fn decode_inputs(answer: &Value, sent: &SentCall) -> Result<(Vec<RequestedInput>, Option<Value>), String> {
    let malformed = |what: &str| {
        format!("the server requests input in a way that is not valid: {what}; correct or update that server")
    };
    let state = match answer.get(STATE) {
        Some(Value::String(state)) if state.len() > MAX_STATE_BYTES => {
            return Err(malformed(&format!(
                "its `requestState` is longer than {} KiB",
                MAX_STATE_BYTES >> 10
            )));
        }
        Some(Value::String(state)) => Some(Value::from(state.as_str())),
        Some(_) => return Err(malformed("its `requestState` is not a string")),
        None => None,
    };
    let none = Map::new();
    let requests = match answer.get(REQUESTS) {
        Some(Value::Object(requests)) => requests,
        Some(_) => return Err(malformed("its `inputRequests` are not a JSON object")),
        None if state.is_some() => &none,
        None => return Err(malformed("its answer has neither `inputRequests` nor `requestState`")),
    };
    if requests.len() > MAX_INPUTS {
        return Err(malformed(&format!(
            "its `inputRequests` have {} items, more than {MAX_INPUTS}",
            requests.len()
        )));
    }
    if sent.rounds >= MAX_ROUNDS {
        return Err(malformed(&format!("it has requested input {MAX_ROUNDS} times for one call")));
    }
    // An item is named by its position, from 1: its key is a text of the server, which may be long.
    let inputs = requests.iter().zip(1..).map(|((key, request), number)| {
        decode_input(key, request, sent).map_err(|(problem, advice)| {
            format!("item {number} of the server's `inputRequests` {problem}; {advice}")
        })
    });
    Ok((inputs.collect::<Result<_, _>>()?, state))
}

/// Returns an input that an answer to the call `sent` requests under `key`.
///
/// # Errors
/// What is wrong with the item, and what the operator can do.
fn decode_input(
    key: &str,
    request: &Value,
    sent: &SentCall,
) -> Result<RequestedInput, (&'static str, &'static str)> {
    const CHECK: &str = "correct or update that server";
    let method = request.get("method").and_then(Value::as_str);
    let method = revision::server_request_methods().find(|name| method == Some(name));
    let method = method.ok_or(("has a method that MCP does not define", CHECK))?;
    if !method.split('/').next().is_some_and(|name| sent.allowed_inputs.contains(&name)) {
        return Err((
            "has a method that the client did not declare",
            "use a client that supports this input, or configure the server to ask for none",
        ));
    }
    let params = match request.get("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err(("has `params` that are not a JSON object", CHECK)),
    };
    if key.len() > MAX_KEY_BYTES {
        return Err(("has a key of more than 256 bytes", CHECK));
    }
    // The ID in the trace is set when the input is judged.
    Ok(RequestedInput { key: key.to_owned(), method, params, call_id: String::new() })
}

/// Returns a requested input in the form in which it was judged.
fn to_judged_form(input: &RequestedInput) -> Value {
    json!({"method": input.method, "params": input.params})
}
