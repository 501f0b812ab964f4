//! Tests of `flowgate explain`: the tree of a call, the suggested changes of the policy, and the measured effect of
//! them.

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

#[test]
fn a_call_is_explained_with_changes_that_were_tried() {
    check(&["explain", POLICY, TRACE, "--call", "c9"], 2, "no call has the id `c9`");
    check(&["explain", POLICY, TRACE, "--call", "c1"], 0, "✓ permit get_recent_transactions (c1)");
    let undeclared = file(
        "undeclared.flow",
        b"lattice integrity: trusted < untrusted\nlabel m as untrusted if:\n    (m: Message)\n",
    );
    let trace = |tool: &str, arguments: &str| {
        let run = format!(
            r#"[{{"role":"user","content":"hi"}},{{"role":"assistant","tool_calls":[{{"id":"c","function":{{"name":{tool:?},"arguments":{arguments:?}}}}}]}}]"#
        );
        file(&format!("undeclared-{tool}.json"), run.as_bytes())
    };
    check(
        &["explain", name(&undeclared), name(&trace("get-things", "{}"))],
        1,
        "(call: ToolCall) is tool:\"get-things\"",
    );
    // An id chooses what is read.
    let by_id = trace("get_event", r#"{"event_id": "7"}"#);
    check(&["explain", name(&undeclared), name(&by_id)], 1, "(call: ToolCall) is tool:get_event");
    // A tool that may act is not opened to everyone, nor is one that reads a folder of the caller's choice.
    for trace in [trace("my-tool", "{}"), trace("list_mails", r#"{"folder": "inbox"}"#)] {
        check(&["explain", name(&undeclared), name(&trace)], 1, "None of the forms tried would permit it.");
    }
    check(&["explain", POLICY, TRACE, "--against", "-"], 2, "cannot read the standard input");
    check(&["explain", POLICY, TRACE, "--against", "no-such-corpus.jsonl"], 2, "there is no such file");
}

/// The payment to Mallory is an attack: nothing that would permit it is suggested, under either method.
#[test]
fn the_payment_of_an_attack_gets_no_suggestion() {
    for method in ["everything", "provenance"] {
        let said = text(&flowgate(&["explain", POLICY, TRACE, "--call", "c2", "--influence", method]));
        assert!(said.contains("None of the forms tried would permit it"), "{said}");
        assert!(said.contains("typed `endorse`") && said.contains("`consent`"), "{said}");
        assert!(said.contains("holds prose, in which a stranger can write an instruction"), "{said}");
        assert!(!said.contains("as trusted if:") && !said.contains("payload call"), "{said}");
        assert!(said.contains("its value occurs first in content[1].note"), "{said}");
    }
}

/// A tool whose call depends on a mail, a policy, and parts of what is printed about it, or of what must not be.
struct Explanation {
    policy: &'static str,
    arguments: &'static str,
    says: &'static [&'static str],
    never: &'static [&'static str],
}

