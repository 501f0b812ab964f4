//! Finds Flowgate's folder for state, that is, for files that are neither configuration nor caches: `XDG_STATE_HOME/flowgate`,
//! by default `~/.local/state/flowgate`. `flowgate hook` keeps its sessions there, and `flowgate mcp login` its tokens.

use std::path::PathBuf;

/// Returns the folder of Flowgate in the one in which programs of the user keep their state (`XDG_STATE_HOME`, or
/// `.local/state` in `HOME`). A variable without an absolute path counts as not set. `None` if neither is set.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let folder_in = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        folder_in("XDG_STATE_HOME").or_else(|| folder_in("HOME").map(|home| home.join(".local/state")));
    Some(state?.join("flowgate"))
}
