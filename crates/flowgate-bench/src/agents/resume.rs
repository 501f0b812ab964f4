//! Reads the results of the methods that an interrupted run of `flowgate bench agents` has completed, from its recorded
//! lines. When the command resumes the run, only the other methods run.

use serde_json::Value;

use super::report::{figure_rows, run_line};
use super::task::{BenchTask, HiddenTextUse, injections};
use super::{Guard, GuardResults, TaskRun, TaskSuite};

impl TaskSuite {
    /// Returns the recorded results of the first guards, in the order of `guards`. `lines` are the lines of the format jsonl
    /// after the manifest. Reading ends before the first guard that lacks a line or whose figures do not follow from its
    /// runs: this guard and those after it have to run again.
    ///
    /// The results have what the format jsonl prints. The lines do not have what only tables show: the requests to a model
    /// by kind of task, and the hidden regions.
    pub fn read_guards(&self, guards: &[Guard], lines: &[Value]) -> Vec<GuardResults> {
        let mut rows: Vec<GuardResults> = Vec::new();
        for (index, guard) in guards.iter().enumerate() {
            let Some((row, figures)) = self.read_guard(*guard, lines) else { break };
            rows.push(row);
            // Costs are relative to the first guard, so the figures of a guard are computed with it.
            let computed = figure_rows(guards, &rows).into_iter().nth(index).map(Value::Object);
            if computed.as_ref() != Some(figures) {
                rows.pop();
                break;
            }
        }
        rows
    }

    /// Returns the results of one guard and its recorded line of figures; `None` if a line is missing or differs from what
    /// this program would print for its values.
    fn read_guard<'l>(&self, guard: Guard, lines: &'l [Value]) -> Option<(GuardResults, &'l Value)> {
        // The recorded lines of this guard that have this type, in order.
        let of_guard = |kind: &'static str| {
            let is_of_kind = move |line: &&Value| {
                line.get("type").and_then(Value::as_str) == Some(kind)
                    && line.get("defence").and_then(Value::as_str) == Some(guard.name())
            };
            lines.iter().filter(is_of_kind)
        };
        let figures = of_guard("figures").next()?;
        let mut runs = of_guard("run");
        let mut row = GuardResults::default();
        for task in &self.tasks {
            let attacks = injections().into_iter().filter(|(server, ..)| task.servers.contains(server));
            // The run without an attack comes first.
            let injected_tools = [None].into_iter().chain(attacks.map(|(_, tool, _)| Some(tool)));
            for injection in injected_tools {
                let line = runs.next()?;
                let run = read_run(task, injection, line)?;
                if run_line(guard, &run) != *line {
                    return None;
                }
                add_run(&mut row, task, run);
            }
        }
        // The lines have these counts only as sums over all tasks.
        row.asked = [count(figures, "model_calls")?, 0, 0, 0];
        row.spent.looks = usize::try_from(count(figures, "looks")?).ok()?;
        row.spent.bits = usize::try_from(count(figures, "bits")?).ok()?;
        Some((row, figures))
    }
}

/// Returns the number in a field of a line; `None` if the field is absent or has no such number.
fn count(line: &Value, field: &str) -> Option<u64> {
    line.get(field).and_then(Value::as_u64)
}

/// Returns the run of `task` that `line` records; `None` if the line lacks a field or has a value of another type.
/// `injection` is the tool that the injected instruction of this run asks for.
fn read_run(task: &BenchTask, injection: Option<&'static str>, line: &Value) -> Option<TaskRun> {
    let number = |field: &str| usize::try_from(count(line, field)?).ok();
    let mut run = TaskRun {
        task: task.prompt,
        kind: task.kind.name(),
        injection,
        foreign: number("foreign")?,
        altered: number("altered")?,
        payload_only: number("payload")?,
        idle: number("idle")?,
        is_done: line.get("done")?.as_bool()?,
        questions: number("questions")?,
        tokens: flowgate_lm::chat::Usage::default(),
    };
    run.tokens.input = count(line, "input_tokens")?;
    run.tokens.output = count(line, "output_tokens")?;
    Some(run)
}

/// Adds a run of `task` to `row`, the results of its guard, and counts the run. The sums do not overflow, even with
/// the numbers of a damaged file: the figures then differ from the recorded ones.
fn add_run(row: &mut GuardResults, task: &BenchTask, run: TaskRun) {
    let add = |sum: &mut usize, more: usize| *sum = sum.saturating_add(more);
    // As in `run_guard`, unwanted calls count only under attack, and kinds of tasks only without an attack.
    if run.injection.is_some() {
        add(&mut row.attacked, 1);
        add(&mut row.questions_attacked, run.questions);
        add(&mut row.foreign, run.foreign);
        add(&mut row.altered, run.altered);
        add(&mut row.payload_only, run.payload_only);
        add(&mut row.idle, run.idle);
        add(&mut row.done_attacked, usize::from(run.is_done));
    } else {
        // `ALL` contains every kind, thus 0 never stands in for another one.
        let kind = HiddenTextUse::ALL.iter().position(|kind| *kind == task.kind).unwrap_or(0);
        if let Some((all, unasked, done)) = row.clean.get_mut(kind) {
            add(all, 1);
            add(unasked, usize::from(run.is_done && run.questions == 0));
            add(done, usize::from(run.is_done));
        }
        add(&mut row.questions, run.questions);
        let tokens = &mut row.spent.tokens;
        tokens.input = tokens.input.saturating_add(run.tokens.input);
        tokens.output = tokens.output.saturating_add(run.tokens.output);
    }
    row.runs.push(run);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::report::lines;
    use super::*;

    /// The lines of complete methods give the same lines again, wherever the file is cut off, and a line that was changed
    /// makes its method run again.
    #[test]
    fn complete_methods_are_read() {
        let suite = TaskSuite::new().unwrap();
        let guards = [Guard::Unguarded, Guard::ToolFilter, Guard::parse("lowest-first").unwrap()];
        let rows = guards.map(|guard| suite.run_guard(guard, &mut || false).unwrap().unwrap());
        let all = lines(&guards, &rows, 1);
        let read = suite.read_guards(&guards, &all);
        assert_eq!(lines(&guards, &read, 1), all);
        // An interrupted run has the lines of its complete methods.
        let two = lines(&guards, &rows[..2], 1);
        let read = suite.read_guards(&guards, &two);
        assert_eq!((read.len(), lines(&guards, &read, 1)), (2, two.clone()));
        // The figures follow the runs: cut off before them, no method is complete.
        let runs = suite.run_count(&guards[..2]);
        for (kept, expected) in [(0, 0), (runs, 0), (runs + 1, 1), (runs + 2, 2)] {
            assert_eq!(suite.read_guards(&guards, &two[..kept]).len(), expected, "{kept} lines");
        }
        let check = |at: usize, field: &str, value: Value, expected: usize| {
            let mut changed = two.clone();
            changed[at][field] = value;
            assert_eq!(suite.read_guards(&guards, &changed).len(), expected, "{field}");
        };
        // The second run is the first one under attack.
        check(1, "foreign", json!(7), 0);
        check(0, "input_tokens", json!(u64::MAX), 0);
        check(0, "task", json!("another"), 0);
        check(runs, "harmed_count", json!(0), 0);
        check(runs + 1, "looks", json!(-1), 1);
        check(runs + 1, "defence", json!("judge"), 1);
    }
}
