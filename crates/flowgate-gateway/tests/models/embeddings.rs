//! Tests of embeddings: texts go to the model that embeds them only if the policy permits it, with the labels of what they
//! quote.

use serde_json::{Value, json};

use crate::FORMS;
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// What the page says that an agent is shown in these tests.
const PAGE: &str = "the otter report of the north river says that the dam will be opened on the fifth of May";

/// Permits embeddings of text that the agent's program sends, and not of what strangers wrote.
const PERMITS: &str = "label message as trusted if:\n    (message: Message)\n    message.role == \"embedding\"\n\
                       require trusted if:\n    (call: ToolCall) is tool:embeddings\n";

fn home(upstream: &UpstreamDouble, api: &str, statements: &str) -> GatewayHome {
    let text = config(&upstream.url, api, "user-messages = \"trust-unmarked-even-if-pasted\"");
    GatewayHome::new(&text, &format!("{POLICY}\n{statements}"))
}

/// Asks for embeddings. Returns the status and the reply.
fn embed(gateway: &TestGateway, body: &Value) -> (u16, Value) {
    let (status, reply) =
        gateway.post("/v1/embeddings", &[("authorization", &format!("Bearer {KEY}"))], &body.to_string());
    (status, serde_json::from_str(&reply).unwrap())
}

fn texts(texts: &[&str]) -> Value {
    json!({"model": "double", "input": texts})
}

#[test]
fn permitted_texts_are_embedded() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let gateway = home(&upstream, "chat-completions", PERMITS).start();
    let (status, reply) = embed(&gateway, &texts(&["one", "three"]));
    // The double embeds a text as its length.
    let item = |index: usize, length: usize| json!({"object": "embedding", "index": index, "embedding": [length, 0.5]});
    assert_eq!((status, &reply["data"]), (200, &json!([item(0, 3), item(1, 5)])), "{reply}");
    assert_eq!(reply["usage"], json!({"prompt_tokens": 7, "total_tokens": 7}));
    let sent: Value = serde_json::from_str(upstream.bodies().last().unwrap()).unwrap();
    assert_eq!(sent, json!({"model": "double", "input": ["one", "three"], "encoding_format": "float"}));
    // The key is the gateway's, not the client's.
    assert_eq!(upstream.keys(), ["Bearer key-of-the-upstream"]);
    // The form that OpenAI's own client uses.
    let (status, reply) =
        embed(&gateway, &json!({"model": "double", "input": "one", "encoding_format": "base64"}));
    assert_eq!((status, &reply["data"][0]["embedding"]), (200, &json!("AABAQAAAAD8=")), "{reply}");
}

/// Text that no statement labels is not embedded, and the reply says what would permit it.
#[test]
fn a_policy_that_does_not_label_the_texts_permits_none() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let (_, require) = PERMITS.split_once("require").unwrap();
    for statements in ["", &format!("require{require}")] {
        let gateway = home(&upstream, "chat-completions", statements).start();
        let (status, reply) = embed(&gateway, &texts(&["one"]));
        let message = reply["error"]["message"].as_str().unwrap();
        assert_eq!(
            (status, message.contains("message.role == \"embedding\"")),
            (403, true),
            "{statements}: {reply}"
        );
    }
    assert_eq!(upstream.bodies(), Vec::<String>::new());
}

/// Text that the agent was shown has its label, also in a list, in other words of the same text, and after a restart.
#[test]
fn quoted_text_keeps_its_label() {
    let upstream = UpstreamDouble::new(|request| {
        if text_of(request).contains("\"read\"") { says("Read.") } else { calls(&[("read", "{}")]) }
    });
    let home = home(&upstream, "chat-completions", PERMITS);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.page = PAGE.to_owned();
    agent.says("Read the page.");
    let before = upstream.bodies().len();
    let check = |gateway: &TestGateway, input: &[&str], expected: u16| {
        let (status, reply) = embed(gateway, &texts(input));
        assert_eq!(status, expected, "{input:?}: {reply}");
    };
    check(&gateway, &["The weather is fine today."], 200);
    check(&gateway, &[PAGE], 403);
    check(&gateway, &["The weather is fine today.", &format!("It says: {PAGE}.")], 403);
    check(&gateway, &[&PAGE.to_uppercase()], 403);
    gateway.stop();
    if home.file().is_some() || home.database().is_some() {
        let gateway = home.start();
        check(&gateway, &[PAGE], 403);
    }
    assert_eq!(upstream.bodies().len(), before + 1);
}

