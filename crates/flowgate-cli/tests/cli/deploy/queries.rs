//! Checks the queries of alerts and dashboards, in the languages of Prometheus and Loki: every metric, label and field is
//! one that the gateway exports or logs.
//!
//! This is no parser of these languages. It reads names, texts and signs, and rejects every name that it does not know.

use std::collections::{BTreeMap, BTreeSet};

/// What queries may name.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    /// The labels of each metric, or the fields of each log by the name of its job.
    pub(super) labels: BTreeMap<String, BTreeSet<String>>,
    /// The values of labels and fields that have few.
    pub(super) values: BTreeMap<&'static str, BTreeSet<String>>,
}

/// The functions and keywords that the queries use.
const WORDS: [&str; 19] = [
    "avg_over_time",
    "count_over_time",
    "histogram_quantile",
    "increase",
    "json",
    "offset",
    "or",
    "rate",
    "sum",
    "sum_over_time",
    "unless",
    "unwrap",
    "up",
    "by",
    "and",
    "max",
    "min",
    "avg",
    "count",
];
/// The labels that the scrape configuration gives to every metric.
const SCRAPED: [&str; 2] = ["instance", "job"];

/// A part of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    Text(String),
    Sign(char),
}

/// Reads the parts of a query. Numbers, durations and variables (`$name`) are left out.
fn tokens(query: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), query.chars().peekable());
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    while let Some(first) = rest.next() {
        let mut word = |first: Option<char>| -> String {
            let mut word: String = first.into_iter().collect();
            while let Some(next) = rest.next_if(is_word) {
                word.push(next);
            }
            word
        };
        match first {
            '"' => tokens.push(Token::Text(rest.by_ref().take_while(|c| *c != '"').collect())),
            '$' => drop(word(None)),
            c if c.is_ascii_digit() => drop(word(Some(c))),
            c if is_word(&c) => tokens.push(Token::Name(word(Some(c)))),
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Sign(c)),
        }
    }
    tokens
}

/// The names that a query uses.
#[derive(Debug, Default)]
pub(super) struct QueryNames {
    /// The metrics, or the jobs of logs.
    pub(super) sources: BTreeSet<String>,
    /// The labels or fields of all of them.
    labels: BTreeSet<String>,
}

impl QueryNames {
    /// Returns the label that a legend or a summary names and the query does not have.
    pub(super) fn missing_label<'t>(&self, template: &'t str) -> Option<&'t str> {
        let named = template.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        let mut named = named
            .map(|name| name.trim().trim_start_matches("$labels."))
            .filter(|name| !name.starts_with('$'));
        named.find(|name| !SCRAPED.contains(name) && !self.labels.contains(*name))
    }
}

/// Checks a query. `is_log` says that it is one of Loki.
///
/// # Errors
/// The name or the value that the gateway does not have.
pub(super) fn check(query: &str, known: &KnownNames, is_log: bool) -> Result<QueryNames, String> {
    let (tokens, mut used, mut grouped) = (tokens(query), QueryNames::default(), Vec::new());
    // The labels of the metric or the log that was named last.
    let mut labels = BTreeSet::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        index += 1;
        let Token::Name(name) = token else { continue };
        // A comparison, such as `status=~"5.."`: one sign or two, and a text.
        let signs =
            tokens[index..].iter().take_while(|token| matches!(token, Token::Sign('=' | '!' | '~'))).count();
        if let (1.., Some(Token::Text(value))) = (signs, tokens.get(index + signs)) {
            if is_log && name == "job" {
                labels = known.labels.get(value).ok_or_else(|| format!("there is no log `{value}`"))?.clone();
                used.sources.insert(value.clone());
                used.labels.extend(labels.iter().cloned());
            } else if !labels.contains(name) && !SCRAPED.contains(&name.as_str()) {
                return Err(format!("there is no label `{name}`"));
            }
            let is_pattern = tokens[index..index + signs].contains(&Token::Sign('~'));
            let values = if is_pattern { value.split('|').collect() } else { vec![value.as_str()] };
            if let Some(unknown) = values.iter().find(|value| !known.has_value(name, value)) {
                return Err(format!("`{name}` is never `{unknown}`"));
            }
            index += signs + 1;
        } else if let Some(found) = known.labels.get(name).filter(|_| !is_log) {
            labels = found.clone();
            used.sources.insert(name.clone());
            used.labels.extend(labels.iter().cloned());
        } else if name == "by" {
            let list = tokens[index..].iter().take_while(|token| **token != Token::Sign(')'));
            grouped.extend(list.filter_map(|token| match token {
                Token::Name(name) => Some(name.clone()),
                _ => None,
            }));
            while tokens.get(index).is_some_and(|token| *token != Token::Sign(')')) {
                index += 1;
            }
        } else if tokens.get(index.wrapping_sub(2)) == Some(&Token::Name("unwrap".to_owned())) {
            if !labels.contains(name) {
                return Err(format!("there is no field `{name}`"));
            }
        } else if !WORDS.contains(&name.as_str()) {
            return Err(format!("there is no metric or word `{name}`"));
        }
    }
    match grouped.into_iter().find(|name| !used.labels.contains(name) && !SCRAPED.contains(&name.as_str())) {
        Some(unknown) => Err(format!("there is no label `{unknown}` to group by")),
        None => Ok(used),
    }
}

