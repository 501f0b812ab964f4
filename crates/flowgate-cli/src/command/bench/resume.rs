//! Reads the lines of an interrupted run, from which the next run continues (`--resume`). `agents` and `detectors`, which
//! measure without a model, call it; runs with a model continue from their file of answers.

use std::path::Path;

use serde_json::Value;

use super::verify::MAX_RUN;
use crate::args::ReportFormat;
use crate::input::{InputError, bounded_text};

/// Returns the lines after the manifest of the interrupted run in a file; none if no file is named. A last line that has
/// no line break and is not valid JSON was cut off, and is left out.
///
/// # Errors
/// If the format of the output is not jsonl, the file cannot be read, a line is not valid JSON, or the first line is not
/// `manifest`: such a run had other options, or was made by another version of the program.
pub(super) fn recorded_lines(
    path: Option<&Path>,
    manifest: &Value,
    format: ReportFormat,
) -> Result<Vec<Value>, InputError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    if format != ReportFormat::Jsonl {
        return Err(InputError(
            "--resume: only the lines of the format jsonl have all that a run needs to continue; add `--format jsonl`"
                .to_owned(),
        ));
    }
    let failed = |problem: &str| InputError(format!("--resume {}: {problem}", path.display()));
    let text = bounded_text(path, MAX_RUN)
        .map_err(|InputError(problem)| InputError(format!("--resume {problem}")))?;
    let mut lines = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        match serde_json::from_str(line) {
            Ok(value) => lines.push(value),
            Err(_) if !line.ends_with('\n') => break,
            Err(error) => {
                let number = index + 1;
                return Err(failed(&format!(
                    "line {number} is not valid JSON: {error}; give a file that this command wrote"
                )));
            }
        }
    }
    if lines.is_empty() {
        return Err(failed(
            "the file has no line: if the output is written to the file that is read, write the output to another file",
        ));
    }
    if lines.first() != Some(manifest) {
        return Err(failed(
            "line 1 is not the manifest of this run: the interrupted run had other options, or was made by another version of the program; repeat its options, or leave `--resume` out",
        ));
    }
    lines.remove(0);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_lines_of_the_same_run_are_read() {
        let path = std::env::temp_dir().join(format!("flowgate-resume-{}.jsonl", std::process::id()));
        let manifest = json!({"type": "manifest", "seed": 1});
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let read = recorded_lines(Some(&path), &manifest, ReportFormat::Jsonl);
            read.map_err(|error| error.0.replace(path.to_str().unwrap(), "FILE"))
        };
        let first = format!("{manifest}\n");
        assert_eq!(read(&first), Ok(Vec::new()));
        assert_eq!(
            read(&format!("{first}{{\"a\":1}}\n{{\"b\":2}}")),
            Ok(vec![json!({"a": 1}), json!({"b": 2})])
        );
        // A line that was cut off is left out; a broken line in the middle is an error.
        assert_eq!(read(&format!("{first}{{\"a\":1}}\n{{\"b\"")), Ok(vec![json!({"a": 1})]));
        let check = |text: &str, expected: &str| {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        };
        check(&format!("{first}{{\"a\"\n{{}}\n"), "--resume FILE: line 2 is not valid JSON: ");
        check("", "--resume FILE: the file has no line: if the output is written to the file that is read");
        check(
            "{\"type\":\"manifest\",\"seed\":2}\n",
            "--resume FILE: line 1 is not the manifest of this run: ",
        );
        std::fs::remove_file(&path).unwrap();
        let error = recorded_lines(Some(&path), &manifest, ReportFormat::Jsonl).unwrap_err().0;
        assert!(error.starts_with("--resume "), "{error}");
        let error = recorded_lines(Some(&path), &manifest, ReportFormat::Text).unwrap_err().0;
        assert!(error.contains("add `--format jsonl`"), "{error}");
        assert_eq!(recorded_lines(None, &manifest, ReportFormat::Text).unwrap(), Vec::<Value>::new());
    }
}
