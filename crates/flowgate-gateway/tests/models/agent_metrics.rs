//! Tests of the metrics of clients: they count verdicts, questions and decisions, and only holders of the token read them.

use flowgate_gateway::http::access::{AccessControl, BearerToken};

use crate::FORMS;
use crate::approvals::{PersonClient, home, mails};
use crate::gateway::{KEY, TestAgent};
use crate::upstream::UpstreamDouble;

const TOKEN: &str = "token-of-the-monitoring";

#[test]
fn verdicts_questions_and_decisions_are_counted() {
    let upstream = UpstreamDouble::new(mails);
    let token = AccessControl::Token(BearerToken::new(TOKEN).unwrap());
    let gateway = home(&upstream, 0).start_with_access(token);
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail Bob.");
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "allow").0, 200);
    agent.says("Go on.");
    assert_eq!(gateway.get("/metrics", KEY).0, 401);
    let (status, text) = gateway.get("/metrics", TOKEN);
    assert_eq!(status, 200);
    for line in [
        r#"flowgate_calls_total{client="agent",tool="read",verdict="permit",mode="enforce"} 1"#,
        r#"flowgate_calls_total{client="agent",tool="send",verdict="confirm",mode="enforce"} 1"#,
        r#"flowgate_questions_total{client="agent",tool="send"} 1"#,
        r#"flowgate_decisions_total{client="agent",tool="send",decision="allow"} 1"#,
        r#"flowgate_decision_seconds_count{client="agent",tool="send"} 1"#,
        r#"flowgate_turn_seconds_count{client="agent"} 2"#,
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
    }
    let input = r#"flowgate_tokens_total{client="agent",direction="input"} "#;
    let tokens = text.lines().find_map(|line| line.strip_prefix(input)).unwrap();
    assert!(tokens.parse::<u64>().unwrap() > 0, "{text}");
}

/// Without a token, an agent on the machine could read the verdicts, which may depend on hidden text.
#[test]
fn without_a_token_the_metrics_of_clients_are_left_out() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let (status, text) = gateway.get("/metrics", "");
    assert_eq!(
        (status, text.contains("flowgate_requests_total"), text.contains("client=")),
        (200, true, false),
        "{text}"
    );
    assert!(text.contains("this server has no token"), "{text}");
}
