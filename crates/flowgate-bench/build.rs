//! Computes digests of the sources that determine a measurement, for the manifests of recorded runs. `FLOWGATE_SOURCES_SHA256`, an environment variable
//! of the build, is that of this crate and of the crates that judge. `FLOWGATE_SCREENER_SHA256` is that of the files on which the figures of the screener
//! *attention* depend: a test does not repeat these figures, since they need a local model, and fails if they are of other files.
//!
//! The other crates are next to this one: in the folder `crates` of a checkout under their names, and in the sources of a registry or a vendor folder
//! also with their versions. If one of them is missing, the variables are empty and manifests have no digest. Code of dependencies outside of the
//! workspace is not part of the digest.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The crates whose sources count: the monitor, its detectors, the methods and the wire formats of models.
const CRATES: [&str; 4] = ["flowgate", "flowgate-detect", "flowgate-guard", "flowgate-lm"];

/// What counts in each crate, if it is there: the sources, the policies and tasks, and the tokenizer of the model that ships.
const PARTS: [&str; 3] = ["src", "data", "models/small/tokenizer.json"];

/// The files and folders on which the choices of the screener *attention* depend, each with its crate: what asks it and reads its answer, what it computes, and how
/// its network is trained. The features of a region and the network read what the model's evaluation returns, whose results a test compares with
/// those of another implementation.
const SCREENER: [(&str, &str); 16] = [
    ("flowgate-guard", "src/influence/facts.rs"),
    ("flowgate-guard", "src/screener.rs"),
    ("flowgate-guard", "src/screener/attention.rs"),
    ("flowgate-guard", "src/screener/attention"),
    ("flowgate-guard", "src/screener/judge.rs"),
    ("flowgate-lm", "src/region_features.rs"),
    ("flowgate-lm", "src/local/classifier.rs"),
    ("flowgate-lm", "src/local/inside.rs"),
    ("flowgate-bench", "src/games/random.rs"),
    ("flowgate-bench", "src/privacy/attention.rs"),
    ("flowgate-bench", "src/propagation/key_value.rs"),
    ("flowgate-bench", "src/saliency/beyond_values.rs"),
    ("flowgate-bench", "src/saliency/case.rs"),
    ("flowgate-bench", "src/saliency/labelled_prompt.rs"),
    ("flowgate-bench", "src/saliency/measure.rs"),
    ("flowgate-bench", "src/saliency/trained.rs"),
];

fn main() -> Result<(), String> {
    let variable = |name: &str| {
        std::env::var(name).map_err(|error| {
            format!("{name}: {error}; build the crate with cargo, in a folder whose path is valid UTF-8")
        })
    };
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let version = variable("CARGO_PKG_VERSION")?;
    println!("cargo::rerun-if-changed=build.rs");
    let mut hash = Sha256::new();
    let mut is_complete = true;
    for name in CRATES {
        match sibling(&here, name, &version) {
            Some(folder) => add_crate(&mut hash, name, &folder)?,
            None => is_complete = false,
        }
    }
    add_crate(&mut hash, "flowgate-bench", &here)?;
    let of_screener = if is_complete { screener_digest(&here, &version)? } else { String::new() };
    let of_sources = if is_complete { hexadecimal(hash) } else { String::new() };
    println!("cargo::rustc-env=FLOWGATE_SOURCES_SHA256={of_sources}");
    println!("cargo::rustc-env=FLOWGATE_SCREENER_SHA256={of_screener}");
    Ok(())
}

/// Returns a finished hash in hexadecimal.
fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the digest of the code in the files of [`SCREENER`]. Cargo watches them already, as parts of their crates.
fn screener_digest(here: &Path, version: &str) -> Result<String, String> {
    let mut hash = Sha256::new();
    for (name, part) in SCREENER {
        let folder =
            if name == "flowgate-bench" { Some(here.to_owned()) } else { sibling(here, name, version) };
        let mut files = Vec::new();
        collect(&folder.unwrap_or_default().join(part), &mut files)?;
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| format!("{}: {error}; correct `SCREENER` in build.rs", file.display()))?;
            let file_name = file.file_name().unwrap_or_default().to_string_lossy();
            let code = code_of(&text);
            for text in [name, part, &*file_name, code.as_str()] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        }
    }
    Ok(hexadecimal(hash))
}

/// Returns the code of a source file: its lines without comments, empty lines and the tests at its end. A comment that
/// is written otherwise changes no figure.
fn code_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(
        |pair| matches!(pair, [first, second] if *first == "#[cfg(test)]" && second.starts_with("mod tests")),
    );
    let code = lines.iter().take(tests.unwrap_or(lines.len()));
    let code = code.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"));
    code.copied().collect::<Vec<_>>().join("\n")
}

/// Returns the folder of another crate of the workspace with the same version; `None` if it is not next to this one.
fn sibling(here: &Path, name: &str, version: &str) -> Option<PathBuf> {
    let names = [name.to_owned(), format!("{name}-{version}")];
    let folders = names.map(|folder| here.parent().map(|parent| parent.join(folder)));
    folders.into_iter().flatten().find(|folder| folder.join("src/lib.rs").is_file())
}

/// Adds the parts of a crate in the order of their paths, and tells cargo to watch them.
fn add_crate(hash: &mut Sha256, name: &str, folder: &Path) -> Result<(), String> {
    for part in PARTS.iter().map(|part| folder.join(part)).filter(|part| part.exists()) {
        println!("cargo::rerun-if-changed={}", part.display());
        let mut files = Vec::new();
        collect(&part, &mut files)?;
        files.sort();
        for file in files {
            let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            // Neither the separator of paths nor the line ends of a checkout count.
            let within = file.strip_prefix(folder).unwrap_or(&file).components();
            let within: Vec<_> = within.map(|part| part.as_os_str().to_string_lossy()).collect();
            let text: Vec<u8> = bytes.into_iter().filter(|byte| *byte != b'\r').collect();
            for bytes in [name.as_bytes(), within.join("/").as_bytes(), &text] {
                hash.update((bytes.len() as u64).to_be_bytes());
                hash.update(bytes);
            }
        }
    }
    Ok(())
}

/// Adds the path of a file, or those of all files below a folder.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let problem = |error: std::io::Error| format!("{}: {error}", path.display());
    for entry in std::fs::read_dir(path).map_err(problem)? {
        collect(&entry.map_err(problem)?.path(), files)?;
    }
    Ok(())
}
