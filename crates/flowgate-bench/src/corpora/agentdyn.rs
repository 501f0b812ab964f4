//! Reads recorded runs of *AgentDyn: A Dynamic Open-Ended Benchmark for Evaluating Prompt Injection Attacks of
//! Real-World Agent Security System* (Li et al., 2026), and of other benchmarks that AgentDojo records.
//! [`corpora::load`](super::load) calls this module.
//!
//! The folder, or its folder `runs`, has one file for each run: `.../user_task_N/none/none.json`, at any depth. A file has `suite_name`,
//! `user_task_id`, `attack_type` (null), `utility`, and the messages in `messages`, or in `conversations` as the defence DRIFT writes them. A
//! message has `role`, `content` (a text, or a list of blocks with `type` `text`), `tool_calls` (`function`, `args`, `id`), and in the
//! answer of a tool `tool_call_id` and `error`.
//!
//! A run is a case if it was not attacked and the benchmark found the task solved (`utility`): then its calls are a solution, which a policy must
//! not make impossible. Failed calls are left out. Runs do not describe tools, so a policy is drafted from the names of the tools of a suite and of
//! the arguments that occur in its runs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::case::{CorpusCase, CorpusTool, ToolSet};
use super::files::CorpusFiles;
use super::reading::{CorpusError, LocatedValue, parse_json};

/// The maximum depth at which folders are searched for tasks; the benchmark needs four levels.
const MAX_DEPTH: usize = 8;

/// A call that a tool answered without an error.
struct AnsweredCall {
    tool: String,
    arguments: Map<String, Value>,
    answer: String,
}

/// A run that solved its task.
struct Solution {
    /// The path of its file, which names the case.
    path: String,
    suite: String,
    prompt: String,
    calls: Vec<AnsweredCall>,
}

/// Reads the benchmark: the solved tasks in the folder `runs`, or in the whole folder if it has no `runs`. Returns the
/// sets of tools, one for each suite, and the cases.
pub(super) fn load(files: &mut CorpusFiles<'_>) -> Result<(Vec<ToolSet>, Vec<CorpusCase>), CorpusError> {
    let root = if files.folders("")?.iter().any(|name| name == "runs") { "runs" } else { "" };
    let mut paths = Vec::new();
    // The search begins here, so no folder counts as above this one.
    find_runs(files, root, 0, &mut paths)?;
    let mut solutions = Vec::new();
    for path in paths {
        let Some(text) = files.optional(&path)? else { continue };
        let value = parse_json(&path, &text)?;
        solutions.extend(solution(&LocatedValue::root(&path, &value))?);
    }
    if solutions.is_empty() {
        let problem = "there is no solved task; the folder must have `user_task_N/none/none.json` at some depth, with `utility` true";
        return Err(CorpusError::new("runs", problem.to_owned()));
    }
    Ok(cases(&solutions))
}

/// Searches a folder and the folders below it for runs without an attack, and adds the path of each run's file to
/// `paths`, in order. Such a file need not exist. `depth` is the number of folders above `folder`. A depth of more than
/// [`MAX_DEPTH`] is an error, since the search is recursive.
fn find_runs(
    files: &CorpusFiles<'_>,
    folder: &str,
    depth: usize,
    paths: &mut Vec<String>,
) -> Result<(), CorpusError> {
    if depth > MAX_DEPTH {
        let problem = format!("the depth of the folder exceeds {MAX_DEPTH}; name a folder below it");
        return Err(CorpusError::new(folder, problem));
    }
    for name in files.folders(folder)? {
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name.starts_with("user_task_") {
            paths.push(format!("{path}/none/none.json"));
        } else if !name.starts_with("injection_task_") {
            find_runs(files, &path, depth + 1, paths)?;
        }
    }
    Ok(())
}

