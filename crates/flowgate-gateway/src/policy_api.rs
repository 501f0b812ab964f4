//! Implements the policy API, which is that of Invariant's policy service. A client sends a policy to learn whether it
//! compiles, or a trace with one or several policies to learn their verdicts. No request changes anything: each has the
//! policies by which its trace is judged. `http::service` calls [`PolicyApi`] on a worker thread, because an analysis
//! blocks.
//!
//! * `request`: parses requests; `response`: defines the replies.
//! * `cache`: caches compiled policies.
//! * `report`: formats the errors of a policy as text.

mod cache;
mod report;
mod request;
mod response;

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use flowgate::analysis::{self, Analysis, AnalysisOptions, EvaluationFailureKind};
use flowgate::policy::{Dialect, Policy};
use flowgate::trace::{TraceEntry, read};
use serde_json::{Map, Value};

use crate::http::reply::HttpReply;
use crate::limits::ServerLimits;
use crate::metrics::Metric;
use crate::predicates::PredicateSources;
use cache::PolicyCache;
use request::{BatchRequest, CheckRequest, LoadRequest};
use response::{
    BatchResponse, BatchVerdict, CheckResponse, LoadResponse, RuleFailureResponse, RuleMatchResponse,
};

/// Judges the traces of requests by the policies that the same requests contain.
#[derive(Debug)]
pub(crate) struct PolicyApi {
    dialect: Dialect,
    /// The fuel of one request.
    fuel: u64,
    /// The most policies of one batch.
    batch: usize,
    /// The services and modules that answer extern predicates.
    predicate_sources: PredicateSources,
    /// The time limit for the answers of extern predicates in one request.
    time: Duration,
    cache: PolicyCache,
}

/// Why a request fails, or why one policy of a batch cannot be used.
struct PolicyApiError {
    status: StatusCode,
    detail: String,
}

impl PolicyApiError {
    /// Creates the error for a request that is wrong, with status 400.
    fn bad_request(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail: detail.into() }
    }
}

impl From<PolicyApiError> for HttpReply {
    /// Creates the reply with the status and the message of the error.
    fn from(refusal: PolicyApiError) -> Self {
        Self::detail(refusal.status, &refusal.detail)
    }
}

impl PolicyApi {
    /// Creates the API with an empty cache of compiled policies. `dialect` is the dialect of all policies that clients
    /// send.
    pub(crate) fn new(dialect: Dialect, predicate_sources: PredicateSources, limits: &ServerLimits) -> Self {
        Self {
            dialect,
            fuel: limits.fuel,
            batch: limits.batch,
            predicate_sources,
            time: limits.answer_time,
            cache: PolicyCache::new(limits.cached_policies, limits.cached_bytes),
        }
    }

    /// Serves `POST /api/v1/policy/load`: compiles a policy, and returns its warnings or its errors.
    pub(crate) fn load(&self, body: &[u8]) -> HttpReply {
        let loaded = LoadRequest::read(body).and_then(|load| {
            // The second part of the error, about an unavailable feature, is not needed: the report contains it as
            // well.
            let policy =
                self.compile(&load.policy).map_err(|(report, _)| PolicyApiError::bad_request(report))?;
            Ok(LoadResponse::of(&policy))
        });
        to_reply(loaded)
    }

    /// Serves `POST /api/v1/policy/check`: judges a trace by one policy.
    pub(crate) fn check(&self, body: &[u8]) -> HttpReply {
        let checked = CheckRequest::read(body).and_then(|check| {
            let entries = entries(&check.messages)?;
            // A single policy has all the fuel of the request.
            let options = self.options(check.parameters, 1);
            self.judge(&check.policy, &check.messages, entries, &options)
        });
        to_reply(checked)
    }

    /// Serves `POST /api/v1/policy/check/batch`: judges a trace by several policies. A policy that cannot be used has
    /// an error in its place, and the others are judged.
    pub(crate) fn batch(&self, body: &[u8]) -> HttpReply {
        let batched = BatchRequest::read(body).and_then(|batch| {
            if batch.policies.len() > self.batch {
                return Err(PolicyApiError::bad_request(format!(
                    "the field `policies` has {} policies, more than the limit of {}: send several requests",
                    batch.policies.len(),
                    self.batch
                )));
            }
            let trace = entries(&batch.messages)?;
            // The policies share the fuel of the request.
            let options = self.options(batch.parameters, batch.policies.len());
            let result = batch.policies.into_iter().map(|policy| {
                match self.judge(&policy, &batch.messages, trace.clone(), &options) {
                    Ok(checked) => BatchVerdict::checked(policy, checked),
                    Err(refusal) => BatchVerdict::refused(policy, refusal.detail),
                }
            });
            Ok(BatchResponse { result: result.collect() })
        });
        to_reply(batched)
    }

