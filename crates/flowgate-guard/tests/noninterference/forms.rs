//! Adds to some cases endorsements, consents and requirements of further forms, and values that have these forms.
//!
//! In half of these cases, the statements are mixed at random. In the other half, each tool has one statement of one form
//! ([`crate::form_focus`]), and the model mostly writes values that fit it: few calls of a random model fit a random statement, and
//! a form that changes no verdict is not tested. [`crate::effects`] counts the verdicts that each form changes.
//!
//! Everything here is drawn from sources of its own, so that the cases without it stay what they are.

use std::fmt::Write as _;

use flowgate::trace::Tool;
use flowgate_lm::chat::Completion;
use serde_json::{Value, json};

use crate::declared_policy::DeclaredPolicy;
use crate::random::Random;
use crate::tools::CaseTools;

/// What a user says after a message, so that the message names hosts.
pub(crate) const LINKS: &str = " see https://shop.example.net/x and https://news1.market.co.uk/";
/// The links of a later chat of the same client. They share no words with the first ones and with the values of forms:
/// equal words could quote a hidden answer that has repeated those.
pub(crate) const LATER_LINKS: &str = " or https://news3.market.co.uk";

/// A form of statement about the argument `b` of a tool.
pub(crate) struct StatementForm {
    /// The name of the effect that statements of the form have.
    pub(crate) effect: &'static str,
    /// The beginning of the statement, up to its conditions.
    head: &'static str,
    /// The conditions besides the tool.
    conditions: &'static [&'static str],
    /// Values of the form, as JSON; `SAID` stands for text that the model was shown.
    fitting: &'static [&'static str],
    /// Values that resemble them, and do not have the form.
    other: &'static [&'static str],
}

const ENDORSE: &str = "endorse call.arguments.b as trusted";
/// The argument has no role, so forms that leave much to choose are declared unsafe.
const UNSAFE: &str = "unsafe endorse call.arguments.b as trusted";
const ITEMS: &str = "endorse item as trusted";
/// The condition of an endorsement by single fields of the answers to calls with the same argument.
pub(crate) const IN_EQUAL_CALLS: &str = "call.arguments.b in tool:*({a: call.arguments.a})";
const ITEM: &str = "(item: str) in call.arguments.b";
const PRIVATE: &str = "consent private for call.arguments.b";
/// Words that answers contain.
const WORDS: &[&str] = &[r#""me""#, r#""you""#];

const fn form(
    effect: &'static str,
    head: &'static str,
    conditions: &'static [&'static str],
    fitting: &'static [&'static str],
    other: &'static [&'static str],
) -> StatementForm {
    StatementForm { effect, head, conditions, fitting, other }
}

