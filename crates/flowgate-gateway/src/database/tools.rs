//! The tools of servers that a tenant has approved, each bound to the digest of its description.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use super::{Database, DatabaseError, Transaction, with_timeout};

/// A tool that a server offers, and the digest of its whole description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolOffer {
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) digest: String,
}

impl Database {
    /// Returns the approved tools of a server, with their digests.
    pub(crate) async fn approved(
        &self,
        tenant: &str,
        server: &str,
    ) -> Result<BTreeMap<String, String>, DatabaseError> {
        let query = sqlx::query("SELECT tool, digest FROM tools WHERE tenant = $1 AND server = $2");
        let query = query.bind(tenant).bind(server);
        let rows = with_timeout(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        Ok(rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<Result<_, sqlx::Error>>()?)
    }

    /// Returns whether any tenant has ever approved a tool of a server.
    pub(crate) async fn has_tool(&self, server: &str, tool: &str) -> Result<bool, DatabaseError> {
        let query = sqlx::query("SELECT 1 FROM tools WHERE server = $1 AND tool = $2 LIMIT 1")
            .bind(server)
            .bind(tool);
        with_timeout(async { Ok(query.fetch_optional(&self.pool).await?.is_some()) }).await
    }

    /// Approves tools without a decision: the first ones that a tenant is offered by a server (trust on first use).
    pub(crate) async fn approve_first(
        &self,
        tenant: &str,
        offers: &[ToolOffer],
    ) -> Result<(), DatabaseError> {
        with_timeout(async {
            let mut tx = self.begin().await?;
            for ToolOffer { server, tool, digest } in offers {
                let sql = "INSERT INTO tools (tenant, server, tool, digest, who, since) \
                           VALUES ($1, $2, $3, $4, '', {now}) ON CONFLICT DO NOTHING";
                let query =
                    sqlx::query(self.expand_statement(sql)).bind(tenant).bind(server).bind(tool).bind(digest);
                query.execute(&mut *tx).await?;
            }
            Ok(tx.commit().await?)
        })
        .await
    }
}

/// Approves a tool as it is described now, and replaces the approval of its former description.
pub(super) async fn approve(
    store: &Database,
    tx: &mut Transaction,
    (tenant, who): (&str, &str),
    ToolOffer { server, tool, digest }: &ToolOffer,
) -> Result<(), DatabaseError> {
    let sql = "INSERT INTO tools (tenant, server, tool, digest, who, since) VALUES ($1, $2, $3, $4, $5, {now}) \
               ON CONFLICT (tenant, server, tool) DO UPDATE SET digest = $4, who = $5, since = {now}";
    let query =
        sqlx::query(store.expand_statement(sql)).bind(tenant).bind(server).bind(tool).bind(digest).bind(who);
    query.execute(&mut **tx).await?;
    Ok(())
}
