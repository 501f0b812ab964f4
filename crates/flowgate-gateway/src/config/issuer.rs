//! Reads the sections `[issuers.*]`, which describe the parties that sign tokens, and the sections
//! `[clients.NAME.token]`, which say which tokens authenticate a client. `config` calls it for the issuers, and
//! `client` for the tokens of a client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::file::{IssuerSpec, TokenSpec};
use super::{ClientSettings, ConfigReader, find_named};
use crate::identity::client_token::{ClientToken, GROUPS};
use crate::identity::issuer::{Issuer, IssuerSettings, KeySource, is_protected};
use crate::identity::key_set::KeySet;
use crate::identity::token::ALGORITHMS;

/// The greatest tolerance for clocks that differ, in seconds.
const MAX_LEEWAY: u32 = 300;
/// The default tolerance, in seconds.
const LEEWAY: u32 = 60;

impl ConfigReader<'_> {
    /// Checks the sections `[issuers.*]`, and creates an issuer for each.
    ///
    /// # Errors
    /// The first problem, with the name of its section.
    pub(super) fn issuers(
        &self,
        specs: BTreeMap<String, IssuerSpec>,
    ) -> Result<BTreeMap<String, Arc<Issuer>>, String> {
        let mut issuers: BTreeMap<String, Arc<Issuer>> = BTreeMap::new();
        for (name, spec) in specs {
            let issuer = self.issuer(&name, spec).map_err(|why| format!("issuers.{name}: {why}"))?;
            // A token names only its issuer, so two sections of one issuer would both apply to the token.
            let is_same = |other: &&Arc<Issuer>| other.settings.issuer == issuer.settings.issuer;
            if let Some(other) = issuers.values().find(is_same) {
                let other = &other.settings.name;
                return Err(format!(
                    "issuers.{name}: `issuer` is the same as in issuers.{other}: write one section for both"
                ));
            }
            issuers.insert(name, Arc::new(issuer));
        }
        Ok(issuers)
    }

    /// Checks the section of the issuer `name`, and creates the issuer. If the section names a file of public keys, the
    /// file is read now; keys at an address are fetched later.
    ///
    /// # Errors
    /// The first problem of the section, as a message for the operator.
    fn issuer(&self, name: &str, spec: IssuerSpec) -> Result<Issuer, String> {
        let source = self.key_source(&spec.issuer, spec.jwks_file, spec.jwks_url)?;
        // The authorities by which the issuer's server is checked, and, for errors, the setting that names its address.
        let (setting, fetched_from) = match &source {
            KeySource::Address(url) => ("jwks-url", url.as_str()),
            _ => ("issuer", spec.issuer.as_str()),
        };
        let authorities = self.authorities_of(setting, fetched_from, spec.ca_file.as_deref())?;
        let algorithms = permitted_algorithms(&spec.algorithms)?;
        let leeway = spec.leeway_seconds.unwrap_or(LEEWAY);
        if leeway > MAX_LEEWAY {
            return Err(format!(
                "`leeway-seconds` is more than {MAX_LEEWAY}: set at most that, and correct the clocks"
            ));
        }
        let leeway = Duration::from_secs(leeway.into());
        let (name, issuer) = (name.to_owned(), spec.issuer);
        Ok(Issuer::new(IssuerSettings { name, issuer, source, algorithms, leeway, authorities }))
    }

    /// Returns where the keys of an issuer come from: the file `jwks-file`, which is read now, or the address
    /// `jwks-url`. Without both, the description that the issuer publishes at its own address (`issuer`) names the
    /// address of its keys.
    ///
    /// # Errors
    /// If the section has both a file and an address, the file has no usable key, or an address does not begin with
    /// https://.
    fn key_source(
        &self,
        issuer: &str,
        jwks_file: Option<PathBuf>,
        jwks_url: Option<String>,
    ) -> Result<KeySource, String> {
        let needs_https = |setting: &str| {
            format!(
                "the address in `{setting}` does not begin with https://: write one that does; http:// is for \
                 this machine only"
            )
        };
        match (jwks_file, jwks_url) {
            (Some(_), Some(_)) => {
                Err("the section has both `jwks-file` and `jwks-url`: remove one of them".to_owned())
            }
            (Some(file), None) => {
                let path = self.folder.join(file);
                let keys = KeySet::read(&self.text(&path)?);
                let keys = keys.map_err(|why| format!("jwks-file: {}: {why}", path.display()))?;
                if keys.len() == 0 {
                    return Err(format!(
                        "jwks-file: {}: it has no public key with a `kid` that can verify a signature: write the \
                         key set of the issuer into it",
                        path.display()
                    ));
                }
                Ok(KeySource::File(Arc::new(keys)))
            }
            (None, Some(url)) if !is_protected(&url) => Err(needs_https("jwks-url")),
            (None, Some(url)) => Ok(KeySource::Address(url)),
            (None, None) if !is_protected(issuer) => Err(needs_https("issuer")),
            (None, None) => Ok(KeySource::Discovery),
        }
    }

    /// Checks `[clients.NAME.token]`, and converts it. `issuers` are the configured issuers, and `input` are the
    /// parameters that the section of the client sets.
    ///
    /// # Errors
    /// If the section names no configured issuer or no audience, a parameter is set twice, or a claim has no value that
    /// can be compared.
    pub(super) fn client_token(
        &self,
        spec: TokenSpec,
        issuers: &BTreeMap<String, Arc<Issuer>>,
        input: &Map<String, Value>,
    ) -> Result<ClientToken, String> {
        let issuer = find_named("issuer", &spec.issuer, issuers)?;
        if spec.audience.is_empty() {
            return Err(
                "`audience` is empty: write the audience that the issuer puts into tokens for this gateway"
                    .to_owned(),
            );
        }
        // Each parameter of the policy has one source: the client's `input`, or a claim. The parameter `groups` comes
        // from the claim that the setting `groups` names.
        let groups = spec.groups.as_ref().map(|_| GROUPS.to_owned());
        let parameters = spec.input.keys().cloned().chain(groups.clone());
        if let Some(parameter) = parameters.into_iter().find(|name| input.contains_key(name)) {
            return Err(format!(
                "the parameter `{parameter}` is set by `input` of the client and by a claim: remove one of them"
            ));
        }
        if groups.is_some_and(|groups| spec.input.contains_key(&groups)) {
            return Err(
                "the policy's parameter `groups` is set twice, by the setting `groups` and by `input.groups` of this \
                section: remove one of them"
                    .to_owned(),
            );
        }
        let mut claims = BTreeMap::new();
        for (name, value) in spec.claims {
            if matches!(value, Value::Object(_) | Value::Null) {
                return Err(format!(
                    "claims: the value of `{name}` is a table: write a string, a number, a bool or a list"
                ));
            }
            claims.insert(name, value);
        }
        Ok(ClientToken {
            issuer,
            audience: spec.audience,
            claims,
            // The claim that names the caller: the standard one unless the section names another.
            subject: spec.subject.unwrap_or_else(|| "sub".to_owned()),
            groups: spec.groups,
            input: spec.input,
            requests_per_minute: spec.requests_per_minute.map(|most| most.max(1)),
            tokens_per_day: spec.tokens_per_day,
        })
    }
}

