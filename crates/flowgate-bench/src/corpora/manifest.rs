//! Identifies a run of `flowgate bench corpus` by a manifest: the benchmark, the methods, and digests of the
//! benchmark's files, the drafted policies and the code. Two runs with equal manifests have the same results. The
//! manifest is the first line of a recorded run.

use flowgate_guard::conversation::Method;
use serde_json::{Value, json};

use super::case::{BenchmarkCorpus, ToolSet};
use crate::code::code_digest;
use crate::games::manifest::digest;

/// Returns the manifest of a run as a JSON object.
pub fn manifest(corpus: &BenchmarkCorpus, methods: &[Method]) -> Value {
    let files = corpus.files.iter().map(|file| json!({"path": file.path, "sha256": file.sha256}));
    json!({
        "type": "manifest",
        "suite": format!("corpus-{}", corpus.benchmark),
        "version": env!("CARGO_PKG_VERSION"),
        "model": "test double",
        "methods": methods.iter().map(|method| method.name()).collect::<Vec<_>>(),
        "cases": corpus.cases.len(),
        "files": files.collect::<Vec<_>>(),
        "sha256": {
            "data": digest(corpus.files.iter().flat_map(|file| [&file.path, &file.sha256])),
            "policy": digest(corpus.tool_sets.iter().map(ToolSet::policy)),
            "code": code_digest(),
        },
    })
}
