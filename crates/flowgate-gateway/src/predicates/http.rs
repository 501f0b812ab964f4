//! Asks a service over HTTP for the answer of an extern predicate. `predicates` creates one source for each predicate
//! whose configuration has an address.
//!
//! The gateway sends `POST` with `{"predicate": "is_customer", "arguments": ["ann@example.org"]}`, and the service
//! answers with the status `200` and `{"answer": true}`. Any other answer is an error.
//!
//! The service sees the arguments, which may contain text that the agent has seen. The operator chooses the service.

use std::io::Read;
use std::time::Duration;

use flowgate::json::{self, Numbers};
use serde_json::{Value, json};

use super::{MAX_ANSWER, PredicateSource};

/// Returns the HTTP client for all services.
pub(super) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        // `answer` checks the status itself, to report it.
        .http_status_as_error(false)
        // Questions are sent only to the address that the operator wrote: not to the target of a redirect, and not
        // through a proxy that the environment names.
        .max_redirects(0)
        // No connection is reused: the service may close it at any time, and a question sent just then would have no
        // answer.
        .max_idle_connections(0)
        .proxy(None)
        .build();
    ureq::Agent::new_with_config(config)
}

/// A predicate and the address of its service.
#[derive(Debug)]
pub(super) struct HttpPredicateSource {
    agent: ureq::Agent,
    name: String,
    url: String,
}

impl HttpPredicateSource {
    /// Creates the source of the predicate `name` from the address of its service.
    pub(super) fn new(agent: ureq::Agent, name: String, url: String) -> Self {
        Self { agent, name, url }
    }
}

impl PredicateSource for HttpPredicateSource {
    /// Asks the service, and returns the member `answer` of its reply, or why there is no answer within `time`.
    fn answer(&self, arguments: &[Value], time: Duration) -> Result<Value, String> {
        let question = json!({"predicate": self.name, "arguments": arguments}).to_string();
        let request = self.agent.post(&self.url).config().timeout_global(Some(time)).build();
        let request = request.header("content-type", "application/json");
        // Errors do not contain the question, since it holds content.
        let mut response = request.send(question.as_bytes()).map_err(|error| match error {
            ureq::Error::Timeout(_) => {
                "the service did not answer within the time limit: see its log".to_owned()
            }
            _ => "the service cannot be reached: check its address, and that it runs".to_owned(),
        })?;
        if response.status() != 200 {
            return Err(format!(
                "the service answered with the HTTP status {}: see its log",
                response.status().as_u16()
            ));
        }
        let mut text = String::new();
        let longest = u64::from(MAX_ANSWER);
        // One byte more than allowed shows that the answer is too long.
        let read = response.body_mut().as_reader().take(longest + 1).read_to_string(&mut text);
        if let Err(error) = read {
            return Err(match error.kind() {
                std::io::ErrorKind::TimedOut => {
                    "the service did not answer within the time limit: see its log"
                }
                std::io::ErrorKind::InvalidData => {
                    "the answer of the service is not valid UTF-8: see its log"
                }
                _ => "the answer of the service broke off: see its log",
            }
            .to_owned());
        }
        if u64::try_from(text.len()).is_ok_and(|length| length > longest) {
            return Err(format!(
                "the answer of the service is longer than {MAX_ANSWER} bytes: change the service so that it sends less"
            ));
        }
        match json::parse(&text, Numbers::Any) {
            Ok(Value::Object(mut answer)) if answer.len() == 1 => answer
                .remove("answer")
                .ok_or_else(|| "the answer of the service has no field `answer`: change the service so that it sends `{\"answer\": VALUE}`".to_owned()),
            _ => {
                Err("the answer of the service is not a JSON object whose only field is `answer`: change the service so that it sends `{\"answer\": VALUE}`".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::super::tests::judged;
    use super::*;

    /// Returns a service that answers one connection with these bytes, or not at all.
    fn service(answer: Option<&str>) -> HttpPredicateSource {
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
        HttpPredicateSource::new(agent(), "is_customer".to_owned(), format!("http://{address}/ask"))
    }

    fn reply(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    fn check(answer: Option<&str>, expected: &str) {
        // Only a service that never answers takes the full time.
        let patience = Duration::from_millis(if answer.is_some() { 10_000 } else { 400 });
        assert_eq!(judged(service(answer), patience), expected, "{answer:?}");
    }

    #[test]
    fn only_an_answer_is_an_answer() {
        check(Some(&reply("200 OK", r#"{"answer": true}"#)), "nothing");
        check(Some(&reply("200 OK", r#"{"answer": false}"#)), "\"no customer\"");
        let no = |why: &str| format!("the extern predicate `is_customer` failed: {why}");
        check(
            Some(&reply("200 OK", r#"{"answer": 1}"#)),
            "the extern predicate `is_customer` answered with a value of the type int, not bool; correct its implementation or its declaration",
        );
        check(
            Some(&reply("200 OK", "true")),
            &no(
                "the answer of the service is not a JSON object whose only field is `answer`: change the service so that it sends `{\"answer\": VALUE}`",
            ),
        );
        let twice = r#"{"answer": true, "answer": false}"#;
        check(
            Some(&reply("200 OK", twice)),
            &no(
                "the answer of the service is not a JSON object whose only field is `answer`: change the service so that it sends `{\"answer\": VALUE}`",
            ),
        );
        check(
            Some(&reply("200 OK", r#"{"answers": true}"#)),
            &no(
                "the answer of the service has no field `answer`: change the service so that it sends `{\"answer\": VALUE}`",
            ),
        );
        check(
            Some(&reply("500 Oops", r#"{"answer": true}"#)),
            &no("the service answered with the HTTP status 500: see its log"),
        );
        let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        check(Some(elsewhere), &no("the service answered with the HTTP status 302: see its log"));
        let long = format!("{{\"answer\": \"{}\"}}", "x".repeat(70_000));
        check(
            Some(&reply("200 OK", &long)),
            &no(
                "the answer of the service is longer than 65536 bytes: change the service so that it sends less",
            ),
        );
        check(
            Some("no HTTP at all"),
            &no("the service cannot be reached: check its address, and that it runs"),
        );
        check(None, &no("the service did not answer within the time limit: see its log"));
    }
}
