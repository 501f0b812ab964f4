//! The freezes that admins order: clients, conversations, tools and servers that are stopped.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::cache::{DatabaseCache, Freeze};
use super::{Database, DatabaseError, with_timeout};

impl Database {
    /// Returns all freezes.
    pub(crate) async fn freezes(&self) -> Result<Arc<[Freeze]>, DatabaseError> {
        let changes = match self.cache.freezes() {
            Ok(known) if !self.is_shared => return Ok(known),
            Ok(_) => 0,
            Err(changes) => changes,
        };
        let query = sqlx::query("SELECT kind, what, who, since FROM freezes ORDER BY since");
        let rows = with_timeout(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        let freeze = |row: &AnyRow| {
            let (kind, what, who, since) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            Ok(Freeze { kind, what, who, since })
        };
        let freezes: Arc<[Freeze]> = rows.iter().map(freeze).collect::<Result<_, DatabaseError>>()?;
        if !self.is_shared {
            self.cache.set_freezes(changes, &freezes);
        }
        Ok(freezes)
    }

    /// Adds a freeze.
    pub(crate) async fn freeze(&self, kind: &str, what: &str, who: &str) -> Result<(), DatabaseError> {
        let sql =
            "INSERT INTO freezes (kind, what, who, since) VALUES ($1, $2, $3, {now}) ON CONFLICT DO NOTHING";
        let query = sqlx::query(self.expand_statement(sql)).bind(kind).bind(what).bind(who);
        let _changes = FreezeCacheGuard(&self.cache);
        with_timeout(async { Ok(query.execute(&self.pool).await?) }).await.map(drop)
    }

    /// Removes a freeze; returns whether there was one.
    pub(crate) async fn thaw(&self, kind: &str, what: &str) -> Result<bool, DatabaseError> {
        let query = sqlx::query("DELETE FROM freezes WHERE kind = $1 AND what = $2").bind(kind).bind(what);
        let _changes = FreezeCacheGuard(&self.cache);
        Ok(with_timeout(async { Ok(query.execute(&self.pool).await?) }).await?.rows_affected() > 0)
    }
}

/// Invalidates the cached freezes on drop, also if the request was cancelled.
struct FreezeCacheGuard<'s>(&'s DatabaseCache);

impl Drop for FreezeCacheGuard<'_> {
    fn drop(&mut self) {
        self.0.forget_freezes();
    }
}
