//! Only the monitor creates evidence.

use flowgate::monitor::AuthorizedCall;
use flowgate::trace::{Call, EventId, Tool};

fn main() {
    let call = Call::from_json("c1", Tool::local("send"), "{}");
    let _ = AuthorizedCall { call, event: EventId(0) };
}
