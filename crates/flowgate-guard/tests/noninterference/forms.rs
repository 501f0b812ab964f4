//! Adds to some cases endorsements of further forms, of the items of a list, and values that have these forms.
//!
//! Everything here is drawn from sources of its own, so that the cases without it stay what they are.

use std::fmt::Write as _;

use flowgate_lm::chat::Completion;
use serde_json::{Value, json};

use crate::declared_policy::DeclaredPolicy;
use crate::random::Random;
use crate::tools::CaseTools;

/// What a user says after a message, so that the message names hosts.
pub(crate) const LINKS: &str = " see https://shop.example.net/x and https://news1.market.co.uk/";

/// The targets and conditions of endorsements.
const FORMS: [(&str, &[&str]); 9] = [
    ("call.arguments.b", &["is_url_on(call.arguments.b, [\"docs.example.org\", \"example.com\"])"]),
    ("call.arguments.b", &["is_url_on(call.arguments.b, Message)"]),
    ("call.arguments.b", &["is_url_on_domain(call.arguments.b, Message)"]),
    ("call.arguments.b", &["is_url_on(call.arguments.b, tool:*)"]),
    ("call.arguments.b", &["is_path_in(call.arguments.b, \"/reports\")"]),
    ("call.arguments.b", &["is_decimal(call.arguments.b)"]),
    ("call.arguments.b", &["is_yes_no(call.arguments.b)"]),
    ("item", &["(item: str) in call.arguments.b", "item in [\"12:00\", \"13:00\"]"]),
    ("item", &["(item: str) in call.arguments.b", "item in tool:*"]),
];

/// Values for slots that these forms endorse.
pub(crate) const TYPED: [&str; 8] = ["12.5", "yes", "12:00", "2024-05-19", "me", "you", "ann", "web"];

/// Adds endorsements to a policy, as text and as declarations.
pub(crate) fn endorse(seed: u64, tools: &CaseTools, text: &mut String, declared: &mut DeclaredPolicy) {
    let mut random = Random::of(&format!("endorsed forms {seed}"));
    for tool in tools.indices() {
        for _ in 0..random.below(3) {
            let (target, conditions) = FORMS[random.below(FORMS.len())];
            let pattern = tools.pattern(&mut random, tool);
            // The argument has no role, so forms that leave much to choose are declared unsafe.
            let is_unsafe = conditions.iter().any(|text| text.contains("is_url") || text.contains("is_path"));
            let kind = if is_unsafe { "unsafe endorse" } else { "endorse" };
            let _ = writeln!(text, "{kind} {target} as trusted if:\n    (call: ToolCall) is tool:{pattern}");
            for condition in conditions {
                let _ = writeln!(text, "    {condition}");
            }
            declared.endorsed.push(pattern);
        }
    }
}

/// Adds consents with limits to a policy, and consents to what answers contain.
pub(crate) fn consent(seed: u64, tools: &CaseTools, text: &mut String) {
    let mut random = Random::of(&format!("limited consents {seed}"));
    for tool in tools.indices() {
        if !random.chance(40) {
            continue;
        }
        let label = random.of_list(&["private", "internal"]);
        let limit = random.of_list(&[
            "1 calls",
            "2 calls",
            "3 calls, 30 of call.arguments.b",
            "20 of call.arguments.b",
            "",
        ]);
        let limit = if limit.is_empty() { String::new() } else { format!(" up to {limit}") };
        let condition = random.of_list(&[
            "call.arguments.a is not None",
            "call.arguments.b in tool:*",
            "call.arguments.a in tool:*",
        ]);
        let pattern = tools.pattern(&mut random, tool);
        let _ = writeln!(
            text,
            "consent {label} for call.arguments.b{limit} if:\n    (call: ToolCall) is tool:{pattern}\n    {condition}"
        );
    }
}

