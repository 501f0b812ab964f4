//! Collects the metrics of the gateway for Prometheus: those of the server, and those of the clients if only holders of
//! a token can read them. `service` serves them.

use std::sync::atomic::Ordering;

use super::GatewayService;
use crate::http::access::AccessControl;

/// The comment in the metrics of a server whose metrics everybody on the machine can read.
const CLIENT_METRICS_LEFT_OUT: &str = "# The metrics of clients (verdicts, questions, tokens) are left out: this server has no token, so agents could read \
     them. Start it with --token-file.\n";

impl GatewayService {
    /// Returns the metrics of the whole gateway in the text format of Prometheus. Those of clients are left out unless
    /// the server has a token: they reveal verdicts, which may depend on hidden text, and an agent on this machine
    /// could read them.
    pub(super) fn metrics_text(&self) -> String {
        let body_bytes = self.limits.bodies.saturating_sub(self.bodies.available_permits());
        // The last part of a metric says whether it is a counter. These three are not: their values also decrease.
        let mut figures = self.api.figures().to_vec();
        figures.push((
            "flowgate_connections",
            "Open connections.",
            self.connections.load(Ordering::Relaxed),
            false,
        ));
        figures.push((
            "flowgate_body_bytes",
            "Bytes of bodies that are being read or evaluated.",
            u64::try_from(body_bytes).unwrap_or(u64::MAX),
            false,
        ));
        figures.push((
            "flowgate_value_bytes",
            "Approximate memory, in bytes, of the bodies, answers and conversations that are being evaluated.",
            u64::try_from(self.values.taken_bytes()).unwrap_or(u64::MAX),
            false,
        ));
        let models = self.models();
        figures.extend(models.iter().flat_map(|models| models.figures()));
        let mut text = self.metrics.text(&figures, &self.log.limits());
        match (&models, &self.access) {
            (Some(models), AccessControl::Token(_)) => text.push_str(&models.metrics.text()),
            (Some(_), _) => text.push_str(CLIENT_METRICS_LEFT_OUT),
            (None, _) => {}
        }
        text
    }
}
