//! Stores which tools of a server are approved for a tenant (those of the first list that the tenant received, and
//! those that a person approved later), each with the digest of its description, so that a changed description needs a
//! new approval. The MCP routes and the questions about offered tools use this module.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Database;
use super::error::DatabaseError;
use super::transaction::{Access, DynTransaction};

/// A tool that a server offers, and the digest of its whole description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerTool {
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) digest: String,
}

impl Database {
    /// Returns the approved tools of a server for a tenant: the digest of the approved description by the name of the
    /// tool.
    pub(crate) async fn approved(
        &self,
        tenant: &str,
        server: &str,
    ) -> Result<BTreeMap<String, String>, DatabaseError> {
        let (tenant, server) = (tenant.to_owned(), server.to_owned());
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT tool, digest FROM tools WHERE tenant = ?1 AND server = ?2";
                let mut rows = tx.query(sql, &[(&tenant).into(), (&server).into()]).await?;
                rows.iter_mut().map(|row| Ok((row.text(0)?, row.text(1)?))).collect()
            })
        })
        .await
    }

    /// Returns whether any tenant has ever approved a description of this tool of this server.
    pub(crate) async fn was_tool_approved(&self, server: &str, tool: &str) -> Result<bool, DatabaseError> {
        let (server, tool) = (server.to_owned(), tool.to_owned());
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT 1 FROM tools WHERE server = ?1 AND tool = ?2 LIMIT 1";
                Ok(!tx.query(sql, &[(&server).into(), (&tool).into()]).await?.is_empty())
            })
        })
        .await
    }

    /// Approves `offers`, the tools of the first list that a tenant receives from a server, without a decision of a
    /// person (trust on first use). Leaves existing approvals unchanged.
    pub(crate) async fn approve_first(
        &self,
        tenant: &str,
        offers: &[ServerTool],
    ) -> Result<(), DatabaseError> {
        let (tenant, offers) = (tenant.to_owned(), offers.to_vec());
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                for ServerTool { server, tool, digest } in &offers {
                    // The empty `who`: no person has decided.
                    let sql = "INSERT INTO tools (tenant, server, tool, digest, who, since) \
                               VALUES (?1, ?2, ?3, ?4, '', {now}) ON CONFLICT DO NOTHING";
                    tx.execute(sql, &[(&tenant).into(), server.into(), tool.into(), digest.into()]).await?;
                }
                Ok(())
            })
        })
        .await
    }
}

/// Approves a tool with its current description for a tenant, in the name of the person `who`. Replaces the approval of
/// an earlier description.
pub(super) async fn approve(
    tx: &mut DynTransaction<'_>,
    (tenant, who): (&str, &str),
    ServerTool { server, tool, digest }: &ServerTool,
) -> Result<(), DatabaseError> {
    let sql = "INSERT INTO tools (tenant, server, tool, digest, who, since) VALUES (?1, ?2, ?3, ?4, ?5, {now}) \
               ON CONFLICT (tenant, server, tool) DO UPDATE SET digest = ?4, who = ?5, since = {now}";
    let values = [tenant.into(), server.into(), tool.into(), digest.into(), who.into()];
    tx.execute(sql, &values).await.map(drop)
}
