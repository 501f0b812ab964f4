//! Tests of the spans that the gateway exports: their names, their tree and their attributes; that they have no content;
//! and that a collector, whatever it does, changes nothing for clients.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::{self, PersonClient, mails};
use crate::collector::{CollectorDouble, ReceivedSpan};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config};
use crate::gullible;
use crate::mcp::AnswerForm;
use crate::servers;
use crate::upstream::{UpstreamDouble, calls, says, text_of};
use crate::upstream_failing::{FailingUpstreamDouble, http};

const TRUST: &str = "user-messages = \"trust-unmarked-even-if-pasted\"";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// Returns the section that sends spans to this collector.
fn section(collector: &CollectorDouble, more: &str) -> String {
    format!("[telemetry]\nendpoint = \"{}\"\n{more}\n", collector.url)
}

/// Returns the configuration of a gateway before this upstream.
fn settings(upstream: &str, telemetry: &str) -> String {
    config(upstream, "chat-completions", TRUST) + telemetry
}

/// Sends one message without a conversation; returns the status and the answer.
fn ask(gateway: &TestGateway, headers: &[(&str, &str)]) -> (u16, String) {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello."}]});
    let key = format!("Bearer {KEY}");
    let headers = [&[("authorization", key.as_str())], headers].concat();
    gateway.post("/v1/chat/completions", &headers, &body.to_string())
}

fn one(spans: &[ReceivedSpan], name: &str) -> ReceivedSpan {
    let mut found = spans.iter().filter(|span| span.name == name);
    let (Some(span), None) = (found.next(), found.next()) else { panic!("not one `{name}`: {spans:#?}") };
    span.clone()
}

/// Every API, streamed or not: one span for each request, with a child for each request to the upstream and one for each
/// judged call.
#[test]
fn a_turn_is_a_tree_of_spans() {
    for (api, _) in FORMS {
        for streaming in [false, true] {
            let (upstream, collector) = (UpstreamDouble::new(gullible), CollectorDouble::new());
            let home = GatewayHome::new(
                &settings(&upstream.url, &section(&collector, "service-name = \"gate\"")),
                POLICY,
            );
            let gateway = home.start();
            let mut agent = TestAgent::new(&gateway, api, streaming, KEY);
            agent.says("Read the page.");
            gateway.stop();
            let at = format!("{api:?} {streaming}");
            let spans = collector.spans();
            let turns: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.kind == 2).collect();
            assert!(turns.len() >= 2, "{at}: {spans:#?}");
            for turn in &turns {
                assert_eq!((turn.name.as_str(), turn.parent.as_str()), ("chat double", ""), "{at}");
                let attributes = &turn.attributes;
                assert_eq!(attributes["gen_ai.operation.name"], "chat", "{at}");
                assert_eq!(attributes["gen_ai.provider.name"], "openai", "{at}");
                assert_eq!(attributes["gen_ai.request.model"], "double", "{at}");
                assert_eq!(attributes["gen_ai.response.model"], "double", "{at}");
                assert_eq!(attributes["flowgate.client"], "agent", "{at}");
                assert_eq!(attributes["flowgate.mode"], "enforce", "{at}");
                assert_eq!(attributes["flowgate.method"], "lowest-first", "{at}");
                assert!(attributes["gen_ai.usage.input_tokens"].as_i64().unwrap() > 0, "{at}");
                assert!(attributes["gen_ai.usage.output_tokens"].as_i64().unwrap() > 0, "{at}");
                assert_eq!(attributes["gen_ai.conversation.id"].as_str().unwrap().len(), 32, "{at}");
                let children: Vec<_> = spans.iter().filter(|span| span.parent == turn.id).collect();
                assert!(children.iter().all(|span| span.trace == turn.trace), "{at}");
                assert!(
                    children.iter().all(|span| span.nanos.0 >= turn.nanos.0 && span.nanos.1 <= turn.nanos.1),
                    "{at}: {children:#?}"
                );
                let asked: Vec<_> = children.iter().filter(|span| span.kind == 3).collect();
                assert!(!asked.is_empty(), "{at}");
                let tokens =
                    |span: &ReceivedSpan| span.attributes["gen_ai.usage.input_tokens"].as_i64().unwrap();
                assert_eq!(asked.iter().map(|span| tokens(span)).sum::<i64>(), tokens(turn), "{at}");
                for span in asked {
                    assert_eq!(span.name, "chat double", "{at}");
                    assert_eq!(span.attributes["flowgate.upstream"], "double", "{at}");
                    assert_eq!(span.attributes["server.address"], "127.0.0.1", "{at}");
                    assert_eq!(span.attributes["flowgate.fallback.index"], 0, "{at}");
                }
            }
            let first = turns.first().unwrap();
            assert_eq!(first.attributes["gen_ai.response.finish_reasons"], json!(["tool_calls"]), "{at}");
            assert_eq!(turns.last().unwrap().attributes["gen_ai.response.finish_reasons"], json!(["stop"]));
            let read = one(&spans, "execute_tool read");
            assert_eq!((read.kind, &read.parent), (1, &first.id), "{at}");
            assert_eq!(read.attributes["gen_ai.operation.name"], "execute_tool", "{at}");
            assert_eq!(read.attributes["gen_ai.tool.name"], "read", "{at}");
            assert_eq!(read.attributes["flowgate.verdict"], "permit", "{at}");
            let resource = collector.resource();
            assert_eq!(resource["service.name"], "gate", "{at}");
            assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"), "{at}");
            let head = collector.heads().remove(0).to_ascii_lowercase();
            assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
            assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
        }
    }
}

