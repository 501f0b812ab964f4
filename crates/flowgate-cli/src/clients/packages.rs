//! Finds the packages that bring MCP servers and hooks to a client: the plug-ins of Claude Code ([`plugins`]) and the
//! extensions of Claude Desktop ([`extensions`]). Each is a folder with configuration files, which `flowgate scan` reads
//! like those of the clients. A package that is installed but cannot be read is returned with the reason, so that `scan`
//! can say that the servers of this package are not known.
//!
//! What a package names is untrusted: only files within its own folder are read, and nothing is executed.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::config_file::MAX_CONFIG;
use super::places::{ClientFile, FileScope, McpClient, find_client};
use crate::input::bounded_text;

/// The maximum number of plug-ins or of extensions.
const MAX_PACKAGES: usize = 1_000;
/// The maximum number of files that one plug-in names for its servers or for its hooks.
const MAX_NAMED_FILES: usize = 50;
/// The maximum depth of a file below the folder of its plug-in.
const MAX_DEPTH: usize = 20;
/// The file in which Claude Code lists the plug-ins that it has installed, below the home folder.
const INSTALLED: &str = ".claude/plugins/installed_plugins.json";

/// The packages that a client has installed and that are switched on.
#[derive(Debug, Default)]
pub(crate) struct InstalledPackages {
    /// Their files with servers and hooks.
    pub(crate) files: Vec<ClientFile>,
    /// Those of which at least one server or hook is not known.
    pub(crate) unread: Vec<UnreadPackage>,
}

/// A package, or a file of a client, that could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadPackage {
    pub(crate) client: &'static McpClient,
    /// The kind and the name of the package or file, for people, such as ``plug-in `mail@tools` ``.
    pub(crate) name: String,
    /// The reason: a clause whose subject is the name.
    pub(crate) why: String,
}

impl InstalledPackages {
    /// Adds a package that could not be read.
    fn leave_out(&mut self, client: &'static McpClient, name: &str, why: &str) {
        self.unread.push(UnreadPackage { client, name: name.to_owned(), why: why.to_owned() });
    }
}

/// Finds the plug-ins of Claude Code below the folder `home` that are switched on in the project `project`. `settings`
/// has the contents of the settings files, each with its scope; a later file overrides an earlier one.
pub(crate) fn plugins(home: &Path, project: &Path, settings: &[(FileScope, &Value)]) -> InstalledPackages {
    let mut found = InstalledPackages::default();
    let Some(client) = find_client("claude-code") else { return found };
    let enabled = enabled_plugins(settings);
    if enabled.is_empty() {
        return found;
    }
    let list = home.join(INSTALLED);
    let installed = match list.is_file() {
        true => read_json(&list),
        false => Ok(Value::Null),
    };
    let installed = match installed {
        Ok(installed) => installed,
        Err(why) => {
            found.leave_out(client, "plug-ins", &format!("are not known: {why}"));
            return found;
        }
    };
    if enabled.len() > MAX_PACKAGES {
        found.leave_out(
            client,
            "further plug-ins",
            &format!("are left out, since more than {MAX_PACKAGES} are switched on"),
        );
    }
    for (id, scope_of_settings) in enabled.into_iter().take(MAX_PACKAGES) {
        let name = format!("plug-in `{id}`");
        let folders = installed.get("plugins").map(|plugins| folders_of(plugins.get(id), project));
        let folders = folders.unwrap_or_default();
        if folders.is_empty() {
            found.leave_out(
                client,
                &name,
                "is switched on, and its folder is not known: install it again, or switch it off",
            );
        }
        for (folder, scope_of_installation) in folders {
            if !folder.is_dir() {
                found.leave_out(
                    client,
                    &name,
                    "is switched on, and its folder does not exist: install it again, or switch it off",
                );
                continue;
            }
            // The plug-in is active in one project only if that project's settings switch it on, or if it is installed
            // for that project.
            let is_of_project = [scope_of_settings, scope_of_installation].contains(&FileScope::Project);
            let scope = if is_of_project { FileScope::Project } else { scope_of_installation };
            let mut plugin = Plugin { client, name: &name, folder: &folder, scope, found: &mut found };
            plugin.add_files(home, id);
        }
    }
    found
}