    /// Returns the metrics of the cache.
    pub(crate) fn figures(&self) -> [Metric; 4] {
        self.cache.figures()
    }

    /// Compiles a policy. The error is the report of all errors in it and, if the policy uses a feature that is not
    /// available, the message about the first such feature.
    fn compile(&self, source: &str) -> Result<Arc<Policy>, (String, Option<String>)> {
        self.cache.get_or_insert(self.dialect, source).map_err(|diagnostics| {
            let unavailable = diagnostics.iter().find(|diagnostic| diagnostic.code == "unavailable");
            (report::report(source, &diagnostics), unavailable.map(|diagnostic| diagnostic.message.clone()))
        })
    }

    /// Returns the options for the evaluation of each policy of a request. `policies` is the number of policies in the
    /// request, which share its fuel evenly and its time for extern predicates. `parameters` are the parameters in the
    /// request.
    fn options(&self, parameters: Map<String, Value>, policies: usize) -> AnalysisOptions {
        let shares = u64::try_from(policies).unwrap_or(u64::MAX).max(1);
        let predicates = self.predicate_sources.predicates(self.time);
        AnalysisOptions { parameters, fuel: self.fuel / shares, predicates, ..AnalysisOptions::default() }
    }

    /// Judges a trace by one policy. `source` is the text of the policy, and `entries` are the events of `messages`.
    /// `options` are the parameters of the policy and the limits of the evaluation.
    ///
    /// # Errors
    /// If the policy does not compile, the messages do not form a trace, or a rule cannot be evaluated and this
    /// makes the whole request fail ([`Self::conclude`]).
    fn judge(
        &self,
        source: &str,
        messages: &[Value],
        entries: Vec<TraceEntry>,
        options: &AnalysisOptions,
    ) -> Result<CheckResponse, PolicyApiError> {
        let policy = self.compile(source).map_err(|(report, unavailable)| match unavailable {
            // The prefix by which clients of Invariant's service recognise a policy with an unavailable feature.
            Some(message) => PolicyApiError::bad_request(format!("Excessive Policy: {message}\n\n{report}")),
            None => PolicyApiError::bad_request(report),
        })?;
        let analysis = analysis::analyze(&policy, entries, options).map_err(|error| {
            let message = message_of(error.event, messages);
            PolicyApiError::bad_request(format!(
                "Input Validation Error: messages[{message}]: {}",
                error.problem
            ))
        })?;
        self.conclude(analysis, &policy, messages.len())
    }

    /// Converts the analysis of a trace to an answer; `messages` is the number of its messages. A rule that cannot be
    /// evaluated is never skipped. In the dialect of invariant-ai, or if a parameter of the policy is missing, such a
    /// rule makes the whole request fail. Otherwise the answer has, in place of the rule's matches, a match that
    /// denies.
    fn conclude(
        &self,
        analysis: Analysis,
        policy: &Policy,
        messages: usize,
    ) -> Result<CheckResponse, PolicyApiError> {
        // Invariant's service stops at the first rule that cannot be evaluated, and so does the dialect of its
        // policies. A missing parameter is the caller's mistake in any dialect.
        let is_fatal =
            |kind| self.dialect == Dialect::Compat || kind == EvaluationFailureKind::MissingParameter;
        if let Some(failure) = analysis.failures.iter().find(|failure| is_fatal(failure.kind)) {
            return Err(refusal(failure.kind, &failure.message));
        }
        let mut errors: Vec<RuleMatchResponse> = analysis
            .violations
            .into_iter()
            .map(|violation| RuleMatchResponse::of(violation, policy))
            .collect();
        let mut failures = Vec::new();
        for failure in analysis.failures {
            let failed = RuleFailureResponse::of(&failure, policy);
            // The failure denies, in addition to the matches of the other rules. `failure.rule` is the index of its
            // rule.
            errors.push(RuleMatchResponse::failure(&failed, failure.rule, messages));
            failures.push(failed);
        }
        Ok(CheckResponse { errors, failures })
    }
}

/// Converts a result to the reply: the JSON of a success, or the error.
fn to_reply(result: Result<impl serde::Serialize, PolicyApiError>) -> HttpReply {
    result.map_or_else(HttpReply::from, |value| HttpReply::json(StatusCode::OK, &value))
}

/// Returns the error of a request that fails because a rule cannot be evaluated. Clients of Invariant's service
/// recognise the kind of error by the prefix of the message.
fn refusal(kind: EvaluationFailureKind, message: &str) -> PolicyApiError {
    match kind {
        EvaluationFailureKind::MissingParameter => {
            PolicyApiError::bad_request(format!("Missing Policy Parameter: {message}"))
        }
        EvaluationFailureKind::Unavailable => {
            PolicyApiError::bad_request(format!("Excessive Policy: {message}"))
        }
        EvaluationFailureKind::Attribute => {
            PolicyApiError::bad_request(format!("Invariant Attribute Error: {message}"))
        }
        // The request itself is valid, so these count as failures of the service.
        EvaluationFailureKind::Fuel | EvaluationFailureKind::TooMany | EvaluationFailureKind::Type => {
            PolicyApiError {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                detail: format!("Error during analysis: {message}"),
            }
        }
    }
}

