//! Implements *the page*: the web application on which people decide questions, under `/ui/`. It is part of the binary
//! and loads nothing from other servers. `http::service` calls these routes.
//!
//! The page calls the same routes as a person with a key, so it shows exactly what the routes show to that person. In
//! place of the key, its requests carry a session: a cookie that scripts cannot read, and a token in a header that no
//! other site can send.
//!
//! * `assets`: the files of the page, and the headers that restrict what they may do.
//! * `browser_origin`: recognises requests that the page of another site causes.
//! * `conversation_list`: lists the stored conversations that a person may see.
//! * `conversation_view`: serves a stored conversation, replayed.
//! * `coverage`: notes which clients, servers and tools were seen; `coverage_route` compares that with the policies.
//! * `exported_trace`: writes the trace of a conversation for `flowgate trace export`.
//! * `figures`: counts requests and verdicts over time; `figures_route` serves them.
//! * `findings`: counts what objected to calls, for `figures`.
//! * `labelled_trace`: writes the events of a conversation with their labels, and the verdicts.
//! * `link_routes`: makes login links, and redeems them.
//! * `login_failures`: limits the failed logins of one address.
//! * `login_links`: stores the links by which people log in once.
//! * `login_routes`: logs people in at an issuer.
//! * `query`: reads the query of a request.
//! * `session_routes`: logs people in and out.
//! * `sessions`: holds the sessions of people who are logged in.

pub(crate) mod assets;
pub(crate) mod browser_origin;
pub(crate) mod conversation_list;
pub(crate) mod conversation_view;
pub(crate) mod coverage;
pub(crate) mod coverage_route;
mod exported_trace;
pub(crate) mod figures;
pub(crate) mod figures_route;
pub(crate) mod findings;
pub(crate) mod labelled_trace;
mod link_routes;
pub(crate) mod login_failures;
pub(crate) mod login_links;
pub(crate) mod login_routes;
pub(crate) mod query;
pub(crate) mod session_routes;
pub(crate) mod sessions;
