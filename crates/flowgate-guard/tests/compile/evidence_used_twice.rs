//! One verdict permits one call.

use flowgate::monitor::{Authorized, Monitor, Permit};
use flowgate_guard::agent::Tool;

fn twice(monitor: &mut Monitor, permit: Permit) {
    let _ = monitor.redeem(permit);
    let _ = monitor.redeem(permit);
}

fn again(tool: &dyn Tool, call: Authorized) {
    tool.call(call);
    tool.call(call);
}

fn main() {}
