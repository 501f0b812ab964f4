//! Handles the initialization of a connection, in which client and server exchange their identities and capabilities:
//! `initialize` in the revisions of MCP with sessions, `server/discover` in those without.
//!
//! A server's statements about itself, its instructions above all, are content like any other. If the policy does not
//! trust them, the client receives the server's capabilities and nothing else. `client` and `server` call this module.

use flowgate::label::Label;
use flowgate::monitor::{Monitor, Outcome};
use flowgate::trace::{Output, Tool, TraceEntry};
use flowgate_audit::watch::WatchedSubject;
use serde_json::{Map, Value, json};

use super::failed_requests::NO_ANSWER;
use super::message::{RequestId, error, request, result};
use super::revision::{self, Revision};
use super::session::MonitoredSession;
use super::{CallRuling, PendingClientRequest, Proxy, ProxyAction, REFUSED, RunningCall};

/// The metadata key of the client's protocol revision, in the revisions without sessions.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The metadata key of the client's capabilities, in the revisions without sessions.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The permitted cache times of an answer, in milliseconds. A server's value is rounded down to one of these, since an
/// arbitrary number can encode text.
const CACHE_TIMES: [u64; 4] = [3_600_000, 60_000, 1_000, 0];

impl Proxy {
    /// Handles the client's `initialize` or `server/discover`: forwards it with the capabilities that the policy
    /// permits. The request is judged like a call, and the verdict decides whether the server's text in the answer may
    /// be shown. The request is forwarded whatever the verdict is, since no session begins without it.
    pub(super) fn handle_initialize(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: RequestId,
        method: &str,
        mut params: Map<String, Value>,
    ) -> Vec<ProxyAction> {
        if let Some(capabilities) = params.get_mut("capabilities") {
            self.can_elicit = capabilities.get("elicitation").is_some_and(Value::is_object);
            if !self.is_watching() {
                *capabilities = self.permitted_client_capabilities(session.monitor(), capabilities);
            }
        }
        let tool = self.tool(method);
        // The parameters are not judged: the verdict concerns the method alone.
        let call = match self.judge(session, &tool, Map::new(), Map::new(), None) {
            CallRuling::Run(permitted) => Some(RunningCall::without_progress(tool, permitted.call_id)),
            CallRuling::Ask(_) | CallRuling::No(_) => None,
        };
        // In watch mode, `judge` permits every call and reports the verdict in `watched`. The request is forwarded with
        // enforcement as well, so this verdict is not reported; it only decides whether the answer would be shown.
        let call = call.filter(|_| {
            !self.is_watching()
                || self.watched.pop().is_some_and(|verdict| verdict.outcome == Outcome::Permit)
        });
        let sent = request(&id, method, &params);
        self.client_requests.insert(id, PendingClientRequest::Initialize { call });
        vec![ProxyAction::Server(sent)]
    }

    /// Returns the client's capabilities that the policy lets the server use. A capability, such as `sampling`, lets
    /// the server send certain requests, such as `sampling/createMessage`. The policy lets the server use the
    /// capability if it names one of these requests.
    fn permitted_client_capabilities(&mut self, monitor: &Monitor, capabilities: &Value) -> Value {
        let mut permitted = Map::new();
        for (name, value) in capabilities.as_object().into_iter().flatten() {
            let mut methods = revision::server_request_methods()
                .filter(|method| method.split('/').next() == Some(name.as_str()))
                .peekable();
            // A capability to which no known request of a server belongs is never permitted. While inputs of an earlier
            // conversation are processed, `rule` returns the decision of the earlier policy.
            if methods.peek().is_some()
                && self
                    .tape
                    .rule(methods.any(|method| monitor.is_named(&Tool::of(&self.settings.server, method))))
            {
                permitted.insert(name.clone(), value.clone());
            }
        }
        Value::Object(permitted)
    }

    /// Restricts the capabilities in a request's metadata to those that the policy lets the server use.
    pub(super) fn limit_meta(&mut self, monitor: &Monitor, params: &mut Map<String, Value>) {
        if let Some(capabilities) = params.get_mut("_meta").and_then(|meta| meta.get_mut(CAPABILITIES)) {
            *capabilities = self.permitted_client_capabilities(monitor, capabilities);
        }
    }

