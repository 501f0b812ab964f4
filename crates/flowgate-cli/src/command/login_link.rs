//! Runs `flowgate login-link`: asks a running gateway for a link by which the person with the key can log in once to
//! the gateway's page. This module sends the request by `gateway_client`, and prints the link.

use serde_json::{Value, json};

use crate::args::LoginLinkArgs;
use crate::gateway_client::{GatewayClient, GatewayError};
use crate::input::InputError;
use crate::output::Console;

/// The route of the gateway for login links.
const ROUTE: &str = "/ui/api/login-link";

/// Runs `flowgate login-link`, and returns its exit code: 0, or 1 if the gateway refuses to make a link.
pub(crate) fn run(options: &LoginLinkArgs, output: &mut Console) -> Result<u8, InputError> {
    let gateway = GatewayClient::new(&options.gateway, output)?;
    let link = gateway.post(ROUTE, &json!({})).and_then(|answer| {
        // The answer has the path of the link. The address in front of it is the one that this command used.
        let path = answer.get("link").and_then(Value::as_str).filter(|path| path.starts_with("/ui/#"));
        path.map(|path| format!("{}{path}", options.gateway.gateway.trim_end_matches('/'))).ok_or_else(|| {
            let why = "the answer is not that of a gateway with login links; check the address";
            GatewayError::Failed(format!("{}: {why}", options.gateway.gateway))
        })
    });
    match link {
        Ok(link) => {
            output.line(&link);
            Ok(0)
        }
        Err(error) => error.report(output),
    }
}
