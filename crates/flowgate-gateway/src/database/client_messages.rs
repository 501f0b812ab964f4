//! Maps a failure of the database to the constant message and the status that the client receives. File names,
//! addresses and error messages of the database or the system are written only to the operator's log: the client is an
//! agent, and passes every message that it receives to its model. The routes for models, for MCP and for people use
//! these messages.

use axum::http::StatusCode;

use super::error::DatabaseError;

/// The message when the database cannot be read or written.
const STORE: &str = "the gateway's database failed, and the request was not stored; a call that was already sent to an MCP server may have run: check that before you send it again; the log of the gateway has the reason";
/// The message when a new key or name cannot be generated.
const RANDOM: &str =
    "the operating system of the gateway returned no random bytes, and nothing was done: try again";
/// The message when the audit log cannot be written.
const AUDIT: &str = "the request was not stored, since the audit log cannot be written; a call that was \
    already sent to an MCP server may have run: check that before you send it again; the log of the gateway \
    has the reason";

/// The message when a required witness has not received the head of the audit log.
const WITNESS: &str = "no turn begins while the witness of the audit log is too far behind: try again later; \
    the log of the gateway has the reason";

impl DatabaseError {
    /// Returns the message for the client: one of a few constants, without details of the database, which an agent
    /// would pass on to its model.
    pub(crate) fn client_message(&self) -> &'static str {
        match self {
            Self::Overtaken => "another request extended the conversation in the meantime: try again",
            Self::Withdrawn => "an approval was used, withdrawn or expired in the meantime: try again",
            Self::ConversationHeld => "another request holds the conversation: try again when it is answered",
            Self::Timeout => {
                "the gateway's database did not answer in time, and the request was not stored; a call that was already sent to an MCP server may have run: check that, and try again"
            }
            Self::Audit(_) => AUDIT,
            Self::Unwitnessed => WITNESS,
            Self::NoRandomBytes => RANDOM,
            Self::Postgres(_)
            | Self::Sqlite(_)
            | Self::Closed
            | Self::Migration(_)
            | Self::SchemaOlder
            | Self::SchemaNewer
            | Self::FileInUse(_)
            | Self::DatabaseMissing(_)
            | Self::DatabaseSwapped(_)
            | Self::Lock(..)
            | Self::Runtime(_)
            | Self::WatchLog(_)
            | Self::EncryptionKeyMissing { .. }
            | Self::EncryptionKeyOther { .. }
            | Self::Unreadable(_)
            | Self::Unsealed(_)
            | Self::Damaged(_)
            | Self::DamagedKey { .. }
            | Self::ExternalState { .. }
            | Self::Bug(_) => STORE,
        }
    }

    /// Returns the HTTP status of the answer that has the [message for the client](Self::client_message): 409 if the
    /// client may try again at once, because another request was faster, otherwise 503.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Overtaken | Self::ConversationHeld | Self::Withdrawn => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::database::error::MigrationError;

    /// All messages that a client can receive.
    const TOLD: [&str; 8] = [
        "another request extended the conversation in the meantime: try again",
        "an approval was used, withdrawn or expired in the meantime: try again",
        "another request holds the conversation: try again when it is answered",
        "the gateway's database did not answer in time, and the request was not stored; a call that was already sent to an MCP server may have run: check that, and try again",
        AUDIT,
        WITNESS,
        RANDOM,
        STORE,
    ];

    #[test]
    fn clients_receive_constant_messages() {
        let os = || io::Error::from_raw_os_error(28);
        let path = || "/srv/secret/flowgate.db".to_owned();
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        let refused = sqlite.execute("INSERT INTO secret VALUES (1)", []).unwrap_err();
        let migration = sqlx_core::migrate::MigrateError::Execute(sqlx_core::Error::Io(os()));
        let errors = [
            (DatabaseError::Postgres(sqlx_core::Error::Io(os())), STORE),
            (DatabaseError::Postgres(sqlx_core::Error::Configuration("secret".into())), STORE),
            (DatabaseError::Postgres(sqlx_core::Error::Protocol("SELECT secret".to_owned())), STORE),
            (DatabaseError::Postgres(sqlx_core::Error::ColumnNotFound("secret".to_owned())), STORE),
            (DatabaseError::Postgres(sqlx_core::Error::PoolTimedOut), STORE),
            (DatabaseError::Sqlite(refused), STORE),
            (DatabaseError::Sqlite(rusqlite::Error::InvalidPath(path().into())), STORE),
            (DatabaseError::Migration(MigrationError::Postgres(migration)), STORE),
            (DatabaseError::Migration(MigrationError::Changed(1)), STORE),
            (DatabaseError::Closed, STORE),
            (DatabaseError::SchemaOlder, STORE),
            (DatabaseError::SchemaNewer, STORE),
            (DatabaseError::Timeout, TOLD[3]),
            (DatabaseError::FileInUse(path()), STORE),
            (DatabaseError::DatabaseMissing(path()), STORE),
            (DatabaseError::DatabaseSwapped(path()), STORE),
            (DatabaseError::Lock(path(), os()), STORE),
            (DatabaseError::Overtaken, TOLD[0]),
            (DatabaseError::Withdrawn, TOLD[1]),
            (DatabaseError::ConversationHeld, TOLD[2]),
            (DatabaseError::Runtime(os()), STORE),
            (DatabaseError::Audit(format!("{}: cannot be written: {}", path(), os())), AUDIT),
            (DatabaseError::Unwitnessed, WITNESS),
            (DatabaseError::NoRandomBytes, RANDOM),
            (DatabaseError::Damaged("secret"), STORE),
            (DatabaseError::DamagedKey { id: "secret".to_owned() }, STORE),
            (DatabaseError::EncryptionKeyMissing { id: "secret".to_owned() }, STORE),
            (DatabaseError::EncryptionKeyOther { id: String::new(), given: "secret".to_owned() }, STORE),
            (DatabaseError::Unreadable("secret"), STORE),
            (DatabaseError::Unsealed("secret"), STORE),
            (
                DatabaseError::ExternalState { tenant: "secret".to_owned(), reason: "secret".to_owned() },
                STORE,
            ),
        ];
        for (error, told) in errors {
            assert_eq!(error.client_message(), told, "{error:?}");
            assert!(TOLD.contains(&told), "{told}");
            let is_conflict = TOLD.iter().take(3).any(|known| *known == told);
            assert_eq!(error.status() == StatusCode::CONFLICT, is_conflict, "{error:?}");
        }
        for told in TOLD {
            assert!(!told.contains('/') && !told.contains("secret"), "{told}");
        }
    }
}
