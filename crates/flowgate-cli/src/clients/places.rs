//! Lists the MCP clients that Flowgate knows, and the files in which they configure MCP servers and hooks, in a home
//! folder and in a project. `flowgate scan` and `flowgate doctor` read these files; `flowgate wrap` and `unwrap` change
//! them.

use std::path::{Path, PathBuf};

/// A program that uses MCP servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct McpClient {
    /// Its name on the command line.
    pub(crate) id: &'static str,
    /// Its name for people.
    pub(crate) name: &'static str,
    /// Whether it can read files and run commands by itself, without a server.
    pub(crate) has_own_tools: bool,
    /// The files in the home folder, the one that `wrap` changes first.
    home: &'static [&'static str],
    /// The files in the folder of a project.
    project: &'static [&'static str],
}

/// A file of a client, which may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFile {
    pub(crate) client: &'static McpClient,
    pub(crate) path: PathBuf,
}

/// The known clients. A client has its file at another path on each operating system: all of these paths are listed,
/// and those that exist are read.
pub(crate) const CLIENTS: [McpClient; 7] = [
    McpClient {
        id: "claude-code",
        name: "Claude Code",
        has_own_tools: true,
        home: &[".claude.json", ".claude/settings.json"],
        project: &[".mcp.json", ".claude/settings.json", ".claude/settings.local.json"],
    },
    McpClient {
        id: "claude-desktop",
        name: "Claude Desktop",
        has_own_tools: false,
        home: &[
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ],
        project: &[],
    },
    McpClient {
        id: "cursor",
        name: "Cursor",
        has_own_tools: true,
        home: &[".cursor/mcp.json", ".cursor/hooks.json"],
        project: &[".cursor/mcp.json", ".cursor/hooks.json"],
    },
    McpClient {
        id: "vscode",
        name: "VS Code",
        has_own_tools: true,
        home: &[
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
            ".config/Code/User/settings.json",
            "Library/Application Support/Code/User/settings.json",
            "AppData/Roaming/Code/User/settings.json",
        ],
        project: &[".vscode/mcp.json"],
    },
    McpClient {
        id: "windsurf",
        name: "Windsurf",
        has_own_tools: true,
        home: &[".codeium/windsurf/mcp_config.json", ".codeium/windsurf/hooks.json"],
        project: &[".windsurf/hooks.json"],
    },
    McpClient {
        id: "codex",
        name: "Codex",
        has_own_tools: true,
        home: &[".codex/config.toml", ".codex/hooks.json"],
        project: &[".codex/config.toml", ".codex/hooks.json"],
    },
    McpClient {
        id: "gemini",
        name: "Gemini CLI",
        has_own_tools: true,
        home: &[".gemini/settings.json"],
        project: &[".gemini/settings.json"],
    },
];

/// Returns the client with this name on the command line, such as `claude-code`; `None` if Flowgate does not know it.
pub(crate) fn find_client(id: &str) -> Option<&'static McpClient> {
    CLIENTS.iter().find(|client| client.id == id)
}

/// Returns the configuration files of all known clients that exist in a home folder and in a project. If the project is
/// the home folder, a file is listed once.
pub(crate) fn existing_files(home: &Path, project: &Path) -> Vec<ClientFile> {
    let mut files: Vec<ClientFile> = Vec::new();
    for client in &CLIENTS {
        for path in client.home_files(home).chain(client.project_files(project)) {
            if path.is_file() && files.iter().all(|file| file.path != path) {
                files.push(ClientFile { client, path });
            }
        }
    }
    files
}

impl McpClient {
    /// Returns the paths of the client's files in a home folder, on all operating systems; they need not exist.
    pub(crate) fn home_files(&self, home: &Path) -> impl Iterator<Item = PathBuf> {
        self.home.iter().map(move |name| home.join(name))
    }

    /// Returns the paths of the client's files in the folder of a project; they need not exist.
    fn project_files(&self, project: &Path) -> impl Iterator<Item = PathBuf> {
        self.project.iter().map(move |name| project.join(name))
    }
}

/// Returns the home folder: `given`, which comes from the options, or else `HOME` or `USERPROFILE` of the environment.
/// Returns `None` if there is neither.
pub(crate) fn home_folder(given: Option<&Path>) -> Option<PathBuf> {
    let of_environment = || std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    given.map(Path::to_owned).or_else(|| of_environment().map(PathBuf::from))
}