/// No text of the conversation, no key and no name that untrusted text could have chosen is anywhere in what the
/// collector receives.
#[test]
fn spans_have_no_content() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("wave_SECRET") {
        true => says("The answer is SECRET-of-the-model."),
        false => calls(&[
            ("read", "{\"path\":\"SECRET-argument\"}"),
            ("wave_SECRET", "{}"),
            ("web/SECRET", "{}"),
            ("other/read", "{}"),
        ]),
    });
    let collector = CollectorDouble::new();
    let telemetry = section(&collector, "headers-from = \"COLLECTOR\"");
    let gateway = TestGateway::configured(&settings(&upstream.url, &telemetry), POLICY);
    let key = format!("Bearer {KEY}");
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "description": "SECRET-description", "parameters": {"type": "object"}}});
    let body = json!({
        "model": "double",
        "messages": [{"role": "system", "content": "SECRET-system"}, {"role": "user", "content": "SECRET-user"}],
        "tools": [tool("read"), tool("wave_SECRET"), tool("other/read")],
    });
    let send = |body: &Value, headers: &[(&str, &str)]| {
        let headers = [&[("authorization", key.as_str())], headers].concat();
        gateway.post("/v1/chat/completions", &headers, &body.to_string())
    };
    let (status, reply) = send(&body, &[("x-flowgate-conversation", "SECRET-conversation")]);
    assert_eq!(status, 200, "{reply}");
    // A model that the configuration does not name is refused here, and its name is not exported either.
    let (status, _) = send(&json!({"model": "SECRET-model", "messages": body["messages"]}), &[]);
    assert_eq!(status, 404);
    // The value of another trace header is text.
    let trace = format!("00-{TRACE}-{SPAN}-01");
    let headers =
        [("traceparent", trace.as_str()), ("tracestate", "a=SECRET-state"), ("baggage", "b=SECRET-baggage")];
    send(&body, &headers);
    gateway.stop();
    let spans = collector.spans();
    let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        BTreeSet::from(["chat double", "chat other", "execute_tool read", "execute_tool other"])
    );
    let named = spans.iter().filter(|span| !span.attributes["gen_ai.conversation.id"].is_null());
    assert_eq!(named.count(), 2, "{spans:#?}");
    let bytes = collector.bytes();
    for secret in ["SECRET", KEY, "key-of-the", "Hello.", "web/", "other/read"] {
        assert!(!bytes.contains(secret), "{secret}: {bytes}");
    }
    assert!(collector.heads().iter().all(|head| head.contains("x-token: key-of-the-collector")));
}

