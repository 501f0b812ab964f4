//! A tool cannot be called with a call that was not judged.

use flowgate::trace::Call;
use flowgate_guard::agent::ToolHandler;

fn run(tool: &dyn ToolHandler, call: Call) {
    tool.call(call);
}

fn main() {}
