//! A tool cannot be called with a call that was not judged.

use flowgate::trace::Call;
use flowgate_guard::agent::Tool;

fn run(tool: &dyn Tool, call: Call) {
    tool.call(call);
}

fn main() {}
