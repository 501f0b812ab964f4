//! Tests that no text makes the reader of shell scripts panic, hang or be silent: texts from the alphabet of shells, and
//! deep and long texts, for which a reader with more than linear time would not end.

use flowgate_detect::MAX_FINDINGS;
use flowgate_detect::shell::{IssueSeverity, ShellCode, UnreadReason, UnsafeCommandKind, shell_code};
use proptest::prelude::*;

/// Reads a text and checks the invariants of the result.
fn read(text: &str) -> ShellCode {
    let code = shell_code(text);
    assert!(code.commands.len() <= MAX_FINDINGS && code.issues.len() <= MAX_FINDINGS);
    assert!(code.unread.len() <= MAX_FINDINGS + 1);
    let spans = code.commands.iter().map(|command| &command.span);
    let spans = spans.chain(code.unread.iter().map(|part| &part.span));
    for span in spans.chain(code.issues.iter().map(|issue| &issue.span)) {
        assert!(text.get(span.clone()).is_some(), "{span:?} in {text:?}");
    }
    // What a limit or an error cuts off is an error for a policy as well.
    let is_cut = |reason| matches!(reason, UnreadReason::Limit | UnreadReason::Syntax);
    if code.unread.iter().any(|part| is_cut(part.reason)) {
        let is_error =
            |kind, severity| kind == UnsafeCommandKind::Unreadable && severity == IssueSeverity::Error;
        assert!(code.issues.iter().any(|issue| is_error(issue.kind, issue.severity)), "{text:?}");
    }
    code
}

/// Generates fragments of scripts.
fn fragment() -> impl Strategy<Value = String> {
    let pieces = [
        "$(",
        "`",
        "\"",
        "'",
        "\\",
        "${",
        "$((",
        "))",
        "((",
        "[[ ",
        " ]]",
        "{ ",
        "; }",
        "}",
        "(",
        ")",
        "<(",
        ">(",
        "<<E\n",
        "<<-'E'\n",
        "\nE\n",
        "<<< ",
        "case x in ",
        "x) ",
        ";; ",
        "esac",
        "if ",
        "then ",
        "fi",
        "for i in ",
        "do ",
        "done",
        "f() ",
        "function ",
        "$'",
        "$\"",
        "#",
        "&&",
        "||",
        "|",
        "&",
        ";",
        "\n",
        " ",
        "\t",
        "\r",
        "\0",
        "x=",
        "x=(",
        "a[",
        "]=",
        "$x",
        "$@",
        "eval ",
        "bash -c ",
        "xargs ",
        "find . -exec ",
        "sudo -u ",
        "é",
        "\u{1f600}",
        "{a,b}",
        "*",
        "@(",
        "\\\n",
        "rm -rf /",
        "\\x41",
        "\\0",
        "2>",
        "&>",
        "{fd}>",
        "!",
        "time ",
        "\u{a0}",
        "sed s/a/b/e ",
        "ssh -o ",
        "-",
        "=",
    ];
    prop_oneof![
        8 => proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,3}",
        1 => "[a-z0-9./]{0,6}"
    ]
}

proptest! {
    #[test]
    fn every_text_is_read_without_panic(pieces in proptest::collection::vec(fragment(), 0..40)) {
        read(&pieces.concat());
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&String::from_utf8_lossy(&bytes));
    }
}

/// Constructs inside each other: too deep ones are reported, and small ones are read.
#[test]
fn nesting_is_limited_and_reported() {
    let forms = [
        ("$(", "rm", ")"),
        ("echo $(", "rm", ")"),
        ("echo \"$(", "rm", ")\""),
        ("echo ${x:-", "$(rm)", "}"),
        ("echo \"${x:-", "$(rm)", "}\""),
        ("echo $((1+", "$(rm)", "))"),
        ("cat <(", "rm", ")"),
        ("( ", "rm", ")"),
        ("{ ", "rm;", " };"),
        ("if ", "rm;", " then ls; fi;"),
        ("if ls; then ", "rm;", " fi;"),
        ("while ls; do ", "rm;", " done;"),
        ("for x in y; do ", "rm;", " done;"),
        ("case x in y) ", "rm", ";; esac"),
        ("case $(", "rm", ") in x) ;; esac"),
        ("f() { ", "rm;", " };"),
        ("x=(", "$(rm)", ")"),
        ("x=$(", "rm", ")"),
        ("[[ $(", "rm", ") ]]"),
        ("eval ", "rm", ""),
        ("sudo ", "rm", ""),
        ("xargs ", "rm", ""),
        ("watch ", "rm", ""),
        ("find . -exec ", "rm", " \\;"),
        ("ssh host ", "rm", ""),
        ("cat <<E\n$(", "rm", ")\nE\n"),
        ("! ", "rm", ""),
        ("rm | ", "rm", ""),
        ("rm && ", "rm", ""),
    ];
    for (open, middle, close) in forms {
        for n in [2, 500, 20_000] {
            let code = read(&format!("{}{middle}{}", open.repeat(n), close.repeat(n)));
            let reported = code.commands.iter().any(|command| command.name == "rm");
            assert!(reported || !code.unread.is_empty(), "{n} times {open}{close}");
        }
    }
}

