//! Every input that parses as a trace can be judged: regions have valid positions, and nothing panics.

#![no_main]

mod fixed;

use std::sync::{Arc, LazyLock};

use flowgate::monitor::{Attribution, Monitor};
use flowgate::policy::Policy;
use flowgate::trace::{EventBody, read};
use libfuzzer_sys::fuzz_target;

static POLICY: LazyLock<Arc<Policy>> = LazyLock::new(|| {
    let source = "
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role == \"user\"
label out.content[*].to as trusted if:
    (out: ToolOutput) is tool:get
label row.note as trusted if:
    (out: ToolOutput) is tool:get
    (row: dict) in out.content
    row.to == \"me\"
label capture(out.content[*].note, r\"Rating: (?<rating>[0-9])[^0-9].*\", \"rating\") as trusted if:
    (out: ToolOutput) is tool:get
require trusted if:
    (call: ToolCall) is tool:send
raise \"no\" if:
    (out: ToolOutput) -> (call: ToolCall)
    call is tool:send
    \"secret\" in out.content
";
    Arc::new(Policy::parse(source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}")))
});

fuzz_target!(|text: &str| {
    let Ok(runs) = read::file(text) else { return };
    for run in runs {
        let mut monitor = Monitor::new(Arc::clone(&POLICY));
        for entry in run.entries {
            if matches!(entry.body, EventBody::Call(_)) {
                let _ = monitor.record(entry, &Attribution::everything());
            } else {
                let _ = monitor.push(entry);
            }
        }
        for event in monitor.trace().events() {
            let document = &event.document;
            assert_eq!(event.label, document.label_of(0));
            for (id, node) in document.nodes().iter().enumerate() {
                assert!(node.parent <= id && id < node.end && node.end <= document.nodes().len());
            }
        }
    }
});