/// Rules of the policy read the texts, and the model; a question is a refusal, since nobody is asked.
#[test]
fn rules_apply_to_the_texts() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let rules = [
        (
            "raise \"no secrets\" if:\n    (call: ToolCall) is tool:embeddings\n    \"hunter2\" in call.arguments.input\n",
            "no secrets",
        ),
        (
            "raise \"no secrets\" if:\n    (message: Message)\n    message.role == \"embedding\"\n    \"hunter2\" in message.content\n",
            "no secrets",
        ),
        (
            "ask \"embeddings are confirmed\" if:\n    (call: ToolCall) is tool:embeddings\n    \"hunter2\" in call.arguments.input\n",
            "embeddings are confirmed",
        ),
    ];
    for (rule, why) in rules {
        let gateway = home(&upstream, "chat-completions", &format!("{PERMITS}{rule}")).start();
        let (status, reply) = embed(&gateway, &texts(&["plain", "hunter2"]));
        let message = reply["error"]["message"].as_str().unwrap();
        assert_eq!((status, message.contains(why)), (403, true), "{rule}: {reply}");
        assert_eq!(embed(&gateway, &texts(&["plain"])).0, 200, "{rule}");
    }
}

#[test]
fn wrong_requests_are_refused() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let gateway = home(&upstream, "chat-completions", PERMITS).start();
    for (body, status, why) in [
        (json!({"model": "double", "input": [[1, 2]]}), 400, "tokens cannot be judged"),
        (json!({"model": "double", "input": "a", "more": 1}), 400, "`more` is not known"),
        (json!({"model": "other", "input": "a"}), 404, "may not ask for the model `other`"),
    ] {
        let (got, reply) = embed(&gateway, &body);
        assert_eq!((got, reply.to_string().contains(why)), (status, true), "{reply}");
    }
    assert_eq!(gateway.post("/v1/embeddings", &[], "{}").0, 401);
    // An upstream of another API has no embeddings.
    let gateway = home(&upstream, "messages", PERMITS).start();
    let (status, reply) = embed(&gateway, &texts(&["one"]));
    assert_eq!((status, reply.to_string().contains("an API without embeddings")), (400, true), "{reply}");
    assert_eq!(upstream.bodies(), Vec::<String>::new());
}

/// A freeze of the tool, or of the client, stops embeddings, and the audit log has every verdict.
#[test]
fn embeddings_are_recorded_and_can_be_frozen() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let more = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[audit]\nfile = \"audit.jsonl\"\n";
    let home = GatewayHome::new(
        &(config(&upstream.url, "chat-completions", more) + people),
        &format!("{POLICY}\n{PERMITS}"),
    );
    let gateway = home.start();
    assert_eq!(embed(&gateway, &texts(&["one"])).0, 200);
    let bob = crate::approvals::PersonClient(&gateway, "bob");
    let freeze = json!({"kind": "tool", "what": "embeddings", "frozen": true, "in_advance": true});
    assert_eq!(bob.post("/api/v1/freezes", &freeze).0, 200);
    let (status, reply) = embed(&gateway, &texts(&["one"]));
    assert_eq!((status, reply.to_string().contains("frozen")), (403, true), "{reply}");
    assert_eq!(upstream.bodies().len(), 1);
    gateway.stop();
    // What a rule on the message stops is recorded as well.
    let rule = "raise \"no\" if:\n    (message: Message)\n    message.role == \"embedding\"\n";
    home.policy(&format!("{POLICY}\n{PERMITS}{rule}"));
    let gateway = home.start();
    let thaw = json!({"kind": "tool", "what": "embeddings", "frozen": false});
    assert_eq!(crate::approvals::PersonClient(&gateway, "bob").post("/api/v1/freezes", &thaw).0, 200);
    assert_eq!(embed(&gateway, &texts(&["one"])).0, 403);
    gateway.stop();
    let log = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
    let judged: Vec<&str> = log.lines().filter(|line| line.contains("\"judged\"")).collect();
    let is_of_embeddings = |line: &&&str| line.contains("«embeddings»");
    assert_eq!(judged.iter().filter(is_of_embeddings).count(), 2, "{log}");
    assert!(judged[1].contains("\"deny\""), "{log}");
    assert!(judged[0].contains("«embeddings»") && judged[0].contains("\"permit\""), "{log}");
}
