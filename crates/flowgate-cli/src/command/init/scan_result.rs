//! Finds the MCP servers that a result of `flowgate scan --format json` names, for `flowgate init`. The result has no
//! command lines, since their arguments can contain secret keys; so this module reads the configuration files that the result
//! names. It starts no server.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::clients::config_file::{ConfigText, ConfiguredServer, MAX_CONFIG};
use crate::clients::packages::folder_variable;
use crate::escaping;
use crate::input::bounded_text;
use crate::mcp::{self, McpServerSpec};

/// The maximum number of configuration files of one scan.
const MAX_FILES: usize = 200;

/// The servers that a scan has found.
#[derive(Default)]
pub(super) struct ScannedServers {
    /// The servers that can be used, one of each name.
    pub(super) servers: Vec<McpServerSpec>,
    /// The servers that cannot be used, each as one line with the reason.
    pub(super) left_out: Vec<String>,
}

/// Returns the configuration files that a result of `flowgate scan` names; `None` if the document is not such a result.
pub(super) fn files(document: &Value) -> Option<Vec<PathBuf>> {
    let clients = document.get("clients")?.as_array()?;
    let mut paths = Vec::new();
    for client in clients {
        for file in client.get("files")?.as_array()? {
            paths.push(PathBuf::from(file.get("path")?.as_str()?));
        }
    }
    Some(paths)
}

/// Reads the servers of configuration files, except those that are switched off. `expands` says whether to put the
/// values of environment variables into the command lines. Three kinds of servers are left out: one whose name policies
/// cannot use, one whose entry has an unknown form, and one whose name another server, read before, has already.
///
/// # Errors
/// If there are too many files, or one cannot be read.
pub(super) fn servers(files: &[PathBuf], expands: bool) -> Result<ScannedServers, String> {
    if files.len() > MAX_FILES {
        return Err(format!(
            "the scan names too many files (the limit is {MAX_FILES}); give the configuration files themselves in place of the scan"
        ));
    }
    let mut found = ScannedServers::default();
    for path in files {
        let text = bounded_text(path, MAX_CONFIG).map_err(|error| error.0)?;
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let config =
            ConfigText::read(&text, is_toml).map_err(|error| format!("{}: {error}", path.display()))?;
        let root = config.to_value();
        for server in config.servers().into_iter().filter(|server| !server.is_disabled) {
            found.add(&server, &root, path, expands);
        }
    }
    Ok(found)
}

impl ScannedServers {
    /// Adds a server of the configuration file at `path`, or the reason why the server is left out. `root` is the whole
    /// content of the file, in which the entry of the server is looked up. `expands` says whether to put the values of
    /// environment variables into the command line.
    fn add(&mut self, server: &ConfiguredServer, root: &Value, path: &Path, expands: bool) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let list = json!({"mcpServers": {&server.name: server.usual_entry(root)}}).to_string();
        let read = mcp::read(&list, folder, &|name| {
            // A server that is not started needs no values of variables, which may be secrets.
            if !expands {
                return Some(String::new());
            }
            folder_variable(path, name).or_else(|| std::env::var(name).ok())
        });
        let at = |why: &str| format!("{}: {why}", escaping::line(&path.display().to_string()));
        match read {
            Err(why) => self.left_out.push(at(&why)),
            Ok(specs) => {
                for spec in specs {
                    match self.servers.iter().find(|other| other.name == spec.name) {
                        None => self.servers.push(spec),
                        // Several files may configure the same server.
                        Some(other) if *other == spec => {}
                        Some(_) => self.left_out.push(at(&format!(
                            "the server `{}`: another file configures a different server of this name; rename one of them",
                            spec.name
                        ))),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_scan_are_recognised() {
        for (document, expected) in [
            (json!({"clients": [{"files": [{"path": "a"}, {"path": "b"}]}]}), Some(vec!["a", "b"])),
            (json!({"clients": []}), Some(Vec::new())),
            (json!({"clients": {}}), None),
            (json!({"clients": [{"files": [{"name": "a"}]}]}), None),
            (json!([{"name": "clients"}]), None),
        ] {
            let expected = expected.map(|paths| paths.into_iter().map(PathBuf::from).collect());
            assert_eq!(files(&document), expected, "{document}");
        }
        assert_eq!(
            servers(&vec![PathBuf::new(); MAX_FILES + 1], false).err().as_deref(),
            Some(
                "the scan names too many files (the limit is 200); give the configuration files themselves in place of the scan"
            )
        );
    }
}
