//! Serves the page for people: its files, which are public, and its own routes, under `/ui/`. The routes of `service`
//! call it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{Extensions, StatusCode};

use super::{GatewayService, ServiceRoute, last_segment, protect_connection};
use crate::http::admission::ConnectionPlace;
use crate::http::reply::HttpReply;
use crate::page::assets;

impl GatewayService {
    /// Makes a link by which a person logs in to the page once, and returns the part of the link after the address of
    /// the gateway. `None` if there is no such person, or the system returned no random bytes.
    pub(crate) fn login_link(&self, person: &str) -> Option<String> {
        let approvals = self.approvals().ok()?;
        approvals.people.find_by_name(person)?;
        approvals.login_links.make(person, Instant::now()).ok()
    }

    /// Serves a request to the page. A request that shows a valid key, login link or session, or begins a session after
    /// a login at the issuer, protects its connection. Returns the error to send if the request is refused or fails.
    pub(super) async fn page(
        self: &Arc<Self>,
        route: ServiceRoute,
        request: Request,
    ) -> Result<HttpReply, HttpReply> {
        let (headers, extensions) = (request.headers(), request.extensions());
        let approvals = self.approvals()?;
        let reply = match route {
            ServiceRoute::PageStart => {
                let reply = HttpReply::empty(StatusCode::PERMANENT_REDIRECT);
                return Ok(reply.with_header("location", "/ui/"));
            }
            ServiceRoute::PageFile => {
                return assets::serve(last_segment(request.uri())).ok_or_else(no_file_reply);
            }
            ServiceRoute::LogIn => approvals.log_in(headers, address_of(extensions)),
            ServiceRoute::LogOut => approvals.log_out(headers),
            // The two steps of a login at the issuer show no valid key or session, so they do not protect their
            // connections.
            ServiceRoute::BeginLogin => return approvals.begin_login().await,
            ServiceRoute::CompleteLogin => {
                let address = address_of(extensions);
                return approvals.complete_login(headers, request.uri().query(), address).await;
            }
            ServiceRoute::Conversations => {
                self.routes_of_people()?.list_conversations(headers, request.uri().query()).await
            }
            ServiceRoute::Conversation => {
                let models = self.routes_of_people()?;
                let requested = models.requested_conversation(headers, request.uri().query()).await?;
                self.run_on_worker(move || requested.show()).await
            }
            ServiceRoute::Trace => {
                let models = self.routes_of_people()?;
                let requested = models.requested_conversation(headers, request.uri().query()).await?;
                self.run_on_worker(move || requested.export()).await
            }
            ServiceRoute::LoginLink => approvals.make_login_link(headers),
            ServiceRoute::Figures => self.routes_of_people()?.serve_figures(headers),
            ServiceRoute::Coverage => self.routes_of_people()?.serve_coverage(headers),
            // The remaining route is `Session`: the page asks who is logged in.
            _ => approvals.session(headers),
        };
        // A reply other than an error means that the request has shown a valid key or session. A request of the route
        // `LogIn` may instead have shown a login link, or the cookie of a login that was completed at the issuer.
        reply.inspect(|_| protect_connection(extensions))
    }
}

/// Returns the address of the client of a connection, for the limit on failed logins; 0.0.0.0 if it is not known.
fn address_of(extensions: &Extensions) -> IpAddr {
    let place = extensions.get::<Arc<ConnectionPlace>>();
    place.map_or(Ipv4Addr::UNSPECIFIED.into(), |place| place.address())
}

/// Returns the reply to a request for a file that the page does not have.
fn no_file_reply() -> HttpReply {
    HttpReply::detail(StatusCode::NOT_FOUND, "the page has no file of this name: open /ui/")
}
