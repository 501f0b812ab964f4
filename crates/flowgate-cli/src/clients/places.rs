//! Lists the MCP clients that Flowgate knows, and the files in which they configure MCP servers and hooks: in a home
//! folder, in a project, and for all users of a machine. `flowgate scan` and `flowgate doctor` read these files;
//! `flowgate wrap` and `unwrap` change those of the home folder.
//!
//! `packages` finds the files of plug-ins of Claude Code and of extensions of Claude Desktop. Servers that an
//! administration configures over the network are not listed.

use std::path::{Path, PathBuf};

use super::hooks::ClientHook;

/// The maximum number of folders that a `*` in a path matches.
const MAX_FOLDERS: usize = 1_000;

/// A program that uses MCP servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct McpClient {
    /// Its name on the command line.
    pub(crate) id: &'static str,
    /// Its name for people.
    pub(crate) name: &'static str,
    /// Whether it can read files and run commands by itself, without a server.
    pub(crate) has_own_tools: bool,
    /// How `flowgate hook` judges its calls; `None` if it cannot.
    pub(crate) hook: Option<ClientHook>,
    /// The files in the home folder, the one that `wrap` changes first. A folder `*` is any folder, such as that of a
    /// profile.
    home: &'static [&'static str],
    /// The files in the folder of a project.
    project: &'static [&'static str],
    /// The files for all users, below the root of the file system.
    system: &'static [&'static str],
}

/// For whom a file configures a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileScope {
    /// A user, in every project.
    User,
    /// One project.
    Project,
    /// All users of the machine.
    System,
}

/// A file of a client, which may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFile {
    pub(crate) client: &'static McpClient,
    pub(crate) path: PathBuf,
    pub(crate) scope: FileScope,
}

/// The folders whose files are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchedFolders<'a> {
    pub(crate) home: &'a Path,
    pub(crate) project: &'a Path,
    /// The folder below which the files for all users are; `None` if they are not read.
    pub(crate) root: Option<&'a Path>,
}

/// The known clients. A client has its file at another path on each operating system: all of these paths are listed,
/// and those that exist are read.
pub(crate) const CLIENTS: [McpClient; 7] = [
    McpClient {
        id: "claude-code",
        name: "Claude Code",
        has_own_tools: true,
        hook: Some(ClientHook { harness: "claude-code", event: "PreToolUse" }),
        home: &[".claude.json", ".claude/settings.json"],
        project: &[".mcp.json", ".claude/settings.json", ".claude/settings.local.json"],
        system: &[
            "etc/claude-code/managed-mcp.json",
            "etc/claude-code/managed-settings.json",
            "Library/Application Support/ClaudeCode/managed-mcp.json",
            "Library/Application Support/ClaudeCode/managed-settings.json",
            "Program Files/ClaudeCode/managed-mcp.json",
            "Program Files/ClaudeCode/managed-settings.json",
        ],
    },
    McpClient {
        id: "claude-desktop",
        name: "Claude Desktop",
        has_own_tools: false,
        hook: None,
        home: &[
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ],
        project: &[],
        system: &[],
    },
    McpClient {
        id: "cursor",
        name: "Cursor",
        has_own_tools: true,
        hook: Some(ClientHook { harness: "cursor", event: "preToolUse" }),
        home: &[".cursor/mcp.json", ".cursor/hooks.json"],
        project: &[".cursor/mcp.json", ".cursor/hooks.json"],
        system: &[
            "etc/cursor/hooks.json",
            "Library/Application Support/Cursor/hooks.json",
            "ProgramData/Cursor/hooks.json",
        ],
    },
    McpClient {
        id: "vscode",
        name: "VS Code",
        has_own_tools: true,
        hook: None,
        home: &[
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
            ".config/Code/User/settings.json",
            "Library/Application Support/Code/User/settings.json",
            "AppData/Roaming/Code/User/settings.json",
            ".config/Code/User/profiles/*/mcp.json",
            "Library/Application Support/Code/User/profiles/*/mcp.json",
            "AppData/Roaming/Code/User/profiles/*/mcp.json",
            ".config/Code - Insiders/User/mcp.json",
            "Library/Application Support/Code - Insiders/User/mcp.json",
            "AppData/Roaming/Code - Insiders/User/mcp.json",
            ".config/Code - Insiders/User/profiles/*/mcp.json",
            "Library/Application Support/Code - Insiders/User/profiles/*/mcp.json",
            "AppData/Roaming/Code - Insiders/User/profiles/*/mcp.json",
        ],
        project: &[".vscode/mcp.json"],
        system: &[],
    },
    McpClient {
        id: "windsurf",
        name: "Windsurf",
        has_own_tools: true,
        hook: None,
        home: &[".codeium/windsurf/mcp_config.json", ".codeium/windsurf/hooks.json"],
        project: &[".windsurf/hooks.json"],
        system: &[
            "etc/windsurf/hooks.json",
            "Library/Application Support/Windsurf/hooks.json",
            "ProgramData/Windsurf/hooks.json",
        ],
    },
    McpClient {
        id: "codex",
        name: "Codex",
        has_own_tools: true,
        hook: Some(ClientHook { harness: "codex", event: "PreToolUse" }),
        home: &[".codex/config.toml", ".codex/hooks.json"],
        project: &[".codex/config.toml", ".codex/hooks.json"],
        system: &["etc/codex/config.toml", "etc/codex/managed_config.toml", "etc/codex/hooks.json"],
    },
    McpClient {
        id: "gemini",
        name: "Gemini CLI",
        has_own_tools: true,
        hook: Some(ClientHook { harness: "gemini", event: "BeforeTool" }),
        home: &[".gemini/settings.json", ".gemini/extensions/*/gemini-extension.json"],
        project: &[".gemini/settings.json"],
        system: &[
            "etc/gemini-cli/settings.json",
            "etc/gemini-cli/system-defaults.json",
            "Library/Application Support/GeminiCli/settings.json",
            "Library/Application Support/GeminiCli/system-defaults.json",
            "ProgramData/gemini-cli/settings.json",
            "ProgramData/gemini-cli/system-defaults.json",
        ],
    },
];

