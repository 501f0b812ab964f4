//! Reads the tasks of the privacy suite from the files `data/privacy/*.tasks`; the README there describes their lines.
//! [`PrivacySuite`](super::PrivacySuite) reads all tasks with [`all`]. A line of another form is a [`TaskError`], which
//! names the file and the line.

use std::fmt;

use super::task::{
    Categories, Condition, Derivation, EarlierTurn, GroundTruthCall, LeakPattern, Piece, PrivacyTask,
    Reference, Suite, Template,
};

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    /// The suite, whose file has the line.
    suite: Suite,
    /// The number of the line, counted from 1.
    line: usize,
    problem: String,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.tasks:{}: {}", self.suite.name(), self.line, self.problem)
    }
}

impl std::error::Error for TaskError {}

/// Reads the tasks of all suites.
///
/// # Errors
/// If a line cannot be read, which is a defect of this crate.
pub fn all() -> Result<Vec<PrivacyTask>, TaskError> {
    let mut tasks = Vec::new();
    for suite in Suite::ALL {
        tasks.extend(read(suite, suite.tasks_text())?);
    }
    Ok(tasks)
}

/// Reads the tasks of one suite. A task is a line `task: NAME` and the lines `key: value` that follow, up to the next
/// such line. Empty lines and comments, which begin with `#`, are skipped.
///
/// # Errors
/// If a line cannot be read, or a task is incomplete or has the name of another task. The error of an incomplete task
/// names the line at which the next task begins, or the last line of the text.
pub fn read(suite: Suite, text: &str) -> Result<Vec<PrivacyTask>, TaskError> {
    let mut tasks: Vec<PrivacyTask> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let failed = |problem: String| TaskError { suite, line: index + 1, problem };
        let (key, value) = line
            .split_once(": ")
            .ok_or_else(|| failed(format!("the line `{line}` of a task has no key; write `key: value`")))?;
        let value = value.trim();
        // The first line of a task: the task before it is over, so it must be complete.
        if key == "task" {
            if let Some(problem) = tasks.last().and_then(incomplete) {
                return Err(failed(problem));
            }
            if tasks.iter().any(|task| task.name == value) {
                return Err(failed(format!("another task has the name `{value}`; choose another name")));
            }
            tasks.push(PrivacyTask {
                name: value.to_owned(),
                suite,
                // The pattern of a task without a line `pattern`.
                pattern: LeakPattern::Explicit,
                earlier: Vec::new(),
                request: String::new(),
                steps: Vec::new(),
                tell: Vec::new(),
            });
            continue;
        }
        let task = tasks.last_mut().ok_or_else(|| {
            failed("the line belongs to no task; begin the task with `task: NAME`".to_owned())
        })?;
        add_line(task, key, value).map_err(failed)?;
    }
    match tasks.last().and_then(incomplete) {
        Some(problem) => Err(TaskError { suite, line: text.lines().count(), problem }),
        None => Ok(tasks),
    }
}

/// Returns what is missing in a task, with advice; `None` if the task is complete. A task needs a request, and a call
/// or a value for the reply.
fn incomplete(task: &PrivacyTask) -> Option<String> {
    let name = &task.name;
    if task.request.is_empty() {
        return Some(format!("the task `{name}` has no request; add a line `user: TEXT`"));
    }
    (task.steps.is_empty() && task.tell.is_empty())
        .then(|| format!("the task `{name}` has nothing to do; add a line `do: TOOL` or `tell: VALUE`"))
}

