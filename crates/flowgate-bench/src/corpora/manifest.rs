//! Identifies a run of `flowgate bench corpus` by a manifest: the benchmark, the methods, and digests of the
//! benchmark's files, the drafted policies and the code. Two runs with equal manifests have the same results. It is the
//! first line of a recorded run.

use flowgate_guard::conversation::Method;
use serde_json::{Value, json};

use super::case::{BenchmarkCorpus, ToolSet};
use crate::games::manifest::digest;

/// The sources that read cases and run them; a change of any of them changes the digest of the code.
const SOURCES: [&str; 15] = [
    include_str!("../corpora.rs"),
    include_str!("../screening.rs"),
    include_str!("agentdyn.rs"),
    include_str!("arguments.rs"),
    include_str!("case.rs"),
    include_str!("double.rs"),
    include_str!("figures.rs"),
    include_str!("files.rs"),
    include_str!("injecagent.rs"),
    include_str!("privacy_lens.rs"),
    include_str!("python.rs"),
    include_str!("reading.rs"),
    include_str!("run.rs"),
    include_str!("tau_bench.rs"),
    include_str!("toolkit.rs"),
];

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
            "code": digest(SOURCES),
        },
    })
}