/// Returns the client with this name on the command line, such as `claude-code`; `None` if Flowgate does not know it.
pub(crate) fn find_client(id: &str) -> Option<&'static McpClient> {
    CLIENTS.iter().find(|client| client.id == id)
}

/// Returns the configuration files of all known clients that exist in these folders. If the project is the home folder,
/// a file is listed once, as a file of the user.
pub(crate) fn existing_files(folders: SearchedFolders<'_>) -> Vec<ClientFile> {
    let mut files: Vec<ClientFile> = Vec::new();
    for client in &CLIENTS {
        let of_user = client.home_files(folders.home).into_iter().map(|path| (path, FileScope::User));
        let of_project = client.project_files(folders.project).map(|path| (path, FileScope::Project));
        let of_system = folders.root.into_iter().flat_map(|root| client.system_files(root));
        let of_system = of_system.map(|path| (path, FileScope::System));
        for (path, scope) in of_user.chain(of_project).chain(of_system) {
            if path.is_file() && files.iter().all(|file| file.path != path) {
                files.push(ClientFile { client, path, scope });
            }
        }
    }
    files
}

impl McpClient {
    /// Returns the paths of the client's files in a home folder, on all operating systems; they need not exist.
    pub(crate) fn home_files(&self, home: &Path) -> Vec<PathBuf> {
        self.home.iter().flat_map(|name| expanded(home, name)).collect()
    }

    /// Returns the paths of the client's files in a project; they need not exist.
    pub(crate) fn project_files(&self, project: &Path) -> impl Iterator<Item = PathBuf> {
        self.project.iter().map(move |name| project.join(name))
    }

    /// Returns the paths of the client's files for all users, on all operating systems; they need not exist.
    pub(crate) fn system_files(&self, root: &Path) -> impl Iterator<Item = PathBuf> {
        self.system.iter().map(move |name| root.join(name))
    }
}

/// Returns the paths below `folder` that match `name`, sorted. A `*` in the name matches any one folder, at most
/// [`MAX_FOLDERS`] of them, and only existing files are returned for such a name. A name without `*` gives one path,
/// which need not exist.
fn expanded(folder: &Path, name: &str) -> Vec<PathBuf> {
    let Some((before, after)) = name.split_once("*/") else { return vec![folder.join(name)] };
    let entries = std::fs::read_dir(folder.join(before)).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .take(MAX_FOLDERS)
        .map(|entry| entry.path().join(after))
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths
}

/// Returns the home folder: `given`, which comes from the options, or else `HOME` or `USERPROFILE` of the environment.
/// Returns `None` if there is neither.
pub(crate) fn home_folder(given: Option<&Path>) -> Option<PathBuf> {
    let of_environment = || std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    given.map(Path::to_owned).or_else(|| of_environment().map(PathBuf::from))
}
