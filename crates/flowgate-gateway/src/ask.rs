//! Predicates that another service answers over HTTP.
//!
//! A policy declares `extern is_customer(email: str) -> bool`; whoever runs it says which address answers. The question is
//! `POST` with `{"predicate": "is_customer", "arguments": ["ann@example.org"]}`, the answer `200` with `{"answer": true}`.
//! Anything else is no answer, and the rule that asks cannot be evaluated, which denies: a service that is slow, down or
//! confused never lets anything pass.
//!
//! The service sees the arguments. It is one more reader of what the agent has seen, and is chosen by the operator.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use flowgate::json::{self, Numbers};
use flowgate::predicates::Predicates;
use serde_json::{Value, json};

/// How long an answer may take.
pub const ANSWER_TIME: Duration = Duration::from_secs(2);
/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// A predicate and the address that answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    name: String,
    url: String,
}

/// Why a text names no predicate with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointError {
    /// It is not `NAME=URL`.
    Form,
    /// The name is none that a policy could declare.
    Name,
    /// The address does not begin with `http://`.
    Scheme,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "write it as NAME=URL, such as is_customer=http://127.0.0.1:9000/is_customer",
            Self::Name => "the name of a predicate is letters, digits and underscores",
            Self::Scheme => {
                "the address begins with http://; beyond this machine, ask through a proxy that speaks TLS"
            }
        })
    }
}

impl std::error::Error for EndpointError {}

impl std::str::FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (name, url) = text.split_once('=').ok_or(EndpointError::Form)?;
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(EndpointError::Name);
        }
        if !url.strip_prefix("http://").is_some_and(|rest| !rest.is_empty()) {
            return Err(EndpointError::Scheme);
        }
        Ok(Self { name: name.to_owned(), url: url.to_owned() })
    }
}

/// The predicates that the endpoints answer. Each question waits for its answer, at most `time`.
pub fn predicates(endpoints: &[Endpoint], time: Duration) -> Predicates {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(time))
        .http_status_as_error(false)
        // A service that sends us elsewhere was not chosen by the operator, and neither was a proxy.
        .max_redirects(0)
        .proxy(None)
        .build();
    let agent = ureq::Agent::new_with_config(config);
    let mut predicates = Predicates::new();
    for Endpoint { name, url } in endpoints.iter().cloned() {
        let (agent, asked) = (agent.clone(), name.clone());
        predicates.define(name, move |arguments| ask(&agent, &url, &asked, arguments));
    }
    predicates
}

fn ask(agent: &ureq::Agent, url: &str, name: &str, arguments: &[Value]) -> Result<Value, String> {
    let question = json!({"predicate": name, "arguments": arguments}).to_string();
    let request = agent.post(url).header("content-type", "application/json");
    // What went wrong is said without the question: it holds content.
    let mut response = request.send(question.as_bytes()).map_err(|error| match error {
        ureq::Error::Timeout(_) => "the service is too slow".to_owned(),
        _ => "the service cannot be reached".to_owned(),
    })?;
    if response.status() != 200 {
        return Err(format!("the service says {}", response.status().as_u16()));
    }
    let mut text = String::new();
    let read = response.body_mut().as_reader().take(MAX_ANSWER + 1).read_to_string(&mut text);
    if read.is_err() {
        return Err("the answer cannot be read".to_owned());
    }
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_ANSWER) {
        return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
    }
    match json::parse(&text, Numbers::Any) {
        Ok(Value::Object(mut answer)) if answer.len() == 1 => {
            answer.remove("answer").ok_or_else(|| "the answer has no `answer`".to_owned())
        }
        _ => Err("the answer is not {\"answer\": ...}".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use flowgate::analysis::{Options, analyze};
    use flowgate::policy::Policy;
    use flowgate::trace::read;

    use super::*;

    /// A service that answers one connection with these bytes, or not at all.
    fn service(answer: Option<&str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = answer.map(str::to_owned);
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0_u8; 4096];
            let mut heard = String::new();
            while !heard.ends_with('}') {
                let count = stream.read(&mut bytes).unwrap_or(0);
                if count == 0 {
                    break;
                }
                heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            assert!(
                heard.contains(r#"{"predicate":"is_customer","arguments":["ann@example.org"]}"#),
                "{heard}"
            );
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                None => std::thread::sleep(Duration::from_secs(2)),
            }
        });
        format!("http://{address}/ask")
    }

    fn reply(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    /// What an analysis says of one mail to Ann: the violation, or why the rule cannot be evaluated.
    fn check(answer: Option<&str>, expected: &str) {
        let source = "extern is_customer(email: str) -> bool\nraise \"no customer\" if:\n    (c: ToolCall)\n    not is_customer(c.arguments.to)\n";
        let policy = Policy::parse(source).unwrap();
        let endpoint = format!("is_customer={}", service(answer)).parse().unwrap();
        let predicates = predicates(&[endpoint], Duration::from_millis(400));
        let messages =
            [json!({"id": "1", "function": {"name": "send", "arguments": {"to": "ann@example.org"}}})];
        let options = Options { predicates, ..Options::default() };
        let analysis = analyze(&policy, read::list(&messages).unwrap(), &options).unwrap();
        let said = analysis.violations.first().map(|violation| violation.args[0].to_string());
        let failed = analysis.failures.first().map(|failure| failure.message.clone());
        assert_eq!(said.or(failed).unwrap_or_else(|| "nothing".to_owned()), expected, "{answer:?}");
    }

    #[test]
    fn only_an_answer_is_an_answer() {
        check(Some(&reply("200 OK", r#"{"answer": true}"#)), "nothing");
        check(Some(&reply("200 OK", r#"{"answer": false}"#)), "\"no customer\"");
        let no = |why: &str| format!("`is_customer` has no answer: {why}");
        check(Some(&reply("200 OK", r#"{"answer": 1}"#)), "`is_customer` answers with int, not bool");
        check(Some(&reply("200 OK", "true")), &no("the answer is not {\"answer\": ...}"));
        check(
            Some(&reply("200 OK", r#"{"answer": true, "answer": false}"#)),
            &no("the answer is not {\"answer\": ...}"),
        );
        check(Some(&reply("200 OK", r#"{"answers": true}"#)), &no("the answer has no `answer`"));
        check(Some(&reply("500 Oops", r#"{"answer": true}"#)), &no("the service says 500"));
        let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        check(Some(elsewhere), &no("the service says 302"));
        let long = format!("{{\"answer\": \"{}\"}}", "x".repeat(70_000));
        check(Some(&reply("200 OK", &long)), &no("the answer is longer than 65536 bytes"));
        check(Some("no HTTP at all"), &no("the service cannot be reached"));
        check(None, &no("the service is too slow"));
    }

    #[test]
    fn endpoints_are_names_with_addresses() {
        let check = |text: &str, expected: Result<(), EndpointError>| {
            assert_eq!(text.parse::<Endpoint>().map(|_| ()), expected, "{text}");
        };
        check("is_customer=http://127.0.0.1:9000/x?a=b", Ok(()));
        check("is_customer", Err(EndpointError::Form));
        check("is customer=http://a.b", Err(EndpointError::Name));
        check("is_customer=https://a.b", Err(EndpointError::Scheme));
        check("is_customer=http://", Err(EndpointError::Scheme));
    }
}
