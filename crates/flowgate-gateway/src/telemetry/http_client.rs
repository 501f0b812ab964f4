//! Sends encoded spans to the collector: the HTTP client of OpenTelemetry's exporter. `export` creates the client, and
//! the exporter calls it on the thread that sends spans; the client may block this thread.

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use crate::config::TelemetrySpec;
use crate::secret::Secret;
use crate::ureq_tls::tls_config;

/// The limit on the collector's answer, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// The client of one collector. It sends spans only to the address that the operator wrote: it follows no redirect, and
/// uses no proxy that the environment names.
#[derive(Debug)]
pub(super) struct CollectorClient {
    agent: ureq::Agent,
    /// The headers of all requests, whose values are keys.
    headers: Vec<(String, Secret)>,
}

impl CollectorClient {
    /// Creates the client; a request may take at most the time that `spec` sets.
    pub(super) fn new(spec: &TelemetrySpec) -> Self {
        let config = ureq::Agent::config_builder()
            // The exporter checks the status itself.
            .http_status_as_error(false)
            // Spans are sent only to the address that the operator wrote: not to the target of a redirect, and not
            // through a proxy that the environment names.
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls_config(&spec.authorities))
            .timeout_global(Some(spec.timeout))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: ureq::Agent::new_with_config(config), headers: spec.headers.clone() }
    }

    /// Sends a request, and reads the answer. Fails if there is no answer, or if its body is longer than
    /// [`MAX_ANSWER`].
    fn send(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let mut sent = self.agent.post(request.uri().to_string());
        // Of the exporter's headers, only those about the body are sent. The exporter reads others from the
        // environment; the gateway sends those of its configuration (`self.headers`) instead.
        for name in ["content-type", "content-encoding"] {
            if let Some(value) = request.headers().get(name) {
                sent = sent.header(name, value);
            }
        }
        for (name, value) in &self.headers {
            sent = sent.header(name, value.expose());
        }
        let (head, mut body) = sent.send(request.body().as_ref())?.into_parts();
        let bytes = body.with_config().limit(MAX_ANSWER).read_to_vec()?;
        Ok(Response::from_parts(head, Bytes::from(bytes)))
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    /// Sends a request of the exporter, and blocks the thread until the answer has arrived: the thread does nothing
    /// else.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(self.send(&request)?)
    }
}
