//! Tests of policies that parse Python, with and without the parser. `cargo test --workspace` builds the parser, and
//! `cargo test -p flowgate` does not.

use flowgate::policy::Policy;

/// Returns the diagnostics of a rule with this condition; empty if it compiles.
fn problems(condition: &str) -> Vec<String> {
    let policy = format!("raise \"no\" if:\n    (call: ToolCall)\n    {condition}\n");
    match Policy::parse(&policy) {
        Ok(_) => Vec::new(),
        Err(diagnostics) => diagnostics.iter().map(|diagnostic| diagnostic.render(&policy)).collect(),
    }
}

/// Conditions that parse Python, each with the function that it uses.
const PARSING: [(&str, &str); 4] = [
    ("python_code(call.function.arguments.code).syntax_error", "python_code"),
    ("\"os\" in ipython_code(data=call.function.arguments.code).imports", "ipython_code"),
    ("len(semgrep(call.function.arguments.code, \"python\")) > 0", "semgrep"),
    ("len(semgrep(call.function.arguments.code, lang=\"python\")) > 0", "semgrep"),
];

#[test]
fn a_policy_that_parses_no_python_compiles_without_the_parser() {
    for condition in [
        "len(semgrep(call.function.arguments.code, \"bash\")) > 0",
        "len(semgrep(call.function.arguments.code, call.function.arguments.language)) > 0",
        "len(secrets(call)) > 0",
    ] {
        assert_eq!(problems(condition), Vec::<String>::new(), "{condition}");
    }
}

#[cfg(feature = "python")]
#[test]
fn a_policy_that_parses_python_compiles_with_the_parser() {
    for (condition, _) in PARSING {
        assert_eq!(problems(condition), Vec::<String>::new(), "{condition}");
    }
}

#[cfg(not(feature = "python"))]
#[test]
fn a_policy_that_parses_python_does_not_compile_without_the_parser() {
    for (condition, function) in PARSING {
        let problems = problems(condition);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let message = format!("`{function}` is not available: this build has no Python parser");
        assert!(problems[0].contains(&message), "{}", problems[0]);
        assert!(problems[0].contains("build `flowgate` with the feature `python`"), "{}", problems[0]);
    }
}