/// All forms. A form whose values occur in the world by chance would be released by it: see [`is_released`].
pub(crate) static FORMS: [StatementForm; 28] = [
    form(
        "dates",
        ENDORSE,
        &["is_date(call.arguments.b)"],
        &[r#""2024-05-19""#, r#""2023-01-02""#],
        &[r#""2024-05-99""#],
    ),
    form("times", ENDORSE, &["is_time(call.arguments.b)"], &[r#""12:00""#, r#""13:30""#], &[r#""25:00""#]),
    form("whole numbers", ENDORSE, &["is_integer(call.arguments.b)"], &["7", "41"], &["7.5"]),
    form("truth values", ENDORSE, &["is_bool(call.arguments.b)"], &["true", "false"], &[r#""perhaps""#]),
    form("decimals", ENDORSE, &["is_decimal(call.arguments.b)"], &[r#""12.5""#, "12.5"], &[r#""12,5,1""#]),
    form("yes or no", ENDORSE, &["is_yes_no(call.arguments.b)"], &[r#""yes""#, r#""no""#], &[r#""perhaps""#]),
    form("one value", ENDORSE, &["call.arguments.b == \"12:00\""], &[r#""12:00""#], &[r#""12:00 SAID""#]),
    form(
        "listed values",
        ENDORSE,
        &["call.arguments.b in [\"12:00\", \"13:00\"]"],
        &[r#""12:00""#, r#""13:00""#],
        &[r#""14:00""#],
    ),
    form(
        "texts of a pattern",
        ENDORSE,
        &["fullmatch(r\"20[0-9]{2}-[0-9]{2}-[0-9]{2}|1[0-9]:00\", call.arguments.b)"],
        &[r#""2024-05-19""#, r#""12:00""#],
        &[r#""22:00""#],
    ),
    form(
        "mail addresses",
        UNSAFE,
        &["is_email(call.arguments.b)"],
        &[r#""ann@example.org""#],
        &[r#""ann@""#],
    ),
    form("what answers contain", ENDORSE, &["call.arguments.b in tool:*"], WORDS, &[r#""SAID""#]),
    form("what answers to equal calls contain", ENDORSE, &[IN_EQUAL_CALLS], WORDS, &[r#""SAID""#]),
    form(
        "URLs on listed hosts",
        UNSAFE,
        &["is_url_on(call.arguments.b, [\"docs.example.org\", \"example.com\"])"],
        &[r#""https://docs.example.org/a?q=SAID""#],
        &[r#""https://docs.example.org.evil.net/SAID""#],
    ),
    form(
        "URLs on hosts that messages name",
        UNSAFE,
        &["is_url_on(call.arguments.b, Message)"],
        &[r#""http://shop.example.net:80/SAID""#],
        &[r#""https://wiki.example.edu/SAID""#],
    ),
    form(
        "URLs on hosts that answers name",
        UNSAFE,
        &["is_url_on(call.arguments.b, tool:*)"],
        &[r#""https://wiki.example.edu/SAID""#],
        &[r#""http://shop.example.net:80/SAID""#],
    ),
    form(
        "URLs on listed domains",
        UNSAFE,
        &["is_url_on_domain(call.arguments.b, [\"example.org\", \"example.com\"])"],
        &[r#""https://news.example.org/SAID""#],
        &[r#""https://example.org.evil.net/SAID""#],
    ),
    form(
        "URLs on domains that messages name",
        UNSAFE,
        &["is_url_on_domain(call.arguments.b, Message)"],
        &[r#""https://news2.market.co.uk/SAID""#],
        &[r#""https://other.co.uk/SAID""#],
    ),
    form(
        "URLs on domains that answers name",
        UNSAFE,
        &["is_url_on_domain(call.arguments.b, tool:*)"],
        &[r#""https://a2.college.ac.uk/SAID""#],
        &[r#""https://other.ac.uk/SAID""#],
    ),
    form(
        "paths",
        UNSAFE,
        &["is_path_in(call.arguments.b, \"/reports\")"],
        &[r#""/reports/SAID.txt""#],
        &[r#""/reports/../SAID""#],
    ),
    form(
        "items of a list of values",
        ITEMS,
        &[ITEM, "item in [\"12:00\", \"13:00\"]"],
        &[r#"["12:00", "13:00"]"#, r#"["13:00"]"#],
        &[r#"["12:00", "SAID"]"#],
    ),
    form(
        "items that are dates",
        ITEMS,
        &[ITEM, "is_date(item)"],
        &[r#"["2024-05-19", "2023-01-02"]"#, r#"["2023-01-02"]"#],
        &[r#"["2024-05-19", "SAID"]"#],
    ),
    form(
        "items that answers contain",
        ITEMS,
        &[ITEM, "item in tool:*"],
        &[r#"["me"]"#, r#"["you"]"#, r#"["me", "you"]"#],
        &[r#"["me", "SAID"]"#],
    ),
    form("payload", "payload call.arguments.b", &[], &[r#""SAID""#], &[]),
    form("a consent", PRIVATE, &["call.arguments.a is not None"], &[r#""SAID""#], &[]),
    form(
        "a consent for what answers contain",
        PRIVATE,
        &["call.arguments.b in tool:*"],
        WORDS,
        &[r#""SAID""#],
    ),
    form(
        "a consent for a destination that answers contain",
        PRIVATE,
        &["call.arguments.a in tool:*"],
        &[r#""SAID""#],
        &[],
    ),
    form(
        "a consent with a limit of calls",
        "consent private for call.arguments.b up to 1 calls",
        &["call.arguments.a is not None"],
        &[r#""SAID""#],
        &[],
    ),
    form(
        "a consent with a limit of a sum",
        "consent private for call.arguments.b up to 6 of call.arguments.b",
        &["call.arguments.a is not None"],
        &["4", "4.5"],
        &[],
    ),
];

/// What a consent limits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    Calls,
    Sum,
}

impl Limit {
    pub(crate) const ALL: [Self; 2] = [Self::Calls, Self::Sum];

    /// Whether the first line of a consent has such a limit.
    fn is_in(self, head: &str) -> bool {
        let Some((_, limits)) = head.split_once(" up to ") else { return false };
        match self {
            Self::Calls => limits.contains(" calls"),
            Self::Sum => limits.contains(" of "),
        }
    }

    /// Returns a policy without such limits; a consent that has both loses both.
    pub(crate) fn removed_from(self, policy: &str) -> String {
        let line = |line: &str| match line.split_once(" up to ") {
            Some((head, _)) if self.is_in(line) => format!("{head} if:\n"),
            _ => format!("{line}\n"),
        };
        policy.lines().map(line).collect()
    }
}

impl StatementForm {
    /// Whether a statement, with its lines, has the form.
    pub(crate) fn is_form_of(&self, statement: &str) -> bool {
        let mut lines = statement.lines();
        let first = lines.next().unwrap_or_default();
        let is_head = if self.is_consent() {
            // To any label, and with any limit of the same kind.
            let limits = |head: &str| Limit::ALL.map(|limit| limit.is_in(head));
            first.starts_with("consent ") && limits(first) == limits(self.head)
        } else {
            first == format!("{} if:", self.head)
        };
        let has_line = |condition: &&str| lines.clone().any(|line| line.trim_start() == *condition);
        is_head && self.conditions.iter().all(has_line)
    }

    /// Whether the statement is an endorsement.
    pub(crate) fn is_endorsement(&self) -> bool {
        self.head.contains("endorse ")
    }

    /// Whether few calls meet all conditions for an effect, so that more tools have the form: values that an answer lists,
    /// what consents are about, and payload, which grants leave open.
    pub(crate) fn is_rare(&self) -> bool {
        !self.is_endorsement() || self.conditions.iter().any(|condition| condition.contains(" in tool:"))
    }

    /// Whether the statement is a consent.
    pub(crate) fn is_consent(&self) -> bool {
        self.head.starts_with("consent ")
    }

    /// Returns the statement of the form about the tools that a pattern matches.
    pub(crate) fn statement(&self, pattern: &str) -> String {
        let mut text = format!("{} if:\n    (call: ToolCall) is tool:{pattern}\n", self.head);
        for condition in self.conditions {
            let _ = writeln!(text, "    {condition}");
        }
        text
    }

    /// Writes a statement of the form about the tools that a pattern matches, as text and as declarations.
    pub(crate) fn write(&self, pattern: String, text: &mut String, declared: &mut DeclaredPolicy) {
        text.push_str(&self.statement(&pattern));
        if self.is_endorsement() {
            declared.endorsed.push(pattern);
        } else if !self.is_consent() {
            declared.payload.push(pattern);
        }
    }

    /// Whether the statement limits a sum of numbers.
    pub(crate) fn takes_numbers(&self) -> bool {
        Limit::Sum.is_in(self.head)
    }

    /// Returns the text with which a slot is to be filled for a value; `None` if the argument takes no slot with it.
    pub(crate) fn slot_text(&self, value: &Value) -> Option<String> {
        match value {
            Value::String(text) if self.head == ENDORSE || !self.is_endorsement() => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) if self.head == ENDORSE || self.takes_numbers() => {
                Some(value.to_string())
            }
            _ => None,
        }
    }

    /// Returns a value of the form, or in some cases one that resembles it. Where the form leaves a choice, the value
    /// repeats what the model was shown.
    pub(crate) fn value(&self, random: &mut Random, shown: &str) -> Value {
        let is_other = random.chance(15);
        let values = if is_other && !self.other.is_empty() { self.other } else { self.fitting };
        let start = random.below(shown.chars().count());
        let said: String = shown.chars().skip(start).take(40).filter(char::is_ascii_alphanumeric).collect();
        // A person who has approved a call for longer approved the same value.
        let said = if random.chance(50) { "x".to_owned() } else { said };
        let value = random.of_list(values).replace("SAID", &said);
        serde_json::from_str(&value).expect("JSON")
    }
}

/// Whether a policy endorses an argument of a tool by single fields of the answers to calls with the same argument.
pub(crate) fn is_endorsed_by_fields(text: &str, tool: &Tool) -> bool {
    statements(text).iter().filter(|statement| statement.contains(IN_EQUAL_CALLS)).any(|statement| {
        let pattern = statement.split_once("is tool:").and_then(|(_, rest)| rest.lines().next());
        pattern.is_some_and(|pattern| DeclaredPolicy::speaks_of(pattern, tool))
    })
}

/// Returns the statements of a policy, each with its lines.
pub(crate) fn statements(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        match found.last_mut() {
            Some(last) if line.starts_with(' ') => last.push_str(&format!("{line}\n")),
            _ => found.push(format!("{line}\n")),
        }
    }
    found
}

/// Adds endorsements and consents of random forms to a policy, as text and as declarations.
pub(crate) fn mix(seed: u64, tools: &CaseTools, text: &mut String, declared: &mut DeclaredPolicy) {
    let mut random = Random::of(&format!("endorsed forms {seed}"));
    for tool in tools.indices() {
        for _ in 0..random.below(4) {
            let form = &FORMS[random.below(FORMS.len())];
            form.write(tools.pattern(&mut random, tool), text, declared);
        }
    }
    consent(seed, tools, text);
}

/// Adds consents with limits to a policy, and consents to what answers contain.
fn consent(seed: u64, tools: &CaseTools, text: &mut String) {
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
                let text = match value(policy, &mut random, shown) {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                slot["$slot"]["fill"] = json!(format!("write {text}"));
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

/// Returns a value of one of the forms that the policy has statements of, or one that resembles it.
fn value(policy: &str, random: &mut Random, shown: &str) -> Value {
    let statements = statements(policy);
    let has_form = |form: &&StatementForm| statements.iter().any(|statement| form.is_form_of(statement));
    let forms: Vec<&StatementForm> = FORMS.iter().filter(has_form).collect();
    match forms.as_slice() {
        [] => json!("12:00"),
        forms => forms[random.below(forms.len())].value(random, shown),
    }
}

/// The conditions of forms whose values occur in the world by chance.
pub(crate) const BY_CHANCE: [&str; 4] = ["is_decimal(", "is_yes_no(", "is_bool(", "is_integer("];

/// Whether a text may have a form that fixes only its beginning: a URL, or a path in a directory.
pub(crate) fn is_open(text: &str) -> bool {
    ["http://", "https://", "/reports/"].iter().any(|beginning| text.starts_with(beginning))
}

/// Whether a text, as JSON, has a form that a slot may release: a number, or yes or no.
pub(crate) fn is_released(text: &str) -> bool {
    let text = text.trim_matches('"').trim().to_ascii_lowercase();
    text.parse::<f64>().is_ok() || matches!(text.as_str(), "true" | "false" | "yes" | "no")
}
