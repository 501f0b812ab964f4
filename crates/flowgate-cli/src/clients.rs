//! Describes MCP clients, the programs in which people use MCP servers: where each has its configuration, and how
//! servers and hooks are written there. `scan`, `wrap`, `unwrap`, `doctor` and `init` use it. Nothing in this module
//! starts a program.
//!
//! * `places` lists the files of each client.
//! * `packages` finds the files of plug-ins of Claude Code and of extensions of Claude Desktop.
//! * `config_file` reads what a file configures, and `jsonc` lets it read JSON with comments.
//! * `hooks` reads the hooks of a file, and decides whether one of them guards the client.
//! * `edit` changes a file, and leaves all other bytes as they are.
//! * `wrapping` builds the command line that runs a server behind `flowgate mcp`.
//! * `known_servers` guesses from the names of servers what they read and do, and `known_tools` from their tools.

pub(crate) mod config_file;
pub(crate) mod edit;
pub(crate) mod hooks;
mod jsonc;
pub(crate) mod known_servers;
pub(crate) mod known_tools;
pub(crate) mod packages;
pub(crate) mod places;
pub(crate) mod wrapping;
