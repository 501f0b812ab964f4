//! A tool cannot be called with a call that nobody judged.

use flowgate::trace::Call;
use flowgate_guard::agent::Tool;

fn run(tool: &dyn Tool, call: Call) {
    tool.call(call);
}

fn main() {}
