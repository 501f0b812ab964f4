//! What a server asks in its answer to a call, and the call that comes again with what the client says: the revision 2026-07-28, in which
//! servers cannot ask by themselves.
//!
//! What is asked for is judged as it is where servers ask by themselves. Each round is a call of its own: it is judged by all that the
//! client was shown until then, with what the client answers among its arguments. Whoever is asked about it sees that, and an
//! approval is good for that.
//!
//! The server's `requestState` stays here. The client gets a name of ours for it, which nobody else's machine knows, and which is good for
//! the same call, until that was sent.

use flowgate::label::Label;
use flowgate::monitor::Attribution;
use flowgate::trace::{Body, Call, Entry, Message, Output, Tool};
use serde_json::{Map, Value, json};

use super::answer::{is_cleared, stops, with_label};
use super::message::{Id, result};
use super::refusal;
use super::server::ASKABLE;
use super::session::Session;
use super::unanswered::no_answer;
use super::{Out, Pending, Proxy, Ruling, Running};

/// What a client sends back of what it was sent.
pub(super) const STATE: &str = "requestState";
/// What the client says to what was asked. It is judged as an argument of this name.
pub(super) const RESPONSES: &str = "inputResponses";
const REQUESTS: &str = "inputRequests";

/// Requests that may be answered so.
const METHODS: [&str; 3] = ["tools/call", "resources/read", "prompts/get"];
/// How much a server may ask in one answer, and how long a name that it gives to a question may be.
const MAX_ASKED: usize = 16;
const MAX_KEY: usize = 256;
/// How much a server may have kept for it, in bytes, and of how many calls; those before are forgotten, and so are refused.
const MAX_STATE: usize = 64 << 10;
const MAX_HELD: usize = 64;
/// How often one call may be sent.
const MAX_ROUNDS: usize = 16;

const NOT_TAKEN: &str =
    "what was asked for is not known any more; call without `requestState` and `inputResponses`";

/// A call that a server may answer by asking.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    method: String,
    arguments: Map<String, Value>,
    /// What the client can be asked for.
    can: Vec<&'static str>,
    rounds: usize,
    /// The id of the first round in the trace.
    pub(super) first: String,
}

/// A call that the server wants more for.
#[derive(Debug)]
pub(super) struct Round {
    /// By what the client tells us which one it is.
    name: String,
    tool: Tool,
    sent: Sent,
    state: Option<Value>,
    asked: Vec<Wanted>,
    /// What the client has said, which it cannot take back.
    said: Option<Map<String, Value>>,
}

/// Something that the server wants of the client.
#[derive(Debug)]
struct Wanted {
    key: String,
    method: &'static str,
    params: Map<String, Value>,
    /// The id of the question in the trace.
    call_id: String,
}

/// What a call that comes again brings with it.
pub(super) struct Again {
    name: String,
    responses: Map<String, Value>,
}

impl Sent {
    /// A call that is about to be sent, if it may come again.
    pub(super) fn new(pending: &Pending, call_id: &str, arguments: &Map<String, Value>) -> Option<Self> {
        let can = pending.can.clone().filter(|_| METHODS.contains(&pending.method.as_str()))?;
        let (method, arguments) = (pending.method.clone(), arguments.clone());
        Some(Self { method, arguments, can, rounds: 1, first: call_id.to_owned() })
    }
}

/// Whether an answer asks for more.
pub(super) fn asks(result: &Value) -> bool {
    result.get("resultType") == Some(&json!("input_required"))
}

/// What of a judged call is not what the client said first.
pub(super) fn without_responses(arguments: &Map<String, Value>) -> Map<String, Value> {
    let mut arguments = arguments.clone();
    arguments.shift_remove(RESPONSES);
    arguments
}

