//! Tests that gateways that share a database share the quotas of requests.

use serde_json::json;
use sqlx_core::connection::Connection as _;

use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::upstream::{UpstreamDouble, says};

/// Sends a chat; returns the status, `retry-after` and the body.
fn ask(gateway: &TestGateway) -> (u16, Option<String>, String) {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let key = format!("Bearer {KEY}");
    gateway.post_for("/v1/chat/completions", &[("authorization", &key)], &body, "retry-after")
}

fn home(upstream: &UpstreamDouble, per_minute: u32) -> GatewayHome {
    let more =
        format!("user-messages = \"trust-unmarked-even-if-pasted\"\nrequests-per-minute = {per_minute}");
    GatewayHome::new(&config(&upstream.url, "chat-completions", &more), POLICY)
}

#[test]
fn gateways_that_share_a_database_share_quotas() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let home = home(&upstream, 1);
    let number = if home.shares_its_store() { 3 } else { 1 };
    let gateways: Vec<TestGateway> = (0..number).map(|_| home.start()).collect();
    assert_eq!(ask(&gateways[0]).0, 200);
    for gateway in &gateways {
        let (status, wait, body) = ask(gateway);
        assert!(status == 429 && body.contains("has sent too many requests in a minute"), "{status} {body}");
        let wait: u64 = wait.unwrap().parse().unwrap();
        assert!((1..=61).contains(&wait), "{wait}");
    }
    assert_eq!(upstream.shown().len(), 1);
}

/// A shared quota that cannot be counted admits nothing.
#[test]
fn a_request_that_cannot_be_counted_is_refused() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let home = home(&upstream, 100);
    let Some(url) = home.database().map(str::to_owned) else { return };
    let gateway = home.start();
    assert_eq!(ask(&gateway).0, 200);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx_postgres::PgConnection::connect(&url).await.unwrap();
        sqlx_core::query::query("ALTER TABLE request_quotas RENAME TO lost")
            .execute(&mut connection)
            .await
            .unwrap();
    });
    let (status, wait, body) = ask(&gateway);
    assert!(status == 503 && wait.is_some(), "{status} {body}");
    assert_eq!(upstream.shown().len(), 1);
}