/// The refusal of a call, the question about another one and its answer; the span of a call has the verdict as an event,
/// and never who decided.
#[test]
fn verdicts_are_events() {
    let (upstream, collector) = (UpstreamDouble::new(mails), CollectorDouble::new());
    let mut home = approvals::home(&upstream, 0);
    home.edit("[approvals]\n", &format!("{}[approvals]\n", section(&collector, "")));
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail Bob.");
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "allow").0, 200);
    agent.says("Go on.");
    gateway.stop();
    let spans = collector.spans();
    let read = one(&spans, "execute_tool read");
    let expected = json!({
        "flowgate.verdict": "permit", "flowgate.method": "lowest-first", "flowgate.reason.kinds": [],
        "flowgate.question.asked": false,
    });
    assert_eq!(read.events, [("flowgate.verdict".to_owned(), expected)]);
    let send = one(&spans, "execute_tool send");
    let expected = json!({
        "flowgate.verdict": "confirm", "flowgate.method": "lowest-first", "flowgate.reason.kinds": ["rule"],
        "flowgate.question.asked": true,
    });
    assert_eq!(send.events, [("flowgate.verdict".to_owned(), expected)]);
    let asking = spans.iter().find(|span| span.id == send.parent).unwrap();
    assert_eq!(asking.attributes["flowgate.turn.ended"], "asked");
    assert_eq!(asking.attributes["flowgate.questions"], 1);
    for person in ["ann", "bob", "vic"] {
        assert!(!collector.bytes().contains(&format!("\u{3}{person}")), "{person}");
    }
}

/// A denied call; and in watch mode, what would have been denied.
#[test]
fn denials_are_seen_also_in_watch_mode() {
    let deny = format!("{POLICY}raise \"no mails\" if:\n    (call: ToolCall) is tool:send\n");
    for (mode, file, expected) in
        [("", "", "enforce"), ("\nmode = \"watch\"", "[watch]\nfile = \"watch.jsonl\"\n", "watch")]
    {
        let upstream = UpstreamDouble::new(mails);
        let collector = CollectorDouble::new();
        let text = settings(&upstream.url, file).replace(TRUST, &format!("{TRUST}{mode}"));
        let gateway = TestGateway::configured(&(text + &section(&collector, "")), &deny);
        let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
        agent.says("Mail Bob.");
        gateway.stop();
        let sent = collector.named("execute_tool send");
        assert!(!sent.is_empty(), "{:#?}", collector.spans());
        for send in sent {
            assert_eq!(send.attributes["flowgate.verdict"], "deny", "{send:?}");
            assert_eq!(send.attributes["flowgate.mode"], expected, "{send:?}");
            assert_eq!(send.events[0].1["flowgate.verdict"], "deny", "{send:?}");
        }
    }
}

/// A retry is an event of the request that it repeats, and each upstream that is asked has a span.
#[test]
fn retries_and_fallbacks_are_seen() {
    let (failing, second) = (FailingUpstreamDouble::new(), UpstreamDouble::new(|_| says("Second.")));
    failing.sends(&[&http("503 down", "application/json", "{\"error\":{\"message\":\"SECRET\"}}")]);
    let collector = CollectorDouble::new();
    let text = settings(&failing.url, &section(&collector, "")).replace(
        TRUST,
        &format!("{TRUST}\nfallback = [{{ upstream = \"second\", model = \"other-model\" }}]"),
    );
    let more = format!(
        "[upstreams.second]\nurl = \"{}\"\nmodels = [\"other-model\"]\nkey-from = \"OTHER\"\n",
        second.url
    );
    let gateway = TestGateway::configured(&(text + &more), POLICY);
    assert_eq!(ask(&gateway, &[]).0, 200);
    gateway.stop();
    let spans = collector.spans();
    let asked: Vec<_> = spans.iter().filter(|span| span.kind == 3).collect();
    let [first, later] = asked[..] else { panic!("{spans:#?}") };
    assert_eq!((first.name.as_str(), first.is_failed), ("chat double", true));
    assert_eq!(first.attributes["error.type"], "busy");
    assert_eq!(first.events, [("flowgate.retry".to_owned(), json!({"error.type": "busy"}))]);
    assert_eq!((later.name.as_str(), later.is_failed), ("chat other-model", false));
    assert_eq!(later.attributes["flowgate.fallback.index"], 1);
    assert_eq!(later.attributes["flowgate.upstream"], "second");
    let turn = spans.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!((turn.name.as_str(), turn.is_failed), ("chat double", false));
    assert_eq!(turn.attributes["gen_ai.response.model"], "other-model");
    assert!(!collector.bytes().contains("SECRET"));
}

