//! Reads the file of the key that signs the audit log. If the file does not exist, creates it, and next to it
//! `FILE.pub` with the public half. The gateway calls this module at its start, and so do `flowgate audit accept-loss`
//! and `flowgate audit forget`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use super::error::{AuditError, AuditErrorKind};
use super::key::AuditKey;
use super::line_hash::{hex, parse_hex};
use super::log_files::{append_extension, restrict_to_owner};

/// The maximum size of a key file that is read, in bytes.
const MAX_FILE: u64 = 256;

impl AuditKey {
    /// Reads the key from the file `path`, which contains its seed as 64 lower-case hexadecimal digits. If the file does
    /// not exist, creates a key and writes the seed to the file, which only its owner can read, and the public key to
    /// `FILE.pub` next to it.
    ///
    /// # Errors
    /// Fails if the file contains something else, if users other than its owner and its group have any permission on
    /// it, if only `FILE.pub` exists, or if a file cannot be read or created.
    pub fn load_or_create(path: &Path) -> Result<Self, AuditError> {
        let failed = |failure| AuditError::new(path, failure);
        match File::open(path) {
            Ok(file) => {
                if is_open_to_others(&file).map_err(|error| failed(AuditErrorKind::Read(error)))? {
                    return Err(failed(AuditErrorKind::OpenKey));
                }
                let mut text = String::new();
                file.take(MAX_FILE)
                    .read_to_string(&mut text)
                    .map_err(|error| failed(AuditErrorKind::Read(error)))?;
                let seed = parse_hex(text.trim()).ok_or_else(|| failed(AuditErrorKind::NoKey))?;
                Ok(Self::from_seed(seed))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(failed(AuditErrorKind::Read(error))),
        }
    }

    /// Creates a key, and writes its seed to the file `path`, which does not exist, and its public key to `FILE.pub`.
    /// It is an error if `FILE.pub` exists.
    fn create(path: &Path) -> Result<Self, AuditError> {
        let failed = |failure| AuditError::new(path, failure);
        let public = append_extension(path, "pub");
        // There was a key before. A new key could not continue its log, and would replace the public key that verifiers
        // of the log read.
        if public.exists() {
            return Err(failed(AuditErrorKind::LostKey));
        }
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|_| failed(AuditErrorKind::Random))?;
        let key = Self::from_seed(seed);
        let private_options = restrict_to_owner(OpenOptions::new().write(true).create_new(true));
        write_new_file(path, &private_options, &hex(&seed))
            .map_err(|error| failed(AuditErrorKind::Write(error)))?;
        let public_options = OpenOptions::new().write(true).create(true).truncate(true).clone();
        write_new_file(&public, &public_options, &key.public_key().to_string())
            .map_err(|error| AuditError::new(&public, AuditErrorKind::Write(error)))?;
        Ok(key)
    }
}

/// Creates a file, as `options` say, writes one line of text to it, and waits until the disk has stored it.
fn write_new_file(path: &Path, options: &OpenOptions, text: &str) -> io::Result<()> {
    let mut file = options.open(path)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.sync_all()
}

/// Returns whether users other than the owner and the group of a file have any permission on it. The group may read the
/// key: some systems give secrets to a program by its group.
#[cfg(unix)]
fn is_open_to_others(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(file.metadata()?.permissions().mode() & 0o007 != 0)
}

/// Returns false: other systems have no such permissions.
#[cfg(not(unix))]
fn is_open_to_others(_: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::key::AuditPublicKey;
    use super::*;
    use crate::log::tests::TestFolder;

    #[test]
    fn a_key_is_made_once_and_read_by_its_owner() {
        let folder = TestFolder::new("key");
        let path = folder.file("audit.key");
        let key = AuditKey::load_or_create(&path).unwrap();
        assert_eq!(AuditKey::load_or_create(&path).unwrap().public_key(), key.public_key());
        let public = std::fs::read_to_string(folder.file("audit.key.pub")).unwrap();
        assert_eq!(AuditPublicKey::parse(&public), Some(key.public_key()));
        assert_eq!(format!("{key:?}"), "Key(..)");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            mode(0o644).unwrap();
            let error = AuditKey::load_or_create(&path).unwrap_err().to_string();
            assert!(
                error.ends_with(
                    "the permissions of the file let other users read this key: run `chmod 600` on it, or \
                    create another key"
                ),
                "{error}"
            );
            mode(0o640).unwrap();
            assert!(AuditKey::load_or_create(&path).is_ok());
        }
    }

    /// A missing key is not replaced: its public half, which verifies the logs, stays.
    #[test]
    fn a_missing_key_is_not_replaced() {
        let folder = TestFolder::new("lost-key");
        let path = folder.file("audit.key");
        let key = AuditKey::load_or_create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let error = AuditKey::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("the key is missing, but its public half exists"), "{error}");
        assert!(!path.exists());
        let public = std::fs::read_to_string(folder.file("audit.key.pub")).unwrap();
        assert_eq!(AuditPublicKey::parse(&public), Some(key.public_key()));
        std::fs::remove_file(folder.file("audit.key.pub")).unwrap();
        assert_ne!(AuditKey::load_or_create(&path).unwrap().public_key(), key.public_key());
    }

    #[test]
    fn a_key_file_without_a_seed_is_rejected() {
        let folder = TestFolder::new("no-key");
        let check = |name: &str, text: &str| {
            let path = folder.file(name);
            write_new_file(&path, &restrict_to_owner(OpenOptions::new().write(true).create_new(true)), text)
                .unwrap();
            let error = AuditKey::load_or_create(&path).unwrap_err().to_string();
            assert!(
                error.ends_with("64 hexadecimal digits into it, as `openssl rand -hex 32` prints them"),
                "{error}"
            );
        };
        check("short", "00ff");
        check("empty", "");
        check("upper", &"F".repeat(64));
        check("long", &"0".repeat(66));
    }
}
