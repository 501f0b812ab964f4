//! Defines the answer of the health route: which parts of the gateway fail, and whether the gateway works without them.
//! `http::service` creates it for each request.

use axum::http::StatusCode;
use serde::Serialize;

use crate::http::reply::HttpReply;

/// The answer of the health route.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
    /// The failing parts without which the gateway does not work: the database (`store`), the audit log, or a required
    /// witness of it.
    failing: Vec<&'static str>,
    /// The failing parts without which the gateway still works: an optional witness of the audit log, or an issuer of
    /// tokens whose keys could not be fetched.
    late: Vec<&'static str>,
    /// The number of clients in watch mode, whose policies stop nothing.
    watching: usize,
}

impl Health {
    /// Creates the answer: with the names of the failing parts, of the degraded parts (`late`), and the number of
    /// clients in watch mode.
    pub(crate) fn new(failing: Vec<&'static str>, late: Vec<&'static str>, watching: usize) -> Self {
        let status = if failing.is_empty() { "ok" } else { "failing" };
        Self { status, version: env!("CARGO_PKG_VERSION"), failing, late, watching }
    }

    /// Returns the reply, with a status by which a load balancer notices a failing gateway.
    pub(super) fn reply(&self) -> HttpReply {
        let status = if self.failing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        HttpReply::json(status, self)
    }
}