#[test]
fn a_failed_request_has_the_type_of_its_error() {
    let failing = FailingUpstreamDouble::new();
    failing.sends(&[&http("401 unknown", "application/json", "{}")]);
    let collector = CollectorDouble::new();
    let gateway = TestGateway::configured(&settings(&failing.url, &section(&collector, "")), POLICY);
    assert_eq!(ask(&gateway, &[]).0, 502);
    gateway.stop();
    let spans = collector.spans();
    let errors: Vec<_> = spans.iter().map(|span| (span.kind, &span.attributes["error.type"])).collect();
    assert_eq!(errors, [(3, &json!("401")), (2, &json!("upstream"))], "{spans:#?}");
    assert!(spans.iter().all(|span| span.is_failed));
    assert_eq!(spans[1].attributes["http.response.status_code"], 502);
}

/// A request that is refused before its turn has a span, if its client is known.
#[test]
fn refused_requests_are_spans() {
    let (upstream, collector) = (UpstreamDouble::new(|_| says("Hello.")), CollectorDouble::new());
    let home = servers::home(
        &upstream.url,
        [&servers::web(AnswerForm::Json), &servers::bank(AnswerForm::Json)],
        &section(&collector, ""),
        servers::POLICY,
    );
    let gateway = home.start();
    let key = format!("Bearer {KEY}");
    let key = [("authorization", key.as_str())];
    let trace = format!("00-{TRACE}-{SPAN}-01");
    let name = "x".repeat(200);
    let traced = [key[0], ("traceparent", trace.as_str()), ("x-flowgate-conversation", name.as_str())];
    let body = json!({"model": "double", "messages": []}).to_string();
    // The name of the conversation is none, the body is too large, the server is none; and the key is unknown.
    assert_eq!(gateway.post("/v1/chat/completions", &traced, &body).0, 400);
    let large = format!("{body}{}", " ".repeat(40 << 20));
    assert_eq!(gateway.post("/v1/embeddings", &key, &large).0, 413);
    assert_eq!(gateway.post("/mcp/absent", &key, "{}").0, 404);
    assert_eq!(gateway.post("/v1/chat/completions", &[("authorization", "Bearer unknown")], &body).0, 401);
    gateway.stop();
    let spans = collector.spans();
    let found: Vec<_> = spans
        .iter()
        .map(|span| (span.name.as_str(), span.kind, &span.attributes["http.response.status_code"]))
        .collect();
    let expected = [("chat", 2, &json!(400)), ("embeddings", 2, &json!(413)), ("other", 2, &json!(404))];
    assert_eq!(found, expected, "{spans:#?}");
    assert!(spans.iter().all(|span| span.is_failed && span.attributes["flowgate.client"].is_string()));
    assert_eq!((spans[0].trace.as_str(), spans[0].parent.as_str()), (TRACE, SPAN));
}

/// A call through the gateway, and the request to the server below it.
#[test]
fn calls_of_mcp_servers_are_spans() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Stream));
    let collector = CollectorDouble::new();
    for propagate in [false, true] {
        let telemetry = section(&collector, &format!("propagate = {propagate}"));
        let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &telemetry, servers::POLICY);
        let gateway = home.start();
        let mut client = servers::client(&gateway, "one");
        client.begin("web");
        client.call("web", "read", &json!({"path": "SECRET"}));
        client.begin("bank");
        client.call("bank", "pay", &json!({"to": "SECRET"}));
        client.call("web", "SECRET", &json!({}));
        gateway.stop();
    }
    let spans = collector.spans();
    let read = spans.iter().find(|span| span.name == "execute_tool web/read").unwrap();
    assert_eq!((read.kind, read.attributes["mcp.method.name"].as_str()), (2, Some("tools/call")));
    assert_eq!(read.attributes["gen_ai.tool.name"], "web/read");
    assert_eq!(read.attributes["flowgate.mcp.server"], "web");
    assert_eq!(read.attributes["flowgate.verdict"], "permit");
    let sent: Vec<_> = spans.iter().filter(|span| span.parent == read.id).collect();
    let [sent] = sent[..] else { panic!("{spans:#?}") };
    assert_eq!((sent.name.as_str(), sent.kind), ("tools/call web/read", 3));
    let pay = spans.iter().find(|span| span.name == "execute_tool bank/pay").unwrap();
    let deny = json!({"flowgate.verdict": "deny", "flowgate.reason.kinds": ["requirement"]});
    assert_eq!(pay.events, [("flowgate.verdict".to_owned(), deny)]);
    // A denied call is not sent.
    assert!(spans.iter().all(|span| span.parent != pay.id));
    assert!(spans.iter().any(|span| span.name == "execute_tool other"));
    assert!(spans.iter().any(|span| span.name == "tools/list"));
    assert!(!collector.bytes().contains("SECRET") && !collector.bytes().contains("MALLORY"));
    // Only the second gateway passes the trace on, and the server's span belongs to the gateway's.
    let passed: Vec<String> = web.heads().into_iter().filter(|head| head.contains("traceparent: ")).collect();
    assert!(!passed.is_empty() && passed.len() < web.heads().len() * 2 / 3, "{passed:#?}");
    let is_span = |head: &String| {
        let (_, value) = head.split_once("traceparent: ").unwrap();
        spans
            .iter()
            .any(|span| span.kind == 3 && value.starts_with(&format!("00-{}-{}-01", span.trace, span.id)))
    };
    assert!(passed.iter().all(is_span), "{passed:#?}");
}