/// Returns the plug-ins that the settings switch on, by their ids (`NAME@MARKETPLACE`), each with the scope of the file
/// that decides.
fn enabled_plugins<'v>(settings: &[(FileScope, &'v Value)]) -> BTreeMap<&'v str, FileScope> {
    let mut enabled = BTreeMap::new();
    for (scope, content) in settings {
        for (id, value) in content.get("enabledPlugins").and_then(Value::as_object).into_iter().flatten() {
            // Instead of `true`, a list of versions is possible.
            if matches!(value, Value::Bool(false) | Value::Null) {
                enabled.remove(id.as_str());
            } else {
                enabled.insert(id.as_str(), *scope);
            }
        }
    }
    enabled
}

/// Returns the folders of a plug-in, each with the scope for which it is installed. `entries` is what the list of
/// installed plug-ins has for this plug-in: an entry, or a list of entries, of which the first [`MAX_NAMED_FILES`] are
/// read. Entries for projects other than `project` are left out.
fn folders_of(entries: Option<&Value>, project: &Path) -> Vec<(PathBuf, FileScope)> {
    let entries = match entries {
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(entry) => std::slice::from_ref(entry),
        None => &[],
    };
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut folders: Vec<(PathBuf, FileScope)> = Vec::new();
    for entry in entries.iter().take(MAX_NAMED_FILES) {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let Some(folder) = text("installPath").map(PathBuf::from) else { continue };
        // The same folder can be written in several ways, such as with a symbolic link.
        let of_other =
            text("projectPath").is_some_and(|path| canonical(Path::new(path)) != canonical(project));
        let scope = match text("scope") {
            Some("project" | "local") => FileScope::Project,
            Some("managed") => FileScope::System,
            _ => FileScope::User,
        };
        if !of_other && folders.iter().all(|(known, _)| *known != folder) {
            folders.push((folder, scope));
        }
    }
    folders
}

/// A plug-in of Claude Code, whose files are added to `found`.
struct Plugin<'p> {
    client: &'static McpClient,
    /// The name for people.
    name: &'p str,
    folder: &'p Path,
    scope: FileScope,
    found: &'p mut InstalledPackages,
}

impl Plugin<'_> {
    /// Adds the files of the plug-in: those with the usual names, its manifest, and those that the manifest or its entry
    /// in the marketplace names. The entry is found by the home folder `home` and the id of the plug-in
    /// (`NAME@MARKETPLACE`).
    fn add_files(&mut self, home: &Path, id: &str) {
        for usual in [".mcp.json", "hooks/hooks.json"] {
            self.add_file(usual);
        }
        let manifest = self.folder.join(".claude-plugin/plugin.json");
        if manifest.is_file() {
            match read_json(&manifest) {
                Ok(content) => {
                    self.add_named(&content);
                    // The manifest itself can contain the servers or hooks.
                    if is_inline(&content) {
                        self.add_file(".claude-plugin/plugin.json");
                    }
                }
                Err(why) => {
                    let why = format!("has a manifest that cannot be read: {why}");
                    self.found.leave_out(self.client, self.name, &why);
                }
            }
        }
        let Some(entry) = marketplace_entry(home, id) else { return };
        self.add_named(&entry);
        if is_inline(&entry) {
            self.found.leave_out(
                self.client,
                self.name,
                "has servers or hooks in the list of its marketplace, which is not read",
            );
        }
    }

    /// Adds the files that a manifest names for its servers and its hooks. If it names something that is not read, such
    /// as a bundle, reports the plug-in as one that could not be read.
    fn add_named(&mut self, manifest: &Value) {
        for field in ["mcpServers", "hooks"] {
            let named = match manifest.get(field) {
                Some(Value::Array(named)) => named.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            let is_list = manifest.get(field).is_some_and(Value::is_array);
            if named.len() > MAX_NAMED_FILES {
                let why = format!("names more files than the {MAX_NAMED_FILES} that are read");
                self.found.leave_out(self.client, self.name, &why);
            }
            for one in named.iter().take(MAX_NAMED_FILES) {
                match one {
                    Value::String(path) if is_within(path) => {
                        let exists = self.add_file(path);
                        if !exists {
                            self.found.leave_out(self.client, self.name, "names a file that does not exist");
                        }
                    }
                    // A bundle of a server (`.mcpb`), an address, or a path outside of the plug-in.
                    Value::String(_) => self.found.leave_out(
                        self.client,
                        self.name,
                        "names a bundle, or a file outside of its folder, which is not read",
                    ),
                    Value::Object(_) if is_list => {
                        self.found.leave_out(
                            self.client,
                            self.name,
                            "has a list of servers that is not read",
                        );
                    }
                    // An object that is not in a list has the servers or hooks in itself: `add_files` handles it.
                    _ => {}
                }
            }
        }
    }

    /// Adds the file at a path within the plug-in, once. Returns whether it exists.
    fn add_file(&mut self, path: &str) -> bool {
        // Without the components `.`, so that a file has one path.
        let path: PathBuf = self.folder.join(path).components().collect();
        let exists = path.is_file();
        if exists && self.found.files.iter().all(|file| file.path != path) {
            self.found.files.push(ClientFile { client: self.client, path, scope: self.scope });
        }
        exists
    }
}