/// Adds a line to a task. The lines `if`, `with` and `oracle` belong to the call of the last line `do`, and `called` to
/// the last line `said`.
///
/// # Errors
/// A message with advice, if the key or the form of the value is unknown, or there is nothing to which the line
/// belongs.
fn add_line(task: &mut PrivacyTask, key: &str, value: &str) -> Result<(), String> {
    let no_step = || format!("there is no call to which `{key}` belongs; write `do: TOOL` before it");
    match key {
        "pattern" => {
            let known = LeakPattern::ALL.into_iter().find(|pattern| pattern.name() == value);
            task.pattern = known.ok_or_else(|| {
                format!("there is no pattern `{value}`; use one of those in crates/flowgate-bench/data/privacy/README.md")
            })?;
        }
        "said" => task.earlier.push(EarlierTurn { said: value.to_owned(), called: None }),
        "called" => {
            let turn = task
                .earlier
                .last_mut()
                .ok_or("there is no line `said: TEXT` before this line `called`; add one")?;
            turn.called = Some(value.to_owned());
        }
        "user" => task.request = value.to_owned(),
        "do" => task.steps.push(GroundTruthCall {
            tool: value.to_owned(),
            condition: None,
            arguments: Vec::new(),
            oracle: Categories::new(),
        }),
        "if" => task.steps.last_mut().ok_or_else(no_step)?.condition = Some(condition(value)?),
        "with" => {
            let (name, value) = value.split_once(" = ").ok_or(
                "the value of `with` does not have the form `NAME = VALUE`; write an argument in this form",
            )?;
            let arguments = &mut task.steps.last_mut().ok_or_else(no_step)?.arguments;
            arguments.push((name.trim().to_owned(), template(value.trim())?));
        }
        "oracle" => task.steps.last_mut().ok_or_else(no_step)?.oracle = oracle(value)?,
        "tell" => task.tell.push(template(value)?),
        _ => {
            return Err(format!(
                "there is no key `{key}`; use one of those in crates/flowgate-bench/data/privacy/README.md"
            ));
        }
    }
    Ok(())
}

/// Reads an oracle label: `run` for a call that discloses nothing private, or `ask CATEGORY, ...` with the categories
/// that a person has to confirm. A text of another form is an error.
fn oracle(text: &str) -> Result<Categories, String> {
    if text == "run" {
        return Ok(Categories::new());
    }
    let names = text
        .strip_prefix("ask ")
        .ok_or("the oracle label is neither `run` nor `ask CATEGORIES`; write one of them")?;
    Ok(names.split(',').map(|name| name.trim().to_owned()).collect())
}

/// Reads a condition, `{FIELD} >= NUMBER` or `{FIELD} < NUMBER`. A text of another form is an error.
fn condition(text: &str) -> Result<Condition, String> {
    let form = "the condition does not have the form `{FIELD} >= NUMBER` or `{FIELD} < NUMBER`; write it in one of them";
    let (field, rest) = text.strip_prefix('{').and_then(|text| text.split_once('}')).ok_or(form)?;
    let rest = rest.trim();
    let (is_at_least, number) = match (rest.strip_prefix(">="), rest.strip_prefix('<')) {
        (Some(number), _) => (true, number),
        (None, Some(number)) => (false, number),
        (None, None) => return Err(form.to_owned()),
    };
    let right = number.trim().parse().map_err(|_| form.to_owned())?;
    Ok(Condition { left: reference(field)?, is_at_least, right })
}

/// Reads a template: text with references in braces. An empty text becomes one empty piece, so that every template has
/// a piece. A reference without a closing brace is an error.
fn template(text: &str) -> Result<Template, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    // Each round reads the text before a reference, and then the reference.
    while let Some((before, after)) = rest.split_once('{') {
        let (field, after) =
            after.split_once('}').ok_or("a reference has no `}`; close each `{` on its line")?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(Piece::Field(reference(field)?));
        rest = after;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(Template(pieces))
}

/// Reads a reference, the text between braces: `TOOL.FIELD`, or `TOOL#ROW.FIELD` for the row with the id `ROW`. It
/// can end with a derivation: ` / NUMBER` divides the value, and `? VALUE: TEXT, ...` replaces each value by its
/// text. A text of another form is an error, and so is a divisor that is not above 0.
fn reference(text: &str) -> Result<Reference, String> {
    let (path, derivation) = path_and_derivation(text)?;
    // The owner of the field is a tool, or a row in the answer of a tool.
    let (owner, field) = path
        .trim()
        .rsplit_once('.')
        .ok_or_else(|| format!("the reference `{path}` has no field; write `TOOL.FIELD`"))?;
    let (tool, row) = match owner.split_once('#') {
        Some((tool, row)) => (tool, Some(row.to_owned())),
        None => (owner, None),
    };
    Ok(Reference { tool: tool.to_owned(), row, field: field.to_owned(), derivation })
}