const EXPLANATIONS: &[Explanation] = &[
    // A date in a mail: the least harmful form comes first.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"day": "2024-05-19"}"#,
        says: &[
            "- typed `endorse`; what an attacker gains: the choice of the date in `day`, and nothing else",
            "endorse call.arguments.day as trusted if:",
            "its value occurs first in content[0].day in the answer of read_mail",
        ],
        never: &["payload call.arguments.day"],
    },
    // A recipient: neither payload nor endorsement, whatever the value is.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"recipient": "mallory@x.org"}"#,
        says: &[
            "None of the forms tried would permit it.",
            "only with `--against`",
            "a stranger who can set this field can choose `recipient`",
        ],
        never: &["payload call", "as trusted if:"],
    },
    // Words that the tool forwards.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"body": "the train leaves at nine from platform four"}"#,
        says: &[
            "- `payload` of a text; what an attacker gains: the words of `body`",
            "payload call.arguments.body if:",
        ],
        never: &["label out"],
    },
    // Words that are a command are no payload.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"cmd": "the train leaves at nine from platform four"}"#,
        says: &["None of the forms tried would permit it."],
        never: &["payload call", "as trusted if:"],
    },
    // Secrecy alone: standing consent, before a wider requirement.
    Explanation {
        policy: "require trusted if:\n    (call: ToolCall) is tool:book\nlabel out.content[*].card as trusted if:\n    (out: ToolOutput) is tool:read_mail\n",
        arguments: r#"{"card": "4111-22"}"#,
        says: &[
            "- `consent`; what an attacker gains: nothing while the whole call is trusted",
            "consent private for call.arguments.card if:",
            "private data in any argument of book, for everyone to whom this tool sends it",
        ],
        never: &[],
    },
    // A number that selects an object needs evidence; a value that is nowhere is reported.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"seat_id": 90817}"#,
        says: &[
            "its value was found nowhere in the trace: the model computed it, or made it up",
            "None of the forms tried",
        ],
        never: &["is_integer", "is_number"],
    },
    // What the policy declares a sum of money is not left to the author of a text, whatever the argument's name.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\nrole call.arguments.pay is amount if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"pay": 90817}"#,
        says: &["None of the forms tried"],
        never: &["is_integer", "is_number"],
    },
    // Without a role, and by its name, a number that decides little.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"pay": 90817}"#,
        says: &["is_integer(call.arguments.pay)"],
        never: &[],
    },
    // Items of a list, one by one; numbers and yes or no that are spelled as texts, unless they are a sum of money.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"days": ["2024-05-19", "2024-05-20"]}"#,
        says: &[
            "what an attacker gains: the choice of the date in each item of `days`, and nothing else",
            "endorse item as trusted if:",
            "(item: str) in call.arguments.days",
            "is_date(item)",
        ],
        never: &["payload call"],
    },
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"weight": "12.50"}"#,
        says: &["is_decimal(call.arguments.weight)"],
        never: &[],
    },
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"price": "12.50"}"#,
        says: &["None of the forms tried"],
        never: &["is_decimal"],
    },
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"late": "Yes"}"#,
        says: &["is_yes_no(call.arguments.late)"],
        never: &[],
    },
    // A URL on a host that the user names: only with evidence, since a stranger chooses what it says there.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"url": "https://shop.example.org/deal?id=7"}"#,
        says: &["only with `--against`", "on the hosts that messages name: a stranger can choose among them"],
        never: &["is_url_on"],
    },
    // A path in a folder, and a code by its pattern: only with evidence.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"file": "/reports/may.txt"}"#,
        says: &["only with `--against`", "in \"/reports\": a stranger can choose any path below this folder"],
        never: &["is_path_in"],
    },
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"seat": "AB12"}"#,
        says: &["only with `--against`", "`endorse` of `seat` by a pattern"],
        never: &["fullmatch"],
    },
    // A rule that asks is not said to deny.
    Explanation {
        policy: "require top if:\n    (call: ToolCall) is tool:book\nask \"sure?\" if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"day": "2024-05-19"}"#,
        says: &["a rule stops the call: only a change of the rule would permit it"],
        never: &["denies"],
    },
    // A one-time code is followed to the mail that it came from.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"otp": "481516"}"#,
        says: &["its value occurs first in content[0].body in the answer of read_mail: untrusted, private"],
        never: &[],
    },
    // An argument whose name is no word: it is named in brackets.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\n",
        arguments: r#"{"return-day": "2024-05-19"}"#,
        says: &[
            "endorse call.arguments[\"return-day\"] as trusted if:",
            "its value occurs first in content[0].day in the answer of read_mail",
        ],
        never: &[],
    },
    // An endorsement that is there and does not apply.
    Explanation {
        policy: "require trusted, private if:\n    (call: ToolCall) is tool:book\nendorse call.arguments.day as trusted if:\n    (call: ToolCall) is tool:book\n    is_date(call.arguments.day)\n",
        arguments: r#"{"day": "May the 19th"}"#,
        says: &["did not apply: its conditions do not hold for the value"],
        never: &[],
    },
];

#[test]
fn suggestions_are_ranked_by_harm() {
    let preface = "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n\
                   label message as trusted, public if:\n    (message: Message)\n    message.role == \"user\"\n\
                   require top if:\n    (call: ToolCall) is tool:read_mail\n";
    for (index, explanation) in EXPLANATIONS.iter().enumerate() {
        let Explanation { policy, arguments, says, never } = explanation;
        let policy = file(&format!("advice-{index}.flow"), format!("{preface}{policy}").as_bytes());
        let call = |id: &str, tool: &str, arguments: &str| {
            serde_json::json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}]})
        };
        let mail = r#"[{"day": "2024-05-19", "from": "mallory@x.org", "card": "4111-22",
                       "days": ["2024-05-19", "2024-05-20"], "weight": "12.50", "late": "Yes",
                       "file": "/reports/may.txt", "seat": "AB12",
                       "link": "https://shop.example.org/deal?id=7",
                       "body": "Your code is 481516. By the way, the train leaves at nine from platform four."}]"#;
        let run = serde_json::json!([
            {"role": "user", "content": "Read my mail and book it at https://shop.example.org/."},
            call("c1", "read_mail", "{}"),
            {"role": "tool", "tool_call_id": "c1", "content": mail},
            call("c2", "book", arguments),
        ]);
        let run = file(&format!("advice-{index}.json"), run.to_string().as_bytes());
        let output =
            flowgate(&["explain", name(&policy), name(&run), "--call", "c2", "--influence", "provenance"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in *says {
            assert!(said.contains(part), "{index}: there is no {part:?} in\n{said}");
        }
        for part in *never {
            assert!(!said.contains(part), "{index}: there is {part:?} in\n{said}");
        }
    }
}