/// Returns whether a manifest has servers or hooks in itself.
fn is_inline(manifest: &Value) -> bool {
    ["mcpServers", "hooks"].iter().any(|field| manifest.get(*field).is_some_and(Value::is_object))
}

/// Returns whether a path in a manifest leads to a file within the plug-in that can have servers or hooks.
fn is_within(path: &str) -> bool {
    let is_plain = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
    let ends = |end: &str| path.to_ascii_lowercase().ends_with(end);
    !path.contains("://") && !ends(".mcpb") && !ends(".dxt") && Path::new(path).components().all(is_plain)
}

/// Returns the entry of the plug-in `id` (`NAME@MARKETPLACE`) in the list of its marketplace, which can replace a
/// manifest; `None` if there is no such list or entry. Claude Code keeps these lists below the home folder `home`.
fn marketplace_entry(home: &Path, id: &str) -> Option<Value> {
    let (name, marketplace) = id.rsplit_once('@')?;
    // The name of the marketplace is untrusted: it must be one component of a path, and not `..`.
    let folder = Some(marketplace).filter(|folder| {
        let mut components = Path::new(folder).components();
        matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
    })?;
    let list = home.join(".claude/plugins/marketplaces").join(folder).join(".claude-plugin/marketplace.json");
    let list = read_json(&list).ok()?;
    let entries = list.get("plugins")?.as_array()?;
    entries.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name)).cloned()
}

/// Finds the extensions of Claude Desktop below the folder `home` that are not switched off. Each operating system has
/// another folder for them; all of these folders are searched.
pub(crate) fn extensions(home: &Path) -> InstalledPackages {
    let mut found = InstalledPackages::default();
    let Some(client) = find_client("claude-desktop") else { return found };
    for file in client.home_files(home) {
        let Some(folder) = file.parent() else { continue };
        let extensions = folder.join("Claude Extensions");
        let entries = match std::fs::read_dir(&extensions) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                found.leave_out(
                    client,
                    &format!("extensions in {}", extensions.display()),
                    &format!("cannot be listed: {error}"),
                );
                continue;
            }
        };
        let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        // One folder more than the limit, which shows that some are left out.
        let mut folders: Vec<PathBuf> = folders.take(MAX_PACKAGES + 1).collect();
        folders.sort();
        if folders.len() > MAX_PACKAGES {
            let why = format!("are left out, since there are more than {MAX_PACKAGES}");
            found.leave_out(client, "further extensions", &why);
        }
        for extension in folders.into_iter().take(MAX_PACKAGES) {
            add_extension(client, folder, &extension, &mut found);
        }
    }
    found
}