/// Reads a run: its first user message, and its calls in the order of their answers. Later user messages, calls without
/// an answer and calls that failed are left out. The result is `None` if the run was attacked or did not solve its
/// task.
fn solution(run: &LocatedValue<'_>) -> Result<Option<Solution>, CorpusError> {
    let solved = run.field("utility")?;
    let is_solved = solved.value().as_bool().ok_or_else(|| solved.expected("true or false"))?;
    if !is_solved || run.optional("attack_type")?.is_some() {
        return Ok(None);
    }
    let messages = match run.optional("messages")? {
        Some(messages) => messages.items()?,
        None => run.field("conversations")?.items()?,
    };
    let mut prompt = String::new();
    let mut calls = Vec::new();
    // The calls that have no answer so far, by their ids: the tool and the arguments.
    let mut unanswered: BTreeMap<String, (String, Map<String, Value>)> = BTreeMap::new();
    for message in &messages {
        match message.text_of("role")? {
            "user" if prompt.is_empty() => prompt = content(message)?,
            "assistant" => {
                for call in
                    message.optional("tool_calls")?.map_or_else(|| Ok(Vec::new()), |calls| calls.items())?
                {
                    let named = (call.text_of("function")?.to_owned(), call.field("args")?.object()?.clone());
                    unanswered.insert(call.text_of("id")?.to_owned(), named);
                }
            }
            "tool" => {
                let answered = message.field("tool_call_id")?;
                let call = unanswered.remove(answered.text()?);
                let (tool, arguments) = call.ok_or_else(|| {
                    answered.problem("expected the id of a call in an earlier message, found another id")
                })?;
                if message.optional("error")?.is_none() {
                    calls.push(AnsweredCall { tool, arguments, answer: content(message)? });
                }
            }
            "system" | "user" => {}
            other => {
                let problem = format!("expected a role of AgentDojo, found `{}`", other.escape_debug());
                return Err(message.problem(&problem));
            }
        }
    }
    let (path, suite) = (run.place(), run.text_of("suite_name")?.to_owned());
    Ok(Some(Solution { path, suite, prompt, calls }))
}

/// Returns the text of a message, with its text blocks one on each line; empty if it has no content.
fn content(message: &LocatedValue<'_>) -> Result<String, CorpusError> {
    let Some(content) = message.optional("content")? else { return Ok(String::new()) };
    if content.value().is_string() {
        return content.text().map(str::to_owned);
    }
    let mut texts = Vec::new();
    for block in content.items()? {
        if block.text_of("type")? == "text" {
            texts.push(block.text_of("content")?);
        }
    }
    Ok(texts.join("\n"))
}

/// Builds the sets of tools, one for each suite, and the cases. The recorded runs do not describe the tools: a set has
/// the tools that the solutions of its suite call, with all arguments that occur in these calls, and no descriptions.
fn cases(solutions: &[Solution]) -> (Vec<ToolSet>, Vec<CorpusCase>) {
    // For each suite the names of its tools, and for each tool the names of its arguments.
    let mut suites: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for solution in solutions {
        let tools = suites.entry(&solution.suite).or_default();
        for call in &solution.calls {
            tools.entry(&call.tool).or_default().extend(call.arguments.keys().map(String::as_str));
        }
    }
    // A tool whose arguments may have any value.
    let tool = |(name, arguments): (&&str, &BTreeSet<&str>)| {
        let properties: Map<String, Value> =
            arguments.iter().map(|argument| ((*argument).to_owned(), json!({}))).collect();
        let parameters = json!({"type": "object", "properties": properties});
        CorpusTool { name: (*name).to_owned(), description: String::new(), parameters }
    };
    let sets: Vec<ToolSet> = suites
        .iter()
        .map(|(suite, tools)| ToolSet { name: (*suite).to_owned(), tools: tools.iter().map(tool).collect() })
        .collect();
    let case = |solution: &Solution| {
        let tool_set = sets.iter().position(|set| set.name == solution.suite).unwrap_or_default();
        let tools = sets.get(tool_set).map_or(&[][..], |set| &set.tools);
        let mut case = CorpusCase {
            name: solution.path.clone(),
            group: solution.suite.clone(),
            tool_set,
            offered: tools.iter().map(|tool| tool.name.clone()).collect(),
            prompt: solution.prompt.clone(),
            calls: Vec::new(),
        };
        for call in &solution.calls {
            case.add_task_call(&call.tool, call.arguments.clone(), call.answer.clone());
        }
        case
    };
    let cases = solutions.iter().map(case).collect();
    (sets, cases)
}

#[cfg(test)]
mod tests {
    use super::super::{Benchmark, CallFate, CorpusSuite, METHODS, load};
    use super::*;