impl Proxy {
    /// The server answers a call by asking: the client is asked if it may be.
    pub(super) fn asked_for_more(
        &mut self,
        session: &mut dyn Session,
        id: &Id,
        running: &Running,
        answer: &Value,
        said: Label,
    ) -> Vec<Out> {
        let Some(sent) = &running.sent else {
            let class = "the server wants more before it answers, which this client does not give";
            return self.failed_call(session, id, running, class);
        };
        let (mut wanted, state) = match read(answer, sent) {
            Ok(read) => read,
            Err(class) => return self.failed_call(session, id, running, class),
        };
        for Wanted { method, .. } in &wanted {
            if !session.monitor().is_named(&self.tool(method)) {
                let note = format!("the server asked for {method}, which no `require` of the policy names");
                let mut out =
                    self.failed_call(session, id, running, "the policy does not let the server ask");
                out.insert(0, Out::Note(note));
                return out;
            }
        }
        // That it asks, and what, is its answer to the call; what it asks is besides a message of its own.
        let asked = wanted.iter().map(|one| (one.key.clone(), shown(one))).collect();
        let content = json!({REQUESTS: Value::Object(asked)});
        let call_id = running.call_id.clone();
        let output = Output { call_id, tool: None, content, structured: None, is_error: Some(false) };
        let Some((event, is_shown)) = self.label(session.monitor(), output, running, said) else {
            return vec![no_answer(id, running.kind)];
        };
        session.ran(&sent.first, event);
        if !is_shown {
            let note = format!("the policy withholds an answer of {}", running.tool);
            return vec![Out::Note(note), no_answer(id, running.kind)];
        }
        let monitor = session.monitor();
        let mut carries =
            monitor.trace().event(event).map_or(monitor.policy().space().top(), |event| event.label);
        for one in &mut wanted {
            let content = Value::Object(one.params.clone());
            let mut entry = Entry::from(Body::Message(Message { role: "mcp".to_owned(), content }));
            entry.extra.insert("method".to_owned(), one.method.into());
            let monitor = session.monitor();
            let Ok((event, findings)) = monitor.push_raised(entry, &carries.into()) else {
                return vec![no_answer(id, running.kind)];
            };
            if stops(&findings) || !is_cleared(monitor, event) {
                let note =
                    format!("the policy withholds what the server asks in an answer of {}", running.tool);
                return vec![Out::Note(note), no_answer(id, running.kind)];
            }
            carries = monitor.trace().event(event).map_or(carries, |event| event.label.join(&carries));
            let tool = self.tool(one.method);
            match self.judge(session, &tool, one.params.clone(), Map::new()) {
                Ruling::Run(authorized) => authorized.call().id.clone_into(&mut one.call_id),
                Ruling::Ask(question) => {
                    let refusal = self.refused(session.monitor(), "nobody was asked", question.judgement());
                    return vec![refusal::answer(id, running.kind, &refusal)];
                }
                Ruling::No(refusal) => return vec![refusal::answer(id, running.kind, &refusal)],
            }
        }
        let name = self.own_id().value().as_str().unwrap_or_default().to_owned();
        let mut told = json!({"resultType": "input_required", STATE: name});
        if let Some(told) = told.as_object_mut().filter(|_| !wanted.is_empty()) {
            told.insert(
                REQUESTS.to_owned(),
                wanted.iter().map(|one| (one.key.clone(), shown(one))).collect(),
            );
        }
        let (tool, sent) = (running.tool.clone(), Sent::clone(sent));
        self.rounds.push_back(Round { name, tool, sent, state, asked: wanted, said: None });
        if self.rounds.len() > MAX_HELD {
            self.rounds.pop_front();
        }
        let told = result(id, &told);
        vec![Out::Client(match running.tells_label {
            true => with_label(session.monitor(), &carries, told),
            false => told,
        })]
    }

