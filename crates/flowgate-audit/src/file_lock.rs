//! Locks a file so that only one process uses it. The writer of an audit log and the gateway, for its SQLite database,
//! call [`acquire`].

use std::fs::{File, TryLockError};
use std::time::Duration;

/// The time to wait for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Locks a file against other processes. If another process holds the lock, tries again for up to two seconds, since
/// that process may be about to release it: it may be the previous process of a restarted gateway, or a child process,
/// which inherits the lock until it runs its own program.
///
/// # Errors
/// If another process still holds the lock after two seconds, or the file system has no locks.
pub fn acquire(file: &File) -> Result<(), TryLockError> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if waited < LOCK_TIMEOUT => {
                std::thread::sleep(RETRY_INTERVAL);
                waited += RETRY_INTERVAL;
            }
            locked => return locked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_released_soon_is_acquired() {
        let path = std::env::temp_dir().join(format!("flowgate-lock-{}", std::process::id()));
        let open = || File::options().write(true).create(true).truncate(false).open(&path).unwrap();
        let (first, second) = (open(), open());
        acquire(&first).unwrap();
        let waiting = std::thread::spawn(move || acquire(&second).map(|()| second));
        drop(first);
        let second = waiting.join().unwrap().unwrap();
        // The lock stays with its holder.
        assert!(matches!(acquire(&open()), Err(TryLockError::WouldBlock)));
        drop(second);
        std::fs::remove_file(&path).unwrap();
    }
}