/// The client's trace is the parent, if the header is valid and there is only one. Its decision on sampling holds.
#[test]
fn the_trace_of_the_client_is_continued() {
    let (upstream, collector) = (UpstreamDouble::new(|_| says("Hello.")), CollectorDouble::new());
    let gateway = TestGateway::configured(&settings(&upstream.url, &section(&collector, "")), POLICY);
    let sampled = format!("00-{TRACE}-{SPAN}-01");
    let long = format!("00-{TRACE}-{SPAN}-01{}", "-a".repeat(4000));
    for hostile in
        ["00-SECRET", &sampled.to_uppercase(), &format!("{sampled}, {sampled}"), &long, "", "\u{e9}"]
    {
        assert_eq!(ask(&gateway, &[("traceparent", hostile)]).0, 200, "{hostile}");
    }
    assert_eq!(ask(&gateway, &[("traceparent", &format!("00-{TRACE}-{SPAN}-00"))]).0, 200);
    assert_eq!(ask(&gateway, &[("traceparent", &sampled)]).0, 200);
    gateway.stop();
    let turns: Vec<_> = collector.spans().into_iter().filter(|span| span.kind == 2).collect();
    // The trace that the client does not record is not exported.
    assert_eq!(turns.len(), 7, "{turns:#?}");
    let (last, others) = turns.split_last().unwrap();
    assert_eq!((last.trace.as_str(), last.parent.as_str()), (TRACE, SPAN));
    assert!(others.iter().all(|span| span.trace != TRACE && span.parent.is_empty()), "{others:#?}");
    assert!(upstream.trace_parents().is_empty());
}

#[test]
fn the_share_of_traces_applies_to_clients_without_a_trace() {
    let (upstream, collector) = (UpstreamDouble::new(|_| says("Hello.")), CollectorDouble::new());
    let telemetry = section(&collector, "sample = 0.0\npropagate = true");
    let gateway = TestGateway::configured(&settings(&upstream.url, &telemetry), POLICY);
    assert_eq!(ask(&gateway, &[]).0, 200);
    assert_eq!(ask(&gateway, &[("traceparent", &format!("00-{TRACE}-{SPAN}-01"))]).0, 200);
    gateway.stop();
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "{spans:#?}");
    assert!(spans.iter().all(|span| span.trace == TRACE));
    // The upstream also learns that a trace is not recorded, and what its span belongs to.
    let passed = upstream.trace_parents();
    let [unsampled, sampled] = &passed[..] else { panic!("{passed:?}") };
    assert!(unsampled.ends_with("-00"), "{unsampled}");
    let asked = spans.iter().find(|span| span.kind == 3).unwrap();
    assert_eq!(*sampled, format!("00-{TRACE}-{}-01", asked.id));
}

#[test]
fn embeddings_are_spans() {
    let permits = "label message as trusted if:\n    (message: Message)\n    message.role == \"embedding\"\n\
                   require trusted if:\n    (call: ToolCall) is tool:embeddings\n";
    let (upstream, collector) = (UpstreamDouble::new(|_| says("Hello.")), CollectorDouble::new());
    let gateway = TestGateway::configured(
        &settings(&upstream.url, &section(&collector, "")),
        &format!("{POLICY}{permits}"),
    );
    let key = format!("Bearer {KEY}");
    let body = json!({"model": "double", "input": ["SECRET"]});
    assert_eq!(gateway.post("/v1/embeddings", &[("authorization", &key)], &body.to_string()).0, 200);
    gateway.stop();
    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.kind)).collect();
    assert_eq!(names, [("embeddings double", 3), ("execute_tool embeddings", 1), ("embeddings double", 2)]);
    assert_eq!(spans[0].attributes["gen_ai.usage.input_tokens"], 7);
    assert!(!collector.bytes().contains("SECRET"));
}

