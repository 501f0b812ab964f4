//! Tests that many requests at the same time, of conversations that begin and that grow, are all answered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

use flowgate_gateway::limits::ServerLimits;
use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, POLICY, config};
use crate::persisted_turns::tables;
use crate::upstream::{UpstreamDouble, says};

/// The number of requests at the same time.
const REQUESTS: usize = 128;
/// The number of turns of each conversation.
const TURNS: usize = 4;

#[test]
fn concurrent_turns_of_new_and_growing_conversations_are_answered() {
    let upstream = UpstreamDouble::new(|_| says("Yes."));
    let home = GatewayHome::new(
        &config(
            &upstream.url,
            "chat-completions",
            "parallel = 256\nrequests-per-minute = 10000\nsessions = 1000",
        ),
        POLICY,
    );
    // On a busy machine, a connection may wait long for its request: it is not closed for another one of its address.
    let limits =
        ServerLimits { connections: 4 * REQUESTS, connections_of_address: 0, ..ServerLimits::default() };
    let (gateway, _log) = home.start_within(limits);
    let barrier = Barrier::new(REQUESTS);
    let ask = |messages: &[Value]| {
        let body = json!({"model": "double", "messages": messages}).to_string();
        let key = format!("Bearer {KEY}");
        gateway.post("/v1/chat/completions", &[("authorization", key.as_str())], &body)
    };
    let converse = &|number: usize| -> Vec<(u16, String)> {
        let mut messages = Vec::new();
        let turn = |turn| {
            messages.push(json!({"role": "user", "content": format!("Question {turn} of {number}")}));
            barrier.wait();
            // A thread that panicked here would leave the others waiting for it.
            let answer = catch_unwind(AssertUnwindSafe(|| ask(&messages)));
            let answer = answer.unwrap_or_else(|_| (0, "the request has no answer".to_owned()));
            messages.push(json!({"role": "assistant", "content": "Yes."}));
            answer
        };
        (0..TURNS).map(turn).collect()
    };
    let answers: Vec<(u16, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..REQUESTS).map(|number| scope.spawn(move || converse(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let refused: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
    assert!(refused.is_empty(), "{} of {}: {:?}", refused.len(), answers.len(), refused.first());
    gateway.stop();
    // Each conversation was continued by its text.
    let count = |sql| usize::try_from(tables(&home, sql)).unwrap();
    assert_eq!(count(&["SELECT COUNT(*) FROM conversations"]), REQUESTS);
    assert_eq!(count(&["SELECT COUNT(*) FROM turns"]), REQUESTS * TURNS);
}
