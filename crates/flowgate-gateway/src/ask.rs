//! Extern predicates, answered by a service over HTTP or by a WebAssembly module.
//!
//! A policy declares `extern is_customer(email: str) -> bool`, and the operator's configuration names the source of the
//! answer. Anything that is not an answer of the declared type makes the rule fail, which denies: a source that is
//! slow, unreachable or faulty never permits a call. The gateway and the command line load an [`Asker`] from the
//! operator's sources.

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

/// Answers one predicate within a time. Its errors never contain content.
trait Answerer: fmt::Debug + Send + Sync {
    fn answer(&self, arguments: &[Value], time: Duration) -> Result<Value, String>;
}

/// A predicate and the source of its answers: `is_customer=http://127.0.0.1:9000/is_customer`,
/// `is_customer=checks.wasm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    name: String,
    whom: Whom,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Whom {
    Service(String),
    Module(PathBuf),
}

/// The reason why a text does not specify a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceError {
    /// The text is not `NAME=URL` or `NAME=FILE.wasm`.
    Form,
    /// A policy could not declare a predicate of this name.
    Name,
    /// The address does not use plain HTTP.
    Scheme,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "write it as NAME=URL or NAME=FILE.wasm, such as is_customer=http://127.0.0.1:9000/is_customer",
            Self::Name => "the name of a predicate is letters, digits and underscores",
            Self::Scheme => "the address begins with http://; beyond this machine, ask through a proxy that speaks TLS",
        })
    }
}

impl std::error::Error for SourceError {}

impl std::str::FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let (name, whom) = text.split_once('=').ok_or(SourceError::Form)?;
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(SourceError::Name);
        }
        let whom = if let Some((scheme, rest)) = whom.split_once("://") {
            if scheme != "http" || rest.is_empty() {
                return Err(SourceError::Scheme);
            }
            Whom::Service(whom.to_owned())
        } else if whom.len() > ".wasm".len() && whom.ends_with(".wasm") {
            Whom::Module(PathBuf::from(whom))
        } else {
            return Err(SourceError::Form);
        };
        Ok(Self { name: name.to_owned(), whom })
    }
}

impl Source {
    /// Returns the source with the path of its module relative to this folder.
    pub(crate) fn within(self, folder: &Path) -> Self {
        let whom = match self.whom {
            Whom::Module(path) => Whom::Module(folder.join(path)),
            whom @ Whom::Service(_) => whom,
        };
        Self { whom, ..self }
    }
}

/// The reason why the operator's sources cannot be loaded, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskError(String);

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AskError {}

/// The sources of all predicates, loaded.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    answerers: BTreeMap<String, Arc<dyn Answerer>>,
}

impl Asker {
    /// Loads the modules. Services are contacted only when a rule needs them.
    ///
    /// # Errors
    /// Fails if a predicate has two sources, or if a module cannot answer its predicate.
    pub fn load(sources: &[Source]) -> Result<Self, AskError> {
        let agent = http::agent();
        let mut answerers = BTreeMap::new();
        for Source { name, whom } in sources {
            let answerer: Arc<dyn Answerer> = match whom {
                Whom::Service(url) => Arc::new(http::Service::new(agent.clone(), name.clone(), url.clone())),
                #[cfg(feature = "wasm")]
                Whom::Module(path) => Arc::new(
                    wasm::Module::load(name, path)
                        .map_err(|why| AskError(format!("`{name}`: {}: {why}", path.display())))?,
                ),
                #[cfg(not(feature = "wasm"))]
                Whom::Module(path) => {
                    return Err(AskError(format!(
                        "`{name}`: {}: this program was built without WebAssembly; build it with `--features wasm`",
                        path.display()
                    )));
                }
            };
            if answerers.insert(name.clone(), answerer).is_some() {
                return Err(AskError(format!("`{name}` is answered by two; leave one of them out")));
            }
        }
        Ok(Self { answerers })
    }

