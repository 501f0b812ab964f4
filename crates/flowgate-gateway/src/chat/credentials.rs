//! Reads the keys that a request carries in its headers: one for the gateway, and perhaps one for the model provider.
//! `authentication` calls this module, and then finds the client to which the keys belong.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use flowgate_lm::wire::{Api, KeyHeader};

/// The header with the client's key for the gateway, if `Authorization` contains the key for the upstream.
const KEY: &str = "x-flowgate-key";

/// The keys of a request.
#[derive(Debug, Default)]
pub(crate) struct PresentedKeys {
    /// The key in the gateway's own header.
    pub(super) own: Option<String>,
    /// The key in the header that the provider's API uses. If the request also has the gateway's own header, or if the
    /// certificate alone authenticates the client, it is the key for the provider. Otherwise it is the key for the
    /// gateway.
    pub(super) standard: Option<String>,
}

impl PresentedKeys {
    /// Reads the keys from the headers of a request: the one in the gateway's own header ([`KEY`]), and the one in the
    /// header that the API of a provider uses. The caller decides whether the second key is for the gateway or for the
    /// provider.
    ///
    /// # Errors
    /// Why the request is rejected: a header with a key is present twice or cannot be read, or several headers of
    /// providers have a key.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, &'static str> {
        // The value of the header `name`, if the request has the header.
        let single_value = |name: &str| {
            let mut values = headers.get_all(name).iter();
            match (values.next(), values.next()) {
                (None, _) => Ok(None),
                (Some(value), None) => value.to_str().map(Some).map_err(|_| {
                    "a header with a key contains characters other than visible ASCII: send the key as it \
                    was given to you"
                }),
                // Refused, because a program that reads the other value could authenticate another client.
                (Some(_), Some(_)) => Err(
                    "`Authorization`, `x-api-key`, `x-goog-api-key` or `x-flowgate-key` is present more than once: send each header once",
                ),
            }
        };
        // The key in a value of the form `Bearer KEY`; `None` if the value has another form.
        let bearer_token = |text: &'_ str| {
            let (scheme, key) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
        };
        let authorization = single_value("authorization")?;
        // Some APIs carry the key in a separate header, without a scheme such as `Bearer`. Two APIs may use the same
        // header.
        let names: BTreeSet<&str> = Api::ALL.map(|api| api.form().key_header.name).into_iter().collect();
        let names = names.into_iter().filter(|name| *name != KeyHeader::BEARER.name);
        let plain_keys = names.map(single_value).collect::<Result<Vec<_>, _>>()?;
        // All headers by which providers receive a key.
        let keys_for_providers = plain_keys.iter().chain([&authorization]).flatten();
        if keys_for_providers.count() > 1 {
            return Err(
                "more than one of `Authorization`, `x-api-key` and `x-goog-api-key` is present: send one of them",
            );
        }
        let standard = match authorization {
            Some(text) => Some(bearer_token(text).ok_or(
                "the header `Authorization` is not of the form `Bearer KEY`: send the key in this form",
            )?),
            None => plain_keys.into_iter().flatten().next().map(str::to_owned),
        };
        Ok(Self { own: single_value(KEY)?.map(str::to_owned), standard })
    }

    /// Returns the key for the gateway: the one in its own header or, without that, the one in the provider's header.
    pub(super) fn for_gateway(&self) -> Option<&str> {
        self.own.as_deref().or(self.standard.as_deref())
    }
}