/// Splits the text of a reference into the path of its field and its derivation: `PATH ? VALUE: TEXT, ...` replaces each
/// value by its text, `PATH / NUMBER` divides the value, and a path alone copies it. It is an error if a choice has no
/// text, or the divisor is not a number above 0.
fn path_and_derivation(text: &str) -> Result<(&str, Derivation), String> {
    if let Some((path, choices)) = text.split_once('?') {
        let pair = |choice: &str| {
            let (value, text) = choice.split_once(':')?;
            Some((value.trim().to_owned(), text.trim().to_owned()))
        };
        let choices: Option<Vec<_>> = choices.split(',').map(pair).collect();
        let choices = choices.ok_or(
            "the choice in the template does not have the form `{FIELD ? a: x, b: y}`; write it in this form",
        )?;
        return Ok((path, Derivation::Choose(choices)));
    }
    if let Some((path, number)) = text.split_once(" / ") {
        let number = number.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
        let number = number.ok_or("the divisor in `{FIELD / NUMBER}` is not a number above 0; write one")?;
        return Ok((path, Derivation::DivideBy(number)));
    }
    Ok((text, Derivation::Copy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_task() {
        let text = "# note\ntask: t\npattern: implicit\nsaid: a\ncalled: get\nuser: b\ndo: pay\nif: {get.n} >= 2\n\
                    with: x = {get#r.f ? a: 1, b: 2} and {get.n / 2}\noracle: ask p, q\ntell: done\ntell: x";
        let tasks = read(Suite::Payments, text).unwrap();
        let [task] = tasks.as_slice() else { panic!("{tasks:?}") };
        assert_eq!(
            (task.name.as_str(), task.pattern, task.request.as_str()),
            ("t", LeakPattern::Implicit, "b")
        );
        assert_eq!(task.earlier, [EarlierTurn { said: "a".to_owned(), called: Some("get".to_owned()) }]);
        let step = &task.steps[0];
        assert!(step.needs_confirmation() && step.oracle.contains("q") && step.references().count() == 3);
        assert_eq!(step.arguments[0].1.0[1], Piece::Text(" and ".to_owned()));
        assert_eq!(task.tell, ["done", "x"].map(|text| Template(vec![Piece::Text(text.to_owned())])));
    }

    #[test]
    fn an_error_names_its_line_and_what_to_do() {
        let check = |text: &str, expected: &str| {
            let error = read(Suite::Flights, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("do: x", "flights.tasks:1: the line belongs to no task");
        check("task: a\nuser: b\nnonsense", "flights.tasks:3: the line `nonsense` of a task has no key");
        check("task: a\nuser: b\nwith: c = d", "flights.tasks:3: there is no call to which `with` belongs");
        check(
            "task: a\nuser: b\ndo: c\noracle: maybe",
            "flights.tasks:4: the oracle label is neither `run` nor",
        );
        check("task: a\nuser: b\ndo: c\nwith: d = {e", "flights.tasks:4: a reference has no `}`");
        check("task: a\nuser: b\ndo: c\nwith: d = {e}", "`e` has no field");
        check("task: a\nuser: b\ndo: c\nif: {e.f} = 2", "the condition does not have the form");
        check("task: a\nuser: b\ndo: c\ntask: a", "another task has the name `a`");
        check("task: a\ndo: b", "the task `a` has no request");
        check("task: a\nuser: b", "the task `a` has nothing to do");
        check("task: a\npattern: odd", "there is no pattern `odd`");
    }
}
