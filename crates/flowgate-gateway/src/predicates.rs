//! Answers extern predicates by a service over HTTP or by a WebAssembly module.
//!
//! A policy declares such a predicate, as in `extern is_customer(email: str) -> bool`, and the operator's configuration
//! names the source of its answers. If the source gives no answer of the declared type in time, the rule fails, which
//! denies: a source that is slow, unreachable or faulty never permits a call. The gateway and the command line load
//! [`PredicateSources`] from the operator's sources.
//!
//! * `http`: asks a service; `wasm`: asks a module.
//! * `journal`: records the answers in a conversation, for its replay.

mod http;
pub(crate) mod journal;
#[cfg(feature = "wasm")]
mod wasm;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgate::predicates::Predicates;
use serde_json::Value;

/// The maximum time for one answer.
pub const ANSWER_TIME: Duration = Duration::from_secs(2);
/// The maximum size of an answer, in bytes.
const MAX_ANSWER: u32 = 64 << 10;

/// A source that answers one predicate within a time limit. Its errors never contain content.
trait PredicateSource: fmt::Debug + Send + Sync {
    /// Returns the answer for these arguments, or the reason why there is none; waits for at most `time`.
    fn answer(&self, arguments: &[Value], time: Duration) -> Result<Value, String>;
}

/// A predicate and the source of its answers: `is_customer=http://127.0.0.1:9000/is_customer`,
/// `is_customer=checks.wasm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateSourceSpec {
    name: String,
    kind: PredicateSourceKind,
}

/// The source of the answers to a predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PredicateSourceKind {
    /// The URL of a service.
    Service(String),
    /// The path of a WebAssembly module.
    Module(PathBuf),
}

/// The reason why the specification of a source is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredicateSourceError {
    /// The text is not `NAME=URL` or `NAME=FILE.wasm`.
    Form,
    /// A policy could not declare a predicate of this name.
    Name,
    /// The address does not begin with `http://`.
    Scheme,
    /// The address names no host after `http://`.
    Host,
}

impl fmt::Display for PredicateSourceError {
    /// Writes the problem, and the form that is expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "the value has no `=`, or neither an address nor a .wasm file after it: write NAME=URL or \
                NAME=FILE.wasm, such as is_customer=http://127.0.0.1:9000/is_customer"
            }
            Self::Name => {
                "the name of the predicate is empty, or has characters other than letters, digits and \
                underscores: write the name that the policy declares"
            }
            Self::Scheme => {
                "the address does not begin with http://: for a service on another machine, use a local \
                proxy that adds TLS"
            }
            Self::Host => {
                "the address has no host after http://: write the host, the port and the path of the service, \
                such as http://127.0.0.1:9000/is_customer"
            }
        })
    }
}

impl std::error::Error for PredicateSourceError {}

impl std::str::FromStr for PredicateSourceSpec {
    type Err = PredicateSourceError;

    /// Parses `NAME=URL` or `NAME=FILE.wasm`.
    fn from_str(text: &str) -> Result<Self, PredicateSourceError> {
        let (name, source) = text.split_once('=').ok_or(PredicateSourceError::Form)?;
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(PredicateSourceError::Name);
        }
        let source = if let Some((scheme, rest)) = source.split_once("://") {
            // Without TLS, since a service is meant to run on the machine of the gateway.
            if scheme != "http" {
                return Err(PredicateSourceError::Scheme);
            }
            if rest.is_empty() || rest.starts_with(['/', ':', '?', '#']) {
                return Err(PredicateSourceError::Host);
            }
            PredicateSourceKind::Service(source.to_owned())
        } else if source.len() > ".wasm".len() && source.ends_with(".wasm") {
            PredicateSourceKind::Module(PathBuf::from(source))
        } else {
            return Err(PredicateSourceError::Form);
        };
        Ok(Self { name: name.to_owned(), kind: source })
    }
}

impl PredicateSourceSpec {
    /// Returns the source with the path of its module resolved in `folder`, if the path is relative. The address of a
    /// service is unchanged.
    pub(crate) fn resolved_in(self, folder: &Path) -> Self {
        let kind = match self.kind {
            PredicateSourceKind::Module(path) => PredicateSourceKind::Module(folder.join(path)),
            service @ PredicateSourceKind::Service(_) => service,
        };
        Self { kind, ..self }
    }
}

/// The reason why the operator's sources cannot be loaded, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateLoadError(String);

impl fmt::Display for PredicateLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PredicateLoadError {}

/// The sources of all predicates, loaded.
#[derive(Debug, Clone, Default)]
pub struct PredicateSources {
    /// The sources, by the names of their predicates.
    answerers: BTreeMap<String, Arc<dyn PredicateSource>>,
}