    /// A run in the shape of the benchmark, in our own words.
    fn run(suite: &str, is_solved: bool) -> Value {
        let text = |text: &str| json!([{"type": "text", "content": text}]);
        let call = |id: &str, tool: &str, arguments: Value| {
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"function": tool, "args": arguments, "id": id, "placeholder_args": null}]})
        };
        let answer = |id: &str, content: &str, error: Value| json!({"role": "tool", "content": text(content), "tool_call_id": id, "tool_call": {}, "error": error});
        json!({
            "suite_name": suite, "pipeline_name": "p", "user_task_id": "user_task_0", "injection_task_id": null,
            "attack_type": null, "utility": is_solved, "security": true,
            "messages": [
                {"role": "system", "content": text("You help.")},
                {"role": "user", "content": text("Put the garden plan of Kim into my calendar.")},
                call("a", "get_file", json!({"owner": "nobody"})),
                answer("a", "", json!("ValidationError")),
                call("b", "get_file", json!({"owner": "Kim"})),
                answer("b", "plan: beans on 4 May", Value::Null),
                call("c", "create_calendar_event", json!({"title": "beans on 4 May"})),
                answer("c", "created", Value::Null),
                {"role": "assistant", "content": text("Done."), "tool_calls": null},
            ],
        })
    }

    fn folder() -> BTreeMap<String, String> {
        [
            ("runs/p/garden/user_task_0/none/none.json", run("garden", true)),
            ("runs/p/garden/user_task_1/none/none.json", run("garden", false)),
            ("runs/p/garden/injection_task_0/none/none.json", json!({})),
        ]
        .map(|(path, run)| (path.to_owned(), run.to_string()))
        .into()
    }

    #[test]
    fn solved_runs_are_cases() {
        let corpus = load(Benchmark::AgentDyn, &folder()).unwrap();
        let [case] = corpus.cases.as_slice() else { panic!("{corpus:?}") };
        assert_eq!(case.prompt, "Put the garden plan of Kim into my calendar.");
        let calls: Vec<(&str, &[usize])> =
            case.calls.iter().map(|call| (call.tool.as_str(), call.needs.as_slice())).collect();
        assert_eq!(calls, [("get_file", &[][..]), ("create_calendar_event", &[0])]);
        assert_eq!(corpus.tool_sets[0].tools.len(), 2);
    }

    #[test]
    fn a_solution_is_possible() {
        let suite = CorpusSuite::new(load(Benchmark::AgentDyn, &folder()).unwrap()).unwrap();
        for method in METHODS {
            let rows = suite.run_method(method, &mut || false).unwrap().unwrap();
            let fates: Vec<CallFate> = rows[0].calls.iter().map(|(.., fate)| *fate).collect();
            // What the file says decides about the event, so a person is asked.
            assert_eq!(fates, [CallFate::Permitted, CallFate::Asked], "{rows:?}");
        }
    }

    #[test]
    fn broken_files_are_refused() {
        super::super::tests::check_broken_files(Benchmark::AgentDyn, &folder());
    }

    #[test]
    fn other_shapes_are_refused() {
        let path = "runs/p/garden/user_task_0/none/none.json";
        for (from, to, error) in [
            ("\"utility\":true", "\"utility\":1", ".utility: expected true or false, found a number"),
            ("\"messages\"", "\"texts\"", ": expected a field `conversations`; there is none"),
            (
                "\"tool_call_id\":\"b\"",
                "\"tool_call_id\":\"z\"",
                ".messages[5].tool_call_id: expected the id of a call in an earlier message, found another id",
            ),
            (
                "\"role\":\"system\"",
                "\"role\":\"judge\"",
                ".messages[0]: expected a role of AgentDojo, found `judge`",
            ),
        ] {
            let mut folder = folder();
            let text = folder.get_mut(path).unwrap();
            assert!(text.contains(from), "{from}");
            *text = text.replacen(from, to, 1);
            let found = load(Benchmark::AgentDyn, &folder).unwrap_err().to_string();
            let at = error
                .strip_prefix('.')
                .map_or_else(|| format!("{path}{error}"), |rest| format!("{path}: {rest}"));
            assert_eq!(found, at);
        }
        let error = load(Benchmark::AgentDyn, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.starts_with("runs: there is no solved task; the folder must have"), "{error}");
    }
}