impl KnownNames {
    /// Returns whether a label may have this value. A status may be a pattern, such as `5..`.
    fn has_value(&self, label: &str, value: &str) -> bool {
        match label {
            "status" => value.len() == 3 && value.chars().all(|c| c.is_ascii_digit() || c == '.'),
            "job" => value == "flowgate" || self.labels.contains_key(value),
            label => self.values.get(label).is_none_or(|values| values.contains(value)),
        }
    }
}

#[test]
fn unknown_names_are_found() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let known = KnownNames {
        labels: BTreeMap::from([
            ("flowgate_requests_total".to_owned(), names(&["route", "status"])),
            ("flowgate_connections".to_owned(), names(&[])),
            ("flowgate".to_owned(), names(&["event", "client", "denied"])),
        ]),
        values: BTreeMap::from([
            ("route", names(&["/health", "/mcp/{server}"])),
            ("event", names(&["turn"])),
        ]),
    };
    let metrics = [
        (
            r#"sum by (route) (rate(flowgate_requests_total{route=~"/health|/mcp/{server}",status!="200"}[5m])) > 0.5"#,
            "",
        ),
        (r#"up{job="flowgate"} == 0 or flowgate_connections unless flowgate_connections offset 5m"#, ""),
        (
            "rate(flowgate_request_total[$__rate_interval])",
            "there is no metric or word `flowgate_request_total`",
        ),
        (r#"flowgate_requests_total{client="a"}"#, "there is no label `client`"),
        (r#"flowgate_connections{route="/health"}"#, "there is no label `route`"),
        (r#"flowgate_requests_total{route="/healthz"}"#, "`route` is never `/healthz`"),
        (r#"flowgate_requests_total{route=~"/health|/mcp"}"#, "`route` is never `/mcp`"),
        (r#"flowgate_requests_total{status="50"}"#, "`status` is never `50`"),
        (r#"up{job="gateway"}"#, "`job` is never `gateway`"),
        ("sum by (client) (flowgate_requests_total)", "there is no label `client` to group by"),
        ("summ(flowgate_connections)", "there is no metric or word `summ`"),
    ];
    let logs = [
        (
            r#"sum by (client) (sum_over_time({job="flowgate"} | json | event="turn" | unwrap denied [$__auto]))"#,
            "",
        ),
        (r#"count_over_time({job="flowgate"} | json | event="turns" [5m])"#, "`event` is never `turns`"),
        (r#"{job="other"} | json"#, "there is no log `other`"),
        (r#"{job="flowgate"} | json | clients="a""#, "there is no label `clients`"),
        (r#"sum(sum_over_time({job="flowgate"} | json | unwrap deny [5m]))"#, "there is no field `deny`"),
    ];
    for (rows, is_log) in [(&metrics[..], false), (&logs[..], true)] {
        for (query, expected) in rows {
            assert_eq!(check(query, &known, is_log).err().unwrap_or_default(), *expected, "{query}");
        }
    }
    let used = check("flowgate_requests_total", &known, false).unwrap();
    for (template, expected) in
        [("{{route}} {{ $labels.instance }} {{ $value }}", None), ("{{limit}}", Some("limit"))]
    {
        assert_eq!(used.missing_label(template), expected, "{template}");
    }
}
