//! Computes a digest of the sources that determine a measurement, for the manifests of recorded runs: those of this crate and of the crates that judge,
//! in the environment variable `FLOWGATE_SOURCES_SHA256` of the build.
//!
//! The other crates are next to this one: in the folder `crates` of a checkout under their names, and in the sources of a registry or a vendor folder
//! also with their versions. If one of them is missing, the variable is empty and manifests have no digest. Code of dependencies outside of the
//! workspace is not part of the digest.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The crates whose sources count: the monitor, its detectors, the methods and the wire formats of models.
const CRATES: [&str; 4] = ["flowgate", "flowgate-detect", "flowgate-guard", "flowgate-lm"];

/// What counts in each crate, if it is there: the sources, the policies and tasks, and the tokenizer of the model that ships.
const PARTS: [&str; 3] = ["src", "data", "models/small/tokenizer.json"];

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
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = if is_complete { digest } else { String::new() };
    println!("cargo::rustc-env=FLOWGATE_SOURCES_SHA256={digest}");
    Ok(())
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