    /// Returns the names of the predicates that have a source.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.answerers.keys().map(String::as_str)
    }

    /// Returns the predicates for one evaluation: all its questions together take at most `time`, and each at most
    /// [`ANSWER_TIME`].
    pub fn predicates(&self, time: Duration) -> Predicates {
        let begun = Instant::now();
        let mut predicates = Predicates::new();
        for (name, answerer) in &self.answerers {
            let answerer = Arc::clone(answerer);
            predicates.define(name, move |arguments| {
                let left = time.saturating_sub(begun.elapsed()).min(ANSWER_TIME);
                if left.is_zero() {
                    return Err("no time is left for it".to_owned());
                }
                answerer.answer(arguments, left)
            });
        }
        predicates
    }
}

#[cfg(test)]
mod tests {
    use flowgate::analysis::{Options, analyze};
    use flowgate::policy::Policy;
    use flowgate::trace::read;
    use serde_json::json;

    use super::*;

    /// Returns the outcome of analyzing one mail to Ann: the violation, or why the rule cannot be evaluated.
    pub(super) fn judged(answerer: impl Answerer + 'static, time: Duration) -> String {
        let source = "extern is_customer(email: str) -> bool\nraise \"no customer\" if:\n    (c: ToolCall)\n    not is_customer(c.arguments.to)\n";
        let policy = Policy::parse(source).unwrap();
        let answerers = BTreeMap::from([("is_customer".to_owned(), Arc::new(answerer) as Arc<dyn Answerer>)]);
        let predicates = Asker { answerers }.predicates(time);
        let call = json!({"id": "1", "function": {"name": "send", "arguments": {"to": "ann@example.org"}}});
        let options = Options { predicates, ..Options::default() };
        let analysis = analyze(&policy, read::list(&[call]).unwrap(), &options).unwrap();
        let said = analysis.violations.first().map(|violation| violation.args[0].to_string());
        let failed = analysis.failures.first().map(|failure| failure.message.clone());
        said.or(failed).unwrap_or_else(|| "nothing".to_owned())
    }

    #[test]
    fn sources_are_names_with_addresses_or_files() {
        let check = |text: &str, expected: Result<(), SourceError>| {
            assert_eq!(text.parse::<Source>().map(|_| ()), expected, "{text}");
        };
        check("is_customer=http://127.0.0.1:9000/x?a=b", Ok(()));
        check("is_customer=./checks.wasm", Ok(()));
        check("is_customer", Err(SourceError::Form));
        check("is_customer=checks.py", Err(SourceError::Form));
        check("is_customer=.wasm", Err(SourceError::Form));
        check("is customer=http://a.b", Err(SourceError::Name));
        check("=http://a.b", Err(SourceError::Name));
        check("is_customer=https://a.b", Err(SourceError::Scheme));
        check("is_customer=file:///checks.wasm", Err(SourceError::Scheme));
        check("is_customer=http://", Err(SourceError::Scheme));
    }

    #[test]
    fn one_predicate_is_answered_by_one() {
        let sources = ["p=http://a.b", "q=http://a.b", "p=http://c.d"].map(|text| text.parse().unwrap());
        assert_eq!(Asker::load(&sources[..2]).unwrap().names().collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!(
            Asker::load(&sources).unwrap_err().to_string(),
            "`p` is answered by two; leave one of them out"
        );
    }

    #[test]
    fn all_questions_share_a_time() {
        #[derive(Debug)]
        struct Yes;
        impl Answerer for Yes {
            fn answer(&self, _: &[Value], time: Duration) -> Result<Value, String> {
                assert!(time <= ANSWER_TIME);
                Ok(json!(true))
            }
        }
        assert_eq!(judged(Yes, Duration::from_secs(60)), "nothing");
        assert_eq!(judged(Yes, Duration::ZERO), "`is_customer` has no answer: no time is left for it");
    }
}