/// Converts the messages of a request to the events of a trace. An error names the position of the message.
fn entries(messages: &[Value]) -> Result<Vec<TraceEntry>, PolicyApiError> {
    read::list(messages).map_err(|error| {
        let path = error.message.map_or_else(|| "messages".to_owned(), |index| format!("messages[{index}]"));
        PolicyApiError::bad_request(format!("Input Validation Error: {path}: {}", error.problem))
    })
}

/// Returns the index of the message from which the event with the index `event` was read: one message may become
/// several events, so the two indices differ. An index beyond all events counts as one of the last message.
fn message_of(event: usize, messages: &[Value]) -> usize {
    let mut events = 0;
    let index = messages.iter().position(|message| {
        // The number of events up to the end of this message. A message that cannot be read has none.
        events += read::list(std::slice::from_ref(message)).map_or(0, |entries| entries.len());
        event < events
    });
    index.unwrap_or(messages.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgate::analysis::{EvaluationFailure, Violation};
    use flowgate::policy::Action;

    fn detail(reply: &HttpReply) -> String {
        format!("{} {}", reply.status.as_u16(), reply.text())
    }

    #[test]
    fn failures_have_the_prefixes_that_clients_know() {
        let check = |kind, expected: &str| {
            assert_eq!(detail(&refusal(kind, "m").into()), expected);
        };
        check(EvaluationFailureKind::MissingParameter, r#"400 {"detail":"Missing Policy Parameter: m"}"#);
        check(EvaluationFailureKind::Unavailable, r#"400 {"detail":"Excessive Policy: m"}"#);
        check(EvaluationFailureKind::Attribute, r#"400 {"detail":"Invariant Attribute Error: m"}"#);
        check(EvaluationFailureKind::Fuel, r#"500 {"detail":"Error during analysis: m"}"#);
        check(EvaluationFailureKind::Type, r#"500 {"detail":"Error during analysis: m"}"#);
    }

    #[test]
    fn a_rule_that_cannot_be_evaluated_is_never_passed_over() {
        let policy =
            Policy::parse("raise \"a\" if:\n    (m: Message)\nraise \"b\" if:\n    (m: Message)\n").unwrap();
        let violation = Violation {
            rule: 1,
            statement: 31..44,
            action: Action::Log,
            args: vec![Value::from("b")],
            kwargs: Map::new(),
            ranges: vec!["messages.0".to_owned()],
            key: "k".to_owned(),
        };
        let check = |dialect, kinds: &[EvaluationFailureKind], expected: &str| {
            let failure = |kind: &EvaluationFailureKind| EvaluationFailure {
                rule: 0,
                statement: 0..12,
                kind: *kind,
                message: "m".to_owned(),
            };
            let failures = kinds.iter().map(failure).collect();
            let analysis = Analysis { violations: vec![violation.clone()], failures };
            let api = PolicyApi::new(dialect, PredicateSources::default(), &ServerLimits::default());
            assert_eq!(detail(&to_reply(api.conclude(analysis, &policy, 7))), expected, "{kinds:?}");
        };
        let found = r#"{"key":"k","args":["b"],"kwargs":{},"ranges":["messages.0"],"action":"log","rule":3}"#;
        let fuel = r#"{"key":"failure:0:fuel:7","args":["the rule at line 1 cannot be evaluated: m"],"kwargs":{},"ranges":[],"action":"deny","rule":1}"#;
        let failures = r#"[{"rule":1,"kind":"fuel","message":"m"}]"#;
        let (new, old) = (Dialect::Flowgate, Dialect::Compat);
        for dialect in [new, old] {
            check(dialect, &[], &format!(r#"200 {{"errors":[{found}]}}"#));
            let missing = r#"400 {"detail":"Missing Policy Parameter: m"}"#;
            check(dialect, &[EvaluationFailureKind::MissingParameter], missing);
        }
        check(
            new,
            &[EvaluationFailureKind::Fuel],
            &format!(r#"200 {{"errors":[{found},{fuel}],"failures":{failures}}}"#),
        );
        check(
            old,
            &[EvaluationFailureKind::Fuel, EvaluationFailureKind::Attribute],
            r#"500 {"detail":"Error during analysis: m"}"#,
        );
        check(old, &[EvaluationFailureKind::Attribute], r#"400 {"detail":"Invariant Attribute Error: m"}"#);
        check(
            new,
            &[EvaluationFailureKind::Fuel, EvaluationFailureKind::MissingParameter],
            r#"400 {"detail":"Missing Policy Parameter: m"}"#,
        );
    }

    #[test]
    fn an_event_is_traced_back_to_its_message() {
        let call = serde_json::json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": {}}},
            {"id": "b", "function": {"name": "f", "arguments": {}}},
        ]});
        let user = serde_json::json!({"role": "user", "content": "x"});
        let messages = [user.clone(), call, user];
        let found: Vec<usize> = (0..6).map(|event| message_of(event, &messages)).collect();
        assert_eq!(found, [0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn the_body_is_read_strictly() {
        let api = PolicyApi::new(
            Dialect::Flowgate,
            PredicateSources::default(),
            &ServerLimits { batch: 2, ..ServerLimits::default() },
        );
        let check = |route: fn(&PolicyApi, &[u8]) -> HttpReply, body: &str, expected: &str| {
            let expected = format!("400 {{\"detail\":\"{expected}\"}}");
            assert_eq!(detail(&route(&api, body.as_bytes())), expected, "{body}");
        };
        check(
            PolicyApi::load,
            "",
            "the body of the request is not valid JSON: EOF while parsing a value at line 1 column 0",
        );
        check(
            PolicyApi::load,
            r#"{"policy":"","policy":""}"#,
            "the body of the request is not valid JSON: duplicate key at line 1 column 21",
        );
        check(PolicyApi::load, "[]", "the body is not a JSON object: send one with `policy`");
        check(PolicyApi::load, "{}", "the body of the request has no field `policy`: add it");
        check(PolicyApi::load, r#"{"policy":1}"#, "the field `policy` of the body is not a string: send one");
        check(
            PolicyApi::check,
            r#"{"policy":""}"#,
            "the body of the request has no field `messages`: add it",
        );
        check(
            PolicyApi::check,
            r#"{"policy":"","messages":{}}"#,
            "the field `messages` of the body is not a list: send one",
        );
        check(
            PolicyApi::check,
            r#"{"policy":"","messages":[],"parameters":[]}"#,
            "the field `parameters` of the body is not an object: send one",
        );
        check(
            PolicyApi::check,
            r#"{"policy":"","messages":[{"role":"user","content":""},3]}"#,
            "Input Validation Error: messages[1]: the message is not a JSON object; write one with a `role`",
        );
        check(
            PolicyApi::batch,
            r#"{"messages":[],"policies":["",1]}"#,
            "the item `policies[1]` of the body is not a string: send the text of a policy",
        );
        check(
            PolicyApi::batch,
            r#"{"messages":[],"policies":["","",""]}"#,
            "the field `policies` has 3 policies, more than the limit of 2: send several requests",
        );
        assert_eq!(
            detail(&api.load(b"\"\xff\"")),
            r#"400 {"detail":"the body of the request is not valid UTF-8 from byte 1 on: send JSON in UTF-8"}"#
        );
    }

    #[test]
    fn the_api_description_lists_the_required_fields() {
        let api = PolicyApi::new(Dialect::Flowgate, PredicateSources::default(), &ServerLimits::default());
        let check = |route: fn(&PolicyApi, &[u8]) -> HttpReply, path: &str, request: &str, answer: &str| {
            let operation = &crate::openapi::document()["paths"][path]["post"];
            let example = operation["requestBody"]["content"]["application/json"]["example"].clone();
            let schema = crate::openapi::schema(request);
            assert_eq!(crate::openapi::mistakes(&example, &schema, request), [""; 0]);
            let reply = route(&api, example.to_string().as_bytes());
            let answered = serde_json::from_str(&reply.text()).unwrap();
            assert_eq!(crate::openapi::mistakes(&answered, &crate::openapi::schema(answer), answer), [""; 0]);
            for (name, kind) in schema["properties"].as_object().unwrap() {
                let required = schema["required"].as_array().unwrap().contains(&serde_json::json!(name));
                let mut fields = example.as_object().unwrap().clone();
                fields.remove(name);
                let reply = route(&api, Value::from(fields.clone()).to_string().as_bytes());
                assert_eq!(reply.status == StatusCode::OK, !required, "{path} without {name}");
                fields.insert(name.clone(), Value::from(1));
                let reply = route(&api, Value::from(fields).to_string().as_bytes());
                assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{path} with {name} that is not {kind}");
            }
        };
        check(PolicyApi::load, "/api/v1/policy/load", "LoadRequest", "Loaded");
        check(PolicyApi::check, "/api/v1/policy/check", "CheckRequest", "Checked");
        check(PolicyApi::batch, "/api/v1/policy/check/batch", "BatchRequest", "Batched");
    }
}
