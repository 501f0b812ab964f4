//! Stores, lists and deletes freezes: the orders of admins that stop a client, a conversation, a tool, a server, a
//! standing consent or the approvals for the rest of a conversation. `approvals` calls it. The freezes are cached;
//! every write invalidates the cache.

use std::sync::Arc;

use super::Database;
use super::cache::{DatabaseCache, Freeze};
use super::error::DatabaseError;
use super::transaction::{Access, SqlRow};

impl Database {
    /// Returns all freezes: from the cache if only this gateway writes to the database, otherwise from the database.
    /// Freezes that were read are cached only if the cache counted no change while they were read (`changes`).
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
                    let (kind, what, who) = (row.text(0)?, row.text(1)?, row.text(2)?);
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

    /// Adds a freeze, ordered by the person `who`; has no effect if the target is frozen already.
    pub(crate) async fn freeze(&self, kind: &str, what: &str, who: &str) -> Result<(), DatabaseError> {
        // Invalidates the cache on return, also if the request is cancelled and the outcome unknown.
        let _changes = FreezeCacheGuard(&self.cache);
        let (kind, what, who) = (kind.to_owned(), what.to_owned(), who.to_owned());
        let cache = Arc::clone(&self.cache);
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                tx.on_commit(Box::new(move || cache.forget_freezes()));
                let sql = "INSERT INTO freezes (kind, what, who, since) VALUES (?1, ?2, ?3, {now}) ON CONFLICT DO NOTHING";
                tx.execute(sql, &[(&kind).into(), (&what).into(), (&who).into()]).await.map(drop)
            })
        })
        .await
    }

    /// Removes a freeze; returns whether there was one.
    pub(crate) async fn thaw(&self, kind: &str, what: &str) -> Result<bool, DatabaseError> {
        // Invalidates the cache on return, also if the request is cancelled and the outcome unknown.
        let _changes = FreezeCacheGuard(&self.cache);
        let (kind, what) = (kind.to_owned(), what.to_owned());
        let cache = Arc::clone(&self.cache);
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                tx.on_commit(Box::new(move || cache.forget_freezes()));
                let sql = "DELETE FROM freezes WHERE kind = ?1 AND what = ?2";
                Ok(tx.execute(sql, &[(&kind).into(), (&what).into()]).await? > 0)
            })
        })
        .await
    }
}

/// Invalidates the cached freezes on drop, also if the request was cancelled. A read before the commit may fill the
/// cache again, so the transaction invalidates it once more when it is committed.
struct FreezeCacheGuard<'s>(&'s DatabaseCache);

impl Drop for FreezeCacheGuard<'_> {
    fn drop(&mut self) {
        self.0.forget_freezes();
    }
}
