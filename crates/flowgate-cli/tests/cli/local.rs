//! Local models: `lm train`, `lm evaluate`, and measurements with the model that ships.

use std::path::Path;

use super::{check, flowgate, name, text};

#[test]
fn a_training_is_continued_and_exported() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lm-train");
    let exported = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lm-exported");
    let _ = std::fs::remove_dir_all(&folder);
    let _ = std::fs::remove_dir_all(&exported);
    let train = ["lm", "train", name(&folder), "--steps", "2", "--seed", "3", "--export", name(&exported)];
    let output = flowgate(&train);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("seed 3, step 0 of 2"), "{}", text(&output));
    let losses = std::fs::read_to_string(folder.join("losses.csv")).unwrap();
    assert_eq!(losses.lines().count(), 3, "{losses}");
    assert!(std::fs::read_to_string(folder.join("losses.svg")).unwrap().starts_with("<svg "));
    // The same command changes nothing, as the training is complete, and another seed does not either.
    check(&["lm", "train", name(&folder), "--seed", "4"], 0, "seed 3, step 2 of 2");
    assert_eq!(std::fs::read_to_string(folder.join("losses.csv")).unwrap(), losses);
    check(&["lm", "evaluate", name(&exported), "--texts", "2"], 0, "copied values");
    // Half precision takes half of the space.
    let size = |folder: &Path| std::fs::metadata(folder.join("model.safetensors")).unwrap().len();
    assert!(size(&exported) * 2 < size(&folder) + 100_000);
}

#[test]
fn the_model_that_ships_copies() {
    let output = flowgate(&["lm", "evaluate", "--texts", "8"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = text(&output);
    // The share of tokens with a probability above one half; copying by chance is far below it.
    let share: f64 = printed
        .lines()
        .find(|line| line.starts_with("copying"))
        .and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
        .unwrap();
    assert!(share > 0.7, "{printed}");
}

#[test]
#[ignore = "takes minutes without optimisation"]
fn the_model_that_ships_is_measured() {
    let run = [
        "bench",
        "propagation",
        "--local",
        "embedded",
        "--questions",
        "2",
        "--pairs",
        "3",
        "--format",
        "jsonl",
    ];
    let output = flowgate(&run);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.starts_with("{\"type\":\"manifest\"") && printed.contains("\"model\":\"flowgate-small "),
        "{printed}"
    );
    assert!(printed.contains("\"set\":\"key-value/unseen\""), "{printed}");
}

#[test]
fn models_that_cannot_be_loaded_are_named() {
    check(&["bench", "propagation", "--local", "no-such-folder"], 2, "--local no-such-folder: ");
    check(&["lm", "evaluate", "no-such-folder"], 2, "no-such-folder");
    check(&["bench", "propagation", "--local", "embedded", "--double", "copy"], 2, "cannot be used with");
}
