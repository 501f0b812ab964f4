//! Parses the address of a database: a file of SQLite, a server of PostgreSQL, or memory. `config` calls it, and
//! `database` opens the database at the address.

use std::fmt;
use std::path::{Path, PathBuf};

/// The address of the database of a gateway.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseAddress {
    /// A SQLite file.
    File(PathBuf),
    /// In memory: nothing outlives the gateway.
    Memory,
    /// The URL of a PostgreSQL database, which may contain a password.
    Postgres(String),
}

impl fmt::Debug for DatabaseAddress {
    /// Writes the address without a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// The error if the address of a database is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseAddressError;

impl fmt::Display for DatabaseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the address of the database is none of `sqlite:FILE`, `postgres://USER:PASSWORD@HOST/DATABASE` \
            and `memory`: write one of these forms",
        )
    }
}

impl std::error::Error for DatabaseAddressError {}

impl DatabaseAddress {
    /// Parses an address. Relative file names start at `folder`.
    ///
    /// # Errors
    /// If the text is not the address of a database.
    pub fn read(text: &str, folder: &Path) -> Result<Self, DatabaseAddressError> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        match text.split_once(':') {
            // `sqlite://FILE` means the same as `sqlite:FILE`. `sqlite::memory:` is rejected: the address of a database
            // in memory is `memory` here.
            Some(("sqlite", path)) if !path.is_empty() && !path.starts_with(':') => {
                Ok(Self::File(folder.join(path.strip_prefix("//").unwrap_or(path))))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(Self::Postgres(text.to_owned()))
            }
            _ => Err(DatabaseAddressError),
        }
    }

    /// Returns the name for messages, without a user name or a password: for PostgreSQL, the host and the name of the
    /// database.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Memory => "memory".to_owned(),
            Self::Postgres(url) => {
                let rest = url.split_once("://").map_or("", |(_, rest)| rest);
                // What is before the parameters: `USER:PASSWORD@HOST/DATABASE`.
                let location = rest.split(['?', '#']).next().unwrap_or_default();
                let host_and_name = match location.rsplit_once('@') {
                    Some((_, host_and_name)) => host_and_name,
                    // The password contains an unescaped `?` or `#`, so its end is unknown, and no part of it may show.
                    None if rest.contains('@') => "",
                    None => location,
                };
                format!("postgres://{host_and_name}")
            }
        }
    }

    /// Returns whether other gateways can use the database too.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Returns the SQLite file; `None` for the other kinds of addresses.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_passwords() {
        let check = |text: &str, expected: Option<(&str, bool)>| {
            let place = DatabaseAddress::read(text, Path::new("/srv")).ok();
            let shown = place.as_ref().map(|place| (place.name(), place.is_shared()));
            assert_eq!(shown.as_ref().map(|(name, shared)| (name.as_str(), *shared)), expected, "{text}");
            assert!(!format!("{place:?}").contains("secret"), "{text}");
        };
        check("memory", Some(("memory", false)));
        check("sqlite:flowgate.db", Some(("/srv/flowgate.db", false)));
        check("sqlite:///var/lib/flowgate.db", Some(("/var/lib/flowgate.db", false)));
        check(
            "postgres://me:secret@db:5432/flowgate?password=secret",
            Some(("postgres://db:5432/flowgate", true)),
        );
        check("postgres://me:secret?1@db/flowgate", Some(("postgres://", true)));
        check("postgres://me:1#secret@db/flowgate?password=secret", Some(("postgres://", true)));
        check("postgresql://db/flowgate", Some(("postgres://db/flowgate", true)));
        check("sqlite:", None);
        check("sqlite::memory:", None);
        check("mysql://db/flowgate", None);
        check("flowgate.db", None);
    }
}
