//! Identifies a run of the propagation suite by a manifest: seed, doubles or model, size, and digests of the
//! questions and the code. Two runs of doubles with equal manifests have the same results, so `flowgate bench verify`
//! can repeat a recorded run and compare it.

use serde_json::{Value, json};

use super::double::CopyingErrors;
use super::suite::{PropagationSuite, Size};
use crate::code::code_digest;
use crate::games::manifest::digest;

/// The model that the manifest of a run with doubles names.
pub(crate) const DOUBLE: &str = "test double";

/// Returns the manifest of a run with a model, as a JSON object. `model` is the name of the model, which scored at most
/// `batch` subcontexts at once. The other fields are those of [`manifest`] with an empty list of doubles.
pub fn model_manifest(suites: &[PropagationSuite], size: Size, model: &str, batch: usize) -> Value {
    let mut manifest = manifest(suites, size, &[]);
    if let Some(fields) = manifest.as_object_mut() {
        fields.insert("model".to_owned(), model.into());
        fields.insert("batch".to_owned(), batch.into());
    }
    manifest
}

/// Returns the manifest of a run with doubles as a JSON object. It has a digest of the questions in place of their
/// texts. `suites` has the questions of each seed, in order.
pub fn manifest(suites: &[PropagationSuite], size: Size, doubles: &[CopyingErrors]) -> Value {
    let questions = suites.iter().flat_map(PropagationSuite::questions);
    let questions =
        questions.flat_map(|(set, question)| [set.name().to_owned()].into_iter().chain(question.texts()));
    let files = suites.first().map_or(&[][..], PropagationSuite::files);
    let paths = files.iter().map(|file| json!({"path": file.path, "sha256": file.sha256}));
    let mut manifest = json!({
        "type": "manifest",
        "suite": "permissive-propagation",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": suites.first().map(PropagationSuite::seed),
        "seeds": suites.len(),
        "questions": size.questions,
        "pairs": size.pairs,
        "model": DOUBLE,
        "doubles": doubles.iter().map(|double| double.name()).collect::<Vec<_>>(),
        "sha256": { "data": digest(questions), "code": code_digest() },
    });
    // Only a run on articles of a folder has files.
    if let (Some(fields), false) = (manifest.as_object_mut(), files.is_empty()) {
        fields.insert("files".to_owned(), paths.collect::<Value>());
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_identifies_the_run() {
        let size = Size { questions: 2, pairs: 2 };
        let suite = |seed| PropagationSuite::new(seed, size).unwrap();
        let build = |seed| manifest(&[suite(seed)], size, &CopyingErrors::ALL);
        assert_eq!(build(1), build(1));
        let both = manifest(&[suite(1), suite(2)], size, &CopyingErrors::ALL);
        assert_eq!([&both["seed"], &both["seeds"], &build(1)["seeds"]], [1, 2, 1]);
        assert_ne!(both["sha256"]["data"], build(1)["sha256"]["data"]);
        let of_model = model_manifest(&[suite(1)], size, "m", 4);
        assert_eq!((&of_model["model"], &of_model["batch"]), (&json!("m"), &json!(4)));
        assert_ne!(build(1)["sha256"]["data"], build(2)["sha256"]["data"]);
        assert_eq!(build(1)["sha256"]["code"], build(2)["sha256"]["code"]);
        // Texts, facts and labels are part of the digest, and names of fields are not.
        let suite = PropagationSuite::new(1, size).unwrap();
        let (_, question) = suite.questions().next().unwrap();
        let mut changed = question.clone();
        changed.documents[0].label = changed.documents[1].label;
        assert_ne!(changed.texts(), question.texts());
        changed = question.clone();
        changed.documents[0].facts.insert(999);
        assert_ne!(changed.texts(), question.texts());
        for name in ["DocumentQuestion", "SourceDocument", "label:", "Label {", "asks_first"] {
            assert!(!question.texts().iter().any(|text| text.contains(name)), "{name}");
        }
    }
}
