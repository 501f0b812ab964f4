//! Finds Flowgate's folder for state, that is, for files that are neither configuration nor caches: `XDG_STATE_HOME/flowgate`,
//! by default `~/.local/state/flowgate`. `flowgate hook` keeps its sessions there, and `flowgate mcp login` its tokens.

use std::path::PathBuf;

/// Returns the folder `flowgate` in the folder for the state of the user's programs: `XDG_STATE_HOME`, or else
/// `.local/state` in `HOME`. A variable whose value is not an absolute path counts as not set. Returns `None` if neither
/// variable is set.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let folder_in = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        folder_in("XDG_STATE_HOME").or_else(|| folder_in("HOME").map(|home| home.join(".local/state")));
    Some(state?.join("flowgate"))
}
