//! The tools of a server that a tenant is offered: those that were approved, as they were described then.
//!
//! `exchange` calls this before and after the tools of a server are listed.

use serde_json::Value;

use super::Told;
use super::exchange::{Exchange, Request};
use crate::mcp::{Out, Pins};
use crate::model_routes::sessions::Session;
use crate::model_routes::turn::Failure;
use crate::store::{Offer, StoreError, wait};
use axum::http::StatusCode;

/// The limit on tools in one list that people are asked about.
const MOST_PROPOSED: usize = 20;

impl Exchange<'_> {
    /// Sets the approved tools before tools are listed. The first list of a server that a tenant receives counts as
    /// approved, unless the operator wants to see it first.
    pub(super) fn pin(&self, session: &mut Session, what: &Told) -> Result<(), StoreError> {
        let Told::Client { text, .. } = what else { return Ok(()) };
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let is_page = message.pointer("/params/cursor").is_some_and(|cursor| !cursor.is_null());
        if message.get("method").and_then(Value::as_str) != Some("tools/list") || is_page {
            return Ok(());
        }
        let Request { client, server, .. } = self.request;
        let known = wait(self.routes.approvals.store.approved(&client.spec.tenant, &server.name))?;
        let accept_new = known.is_empty() && !server.approves_first;
        let pins = Pins::from(known);
        if session.pins(&server.name) != Some(&pins) {
            self.tell(session, Told::Pinned { pins, accept_new });
        }
        Ok(())
    }

    /// Stores which tools count as approved, and asks people about the others.
    pub(super) fn note_tools(&self, session: &mut Session, said: &mut Vec<Out>) -> Result<(), Failure> {
        let Request { client, server, .. } = self.request;
        let offer = |tool: &str, digest: &str| {
            let (server, tool, digest) = (server.name.clone(), tool.to_owned(), digest.to_owned());
            Offer { server, tool, digest }
        };
        let (mut proposed, mut pinned) = (0, None);
        for out in said.iter() {
            match out {
                Out::Pins(pins) => {
                    let offers: Vec<Offer> = pins.tools().map(|(tool, digest)| offer(tool, digest)).collect();
                    let (store, tenant) = (&self.routes.approvals.store, &client.spec.tenant);
                    wait(store.approve_first(tenant, &offers))?;
                    let known = Pins::from(wait(store.approved(tenant, &server.name))?);
                    if pins.tools().any(|(tool, digest)| !known.has(tool, digest)) {
                        pinned = Some(known);
                    }
                }
                Out::Unapproved { name, digest, said } if proposed < MOST_PROPOSED => {
                    proposed += 1;
                    self.routes.approvals.propose(&client.spec, &offer(name, digest), said)?;
                }
                _ => {}
            }
        }
        said.retain(|out| !matches!(out, Out::Pins(_) | Out::Unapproved { .. }));
        // Another client of the tenant received other descriptions at the same time, and those are approved.
        if let Some(pins) = pinned {
            self.tell(session, Told::Pinned { pins, accept_new: false });
            let why = "the tools were listed elsewhere at the same time: list them again";
            return Err(Failure::new(StatusCode::CONFLICT, why));
        }
        Ok(())
    }
}
