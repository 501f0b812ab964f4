//! Stores, lists and deletes freezes: the orders of admins that stop a client, a conversation, a tool, a server, a
//! standing consent or the approvals for the rest of a conversation. `approvals` calls it. The freezes are cached
//! unless other gateways use the database; every write invalidates the cache.

use std::sync::Arc;

use super::Database;
use super::cache::{DatabaseCache, Freeze};
use super::error::DatabaseError;
use super::freeze_kind::FreezeKind;
use super::transaction::{Access, SqlRow};

/// The error of a freeze whose kind is unknown. Whether it stops a request cannot be told then, so all requests are
/// rejected.
const UNKNOWN_KIND: DatabaseError = DatabaseError::Damaged(
    "a row of the table `freezes` has an invalid `kind`, so it is unknown what it stops, and all requests are rejected",
);

impl Database {
    /// Returns all freezes: from the cache if only this gateway writes to the database, otherwise from the database.
    /// Freezes that were read are cached only if the cache counted no change while they were read (`changes`).
    ///
    /// # Errors
    /// If the database fails, or a freeze has an unknown kind.
    pub(crate) async fn freezes(&self) -> Result<Arc<[Freeze]>, DatabaseError> {
        let changes = match self.cache.freezes() {
            Ok(cached) if !self.is_shared => return Ok(cached),
            // Unreachable, since the freezes of a shared database are never cached. The number is not used then.
            Ok(_) => 0,
            Err(changes) => changes,
        };
        let freezes = self.run(Access::Query, |tx| {
            Box::pin(async move {
                let freeze = |row: &mut SqlRow| {
                    let kind = FreezeKind::from_name(&row.text(0)?).ok_or(UNKNOWN_KIND)?;
                    let (what, who) = (row.text(1)?, row.text(2)?);
                    Ok(Freeze { kind, what, who, since: row.integer(3)? })
                };
                let sql = "SELECT kind, what, who, since FROM freezes ORDER BY since";
                tx.query(sql, &[]).await?.iter_mut().map(freeze).collect::<Result<Arc<[_]>, _>>()
            })
        });
        let freezes = freezes.await?;
        if !self.is_shared {
            self.cache.set_freezes(changes, &freezes);
        }
        Ok(freezes)
    }

    /// Freezes the target `what` of this kind, by order of the person `who`; has no effect if it is frozen already.
    pub(crate) async fn freeze(&self, kind: FreezeKind, what: &str, who: &str) -> Result<(), DatabaseError> {
        // Invalidates the cache on return, also if the request is cancelled and the outcome unknown.
        let _changes = FreezeCacheGuard(&self.cache);
        let (what, who) = (what.to_owned(), who.to_owned());
        let cache = Arc::clone(&self.cache);
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                tx.on_commit(Box::new(move || cache.forget_freezes()));
                let sql = "INSERT INTO freezes (kind, what, who, since) VALUES (?1, ?2, ?3, {now}) ON CONFLICT DO NOTHING";
                tx.execute(sql, &[kind.name().into(), (&what).into(), (&who).into()]).await.map(drop)
            })
        })
        .await
    }

    /// Removes the freeze of the target `what` of this kind; returns whether there was one.
    pub(crate) async fn thaw(&self, kind: FreezeKind, what: &str) -> Result<bool, DatabaseError> {
        // Invalidates the cache on return, even if the request is cancelled and the outcome remains unknown.
        let _changes = FreezeCacheGuard(&self.cache);
        let what = what.to_owned();
        let cache = Arc::clone(&self.cache);
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                tx.on_commit(Box::new(move || cache.forget_freezes()));
                let sql = "DELETE FROM freezes WHERE kind = ?1 AND what = ?2";
                Ok(tx.execute(sql, &[kind.name().into(), (&what).into()]).await? > 0)
            })
        })
        .await
    }
}

/// Invalidates the cached freezes on drop, also if the request was cancelled. A read before the commit may fill the
/// cache again, so the transaction invalidates it once more when it is committed.
struct FreezeCacheGuard<'s>(&'s DatabaseCache);

impl Drop for FreezeCacheGuard<'_> {
    /// Forgets the cached freezes.
    fn drop(&mut self) {
        self.0.forget_freezes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;

    #[tokio::test]
    async fn a_freeze_of_an_unknown_kind_is_an_error() {
        let database = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let kinds = ["client", "conversation", "tool", "server", "consent", "grants"];
        for (count, kind) in kinds.into_iter().enumerate() {
            database.freeze(FreezeKind::from_name(kind).unwrap(), "x", "ann").await.unwrap();
            let freezes = database.freezes().await.unwrap();
            assert_eq!((freezes.len(), freezes.last().unwrap().kind.name()), (count + 1, kind));
        }
        for unknown in ["", "Client", "clients"] {
            database.thaw(FreezeKind::Client, "x").await.unwrap();
            let sql = format!("UPDATE freezes SET kind = '{unknown}' WHERE kind = 'tool'");
            database.execute_for_test(&sql).await.unwrap();
            let error = database.freezes().await.unwrap_err().to_string();
            assert_eq!(
                error,
                "the stored data is damaged: a row of the table `freezes` has an invalid `kind`, so it is unknown what it \
                stops, and all requests are rejected; restore a backup of the database",
            );
            let sql = format!("UPDATE freezes SET kind = 'tool' WHERE kind = '{unknown}'");
            database.execute_for_test(&sql).await.unwrap();
        }
        assert_eq!(database.freezes().await.unwrap().len(), kinds.len() - 1);
        database.close().await;
    }
}
