//! Records the spans (for OpenTelemetry) of a message of a client to an MCP server: one for the request of the client,
//! and one for each request to the server. `exchange` owns the spans of a message, and `conversation_inputs` and
//! `server_requests` add to them.
//!
//! A span never has content: everything in it is a number, a constant, or a name of the configuration or the policy
//! (see [`crate::telemetry`]).

use std::time::SystemTime;

use flowgate::trace::Tool;
use flowgate_audit::watch::{WatchedSubject, WatchedVerdict};
use flowgate_guard::conversation::CallVerdict;
use opentelemetry::trace::SpanKind;
use serde_json::Value;

use super::request::McpRequest;
use crate::chat::turn_trace::{kinds_of, mode, verdict_name};
use crate::http::request_error::RequestError;
use crate::telemetry::span::{Span, list};
use crate::telemetry::{Telemetry, names};

/// The method of a call of a tool.
const CALL: &str = "tools/call";

/// The spans of a message of a client. The default records nothing.
#[derive(Debug, Default)]
pub(super) struct ExchangeTrace {
    /// The span of the client's request.
    span: Span,
    /// The number of questions to people.
    questions: usize,
    /// Whether [`Self::end`] was called.
    is_ended: bool,
}

impl ExchangeTrace {
    /// Begins the span of a request of a client. `message` is the request. The span has its method, the names of
    /// the client and of the server and, if the request calls a tool, the name of the tool.
    pub(super) fn begin(telemetry: &Telemetry, request: &McpRequest, message: &Value) -> Self {
        // The span begins under a constant name, which is replaced below if the span is recorded.
        let mut span = telemetry.begin_request(names::OTHER, request.trace_parent.as_ref());
        if span.is_recording() {
            let method = method_of(message);
            let name = match tool_of(request, message) {
                Some(tool) => {
                    span.set(names::OPERATION, names::EXECUTE_TOOL);
                    span.set(names::TOOL, tool.clone());
                    format!("{} {tool}", names::EXECUTE_TOOL)
                }
                None => method.to_owned(),
            };
            span.rename(name);
            span.set(names::MCP_METHOD, method);
            span.set(names::CLIENT, request.client.spec.name.clone());
            span.set(names::MCP_SERVER, request.server.name.clone());
            span.set(names::MODE, mode(&request.client.spec));
        }
        let mut trace = Self::default();
        trace.span = span;
        trace
    }

    /// Adds the verdicts on calls, each as an event of the span with the kinds of its reasons. The caller adds none
    /// in watch mode, in which they have no effect. The span itself has the last verdict.
    pub(super) fn add_judged(&mut self, judged: &[CallVerdict]) {
        if !self.span.is_recording() {
            return;
        }
        for call in judged {
            let verdict = verdict_name(call.outcome);
            self.span.set(names::VERDICT, verdict);
            let event = [(names::VERDICT, verdict.into()), (names::REASON_KINDS, list(kinds_of(call)))];
            self.span.add_event(names::VERDICT_EVENT, SystemTime::now(), event);
        }
    }

    /// Adds the verdicts on calls of a client in watch mode, each as an event of the span. The span itself has the last
    /// verdict. Verdicts on other subjects are left out.
    pub(super) fn add_watched(&mut self, watched: &[WatchedVerdict]) {
        for verdict in watched.iter().filter(|verdict| verdict.subject == WatchedSubject::Call) {
            let verdict = verdict_name(verdict.outcome);
            self.span.set(names::VERDICT, verdict);
            self.span.add_event(names::VERDICT_EVENT, SystemTime::now(), [(names::VERDICT, verdict.into())]);
        }
    }

    /// Counts a question to people; the span has the number of questions.
    pub(super) fn add_question(&mut self) {
        self.questions += 1;
    }

    /// Begins the span of a request to the server, under the span of the client's request. Returns a span that
    /// records nothing if telemetry is off. `message` is the request to the server.
    pub(super) fn begin_server_request(&self, request: &McpRequest, message: &Value) -> Span {
        // The new span is a child of the client's span, which `place` identifies.
        let place = self.span.place();
        if !place.is_any() {
            return Span::default();
        }
        let (method, tool) = (method_of(message), tool_of(request, message));
        let name = tool.as_ref().map_or_else(|| method.to_owned(), |tool| format!("{method} {tool}"));
        let mut span = place.begin(name, SpanKind::Client);
        if span.is_recording() {
            span.set(names::MCP_METHOD, method);
            span.set(names::MCP_SERVER, request.server.name.clone());
            if let Some(tool) = tool {
                span.set(names::OPERATION, names::EXECUTE_TOOL);
                span.set(names::TOOL, tool);
            }
        }
        span
    }

    /// Ends the span of the client's request. `failure` says why it failed; `None` means that it was answered.
    pub(super) fn end(&mut self, failure: Option<&RequestError>) {
        if let Some(failure) = failure {
            self.span.set_number(names::STATUS, failure.status.as_u16());
            self.span.fail(failure.status.as_str().to_owned());
        }
        self.span.set_number(names::QUESTIONS, self.questions);
        self.is_ended = true;
        // A span ends when it is dropped.
        self.span = Span::default();
    }
}

impl Drop for ExchangeTrace {
    /// Marks the span of a message whose task was ended before it was answered.
    fn drop(&mut self) {
        if !self.is_ended {
            self.span.fail("aborted");
        }
    }
}

/// Returns the method of a message if MCP defines it for clients, and the constant [`names::OTHER`] otherwise: a span
/// must not contain a text of the client.
fn method_of(message: &Value) -> &'static str {
    let method = message.get("method").and_then(Value::as_str);
    flowgate_mcp::client_methods().find(|named| Some(*named) == method).unwrap_or(names::OTHER)
}

/// Returns the name of the tool that a message calls, in the form that spans may contain; `None` if it calls none.
fn tool_of(request: &McpRequest, message: &Value) -> Option<String> {
    let name = message.pointer("/params/name").and_then(Value::as_str);
    let tool = Tool::of(&request.server.name, name?);
    (method_of(message) == CALL).then(|| request.client.shown_names.tool(&tool))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use flowgate_lm::remote::Authorities;

    use super::*;
    use crate::config::TelemetrySpec;
    use crate::log::OperatorLog;

    /// Returns the bytes that a collector receives of a trace that `work` ends, or not.
    fn exported(work: impl FnOnce(ExchangeTrace)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let collector = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
            loop {
                let count = stream.read(&mut part).unwrap();
                bytes.extend_from_slice(&part[..count]);
                let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
                let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if count == 0 || bytes.len() >= head + 4 + length.parse::<usize>().unwrap() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                    return text;
                }
            }
        });
        let spec = TelemetrySpec {
            endpoint,
            headers: Vec::new(),
            authorities: Authorities::default(),
            timeout: Duration::from_secs(10),
            is_compressed: false,
            service_name: "gate".to_owned(),
            resource: BTreeMap::new(),
            sample: 1.0,
            propagate: false,
        };
        let telemetry = Telemetry::open(Some(&spec), &OperatorLog::default()).unwrap();
        let mut trace = ExchangeTrace::default();
        trace.span = telemetry.begin_request(names::OTHER, None);
        work(trace);
        telemetry.finish();
        collector.join().unwrap()
    }

    #[test]
    fn a_message_whose_task_is_dropped_has_failed() {
        assert!(exported(drop).contains("aborted"));
        assert!(!exported(|mut trace| trace.end(None)).contains("aborted"));
    }
}
