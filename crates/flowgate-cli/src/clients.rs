//! Describes the programs in which people use MCP servers: where each has its configuration, and how servers and hooks
//! are written there. `scan`, `wrap`, `unwrap` and `doctor` use it. Nothing here starts a program.
//!
//! * `places`: the files of each client; `config_file`: what a file configures; `jsonc`: JSON with comments.
//! * `edit`: changes of a file that keep its bytes elsewhere; `wrapping`: how a server runs behind `flowgate mcp`.
//! * `known_servers`: what servers read and do, guessed from their names.

pub(crate) mod config_file;
pub(crate) mod edit;
mod jsonc;
pub(crate) mod known_servers;
pub(crate) mod places;
pub(crate) mod wrapping;
