//! Implements the built-in functions that read programs: Python, shell scripts, and JavaScript that calls tools. They
//! return what a program does, by the parsers of [`detect`](crate::detect). The evaluator calls them through the table
//! in [`builtin`](super).
//!
//! Each function takes any value (a text, a message, an output, or a list of these) and reads every text in it as one
//! program. A part that cannot be read is reported, since it could do anything. The functions record the locations of
//! their findings, so that a violation can report them.

use super::detector::{dict, strings, texts};
use super::{Function, resolved_argument, row, type_error};
use crate::detect::tool_script::ScriptValue;
use crate::detect::{python, shell, tool_script};
use crate::eval::{Evaluator, Result, Value};

pub(super) const TABLE: &[Function] = &[
    Function {
        parameters: &["data", "ipython_mode"],
        ..row(
            "python_code",
            (1, 2),
            "What Python code in a value does: `.imports`, `.builtins`, `.function_calls`, `.unsafe_calls`, `.syntax_error`.",
            |e, a| {
                let ipython = resolved_argument(e, a, 1)?.is_true();
                python_code(e, a, ipython)
            },
        )
    },
    Function {
        parameters: &["data"],
        ..row(
            "ipython_code",
            (1, 1),
            "What Python code in the cells of a notebook does, with the results of `python_code`.",
            |e, a| python_code(e, a, true),
        )
    },
    Function {
        parameters: &["data"],
        ..row(
            "shell_code",
            (1, 1),
            "What shell scripts in a value run: `.commands`, `.invocations` (each with `.name`, `.arguments`, `.computed`), \
            `.unsafe_commands`, `.unreadable`, `.reasons`.",
            shell_code,
        )
    },
    Function {
        parameters: &["data"],
        ..row(
            "tool_script",
            (1, 1),
            "Which tools programs in JavaScript call by `tools.NAME(…)`: `.calls` (each with `.tool`, `.arguments`), \
            `.unreadable`, `.reasons`.",
            tool_calls_of_scripts,
        )
    },
    Function {
        parameters: &["data", "lang"],
        ..row(
            "semgrep",
            (2, 2),
            "The unsafe calls in code, `lang` being \"python\" or \"bash\": each with `.description`, `.severity` and `.lang`.",
            semgrep,
        )
    },
];

/// Implements `python_code` and `ipython_code`: returns a map of what the Python code in all texts does together, with
/// the first syntax error. With `ipython`, each text is a cell of a notebook, which may have `!commands` and `%magics`.
/// Records the locations of unsafe calls.
///
/// # Errors
/// If this build has no Python parser, or the fuel is spent.
fn python_code(evaluator: &mut Evaluator<'_>, arguments: &[Value], ipython: bool) -> Result<Value> {
    require_python_parser()?;
    let (mut imports, mut builtins, mut calls, mut unsafe_calls) = (vec![], vec![], vec![], vec![]);
    let mut syntax_error = None;
    for piece in texts(evaluator, arguments)? {
        evaluator.spend(piece.text.len())?;
        let code = python::python_code(&piece.text, ipython);
        imports.extend(code.imports);
        builtins.extend(code.builtins);
        calls.extend(code.function_calls);
        syntax_error = syntax_error.or(code.syntax_error);
        for finding in code.unsafe_calls {
            unsafe_calls.push(finding.kind);
            evaluator.mark_bytes(piece.location, finding.span);
        }
    }
    let entries = [
        ("imports", strings(imports)),
        ("builtins", strings(builtins)),
        ("function_calls", strings(calls)),
        ("unsafe_calls", strings(unsafe_calls)),
        ("syntax_error", Value::Bool(syntax_error.is_some())),
        ("syntax_error_exception", syntax_error.map_or(Value::None, Value::text)),
    ];
    Ok(dict(entries))
}

/// Fails if this build has no Python parser, since code that was not analysed must not count as harmless. If a policy
/// names the language Python as a constant, the compiler rejects the policy already; this check is for a language that
/// the policy computes.
fn require_python_parser() -> Result<()> {
    if python::AVAILABLE {
        Ok(())
    } else {
        type_error("this build has no Python parser: build `flowgate` with the feature `python`".to_owned())
    }
}