    /// Handles the server's answer to `initialize` or `server/discover`: forwards it with the known capabilities. The
    /// rest of the answer, such as the server's instructions, is forwarded in watch mode, or if the policy lets the
    /// client see it and its label flows to the requirement of every offered tool or, while no tool is on offer, is the
    /// bottom (a higher label could make a tool uncallable). Of an error, only the supported versions are forwarded.
    ///
    /// `id` is the id of the client's request, `answer` the result or the error, and `call` the call as which the
    /// request was judged; `None` if that call was not permitted.
    pub(super) fn handle_initialize_answer(
        &mut self,
        monitor: &mut Monitor,
        id: &RequestId,
        call: Option<&RunningCall>,
        answer: Result<Value, Value>,
    ) -> Vec<ProxyAction> {
        let Ok(Value::Object(mut initialize_result)) = answer else {
            // Only the supported versions are forwarded from an error, with the code for invalid parameters that MCP
            // requires: the client may try again with one of these versions.
            let data = answer.err().and_then(|error| protocol_versions(error.get("data")?));
            let code = if data.is_some() { -32602 } else { REFUSED };
            return vec![ProxyAction::Client(error(Some(id), code, NO_ANSWER, data.as_ref()))];
        };
        initialize_result.shift_remove("_meta");
        let capabilities =
            initialize_result.get("capabilities").map(forwarded_capabilities).unwrap_or_else(|| json!({}));
        initialize_result.insert("capabilities".to_owned(), capabilities);
        let mut out = Vec::new();
        let may_show = call.is_some_and(|running| {
            self.record_initialize_answer(monitor, running, &Value::Object(initialize_result.clone()))
        });
        if !may_show {
            let has_instructions = initialize_result.contains_key("instructions");
            if self.is_watching() {
                if has_instructions {
                    let why = "the policy does not trust the instructions of the server";
                    self.watch_text(WatchedSubject::Output, &self.tool("initialize"), Some(why));
                }
            } else {
                if has_instructions {
                    let server = &self.settings.server;
                    let note =
                        "the instructions of the server are hidden, since the policy does not trust them";
                    out.push(ProxyAction::Note(format!(
                        "{note}; if you trust them, label the output of `{server}/initialize`"
                    )));
                }
                initialize_result = without_server_text(&initialize_result, &self.settings.server);
            }
        }
        out.push(ProxyAction::Client(result(id, &Value::Object(initialize_result))));
        out
    }

    /// Adds the server's answer (`content`) to the trace as the output of the call `running`, unless the answer is
    /// hidden in any case: its label exceeds the requirement of an offered tool or, while no tool is on offer yet, the
    /// bottom. Returns whether the client may be shown the answer.
    fn record_initialize_answer(
        &mut self,
        monitor: &mut Monitor,
        running: &RunningCall,
        content: &Value,
    ) -> bool {
        let output = || Output::result(running.call_id.clone(), content.clone());
        let labels = monitor.labels_if_pushed([TraceEntry::from(output())]);
        let max_label = self.greatest_showable_label(monitor, &[]);
        // `tape` records this ruling; when a session is replayed under a newer policy, the recorded ruling is used
        // instead. If the trace has no room, the record cannot be followed any more.
        if !self.tape.rule(labels.iter().all(|label| label.flows_to(&max_label))) {
            return false;
        }
        // `Label::BOTTOM`: the server states no label for this answer.
        match self.record_answer(monitor, output(), running, Label::BOTTOM) {
            Some((_, is_shown)) => is_shown,
            None => {
                self.tape.note_divergence();
                false
            }
        }
    }
}

/// Returns a server's answer to `initialize` (or `server/discover`) with nothing that the server can word freely, for a
/// client that the policy does not allow to see the server's text. Known protocol versions, known field values and the
/// capabilities remain; the name is the configured one, and the version is constant.
fn without_server_text(full: &Map<String, Value>, server: &str) -> Map<String, Value> {
    let mut bare = unlabelled_fields(full);
    if let Some(version) = full.get("protocolVersion").filter(|version| Revision::of_value(version).is_some())
    {
        bare.insert("protocolVersion".to_owned(), version.clone());
    }
    if let Some(Value::Object(known)) = protocol_versions(&Value::Object(full.clone())) {
        bare.extend(known);
    }
    // The caller has restricted the capabilities to known ones.
    bare.insert("capabilities".to_owned(), full.get("capabilities").cloned().unwrap_or_default());
    bare.insert("serverInfo".to_owned(), json!({"name": server, "version": "0"}));
    bare
}

