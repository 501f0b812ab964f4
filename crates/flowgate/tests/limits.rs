//! Tests of resource limits: no policy and no trace can use unbounded time or memory. Each row is one attempt.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use allocation_counter::AllocationInfo;
use flowgate::analysis::{AnalysisOptions, EvaluationFailureKind, analyze};
use flowgate::monitor::{Limits, Monitor, PushError, ReasonKind, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Tool, TraceEntry, read};
use serde_json::{Value, json};

/// The fuel of one row, and the most allocations that it may make: creating a value costs fuel.
const FUEL: u64 = 20_000_000;
/// The most bytes that a row may hold at a time. An evaluation may create half as much; the rest is its
/// input.
const MEMORY: u64 = 1 << 30;

/// Runs `what` on this thread, and counts its allocations and the most bytes that it held.
///
/// Limits are tested by work, never by the clock: fuel (its exhaustion is a failure that rows expect),
/// allocations and memory. A row whose work these do not bound does not terminate.
fn measured<T>(what: impl FnOnce() -> T) -> (T, AllocationInfo) {
    let mut result = None;
    let work = allocation_counter::measure(|| result = Some(what()));
    (result.unwrap(), work)
}

/// Checks the kinds of failures of a rule with these lines over one message, with fuel for a fraction of a
/// second.
fn check(lines: &[&str], content: &Value, expected: &[EvaluationFailureKind]) {
    let source = format!("raise \"x\" if:\n    (m: Message)\n    {}\n", lines.join("\n    "));
    let policy = Policy::parse(&source).map_err(|problems| format!("{source}\n{problems:?}")).unwrap();
    let entries = read::list(&[json!({"role": "user", "content": content})]).unwrap();
    let options = AnalysisOptions { fuel: FUEL, ..AnalysisOptions::default() };
    let (analysis, work) = measured(|| analyze(&policy, entries, &options).unwrap());
    assert!(work.bytes_max < MEMORY && work.count_total < FUEL, "{source} takes {work:?}");
    let kinds: Vec<EvaluationFailureKind> = analysis.failures.iter().map(|failure| failure.kind).collect();
    assert_eq!(kinds, expected, "{source} says {:?}", analysis.failures);
}

/// Returns `a0 := FIRST`, `a1 := NEXT` of `a0`, and so on.
fn doubled(first: &str, next: &str, times: usize) -> Vec<String> {
    let steps = (0..times).map(|step| format!("a{} := {}", step + 1, next.replace('#', &format!("a{step}"))));
    std::iter::once(format!("a0 := {first}")).chain(steps).collect()
}

#[test]
fn memory_is_bounded() {
    let fuel = &[EvaluationFailureKind::Fuel];
    for (first, next) in [("m.content + \"\"", "# + #"), ("[1]", "# + #"), ("1", "[#, #]")] {
        let mut lines = doubled(first, next, 30);
        lines.push("a30 == 3".to_owned());
        check(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &json!("x".repeat(1000)), fuel);
    }
    let text = json!("a".repeat(80_000));
    check(&["m.content.replace(\"a\", m.content) == \"x\""], &text, fuel);
    check(&["m.content.join([str(x) for x in range(100000)]) == \"x\""], &text, fuel);
    check(&["m.content.format(m.content) == \"x\""], &json!("{0}".repeat(30_000)), fuel);
    check(&["len([f\"{m.content}\" for i in range(100000)]) == 1"], &text, fuel);
    check(&["len([m.content[0:70000] for i in range(100000)]) == 1"], &text, fuel);
    check(&["len([m.content.upper() for i in range(100000)]) == 1"], &text, fuel);
}

#[test]
fn memory_of_what_is_nested_is_bounded() {
    let fuel = &[EvaluationFailureKind::Fuel];
    let nested = json!([{"type": "a", "l": [["a".repeat(1_000_000)]]}]);
    check(&["len([m.content[0].l + [] for i in range(10000)]) == 1"], &nested, fuel);
    let spelled = json!(format!("[[{}]]", vec!["1"; 100_000].join(",")));
    check(&["t := \" \" + m.content", "len([json_loads(t) for i in range(10000)]) == 1"], &spelled, fuel);
}

#[test]
fn time_is_bounded() {
    let fuel = &[EvaluationFailureKind::Fuel];
    let text = json!("a".repeat(1_000_000));
    for each in ["s[i]", "s[-1]", "s.b", "len(s)", "s[1:2]", "s < s", "s == s", "find(r\"b\", s)"] {
        let each = format!("len([{each} for i in range(100000)]) == 1");
        check(&["s := m.content + \"\"", &each], &text, fuel);
    }
    let numbers = |lines: &[&str]| check(lines, &json!("x"), fuel);
    numbers(&["l := range(100000)", "len([l == range(100000) for i in range(100000)]) == 1"]);
    numbers(&["len([sorted(range(100000)) for i in range(100000)]) == 1"]);
    let keys = |backwards: bool| {
        let numbers = (0..60_000).map(|n| if backwards { 60_000 - n } else { n });
        format!("{{{}}}", numbers.map(|n| format!("\"k{n}\": 1")).collect::<Vec<_>>().join(","))
    };
    let maps = format!("[{}, {}]", keys(false), keys(true));
    check(&["a := json_loads(m.content)", "a[0] == a[1]"], &json!(maps), &[]);
    check(&["a := json_loads(m.content)[0]", "len([a.zz for i in range(100000)]) == 1"], &json!(maps), fuel);
    // Searches that read the rest of the text at each character.
    let text = json!("A".repeat(60_000));
    check(
        &["len([find(r\".*[^A-Z]|[A-Z]\", m.content) for i in range(1000)]) == 1"],
        &text,
        &[EvaluationFailureKind::Type],
    );
    check(
        &["len(find(r\"(?=A*z)b|(?=A*y)c\", m.content)) == 1"],
        &json!("A".repeat(90_000)),
        &[EvaluationFailureKind::Type],
    );
}

