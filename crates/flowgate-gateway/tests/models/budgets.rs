//! Tests of the budgets of clients: what their models use is counted, and requests are refused when it is used up.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use flowgate_lm::chat::Usage;
use serde_json::json;

use crate::FORMS;
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, TestGateway, config, until};
use crate::upstream::{UpstreamDouble, says};

const PRICES: &str =
    "[prices]\ndouble = { input = 2.0, output = 10.0 }\nsmall = { input = 1.0, output = 1.0 }\n";

/// Returns a home whose first client has these settings, before a model that uses 100 tokens for each answer.
fn home(settings: &str, prices: &str) -> (UpstreamDouble, GatewayHome) {
    let upstream = UpstreamDouble::new(|_| {
        let mut completion = says("Hello.");
        completion.usage = Usage { input: 80, output: 20, cached: 0 };
        completion
    });
    let more = format!("user-messages = \"trust-unmarked-even-if-pasted\"\n{settings}");
    let text = config(&upstream.url, "chat-completions", &more) + prices;
    let home = GatewayHome::new(&text, POLICY);
    (upstream, home)
}

/// Asks for an answer of a model. Returns the status, and the reply.
fn ask(gateway: &TestGateway, key: &str, model: &str) -> (u16, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello?"}]});
    gateway.post("/v1/chat/completions", &[("authorization", &format!("Bearer {key}"))], &body.to_string())
}

#[test]
fn a_used_up_budget_refuses_requests() {
    // 100 tokens cost 360 millionths.
    for (settings, answered, what) in [
        ("tokens-per-day = 250", 3, "tokens"),
        ("tokens-per-day = 200", 2, "tokens"),
        ("cost-per-day = 0.000720", 2, "cost"),
        ("cost-per-day = 0.000721\ntokens-per-day = 1000", 3, "cost"),
    ] {
        let (_upstream, home) = home(settings, PRICES);
        let gateway = home.start();
        for number in 0..answered {
            let (status, reply) = ask(&gateway, KEY, "double");
            assert_eq!(status, 200, "{settings} {number}: {reply}");
        }
        let refused = |gateway: &TestGateway| {
            let (status, reply) = ask(gateway, KEY, "double");
            assert_eq!(status, 429, "{settings}: {reply}");
            assert!(reply.contains(&format!("its budget of {what} for today")), "{settings}: {reply}");
        };
        refused(&gateway);
        // Another client has a budget of its own, and a restart gives no new one.
        assert_eq!(ask(&gateway, OTHER_KEY, "double").0, 200);
        gateway.stop();
        if home.file().is_some() || home.database().is_some() {
            refused(&home.start());
        }
    }
}

/// Every form and every stream is counted.
#[test]
fn all_forms_are_counted() {
    for (api, _) in FORMS {
        for streaming in [false, true] {
            let (_upstream, home) = home("tokens-per-day = 100", "");
            let gateway = home.start();
            let mut agent = TestAgent::new(&gateway, api, streaming, KEY);
            assert_eq!(agent.says("Hello?"), "Hello.");
            assert_eq!(ask(&gateway, KEY, "double").0, 429, "{api:?} {streaming}");
        }
    }
}

/// With a budget for costs, a model without a price is refused, and a configuration that names one cannot be used.
#[test]
fn the_cost_of_every_model_is_known() {
    let (upstream, unpriced) =
        home("cost-per-day = 1.0", "[prices]\nsmall = { input = 1.0, output = 1.0 }\n");
    let gateway = unpriced.start();
    let (status, reply) = ask(&gateway, KEY, "double");
    assert_eq!((status, reply.contains("the model `double` has no price")), (403, true), "{reply}");
    assert_eq!(ask(&gateway, KEY, "small").0, 200);
    assert_eq!(upstream.shown().len(), 1);
    let error = |settings: &str, prices: &str| home(settings, prices).1.try_start().err().unwrap();
    let why = error("cost-per-day = 1.0\nsmall-model = \"tiny\"", PRICES);
    assert!(why.contains("clients.agent: cost-per-day: the model tiny has no price"), "{why}");
    let why = error("cost-per-day = 1.0", "");
    assert!(why.contains("no model has a price: write [prices]"), "{why}");
    let why = error("tokens-per-day = 1", "[prices]\na = { input = -1, output = 0 }\n");
    assert!(why.contains("prices.a: `input`: the price -1 is out of range"), "{why}");
}

/// An agent that reads a part of a streamed answer and disconnects pays for the part.
#[test]
fn an_answer_that_breaks_off_is_counted() {
    let upstream =
        UpstreamDouble::new(|_| says("A long story begins here, and goes on for a while. PAUSE And on."));
    let more = "user-messages = \"trust-unmarked-even-if-pasted\"\ntokens-per-day = 10";
    let text = config(&upstream.url, "chat-completions", more);
    let gateway = GatewayHome::new(&text, POLICY.split("raise ").next().unwrap()).start();
    let body =
        json!({"model": "double", "stream": true, "messages": [{"role": "user", "content": "Tell me."}]})
            .to_string();
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut seen = [0_u8; 64];
    socket.read_exact(&mut seen).unwrap();
    assert!(seen.starts_with(b"HTTP/1.1 200"));
    drop(socket);
    assert!(until(|| ask(&gateway, KEY, "double").0 == 429));
}
