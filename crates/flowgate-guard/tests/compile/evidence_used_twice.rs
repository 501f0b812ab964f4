//! One verdict permits one call.

use flowgate::monitor::{AuthorizedCall, Monitor, Permit};
use flowgate_guard::agent::ToolHandler;

fn twice(monitor: &mut Monitor, permit: Permit) {
    let _ = monitor.redeem(permit);
    let _ = monitor.redeem(permit);
}

fn again(tool: &dyn ToolHandler, call: AuthorizedCall) {
    tool.call(call);
    tool.call(call);
}

fn main() {}