/// A collector that hangs, fails or does not exist delays neither a turn nor, beyond a bound, the end of the gateway; the
/// spans that are lost are counted.
#[test]
fn a_broken_collector_changes_nothing_for_clients() {
    let unreachable = CollectorDouble::at("http://127.0.0.1:1");
    let failing = CollectorDouble::answering("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let moved = CollectorDouble::answering(
        "HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    );
    let endless = CollectorDouble::answering("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
    let hanging = CollectorDouble::answering("");
    for (what, collector, is_told) in [
        ("unreachable", unreachable, true),
        ("failing", failing, true),
        ("moved", moved, true),
        ("endless", endless, false),
        ("hanging", hanging, false),
    ] {
        let upstream = UpstreamDouble::new(|_| says("Hello."));
        let home = GatewayHome::new(&settings(&upstream.url, &section(&collector, "")), POLICY);
        let (gateway, mut lines) = home.start_with_log();
        for _ in 0..5 {
            assert_eq!(ask(&gateway, &[]).0, 200, "{what}");
        }
        if is_told {
            let line = lines.next("remark");
            assert!(line.to_string().contains("the collector does not accept spans"), "{what}: {line}");
            let counted = || gateway.get("/metrics", KEY).1.contains("flowgate_spans_dropped_total 10");
            assert!(crate::gateway::until(counted), "{what}");
        }
        let begun = Instant::now();
        gateway.stop();
        // The bound is three seconds, and a request to the collector may take sixty.
        assert!(begun.elapsed() < Duration::from_secs(50), "{what}: {:?}", begun.elapsed());
        // The thread that waits for a hanging collector still has the log.
        if is_told {
            assert!(!lines.rest().contains(KEY), "{what}");
        } else {
            (0..5).for_each(|_| assert!(!lines.next("turn").to_string().contains(KEY), "{what}"));
        }
    }
}

/// The log line of a turn names its trace, so that one leads to the other.
#[test]
fn the_log_names_the_trace() {
    let (upstream, collector) = (UpstreamDouble::new(|_| says("Hello.")), CollectorDouble::new());
    let home = GatewayHome::new(&settings(&upstream.url, &section(&collector, "")), POLICY);
    let (gateway, mut lines) = home.start_with_log();
    assert_eq!(ask(&gateway, &[("traceparent", &format!("00-{TRACE}-{SPAN}-01"))]).0, 200);
    assert_eq!(lines.next("turn")["trace"], TRACE);
    assert_eq!(ask(&gateway, &[("traceparent", &format!("00-{TRACE}-{SPAN}-00"))]).0, 200);
    assert_eq!(lines.next("turn")["trace"], Value::Null);
    gateway.stop();
}

/// Without the section, nothing is recorded, whatever a client sends.
#[test]
fn spans_are_off_by_default() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let home = GatewayHome::new(&settings(&upstream.url, ""), POLICY);
    let (gateway, mut lines) = home.start_with_log();
    assert_eq!(ask(&gateway, &[("traceparent", &format!("00-{TRACE}-{SPAN}-01"))]).0, 200);
    assert_eq!(lines.next("turn")["trace"], Value::Null);
    assert!(gateway.get("/metrics", KEY).1.contains("flowgate_spans_dropped_total 0"));
    gateway.stop();
    assert!(upstream.trace_parents().is_empty());
}

/// Every name that spans can have is in the documentation, and no other.
#[test]
fn the_documentation_has_every_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_to_string(root.join("src/telemetry/names.rs")).unwrap();
    let declared: BTreeSet<&str> = names
        .lines()
        .filter_map(|line| line.strip_prefix("pub(crate) const ")?.split('"').nth(1))
        .filter(|name| name.contains('.'))
        .collect();
    let page = std::fs::read_to_string(root.join("../../docs/operations.md")).unwrap();
    let (_, section) = page.split_once("\n## Traces\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    let documented: BTreeSet<&str> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.contains('.') && !name.contains(' '))
        .collect();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(declared, documented);
}