/// Returns the fields of an answer that are forwarded without a label. They are restricted to known values, so that
/// they cannot contain text of the server. A field without a list of known words is a cache time, and is rounded down
/// to a permitted one.
pub(super) fn unlabelled_fields(full: &Map<String, Value>) -> Map<String, Value> {
    let fields = revision::unlabelled_fields().filter_map(|(name, known_words)| {
        let value = full.get(name)?;
        let value = if known_words.is_empty() {
            let time = value.as_u64()?;
            // The permitted times are in descending order.
            Value::from(CACHE_TIMES.into_iter().find(|permitted| *permitted <= time)?)
        } else {
            Value::from(*known_words.iter().find(|word| value.as_str() == Some(word))?)
        };
        Some((name.to_owned(), value))
    });
    fields.collect()
}

/// Returns the known protocol versions that the answer to `initialize` or its error names, under the same field name;
/// `None` if it has no list of versions.
fn protocol_versions(value: &Value) -> Option<Value> {
    let field = ["supportedVersions", "supported"].into_iter().find(|field| value.get(*field).is_some())?;
    let named = value.get(field)?.as_array()?;
    // A server names its revisions in unlabelled text, so only known ones are forwarded, in the order of `ALL` and
    // without duplicates: the order of the server could encode text.
    let known = Revision::ALL.into_iter().map(|revision| Value::from(revision.date()));
    let known: Vec<Value> = known.filter(|version| named.contains(version)).collect();
    Some(json!({field: known}))
}

/// Returns the server capabilities that are forwarded to the client: the known ones with their known boolean flags.
/// Everything else could carry text of the server, or offer a feature that the proxy does not judge.
fn forwarded_capabilities(capabilities: &Value) -> Value {
    let forwarded = revision::forwarded_capabilities().filter_map(|(name, flags)| {
        let capability = capabilities.get(name)?;
        let flags = flags
            .iter()
            .filter_map(|flag| Some(((*flag).to_owned(), json!(capability.get(*flag)?.as_bool()?))));
        Some((name.to_owned(), Value::Object(flags.collect())))
    });
    Value::Object(forwarded.collect())
}

/// Returns the metadata that the revisions without sessions require in each request: the protocol version, if it has
/// the form of a date, and the names of the client's capabilities, without their content. Requests whose metadata are
/// not judged are sent with these alone.
pub(super) fn required_metadata(meta: &Value) -> Map<String, Value> {
    let mut envelope = Map::new();
    if let Some(version) =
        meta.get(VERSION).filter(|version| version.as_str().is_some_and(revision::is_revision_date))
    {
        envelope.insert(VERSION.to_owned(), version.clone());
    }
    if let Some(capabilities) = meta.get(CAPABILITIES).and_then(Value::as_object) {
        let names = capabilities.keys().map(|name| (name.clone(), json!({})));
        envelope.insert(CAPABILITIES.to_owned(), Value::Object(names.collect()));
    }
    envelope
}

/// Returns whether the metadata of a request declares that the client can elicit input from its user.
pub(super) fn can_elicit(params: &Map<String, Value>) -> bool {
    let capabilities = params.get("_meta").and_then(|meta| meta.get(CAPABILITIES));
    capabilities.and_then(|all| all.get("elicitation")).is_some_and(Value::is_object)
}

/// Returns the kinds of input that a server may request from the client: the capabilities that the metadata of the
/// request declares, after [`Proxy::limit_meta`] has restricted them. Returns `None` if the request declares no
/// capabilities.
pub(super) fn askable_capabilities(params: &Map<String, Value>) -> Option<Vec<&'static str>> {
    let capabilities = params.get("_meta")?.get(CAPABILITIES)?.as_object()?;
    let names = revision::server_request_methods().filter_map(|method| method.split('/').next());
    Some(names.filter(|name| capabilities.get(*name).is_some_and(Value::is_object)).collect())
}