/// Backquotes inside each other, whose backslashes double, and scripts in quotes.
#[test]
fn quoted_scripts_inside_each_other_are_limited() {
    let mut script = "rm".to_owned();
    let mut quoted = "rm".to_owned();
    for n in 0..14 {
        for text in [&script, &quoted] {
            let code = read(text);
            let reported = code.commands.iter().any(|command| command.name == "rm");
            assert!(reported || !code.unread.is_empty(), "{n}");
        }
        script = format!("echo `{}`", script.replace('\\', "\\\\").replace('`', "\\`"));
        quoted = format!("bash -c '{}'", quoted.replace('\'', "'\\''"));
        if quoted.len() > 100_000 {
            quoted = "rm".to_owned();
        }
    }
    let mut values = "x=aaaaaaaa;".to_owned();
    values.extend((0..200).map(|_| "x=$x$x;"));
    assert!(!read(&format!("{values}$x")).unread.is_empty());
}

/// Long texts. A reader that reads any part of them again and again would not end.
#[test]
fn long_texts_are_read_in_linear_time() {
    let units = [
        "rm\n",
        "'",
        "\"",
        "`",
        "$(",
        "${",
        "$((",
        "((",
        "[[ ",
        "\\",
        "\\\n",
        "a=",
        "a[",
        "x=(",
        "<<E\n",
        "cat <<E\n",
        "'\n",
        "\"\n",
        "(\n",
        "$(\n",
        "`\n",
        "if\n",
        "case x in\n",
        "{ \n",
        "f()\n",
        "for x in\n",
        "a | ",
        "a && ",
        "\n",
        " ",
        "#",
        "# a\n",
        "x=1;",
        "$x",
        "$x ",
        "eval a\n",
        "eval 'eval a'\n",
        "bash -c 'ls'\n",
        "<(",
        "{a,b}",
        "{",
        "a=a=",
        "a[a[",
        "2>",
        "<<<a ",
        "é",
        "xargs ",
        "\0",
        "curl -o a b; bash a\n",
        "cat <<'E'\nE\n",
        "<<E <<E ",
        "cat <<E\n$(a)\nE\n",
        "x() { a; };",
        "\r\n",
        "esac ",
        "case a in a) b;; ",
        "[[ a =~ (",
        "@(",
        "sudo -u ",
        "env a=b ",
        "find -exec ",
        "sed s/a/",
        "awk a ",
        "x=a; x=$x$x;",
        "`a` ",
        "\"`a`\"",
        "echo \\`",
        "$'\\x",
        "trap a b\n",
        "ssh a b\n",
    ];
    for unit in units {
        read(&unit.repeat(100_000 / unit.len()));
    }
    let code = read(&"rm x\n".repeat(400_000));
    assert!(code.unread.iter().any(|part| part.reason == UnreadReason::Limit));
}

/// Errors are not displaced by many warnings before them.
#[test]
fn errors_remain_among_many_warnings() {
    let text = format!("{}rm -rf /\n$x\n", "printenv\n".repeat(MAX_FINDINGS - 100));
    let kinds: Vec<_> = read(&text).issues.iter().map(|issue| issue.kind).collect();
    assert!(
        kinds.contains(&UnsafeCommandKind::RemoveAll) && kinds.contains(&UnsafeCommandKind::UnknownCommand)
    );
    let text = format!("rm -rf /\n{}", "printenv\n".repeat(3 * MAX_FINDINGS));
    let code = read(&text);
    let kinds: Vec<_> = code.issues.iter().map(|issue| issue.kind).collect();
    assert!(kinds.contains(&UnsafeCommandKind::RemoveAll) && kinds.contains(&UnsafeCommandKind::Unreadable));
    assert_eq!(code.unread.first().map(|part| part.reason), Some(UnreadReason::Limit));
    let part = code.unread.first().unwrap();
    assert!(text.get(part.span.clone()).is_some());
}
