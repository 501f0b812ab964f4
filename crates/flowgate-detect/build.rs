//! Includes published rules for secrets in the build: copies the file that the environment variable `FLOWGATE_SECRET_RULES`
//! names, which `deploy/secret-rules` wrote, to where `secrets/published.rs` includes it. Without the variable, the list of
//! published rules is empty.

use std::path::{Path, PathBuf};

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLOWGATE_SECRET_RULES");
    let rules = match std::env::var_os("FLOWGATE_SECRET_RULES").filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            // Cargo runs a build script in the folder of its package.
            if path.is_relative() {
                return Err(format!("FLOWGATE_SECRET_RULES: write the absolute path of {}", path.display()));
            }
            println!("cargo::rerun-if-changed={}", path.display());
            let read = std::fs::read_to_string(&path);
            read.map_err(|error| format!("FLOWGATE_SECRET_RULES: {}: {error}", path.display()))?
        }
        None => "&[]".to_owned(),
    };
    let folder = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set; build the crate with cargo")?;
    let included = Path::new(&folder).join("secret_rules.rs");
    std::fs::write(&included, rules).map_err(|error| format!("{}: {error}", included.display()))
}
