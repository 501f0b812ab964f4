//! A folder in which bash runs scripts without effects, and a log of the programs that it runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs that only write their names to the log.
const STUBS: &[&str] = &[
    "rm", "curl", "ls", "git", "mv", "dd", "sudo", "ssh", "wget", "chmod", "python3", "make", "tool", "if1",
    "vi",
];
/// The programs that run others or repeat their input, and do nothing else here.
const REAL: &[&str] = &["env", "xargs", "nice", "nohup", "timeout", "cat", "stdbuf", "setsid"];

/// The folder. It is deleted when this value is dropped.
pub(crate) struct Sandbox {
    folder: PathBuf,
    bash: PathBuf,
}

impl Sandbox {
    /// Creates the folder. Returns `None` if there is no bash.
    pub(crate) fn new() -> Option<Self> {
        let bash = find_program("bash")?;
        let name = format!("flowgate-shell-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        let _ = fs::remove_dir_all(&folder);
        let programs = folder.join("bin");
        fs::create_dir_all(folder.join("work")).unwrap();
        fs::create_dir_all(&programs).unwrap();
        let log = folder.join("log");
        let stub = format!("#!{}\nprintf '%s\\n' \"${{0##*/}}\" >> '{}'\n", bash.display(), log.display());
        for name in STUBS {
            let path = programs.join(name);
            fs::write(&path, &stub).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in REAL.iter().filter(|name| find_program(name).is_some()) {
            symlink(find_program(name).unwrap(), programs.join(name)).unwrap();
        }
        for name in ["bash", "sh"] {
            symlink(&bash, programs.join(name)).unwrap();
        }
        Some(Self { folder, bash })
    }

    /// Runs a script and returns the names of the stubs that ran, each once.
    pub(crate) fn run(&self, script: &str) -> Vec<String> {
        let log = self.folder.join("log");
        fs::write(&log, "").unwrap();
        let work = self.folder.join("work");
        // A script that contains a zero byte cannot be an argument, and is reported as unread.
        let child = Command::new(&self.bash)
            .args(["--norc", "--noprofile", "-c", script])
            .env_clear()
            .env("PATH", self.folder.join("bin"))
            .current_dir(&work)
            .stdin(Stdio::null())
            // Reads until all processes have closed their outputs, also those in the background.
            .output();
        assert!(child.is_ok(), "{child:?}");
        // What a redirection has written would be input of the next script.
        fs::remove_dir_all(&work).unwrap();
        fs::create_dir_all(&work).unwrap();
        let log = fs::read_to_string(&log).unwrap();
        let mut names: Vec<String> = log.lines().map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of a program of the system.
fn find_program(name: &str) -> Option<PathBuf> {
    ["/bin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}