impl PredicateSources {
    /// Loads the sources: compiles the modules, and contacts no service. A service is contacted when a rule needs its
    /// answer.
    ///
    /// # Errors
    /// If a predicate has two sources, a module cannot be read or cannot answer its predicate, or a module is named and
    /// this program was built without WebAssembly.
    pub fn load(sources: &[PredicateSourceSpec]) -> Result<Self, PredicateLoadError> {
        let agent = http::agent();
        let mut answerers = BTreeMap::new();
        for PredicateSourceSpec { name, kind } in sources {
            let answerer: Arc<dyn PredicateSource> = match kind {
                PredicateSourceKind::Service(url) => {
                    Arc::new(http::HttpPredicateSource::new(agent.clone(), name.clone(), url.clone()))
                }
                #[cfg(feature = "wasm")]
                PredicateSourceKind::Module(path) => Arc::new(
                    wasm::WasmPredicateSource::load(name, path)
                        .map_err(|why| PredicateLoadError(format!("`{name}`: {}: {why}", path.display())))?,
                ),
                #[cfg(not(feature = "wasm"))]
                PredicateSourceKind::Module(path) => {
                    return Err(PredicateLoadError(format!(
                        "`{name}`: {}: this program was built without WebAssembly; build it with `--features wasm`",
                        path.display()
                    )));
                }
            };
            if answerers.insert(name.clone(), answerer).is_some() {
                return Err(PredicateLoadError(format!("`{name}` has two sources: remove one of them")));
            }
        }
        Ok(Self { answerers })
    }

    /// Returns the names of the predicates that have a source.
    pub fn predicate_names(&self) -> impl Iterator<Item = &str> {
        self.answerers.keys().map(String::as_str)
    }

    /// Returns the predicates for one evaluation. All answers together may take at most `time`, and each at most
    /// [`ANSWER_TIME`].
    pub fn predicates(&self, time: Duration) -> Predicates {
        let begun = Instant::now();
        let mut predicates = Predicates::new();
        for (name, answerer) in &self.answerers {
            let answerer = Arc::clone(answerer);
            predicates.define(name, move |arguments| {
                let left = time.saturating_sub(begun.elapsed()).min(ANSWER_TIME);
                if left.is_zero() {
                    return Err(
                        "the time limit for all answers of extern predicates together is used up: check \
                        why their services or modules are slow"
                            .to_owned(),
                    );
                }
                answerer.answer(arguments, left)
            });
        }
        predicates
    }
}

#[cfg(test)]
mod tests {
    use flowgate::analysis::{AnalysisOptions, analyze};
    use flowgate::policy::Policy;
    use flowgate::trace::read;
    use serde_json::json;

    use super::*;

    /// Returns the outcome of analyzing one mail to Ann: the violation, or why the rule cannot be evaluated.
    pub(super) fn judged(answerer: impl PredicateSource + 'static, time: Duration) -> String {
        let source = "extern is_customer(email: str) -> bool\nraise \"no customer\" if:\n    (c: ToolCall)\n    not is_customer(c.arguments.to)\n";
        let policy = Policy::parse(source).unwrap();
        let answerers =
            BTreeMap::from([("is_customer".to_owned(), Arc::new(answerer) as Arc<dyn PredicateSource>)]);
        let predicates = PredicateSources { answerers }.predicates(time);
        let call = json!({"id": "1", "function": {"name": "send", "arguments": {"to": "ann@example.org"}}});
        let options = AnalysisOptions { predicates, ..AnalysisOptions::default() };
        let analysis = analyze(&policy, read::list(&[call]).unwrap(), &options).unwrap();
        let violation_text = analysis.violations.first().map(|violation| violation.args[0].to_string());
        let failed = analysis.failures.first().map(|failure| failure.message.clone());
        violation_text.or(failed).unwrap_or_else(|| "nothing".to_owned())
    }

    #[test]
    fn sources_are_names_with_addresses_or_files() {
        let check = |text: &str, expected: Result<(), PredicateSourceError>| {
            assert_eq!(text.parse::<PredicateSourceSpec>().map(|_| ()), expected, "{text}");
        };
        check("is_customer=http://127.0.0.1:9000/x?a=b", Ok(()));
        check("is_customer=./checks.wasm", Ok(()));
        check("is_customer", Err(PredicateSourceError::Form));
        check("is_customer=checks.py", Err(PredicateSourceError::Form));
        check("is_customer=.wasm", Err(PredicateSourceError::Form));
        check("is customer=http://a.b", Err(PredicateSourceError::Name));
        check("=http://a.b", Err(PredicateSourceError::Name));
        check("is_customer=https://a.b", Err(PredicateSourceError::Scheme));
        check("is_customer=file:///checks.wasm", Err(PredicateSourceError::Scheme));
        for address in ["http://", "http:///ask", "http://:9000/ask", "http://?a=b"] {
            check(&format!("is_customer={address}"), Err(PredicateSourceError::Host));
        }
    }

    #[test]
    fn one_predicate_is_answered_by_one() {
        let sources = ["p=http://a.b", "q=http://a.b", "p=http://c.d"].map(|text| text.parse().unwrap());
        assert_eq!(
            PredicateSources::load(&sources[..2]).unwrap().predicate_names().collect::<Vec<_>>(),
            ["p", "q"]
        );
        assert_eq!(
            PredicateSources::load(&sources).unwrap_err().to_string(),
            "`p` has two sources: remove one of them"
        );
    }

    #[test]
    fn all_questions_share_a_time() {
        #[derive(Debug)]
        struct AlwaysTrueSource;
        impl PredicateSource for AlwaysTrueSource {
            fn answer(&self, _: &[Value], time: Duration) -> Result<Value, String> {
                assert!(time <= ANSWER_TIME);
                Ok(json!(true))
            }
        }
        assert_eq!(judged(AlwaysTrueSource, Duration::from_secs(60)), "nothing");
        assert_eq!(
            judged(AlwaysTrueSource, Duration::ZERO),
            "the extern predicate `is_customer` failed: the time limit for all answers of extern predicates together \
             is used up: check why their services or modules are slow"
        );
    }
}
