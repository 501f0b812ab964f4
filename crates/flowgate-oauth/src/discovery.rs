//! Reads the metadata of an issuer. Checks that the metadata names this issuer, and that secrets may be sent to every
//! address in the metadata. `login` and `token_source` call this module.

use std::sync::Arc;

use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};

use crate::error::{TokenError, TokenFailure};
use crate::issuer_client::IssuerClient;
use crate::secure_url::SecureUrl;

/// Creates the state of `rmcp` for requests about `base`, the address of an issuer or of a server.
///
/// # Errors
/// If `rmcp` cannot read the address.
pub(crate) async fn manager(
    base: &SecureUrl,
    client: &IssuerClient,
) -> Result<AuthorizationManager, TokenError> {
    let created =
        AuthorizationManager::new_with_oauth_http_client(base.as_str(), Arc::new(client.clone())).await;
    created.map_err(|error| error_of_rmcp(base, client, &error))
}

/// Reads the metadata of the issuer at this address.
///
/// # Errors
/// If the issuer cannot be reached, publishes no metadata, or its metadata names another issuer or an address to which
/// secrets must not be sent.
pub(crate) async fn metadata_of(
    issuer: &SecureUrl,
    client: &IssuerClient,
) -> Result<AuthorizationMetadata, TokenError> {
    let manager = manager(issuer, client).await?;
    let resolved = manager.resolve_metadata().await.map_err(|error| error_of_rmcp(issuer, client, &error))?;
    // Without metadata, `rmcp` would guess the addresses.
    let is_own = resolved.source.is_discovered()
        && resolved.metadata.issuer.as_deref().is_some_and(|named| issuer.is_issuer(named));
    if !is_own {
        return Err(error(issuer, TokenFailure::NoMetadata));
    }
    check_addresses(issuer, &resolved.metadata, client)?;
    Ok(resolved.metadata)
}

/// Checks that secrets may be sent to all addresses in the metadata of an issuer, and that a browser may be sent to the
/// page for logins.
pub(crate) fn check_addresses(
    issuer: &SecureUrl,
    metadata: &AuthorizationMetadata,
    client: &IssuerClient,
) -> Result<(), TokenError> {
    let addresses = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    let is_usable = |address: &String| {
        SecureUrl::parse(address).is_some()
            && address.parse::<http::Uri>().is_ok_and(|uri| client.may_send_to(&uri))
    };
    if addresses.into_iter().chain(&metadata.registration_endpoint).all(is_usable) {
        Ok(())
    } else {
        Err(error(issuer, TokenFailure::Insecure))
    }
}

/// Returns the values of a list in the metadata, such as the ways in which clients authenticate; `None` if the metadata
/// has no list of this name.
pub(crate) fn listed<'m>(metadata: &'m AuthorizationMetadata, list: &str) -> Option<Vec<&'m str>> {
    let values = metadata.additional_fields.get(list)?.as_array()?;
    Some(values.iter().filter_map(|value| value.as_str()).collect())
}

/// Returns the error about an issuer.
pub(crate) fn error(issuer: &SecureUrl, failure: TokenFailure) -> TokenError {
    TokenError { issuer: issuer.clone(), failure }
}

/// Returns the error about an issuer for an error of `rmcp` (`problem`). If the HTTP client has noted why a request
/// failed, the error states that reason, unless the login has ended or the file of the tokens failed. Without such a
/// note, the kind of `problem` says whether the metadata or the answer with the token is at fault.
pub(crate) fn error_of_rmcp(issuer: &SecureUrl, client: &IssuerClient, problem: &AuthError) -> TokenError {
    let noted = client.take_failure();
    error(
        issuer,
        match (noted, problem) {
            // These two errors say more than the noted failure of a request.
            (_, AuthError::AuthorizationRequired) => TokenFailure::LoginEnded,
            (_, AuthError::CredentialStoreError(why)) => TokenFailure::File(why.clone()),
            (Some(failure), _) => failure,
            (
                None,
                AuthError::AuthorizationServerMismatch { .. }
                | AuthError::AuthorizationServerMissingIssuer { .. }
                | AuthError::AuthorizationServersUnavailable { .. }
                | AuthError::DiscoveryRequestFailed { .. }
                | AuthError::NoAuthorizationSupport
                | AuthError::ProtectedResourceMetadataInvalid { .. },
            ) => TokenFailure::NoMetadata,
            (None, _) => TokenFailure::Unusable,
        },
    )
}