/// Puts values of these forms in place of some arguments, depending on everything that the model was shown.
pub(crate) fn replace_arguments(policy: &str, completion: &mut Completion, shown: &str) {
    let mut random = Random::of(&format!("forms {shown}"));
    for call in completion.calls.iter_mut().filter(|call| call.name != "look") {
        let Ok(Value::Object(mut arguments)) = serde_json::from_str(&call.arguments) else { continue };
        match arguments.get_mut("b") {
            Some(slot) if slot["$slot"]["fill"].is_string() && random.chance(60) => {
                slot["$slot"]["fill"] = json!(format!("write {}", random.of_list(&TYPED)));
            }
            Some(slot) if slot.is_object() => continue,
            _ if random.chance(50) => {
                drop(arguments.insert("b".to_owned(), value(policy, &mut random, shown)))
            }
            _ => continue,
        }
        call.arguments = Value::Object(arguments).to_string();
    }
}

/// Returns a value of one of the forms that the policy has statements about, or one that resembles it; where the form
/// leaves a choice, it repeats what the model was shown.
fn value(policy: &str, random: &mut Random, shown: &str) -> Value {
    let start = random.below(shown.chars().count());
    let said: String = shown.chars().skip(start).take(40).filter(char::is_ascii_alphanumeric).collect();
    let forms = [
        ("is_url_on(call.arguments.b, [", json!(format!("https://docs.example.org/a?q={said}"))),
        ("is_url_on(call.arguments.b, [", json!(format!("https://docs.example.org.evil.net/{said}"))),
        ("is_url_on(call.arguments.b, Message)", json!(format!("http://shop.example.net:80/{said}"))),
        ("is_url_on(call.arguments.b, tool:", json!(format!("http://shop.example.net:80/{said}"))),
        ("is_url_on_domain(", json!(format!("https://news2.market.co.uk/{said}"))),
        ("is_path_in(", json!(format!("/reports/{said}.txt"))),
        ("is_path_in(", json!(format!("/reports/../{said}"))),
        ("is_decimal(", json!("12.5")),
        ("is_yes_no(", json!(random.of_list(&["yes", "no"]))),
        ("item in [", json!(["12:00", "13:00"])),
        ("item in [", json!(["12:00", said])),
        ("item in tool:", json!(["me", random.of_list(&["you", "ann", "web"])])),
        ("b in tool:", json!(random.of_list(&["me", "you", "ann", "web"]))),
        (" up to ", json!(7)),
        (" up to ", json!(12.5)),
        (" up to ", json!(said.len())),
    ];
    let fitting: Vec<&Value> =
        forms.iter().filter(|(form, _)| policy.contains(form)).map(|(_, value)| value).collect();
    match fitting.as_slice() {
        [] => json!("12:00"),
        fitting => fitting[random.below(fitting.len())].clone(),
    }
}

/// Whether a text, as JSON, has a form that a slot may release: a number, or yes or no.
pub(crate) fn is_released(text: &str) -> bool {
    let text = text.trim_matches('"').trim().to_ascii_lowercase();
    text.parse::<f64>().is_ok() || matches!(text.as_str(), "true" | "false" | "yes" | "no")
}

/// Returns the feature of an endorsed value.
pub(crate) fn feature(value: &Value) -> Option<&'static str> {
    let text = match value {
        Value::Array(items) if items.contains(&json!("me")) => {
            return Some("endorsed items that an answer contains");
        }
        Value::Array(_) => return Some("endorsed items of a list"),
        value => value.as_str()?,
    };
    [
        ("https://docs.example.org/", "an endorsed URL on a listed host"),
        ("http", "an endorsed URL on a host that a message names"),
        ("/reports/", "an endorsed path"),
        ("12.5", "an endorsed number"),
        ("yes", "an endorsed yes or no"),
        ("no", "an endorsed yes or no"),
    ]
    .into_iter()
    .find(|(start, _)| text.starts_with(start))
    .map(|(start, feature)| match start {
        "http" if text.contains("news2.") => "an endorsed URL on a domain that a message names",
        _ => feature,
    })
}