/// Adds the extension of `client` in the folder `extension` to `found`, unless it is switched off. The folder `folder`
/// of the client also has the settings of the extensions.
fn add_extension(client: &'static McpClient, folder: &Path, extension: &Path, found: &mut InstalledPackages) {
    let id = extension.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let settings = folder.join("Claude Extensions Settings").join(format!("{id}.json"));
    // Settings that cannot be read switch nothing off.
    let is_off =
        read_json(&settings).is_ok_and(|settings| settings.get("isEnabled") == Some(&Value::Bool(false)));
    if is_off {
        return;
    }
    let path = extension.join("manifest.json");
    let has_server = |manifest: Value| {
        let server = manifest.get("server").and_then(|server| server.get("mcp_config"));
        server.is_some_and(Value::is_object)
    };
    let name = format!("extension `{id}`");
    match read_json(&path).map(has_server) {
        Ok(true) => found.files.push(ClientFile { client, path, scope: FileScope::User }),
        Ok(false) => found.leave_out(client, &name, "has no `server.mcp_config` in its manifest"),
        Err(why) => found.leave_out(client, &name, &format!("has no manifest that can be read: {why}")),
    }
}

/// Returns the value that a client gives to the variable `name` in `path`, a file of a package: the folder of the
/// package. Returns `None` for a variable that does not name this folder.
pub(crate) fn folder_variable(path: &Path, name: &str) -> Option<String> {
    let beside = path.parent()?;
    // The manifest of an extension is in the folder of the extension. A file of a plug-in can be in a subfolder, so the
    // nearest folder around it with `.claude-plugin` is the folder of the plug-in.
    let folder = match name {
        "__dirname" => beside,
        "CLAUDE_PLUGIN_ROOT" => {
            let mut around = path.ancestors().skip(1).take(MAX_DEPTH);
            around.find(|folder| folder.join(".claude-plugin").is_dir()).unwrap_or(beside)
        }
        _ => return None,
    };
    Some(folder.display().to_string())
}

/// Reads a JSON file.
///
/// # Errors
/// If it cannot be read; a clause about why.
fn read_json(path: &Path) -> Result<Value, String> {
    // Anything else, such as a pipe, could make the program wait.
    if !path.is_file() {
        return Err(format!("there is no file {}", path.display()));
    }
    let text = bounded_text(path, MAX_CONFIG).map_err(|error| error.0)?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not valid JSON: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn later_settings_decide() {
        let on = json!({"enabledPlugins": {"a@m": true, "b@m": ["1.0"], "c@m": false}});
        let off = json!({"enabledPlugins": {"a@m": false, "c@m": true}});
        let check = |settings: &[(FileScope, &Value)], expected: &[(&str, FileScope)]| {
            let enabled: Vec<_> = enabled_plugins(settings).into_iter().collect();
            assert_eq!(enabled, expected);
        };
        let (user, project) = (FileScope::User, FileScope::Project);
        check(&[(user, &on)], &[("a@m", user), ("b@m", user)]);
        check(&[(user, &on), (project, &off)], &[("b@m", user), ("c@m", project)]);
        check(&[(user, &json!({"enabledPlugins": []}))], &[]);
    }

    #[test]
    fn only_files_within_a_package_are_read() {
        for (path, expected) in [
            ("./servers.json", true),
            ("config/servers.json", true),
            ("../other/.mcp.json", false),
            ("/etc/passwd", false),
            ("./server.mcpb", false),
            ("./server.DXT", false),
            ("https://x.example/server.json", false),
        ] {
            assert_eq!(is_within(path), expected, "{path}");
        }
        assert_eq!(marketplace_entry(Path::new("/nowhere"), "a@../b"), None);
    }

    #[test]
    fn the_variables_of_packages_are_their_folders() {
        let manifest = Path::new("/x/Claude Extensions/mail/manifest.json");
        for (name, expected) in [
            ("__dirname", Some("/x/Claude Extensions/mail")),
            ("CLAUDE_PLUGIN_ROOT", Some("/x/Claude Extensions/mail")),
            ("HOME", None),
        ] {
            assert_eq!(folder_variable(manifest, name).as_deref(), expected, "{name}");
        }
    }
}
