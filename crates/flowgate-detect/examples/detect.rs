//! Prints what the detectors find in texts: JSON lines `{"text": …}` in, JSON lists out, one line each.
//!
//! ```console
//! $ cargo run --example detect < texts.jsonl
//! ```

use std::io::{BufRead, Write};

use flowgate_detect::{injection, moderation, personal, secrets, shell};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let row: Value = serde_json::from_str(&line?)?;
        let text = row.get("text").and_then(Value::as_str).ok_or("a line has no text")?;
        // Offsets in characters, as Python counts.
        let at = |byte: usize| text.char_indices().take_while(|(i, _)| *i < byte).count();
        let row = |detector: &str, kind: &str, span: std::ops::Range<usize>| json!({"detector": detector, "kind": kind, "start": at(span.start), "end": at(span.end)});
        let mut found: Vec<Value> = Vec::new();
        found.extend(personal::all_findings(text).into_iter().map(|f| row("personal", f.kind, f.span)));
        found.extend(secrets(text).map(|f| row("secrets", f.kind, f.span)));
        found.extend(shell::find(text).into_iter().map(|i| row("shell", i.kind.as_str(), i.span)));
        found.extend(injection::find(text).findings.into_iter().map(|f| row("injection", f.kind, f.span)));
        found.extend(moderation::find(text).into_iter().map(|f| row("moderation", f.kind, f.span)));
        writeln!(out, "{}", Value::Array(found))?;
    }
    Ok(())
}