/// Implements `shell_code`: returns a map of what the shell scripts in all texts run together. `commands` has the names
/// of the commands, and `invocations` each command with its arguments. `unsafe_commands` has the kind of each unsafe
/// command. `unreadable` is true if a part of a script cannot be read, since such a part can run any command; `reasons`
/// says why it cannot be read. Records the locations of unsafe commands and of what cannot be read.
fn shell_code(evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Value> {
    let (mut commands, mut invocations, mut unsafe_commands, mut reasons) = (vec![], vec![], vec![], vec![]);
    for piece in texts(evaluator, arguments)? {
        evaluator.spend(piece.text.len())?;
        let code = shell::shell_code(&piece.text);
        for command in code.commands {
            commands.push(Value::text(&command.name));
            invocations.push(dict([
                ("name", Value::text(&command.name)),
                ("arguments", strings(&command.arguments)),
                ("computed", Value::Bool(command.computed)),
            ]));
        }
        for issue in code.issues {
            unsafe_commands.push(issue.kind.as_str());
            evaluator.mark_bytes(piece.location, issue.span);
        }
        for part in code.unread {
            reasons.push(part.reason.as_str());
            evaluator.mark_bytes(piece.location, part.span);
        }
    }
    Ok(dict([
        ("commands", Value::list(commands)),
        ("invocations", Value::list(invocations)),
        ("unsafe_commands", strings(unsafe_commands)),
        ("unreadable", Value::Bool(!reasons.is_empty())),
        ("reasons", strings(reasons)),
    ]))
}

/// Implements `tool_script`: returns a map of the calls of tools that the programs in all texts make together.
/// `unreadable` is true if a part of a program cannot be read, since such a part can call any tool; `reasons` says why
/// it cannot be read. Records the locations of the calls and of what cannot be read.
fn tool_calls_of_scripts(evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Value> {
    let (mut calls, mut reasons) = (vec![], vec![]);
    for piece in texts(evaluator, arguments)? {
        evaluator.spend(piece.text.len())?;
        let script = tool_script::tool_script(&piece.text);
        for call in script.calls {
            let arguments = match &call.argument {
                // A call with a text is a call of a custom tool, whose only argument is named `input`.
                text @ ScriptValue::Text(_) => dict([("input", literal(text))]),
                other => literal(other),
            };
            calls.push(dict([("tool", Value::text(&call.tool)), ("arguments", arguments)]));
            evaluator.mark_bytes(piece.location, call.span);
        }
        if let Some((reason, span)) = script.unread {
            reasons.push(reason.as_str());
            evaluator.mark_bytes(piece.location, span);
        }
    }
    Ok(dict([
        ("calls", Value::list(calls)),
        ("unreadable", Value::Bool(!reasons.is_empty())),
        ("reasons", strings(reasons)),
    ]))
}

/// Converts a value of a tool script to a value of the policy language. A whole number below 9e15, which a
/// floating-point number represents exactly, becomes an integer.
fn literal(value: &ScriptValue) -> Value {
    match value {
        ScriptValue::Bool(value) => Value::Bool(*value),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be a whole number that an integer holds"
        )]
        ScriptValue::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Value::Int(*number as i64)
        }
        ScriptValue::Number(number) => Value::Float(*number),
        ScriptValue::Text(text) => Value::text(text),
        ScriptValue::List(items) => Value::list(items.iter().map(literal)),
        ScriptValue::Map(entries) => {
            Value::Dict(entries.iter().map(|(key, value)| (key.as_str().into(), literal(value))).collect())
        }
        // `null`, and kinds of values that a later version may add.
        _ => Value::None,
    }
}

/// Implements `semgrep` by Flowgate's own detectors; invariant-ai runs the program of that name. Returns a list with a
/// map for each unsafe call in code of the language that the second argument names. An unknown language is an error,
/// whatever the first argument is, since an empty list would say that the code is harmless.
fn semgrep(evaluator: &mut Evaluator<'_>, arguments: &[Value]) -> Result<Value> {
    let lang = resolved_argument(evaluator, arguments, 1)?;
    let lang = lang.as_text().unwrap_or_default().to_owned();
    let is_python = match lang.as_str() {
        "python" => {
            require_python_parser()?;
            true
        }
        "bash" | "sh" | "shell" => false,
        _ => {
            return type_error(
                "the argument `lang` of `semgrep` is neither \"python\" nor \"bash\"; write one of the two"
                    .to_owned(),
            );
        }
    };
    let mut issues = Vec::new();
    for piece in texts(evaluator, arguments)? {
        evaluator.spend(piece.text.len())?;
        // The kind, the severity and the place of each unsafe call.
        let found: Vec<(&'static str, &'static str, _)> = if is_python {
            // `false`: the code is not a cell of a notebook. Every unsafe call counts as an error.
            let code = python::python_code(&piece.text, false);
            code.unsafe_calls.into_iter().map(|call| (call.kind, "error", call.span)).collect()
        } else {
            let found = shell::find(&piece.text).into_iter();
            found.map(|issue| (issue.kind.as_str(), issue.severity.as_str(), issue.span)).collect()
        };
        for (kind, severity, span) in found {
            let entries = [
                ("description", Value::text(kind)),
                ("severity", Value::text(severity)),
                ("lang", Value::text(&lang)),
            ];
            issues.push(dict(entries));
            evaluator.mark_bytes(piece.location, span);
        }
    }
    Ok(Value::list(issues))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn programs_are_read() {
        // An unknown language is an error even where there is no code.
        for arguments in [r#""x", "cobol""#, r#"[], "cobol""#, r#"[], "Python""#, "[], 5"] {
            check(
                "semgrep",
                arguments,
                "the argument `lang` of `semgrep` is neither \"python\" nor \"bash\"; write one of the two",
            );
        }
        check("semgrep", r#"[], "bash""#, "[]");
        check(
            "semgrep",
            r#""eval $x; $y", "bash""#,
            r#"[{description: "EVAL", severity: "error", lang: "bash"}, {description: "UNKNOWN_COMMAND", severity: "error", lang: "bash"}]"#,
        );
        check(
            "shell_code",
            r#""sudo -u x rm a $b""#,
            r#"{commands: ["sudo", "rm"], invocations: [{name: "sudo", arguments: [], computed: false}, {name: "rm", arguments: ["a", "$b"], computed: true}], unsafe_commands: [], unreadable: false, reasons: []}"#,
        );
        check(
            "shell_code",
            r#""ls | sh""#,
            r#"{commands: ["ls", "sh"], invocations: [{name: "ls", arguments: [], computed: false}, {name: "sh", arguments: [], computed: false}], unsafe_commands: ["UNREADABLE"], unreadable: true, reasons: ["script"]}"#,
        );
    }

    #[cfg(feature = "python")]
    #[test]
    fn code_is_analyzed_by_language() {
        check(
            "python_code",
            r#""import os\neval(x)""#,
            "{imports: [\"os\"], builtins: [\"eval\"], function_calls: [\"eval\"], unsafe_calls: [\"CODE_EXECUTION\"], syntax_error: false, syntax_error_exception: None}",
        );
        check(
            "semgrep",
            r#""eval(input)", "python""#,
            r#"[{description: "CODE_EXECUTION", severity: "error", lang: "python"}]"#,
        );
    }
}