/// Returns the algorithms with which an issuer may sign: those with these names, or all known ones if there are no
/// names.
///
/// # Errors
/// If a name is not that of a known algorithm.
fn permitted_algorithms(names: &[String]) -> Result<Vec<Algorithm>, String> {
    if names.is_empty() {
        return Ok(ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect());
    }
    let mut algorithms = Vec::new();
    for name in names {
        let known = ALGORITHMS.iter().find(|(known, _)| known == name);
        let (_, algorithm) = known.ok_or_else(|| {
            let known: Vec<&str> = ALGORITHMS.iter().map(|(name, _)| *name).collect();
            format!(
                "algorithms: `{name}` is not an algorithm with a public key: use some of {}",
                known.join(", ")
            )
        })?;
        algorithms.push(*algorithm);
    }
    Ok(algorithms)
}

/// Checks that `client` and each of `others` accept different tokens, as far as the configuration shows: two clients
/// with the same issuer and audience must differ in their `claims`. A token that nevertheless fits two clients is
/// refused when it is sent.
pub(super) fn check_ambiguity(client: &ClientSettings, others: &[ClientSettings]) -> Result<(), String> {
    let Some(own) = &client.token else { return Ok(()) };
    // Whether the other client accepts the same tokens.
    let is_same = |other: &&ClientSettings| {
        other.token.as_ref().is_some_and(|other| {
            Arc::ptr_eq(&own.issuer, &other.issuer)
                && own.audience == other.audience
                && own.claims == other.claims
        })
    };
    match others.iter().find(is_same) {
        None => Ok(()),
        Some(other) => Err(format!(
            "token: the client {} accepts the same tokens: write different `claims`, or another `audience`",
            other.name
        )),
    }
}
