//! Tests of freezes that cannot be read: everything counts as frozen, so no call is released, in the chat or to a
//! server, until they can be read again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use flowgate_lm::chat::Completion;
use serde_json::{Value, json};

use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, POLICY, TestGateway, config};
use crate::mcp::{AnswerForm, text};
use crate::persisted_turns::tables;
use crate::servers::{self, PEOPLE};
use crate::servers_attacked::NOWHERE;
use crate::upstream::{UpstreamDouble, calls, says, text_of};
use crate::write_failing::{ask, chats};

/// Renames the table of freezes, and invalidates the cache by a freeze that fails; the person receives an error.
fn begin(home: &GatewayHome, gateway: &TestGateway) {
    tables(home, &["ALTER TABLE freezes RENAME TO freezes_elsewhere"]);
    let body = json!({"kind": "client", "what": "agent", "frozen": true});
    let (status, said) = PersonClient(gateway, "ann").post("/api/v1/freezes", &body);
    assert!(status == 503 && said.contains("the gateway's database failed"), "{status} {said}");
}

fn end(home: &GatewayHome) {
    tables(home, &["ALTER TABLE freezes_elsewhere RENAME TO freezes"]);
}

/// An action that a double runs once, when it receives a request.
type OneTimeAction = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn take(once: &OneTimeAction) {
    let what = once.lock().unwrap().take();
    what.into_iter().for_each(|what| what());
}

/// The model receives no request if the failure precedes it, and none of its calls is released if the failure follows.
/// In every API, streamed or not.
#[test]
fn a_chat_gets_no_call_while_freezes_cannot_be_read() {
    for (path, body) in chats() {
        for stream in [false, true] {
            for is_asked in [false, true] {
                let at = format!("{path} stream {stream}, asked {is_asked}");
                let once = OneTimeAction::default();
                let is_mended = Arc::new(AtomicBool::new(false));
                let (asked, mended) = (Arc::clone(&once), Arc::clone(&is_mended));
                let upstream = UpstreamDouble::new(move |request| {
                    take(&asked);
                    match text_of(request).contains("otter") && !mended.load(Ordering::SeqCst) {
                        true => says("It did not run."),
                        false => {
                            Completion { text: String::new(), ..calls(&[("read", r#"{"path": "otter"}"#)]) }
                        }
                    }
                });
                let text = config(
                    &upstream.url,
                    "chat-completions",
                    "user-messages = \"trust-unmarked-even-if-pasted\"",
                ) + PEOPLE;
                let home = Arc::new(GatewayHome::new(&text, POLICY));
                let gateway = Arc::new(home.start());
                let (broken, inner) = (Arc::clone(&home), Arc::clone(&gateway));
                let breaks = move || begin(&broken, &inner);
                match is_asked {
                    true => *once.lock().unwrap() = Some(Box::new(breaks)),
                    false => breaks(),
                }
                let (status, told) = ask(&gateway, path, &body, stream);
                assert_eq!(!upstream.shown().is_empty(), is_asked, "{at}: {told}");
                for call in ["otter", "\"read\"", "tool_use", "function_call"] {
                    assert!(!told.contains(call), "{at}: {call} in {told}");
                }
                assert!(
                    status == 503 || stream && status == 200,
                    "{at}: {status} {told} {:?}",
                    upstream.shown()
                );
                assert!(
                    told.contains("error") && told.contains("the gateway's database failed"),
                    "{at}: {told}"
                );
                end(&home);
                is_mended.store(true, Ordering::SeqCst);
                let (status, told) = ask(&gateway, path, &body, stream);
                assert!(status == 200 && told.contains("otter"), "{at}: {status} {told}");
            }
        }
    }
}

/// No call is sent to a server, and the answer to an earlier call is withheld.
#[test]
fn a_server_gets_no_call_while_freezes_cannot_be_read() {
    for form in [AnswerForm::Json, AnswerForm::Stream] {
        for is_sent in [false, true] {
            let at = format!("{form:?} sent {is_sent}");
            let once = OneTimeAction::default();
            let asked = Arc::clone(&once);
            let bank = crate::mcp::McpServerDouble::new(form, &["balance", "pay"], move |_, _| {
                take(&asked);
                text("an otter")
            });
            let web = servers::web(form);
            let home = Arc::new(servers::home(NOWHERE, [&web, &bank], PEOPLE, servers::POLICY));
            let gateway = Arc::new(home.start());
            let mut one = servers::client(&gateway, "one");
            one.begin("bank");
            let (broken, inner) = (Arc::clone(&home), Arc::clone(&gateway));
            let breaks = move || begin(&broken, &inner);
            match is_sent {
                true => *once.lock().unwrap() = Some(Box::new(breaks)),
                false => breaks(),
            }
            let call = json!({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": {"name": "balance", "arguments": {}}});
            let (_, told) = one.send("bank", &call, &[]);
            let told = Value::from(told).to_string();
            assert_eq!(bank.calls().len(), usize::from(is_sent), "{at}: {told}");
            assert!(!told.contains("otter") && told.contains("error"), "{at}: {told}");
            end(&home);
            assert_eq!(one.call("bank", "balance", &json!({})), "an otter", "{at}");
        }
    }
}