#[test]
fn places_are_bounded() {
    check(&["\"a\" in m.content"], &json!("a".repeat(1_000_000)), &[]);
    let blocks: Vec<Value> = (0..20_000).map(|_| json!({"type": "text", "text": "a"})).collect();
    check(&["\"a\" in m.content"], &json!(blocks), &[]);
    check(&["(t: TextChunk) in m", "t.text == \"a\""], &json!(blocks), &[]);
}

#[test]
fn the_text_of_a_violation_is_bounded() {
    let said = vec!["m.content"; 2000].join(", ");
    let source = format!("raise Violation({said}) if:\n    (m: Message)\n");
    let policy = Policy::parse(&source).unwrap();
    let content = "x".repeat(1_000_000);
    let entries = read::list(&[json!({"role": "user", "content": content})]).unwrap();
    let analysis = analyze(&policy, entries, &AnalysisOptions::default()).unwrap();
    assert_eq!(analysis.failures[0].kind, EvaluationFailureKind::Fuel);
}

#[test]
fn compiling_is_bounded() {
    let check = |source: String, code: Option<&str>| {
        let (problems, work) = measured(|| Policy::parse(&source).err().unwrap_or_default());
        assert!(work.bytes_max < MEMORY / 4 && work.count_total < FUEL / 2, "{work:?}");
        let has = |code| problems.iter().any(|problem| problem.code == code);
        assert_eq!(code.is_some(), !problems.is_empty(), "{:?}", problems.first());
        assert!(code.is_none_or(has), "{:?}", problems.last());
        assert!(problems.len() <= 110, "{}", problems.len());
    };
    for block in ["count(min=1)", "forall", "not"] {
        let nested = |depth: usize| format!("{}{block}:\n", "    ".repeat(depth + 1));
        let variable = |depth: usize| format!("{}(v{depth}: Message)\n", "    ".repeat(depth + 2));
        let blocks: String = (0..16).map(|depth| nested(depth) + &variable(depth)).collect();
        check(format!("raise \"x\" if:\n    (c: ToolCall)\n{blocks}"), None);
    }
    let constants: String = (0..10_000).map(|n| format!("{}{n} := 1\n", "a".repeat(30))).collect();
    let unknown = vec!["a".repeat(34); 5_000].join(" or ");
    check(format!("{constants}raise \"x\" if:\n    (m: Message)\n    {unknown}\n"), Some("unknown-name"));
    let chain: String = (0..15_000).map(|n| format!("p{n}(x: str) := p{}(x)\n", n + 1)).collect();
    check(chain + "p15000(x: str) := x == \"a\"\n", None);
    let rule =
        |n: usize| format!("raise \"x\" if:\n    (m: Message)\n    match(r\"\\w{{150}}{n}\", m.content)\n");
    check((0..200).map(rule).collect(), Some("too-many"));
    let rule = |n: usize| format!("raise \"x\" if:\n    (c: ToolCall) is tool:r\"\\w{{150}}{n}\"\n");
    check((0..200).map(rule).collect(), Some("too-many"));
}

/// No event of a session is discarded, so a full session accepts no events and permits no calls, and reports
/// that.
#[test]
fn a_full_session_takes_in_nothing_and_permits_nothing() {
    let policy = "lattice secrecy: public < private\nrequire top if:\n    (call: ToolCall) is tool:list\n";
    let policy = Arc::new(Policy::parse(policy).unwrap());
    let full = "the session has reached its limit of events; begin a new session";
    let message = || TraceEntry::user("hi");
    let call = || Call::from_json("1".to_owned(), Tool::local("list"), "{}");
    let mut monitor = Monitor::with_limits(Arc::clone(&policy), Limits { events: 2, ..Limits::default() });
    monitor.push(message()).unwrap();
    // A permit takes the last event and keeps it when it is dropped, because the judgement itself is
    // recorded.
    let permit = monitor.judge(call());
    assert!(matches!(permit, Verdict::Permit(_)), "{permit:?}");
    assert_eq!(monitor.push(message()).unwrap_err(), PushError::Full);
    let Verdict::Deny(denial) = monitor.judge(call()) else { panic!("a full session permits a call") };
    let reasons: Vec<(ReasonKind, &str)> =
        denial.judgement().reasons.iter().map(|reason| (reason.kind, reason.message.as_str())).collect();
    assert_eq!(reasons, [(ReasonKind::Limit, full)]);
    drop(permit);
    assert_eq!(monitor.push(message()).unwrap_err().to_string(), full);
    assert_eq!(monitor.trace().len(), 2);
}