    /// What a request brings that comes again. Nothing if it comes for the first time.
    pub(super) fn take_again(&self, params: &mut Map<String, Value>) -> Result<Option<Again>, &'static str> {
        let (state, responses) = (params.shift_remove(STATE), params.shift_remove(RESPONSES));
        if state.is_none() && responses.is_none() {
            return Ok(None);
        }
        let name = state.as_ref().and_then(Value::as_str).ok_or(NOT_TAKEN)?;
        let round = self.rounds.iter().find(|round| round.name == name).ok_or(NOT_TAKEN)?;
        let responses = match responses {
            None => Map::new(),
            Some(Value::Object(responses)) => responses,
            Some(_) => return Err("`inputResponses` is no JSON object"),
        };
        if responses.keys().any(|key| !round.asked.iter().any(|one| one.key == *key)) {
            return Err("`inputResponses` answers what was not asked");
        }
        Ok(Some(Again { name: name.to_owned(), responses }))
    }

    /// A call comes again: what the client says is taken in, and stands among the arguments that are judged. The name of the round.
    pub(super) fn comes_again(
        &mut self,
        session: &mut dyn Session,
        again: Again,
        pending: &Pending,
        arguments: &mut Map<String, Value>,
    ) -> Result<String, &'static str> {
        let Again { name, responses } = again;
        let Some(round) = self.rounds.iter_mut().find(|round| round.name == name) else {
            return Err(NOT_TAKEN);
        };
        let is_same = round.tool == pending.tool
            && round.sent.method == pending.method
            && round.sent.arguments == *arguments;
        if !is_same {
            return Err(
                "what was asked for is about another call; call without `requestState` and `inputResponses`",
            );
        }
        if arguments.contains_key(RESPONSES) {
            return Err("an argument has the name of what the client says to the server");
        }
        match &round.said {
            Some(said) if *said != responses => return Err("what was said to the server is not taken back"),
            Some(_) => {}
            None => {
                round.said = Some(responses.clone());
                for (key, response) in &responses {
                    let found = round.asked.iter().find(|one| one.key == *key);
                    let call_id = found.map(|one| one.call_id.clone()).unwrap_or_default();
                    let (content, tool, structured) = (response.clone(), None, None);
                    let output = Output { call_id, tool, content, structured, is_error: Some(false) };
                    let (entry, monitor) = (Entry::from(Body::Output(output)), session.monitor());
                    // Whatever the client was shown since it was asked may be in what it says.
                    let seen = monitor.trace().place(&entry).map(|place| place.context);
                    let seen = seen.unwrap_or(monitor.policy().space().top());
                    match monitor.push_raised(entry, &seen.into()) {
                        Ok((_, findings)) if !stops(&findings) => {}
                        _ => {
                            self.rounds.retain(|round| round.name != name);
                            return Err("the policy does not let this be said to the server");
                        }
                    }
                }
            }
        }
        // It goes to the server only if the server could be told now, by all that was shown meanwhile.
        let server = &self.settings.server;
        let told = round.asked.iter().filter(|one| responses.contains_key(&one.key)).map(|one| {
            let arguments = Ok(one.params.clone());
            let call = Call { id: name.clone(), tool: Tool::of(server, one.method), arguments };
            (Entry::from(Body::Call(call)), Attribution::everything())
        });
        if !session.monitor().would_permit(told) {
            return Err("the policy does not let this be said to the server");
        }
        if !responses.is_empty() {
            arguments.insert(RESPONSES.to_owned(), Value::Object(responses));
        }
        Ok(name)
    }

    /// A call that comes again is about to be sent: what the server wants back, and the round that this is. Nothing if it was sent already.
    pub(super) fn take_round(
        &mut self,
        name: &str,
        can: Option<Vec<&'static str>>,
    ) -> Option<(Option<Value>, Option<Sent>)> {
        let at = self.rounds.iter().position(|round| round.name == name)?;
        let Round { state, sent, .. } = self.rounds.remove(at)?;
        let rounds = sent.rounds.saturating_add(1);
        Some((state, can.map(|can| Sent { can, rounds, ..sent })))
    }
}

/// What a server asks for, and what it wants back with that.
fn read(answer: &Value, sent: &Sent) -> Result<(Vec<Wanted>, Option<Value>), &'static str> {
    let state = match answer.get(STATE) {
        Some(Value::String(state)) if state.len() > MAX_STATE => {
            return Err("the `requestState` of the server is too long");
        }
        Some(Value::String(state)) => Some(Value::from(state.as_str())),
        Some(_) => return Err("the `requestState` of the server is no text"),
        None => None,
    };
    let none = Map::new();
    let requests = match answer.get(REQUESTS) {
        Some(Value::Object(requests)) => requests,
        Some(_) => return Err("the `inputRequests` of the server are no JSON object"),
        None if state.is_some() => &none,
        None => return Err("the server wants more, and does not say what"),
    };
    if requests.len() > MAX_ASKED || sent.rounds >= MAX_ROUNDS {
        return Err("the server asks too much");
    }
    let wanted = requests.iter().map(|(key, request)| {
        let method = request.get("method").and_then(Value::as_str);
        let method = ASKABLE.into_iter().find(|known| method == Some(known));
        let method = method.ok_or("the server asks for what the protocol does not know")?;
        if !method.split('/').next().is_some_and(|name| sent.can.contains(&name)) {
            return Err("the server asks for what the client does not say that it can do");
        }
        let params = match request.get("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(_) => return Err("the parameters of what the server asks are no JSON object"),
        };
        match key.len() > MAX_KEY {
            true => Err("a name of what the server asks is too long"),
            false => Ok(Wanted { key: key.clone(), method, params, call_id: String::new() }),
        }
    });
    Ok((wanted.collect::<Result<_, _>>()?, state))
}

/// What is asked, as it was judged.
fn shown(wanted: &Wanted) -> Value {
    json!({"method": wanted.method, "params": wanted.params})
}
