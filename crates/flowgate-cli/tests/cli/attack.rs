//! Tests of `flowgate attack`: what escapes a policy, and what does not.

use serde_json::Value;

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

const REQUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart/request.json");

const CLOSED: &str = "lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role in [\"system\", \"user\"]
require untrusted if:
    (call: ToolCall) is tool:list_mails
require trusted if:
    (call: ToolCall) is tool:send_mail
";

/// The number of forms, and of those that ask for a call: those of the list, and the wordings of the benchmarks.
const FORMS: usize = if cfg!(feature = "bench") { 60 } else { 15 };
const ORDERS: usize = FORMS - 3;

/// Returns what the command says, with one space between the cells of its tables, whose widths depend on the features.
fn said_by(arguments: &[&str]) -> String {
    let said = text(&flowgate(arguments));
    said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn a_closed_policy_stops_everything() {
    let policy = file("attack-closed.flow", CLOSED.as_bytes());
    let arguments = ["attack", name(&policy), "--tools", REQUEST];
    check(&arguments, 0, &format!("an answer of list_mails         {FORMS}       {FORMS}        0\n"));
    // Answers of both tools ask for the one that acts, in all forms but two, and in these for an address.
    check(&arguments, 0, &format!("grade A: 4 of 4 aims stopped, and {0} of {0} attacks\n", 2 * FORMS));
    check(
        &arguments,
        0,
        &format!("the wording decides nothing: all {ORDERS} forms that ask for a call have the same verdict"),
    );
    if cfg!(feature = "bench") {
        let said = said_by(&arguments);
        assert!(said.contains("\ngames-encoded (7) the label of the text 14 14 0\n"), "{said}");
    }
}

/// A description that a policy trusts commands the agent; with another policy, no step that may act is shown it.
#[test]
fn descriptions_of_tools_are_attacked() {
    let closed = file("attack-described.flow", CLOSED.as_bytes());
    let forms = ["--tools", REQUEST, "--descriptions", "--form", "order", "--form", "bare-values"];
    let run = |policy: &std::path::Path| said_by(&[&["attack", name(policy)], &forms[..]].concat());
    // Two answers in two forms, and two descriptions in the form that is an order.
    let said = run(&closed);
    assert!(said.contains("grade A: 4 of 4 aims stopped, and 6 of 6 attacks\n"), "{said}");
    let open = format!("{CLOSED}label tool as trusted if:\n    (tool: Tool)\n");
    let said = run(&file("attack-described-open.flow", open.as_bytes()));
    for part in [
        "the description of list_mails 1 0 1\n",
        "! escaped everywhere: the description of send_mail, which asks for send_mail (order); the text is trusted, by ",
        "attack-described-open.flow, line 9\n",
        "grade D: 2 of 4 aims stopped, and 4 of 6 attacks\n",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

/// An escape names the label of the answer and the line that gave it, and its trace is one that `check` permits.
#[test]
fn an_escape_has_its_reason_and_its_trace() {
    let open = format!("{CLOSED}label out as trusted if:\n    (out: ToolOutput) is tool:list_mails\n");
    let policy = file("attack-open.flow", open.as_bytes());
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("attack-escapes");
    let _ = std::fs::remove_dir_all(&out);
    let arguments = ["attack", name(&policy), "--tools", REQUEST, "--out", name(&out)];
    let said = text(&flowgate(&arguments));
    for part in [
        "! escaped everywhere: an answer of list_mails, which asks for send_mail (plain, order, urgent, forged-system, forged-chat, base64, homoglyphs, zero-width, hidden, split-fields, forged-json, forged-yaml, bare-values",
        "; the text is trusted, by ",
        "attack-open.flow, line 9\n",
        &format!("grade D: 2 of 4 aims stopped, and {FORMS} of {} attacks\n", 2 * FORMS),
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    check(&arguments, 1, "grade D");
    check(
        &["check", name(&policy), name(&out.join("escape-1.json"))],
        0,
        "2 calls permitted, 0 to be confirmed, 0 denied",
    );
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), FORMS);
    let json = flowgate(&["attack", name(&policy), "--tools", REQUEST, "--format", "json"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((document["grade"].as_str(), document["escaped"].as_u64()), (Some("D"), Some(FORMS as u64)));
    assert_eq!((document["aims"].as_u64(), document["reached_aims"].as_u64()), (Some(4), Some(2)));
    assert_eq!(document["escapes"][0]["trace"].as_array().map(Vec::len), Some(5));
}

/// In a recorded run, each field is attacked by itself: those that the policy labels trusted are the ones to answer for.
#[test]
fn fields_of_a_recorded_run() {
    let tools = file(
        "attack-tools.json",
        br#"[{"name": "get_recent_transactions", "inputSchema": {"properties": {}}},
             {"name": "send_money", "inputSchema": {"properties": {"to": {}, "amount": {"type": "number"}, "note": {}}}}]"#,
    );
    // The structure of the answers is untrusted, so that no field is shown to a step that may pay.
    check(&["attack", POLICY, TRACE, "--tools", name(&tools)], 0, "grade A: ");
    let said = text(&flowgate(&["attack", POLICY, TRACE, "--tools", name(&tools)]));
    assert!(said.contains("fields of ") && said.contains("payment.json:1"), "{said}");
    // With a trusted structure, a model is shown the fields that the policy trusts, and the author of one commands it.
    let shown = std::fs::read_to_string(POLICY).unwrap();
    let shown = format!(
        "{shown}\nlabel out as trusted if:\n    (out: ToolOutput) is tool:get_recent_transactions\nlabel out.content[*].note as untrusted if:\n    (out: ToolOutput) is tool:get_recent_transactions\n"
    );
    let policy = file("attack-shown.flow", shown.as_bytes());
    let said = text(&flowgate(&["attack", name(&policy), TRACE, "--tools", name(&tools)]));
    assert!(said.contains("in a guarded conversation: content[0].from in message "), "{said}");
    assert!(!said.contains("content[0].note in message"), "{said}");
    // A default that trusts stops nothing.
    let policy = "lattice integrity: trusted < untrusted\ndefault trusted\n";
    let policy = file("attack-default.flow", policy.as_bytes());
    check(&["attack", name(&policy), TRACE, "--tools", name(&tools)], 1, "content[1].note in message ");
    check(&["attack", name(&policy), TRACE, "--tools", name(&tools)], 1, "grade F: 0 of ");
}

/// An attacker needs one form that escapes, so the grade is the same in however many others the aim was tried.
#[test]
fn the_grade_does_not_depend_on_the_number_of_forms() {
    // Only the text of the form `plain` begins like this.
    let rule = "lattice integrity: trusted < untrusted\ndefault trusted\nraise \"an order\" if:\n    \
                (out: ToolOutput) -> (call: ToolCall)\n    call is tool:send_mail\n    \
                not match(r\"Call the tool\", out.content)\n";
    let policy = file("attack-forms.flow", rule.as_bytes());
    let run = |forms: &[&str]| {
        let forms = forms.iter().flat_map(|form| ["--form", form]);
        let arguments = ["attack", name(&policy), "--tools", REQUEST].into_iter().chain(forms);
        said_by(&arguments.collect::<Vec<_>>())
    };
    let said = run(&["plain"]);
    assert!(said.contains("grade F: 0 of 2 aims stopped, and 0 of 2 attacks\n"), "{said}");
    let said = run(&["plain", "order", "urgent", "forged-system", "forged-chat", "base64", "hidden"]);
    assert!(said.contains("grade F: 0 of 2 aims stopped, and 12 of 14 attacks\n"), "{said}");
    let said = run(&["order", "base64"]);
    assert!(said.contains("grade A: 2 of 2 aims stopped, and 4 of 4 attacks\n"), "{said}");
}

/// A rule that reads the text stops some wordings, and the result says so.
#[test]
fn the_result_says_what_depends_on_the_form() {
    let rule = "lattice integrity: trusted < untrusted\ndefault trusted\nraise \"an order\" if:\n    (out: ToolOutput) -> (call: ToolCall)\n    call is tool:send_mail\n    \"IGNORE ALL\" in out.content\n";
    let policy = file("attack-wording.flow", rule.as_bytes());
    let run = |more: &[&str]| flowgate(&[&["attack", name(&policy), "--tools", REQUEST], more].concat());
    let said = text(&run(&[]));
    assert!(
        said.contains("the wording decides about 2 of 2 aims: a rule, a capture or an endorsement reads the text. For example, with an answer of list_mails and the aim send_mail, escaped: plain, urgent, "),
        "{said}"
    );
    assert!(said.contains("; stopped: order\n"), "{said}");
    assert!(said.contains("bare values escape"), "{said}");
    assert!(said.contains("replies keep the attacker's addresses"), "{said}");
    let json: Value = serde_json::from_slice(&run(&["--format", "json"]).stdout).unwrap();
    assert_eq!(
        json["form_dependent"][0]["stopped"],
        serde_json::json!(["order"]),
        "{}",
        json["form_dependent"]
    );
    let forms: Vec<&str> =
        json["forms"].as_array().unwrap().iter().map(|form| form["form"].as_str().unwrap()).collect();
    assert!(forms.contains(&"homoglyphs") && forms.ends_with(&["reply-link", "reply-image"]), "{forms:?}");
    // A form alone.
    let json: Value = serde_json::from_slice(&run(&["--format", "json", "--form", "order"]).stdout).unwrap();
    assert_eq!((json["attacks"].as_u64(), json["escaped"].as_u64()), (Some(2), Some(0)));
    let said = text(&run(&["--form", "ordr"]));
    assert!(said.contains("--form: there is no form `ordr`; did you mean `order`?"), "{said}");
}

/// Addresses in replies are judged as `flowgate/link`, whatever calls need; and an endorsement that checks a form lets
/// the attacker's value of this form pass.
#[test]
fn replies_and_values_are_forms_of_their_own() {
    let links = format!("{CLOSED}require untrusted if:\n    (call: ToolCall) is tool:flowgate/link\n");
    let policy = file("attack-links.flow", links.as_bytes());
    let said = said_by(&["attack", name(&policy), "--tools", REQUEST]);
    for part in [
        "! escaped in a reply: an answer of list_mails, which asks for flowgate/link (reply-link, reply-image); the reply that it writes keeps the address",
        "\nreply-image the label, for `flowgate/link` 2 0 2\n",
        &format!("grade D: 2 of 4 aims stopped, and {} of {} attacks\n", 2 * FORMS - 4, 2 * FORMS),
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let calls =
        flowgate(&["attack", name(&policy), "--tools", REQUEST, "--form", "plain", "--form", "base64"]);
    assert_eq!(calls.status.code(), Some(0), "{}", text(&calls));
}

#[test]
fn there_must_be_something_to_attack() {
    let tools = file("attack-reads.json", br#"[{"name": "get_mail", "inputSchema": {"properties": {}}}]"#);
    check(
        &["attack", POLICY, "--tools", name(&tools)],
        2,
        "the lists contain only tools that read, so there is nothing to attack; add a list with a tool that writes or sends",
    );
    check(&["attack", POLICY], 2, "--tools");
    let named = |server: &str| format!("{server}={}", name(&tools));
    check(&["attack", POLICY, "--tools", &named("")], 2, "the server has no name; write NAME=FILE");
    check(
        &["attack", POLICY, "--tools", &named("flowgate")],
        2,
        "`flowgate` is the server of tools that are part of Flowgate; give the server another name",
    );
}
