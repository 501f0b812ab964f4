//! Reads *τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains* (Yao, Shinn, Razavi and
//! Narasimhan, 2024). [`corpora::load`](super::load) calls this module.
//!
//! Each domain, `airline` and `retail`, is a folder: in the given folder, in its `envs`, or in its `tau_bench/envs`. The
//! files of a domain are:
//!
//! | file | content |
//! |---|---|
//! | `tools/*.py` | classes whose method `get_info` returns the description of a tool in OpenAI's form |
//! | `tasks_test.py`, `tasks_dev.py`, `tasks_train.py` | lists of `Task(user_id, instruction, actions)`, with `Action(name, kwargs)` |
//! | `data/*.json` | optional: each a map from the id of a user, an order, a flight and so on to its record |
//!
//! The benchmark has no attacks: it measures whether a policy permits the recorded actions of each task. The user's message is the instruction to
//! the simulated user. Before the first action, the double reads the user's record. Before each action, it reads every record that an argument
//! identifies and that a tool returns for this argument alone, such as the order of an `order_id`: the benchmark's agents have to look these up too, so
//! their content is in view when the action is judged.
//! The code of the tools does not run. A reading tool answers with the record, every other one with an empty object.

use std::collections::BTreeMap;

use flowgate::draft::{ToolEffect, ToolTraits};
use serde_json::{Map, Value};

use super::case::{CorpusCase, CorpusTool, ToolSet};
use super::files::CorpusFiles;
use super::python::PythonFile;
use super::reading::{CorpusError, LocatedValue, parse_json};

/// The domains; each is a folder.
const DOMAINS: [&str; 2] = ["airline", "retail"];
/// The paths that can precede the folder of a domain, depending on which folder the user names.
const FOLDERS: [&str; 3] = ["tau_bench/envs/", "envs/", ""];
/// The names of the files with tasks, without their ending.
const TASKS: [&str; 3] = ["tasks_test", "tasks_dev", "tasks_train"];

/// Reads the benchmark. Returns the sets of tools, one for each domain, and the cases. A domain without tools is left
/// out; it is an error if no domain has any.
pub(super) fn load(files: &mut CorpusFiles<'_>) -> Result<(Vec<ToolSet>, Vec<CorpusCase>), CorpusError> {
    let (mut sets, mut cases) = (Vec::new(), Vec::new());
    for domain in DOMAINS {
        for folder in FOLDERS.map(|folder| format!("{folder}{domain}")) {
            // The first folder with tools is that of the domain.
            let tools = tools(files, &format!("{folder}/tools"))?;
            if tools.is_empty() {
                continue;
            }
            let domain = Domain {
                name: domain,
                tool_set: sets.len(),
                records: records(files, &format!("{folder}/data"))?,
                set: ToolSet { name: folder.clone(), tools },
            };
            cases.extend(domain.cases(files, &folder)?);
            sets.push(domain.set);
            break;
        }
    }
    if sets.is_empty() {
        let problem = "there are no tools; the folder must have `tau_bench/envs/airline/tools/*.py` or `.../retail/tools/*.py`";
        return Err(CorpusError::new("tau_bench/envs", problem.to_owned()));
    }
    Ok((sets, cases))
}

/// Reads the tools that the Python files of a folder describe; none if there is no such folder. It is an error if two have the same name.
fn tools(files: &mut CorpusFiles<'_>, folder: &str) -> Result<Vec<CorpusTool>, CorpusError> {
    let mut tools: Vec<CorpusTool> = Vec::new();
    for name in files.list(folder, ".py")? {
        let path = format!("{folder}/{name}");
        let Some(text) = files.optional(&path)? else { continue };
        let file = PythonFile::parse(&path, &text)?;
        for class in file.classes() {
            let Some(info) = class.returned("get_info")? else { continue };
            let place = format!("{path}: {}.get_info()", class.name);
            let function = LocatedValue::root(&place, &info).field("function")?;
            let parameters = function.field("parameters")?;
            // Fails for anything other than an object.
            parameters.object()?;
            let tool = CorpusTool {
                name: function.text_of("name")?.to_owned(),
                description: function.text_of("description")?.to_owned(),
                parameters: parameters.value().clone(),
            };
            if tools.iter().any(|known| known.name == tool.name) {
                let problem = format!(
                    "the tool `{}` is described twice; download the benchmark again",
                    tool.name.escape_debug()
                );
                return Err(function.problem(&problem));
            }
            tools.push(tool);
        }
    }
    Ok(tools)
}

/// Reads the records in all JSON files of a folder. Returns each record as a JSON text, by its key, such as an order
/// number. The result is empty if there is no such folder.
fn records(files: &mut CorpusFiles<'_>, folder: &str) -> Result<BTreeMap<String, String>, CorpusError> {
    let mut records = BTreeMap::new();
    for name in files.list(folder, ".json")? {
        let path = format!("{folder}/{name}");
        let Some(text) = files.optional(&path)? else { continue };
        let value = parse_json(&path, &text)?;
        for (key, record) in LocatedValue::root(&path, &value).object()? {
            records.insert(key.clone(), record.to_string());
        }
    }
    Ok(records)
}

/// A domain: its tools and records.
struct Domain {
    name: &'static str,
    /// The position of its set of tools among the sets.
    tool_set: usize,
    set: ToolSet,
    /// The records as JSON texts, by their keys.
    records: BTreeMap<String, String>,
}

impl Domain {
    /// Reads the tasks of the domain from those of the files [`TASKS`] that exist in `folder`. It is an error if there is no task.
    fn cases(&self, files: &mut CorpusFiles<'_>, folder: &str) -> Result<Vec<CorpusCase>, CorpusError> {
        let reading_tools = self.readers();
        let mut cases = Vec::new();
        for name in TASKS {
            let path = format!("{folder}/{name}.py");
            let Some(text) = files.optional(&path)? else { continue };
            // A file assigns its tasks to lists, whose names are in the errors.
            for (constant, tasks) in PythonFile::parse(&path, &text)?.lists()? {
                let place = format!("{path}: {constant}");
                for task in LocatedValue::root(&place, &tasks).items()? {
                    cases.push(self.case(&task, &reading_tools)?);
                }
            }
        }
        if cases.is_empty() {
            let problem = "there are no tasks; the folder must have `tasks_test.py`, `tasks_dev.py` or `tasks_train.py` with tasks";
            return Err(CorpusError::new(folder, problem.to_owned()));
        }
        Ok(cases)
    }

    /// Returns the tools that read one record, by the name of their only argument, which identifies the record. If
    /// several such tools have the same argument, the first one is chosen.
    fn readers(&self) -> BTreeMap<&str, &CorpusTool> {
        let mut readers = BTreeMap::new();
        for tool in &self.set.tools {
            let properties = tool.parameters.get("properties").and_then(Value::as_object);
            let argument = properties.filter(|known| known.len() == 1).and_then(|known| known.keys().next());
            // The traits are guessed from the name and the description alone: the tools have no annotations of a
            // server, so `true`, which trusts annotations, has no effect.
            let reads = ToolTraits::of(&tool.described(), true).effect == ToolEffect::Reads;
            if let Some(argument) = argument.filter(|_| reads) {
                readers.entry(argument.as_str()).or_insert(tool);
            }
        }
        readers
    }

    /// Reads a task as a case. Its calls read the user's record and, before each action, the records that the
    /// action's arguments name; then the action itself is called. `readers` are the tools that read one record, by
    /// the name of their argument. It is an error if an action calls a tool that the domain does not describe.
    fn case(
        &self,
        task: &LocatedValue<'_>,
        readers: &BTreeMap<&str, &CorpusTool>,
    ) -> Result<CorpusCase, CorpusError> {
        let mut case = CorpusCase {
            name: task.place(),
            group: self.name.to_owned(),
            tool_set: self.tool_set,
            offered: self.set.tools.iter().map(|tool| tool.name.clone()).collect(),
            prompt: task.text_of("instruction")?.to_owned(),
            calls: Vec::new(),
        };
        let user = Value::from(task.text_of("user_id")?);
        self.read_record(&mut case, "user_id", &user, readers);
        for action in task.field("actions")?.items()? {
            let name = action.field("name")?;
            let arguments = action.field("kwargs")?.object()?;
            let Some(tool) = self.set.tool(name.text()?) else {
                let problem = format!(
                    "the tool `{}` is not described in {}/tools; download the benchmark again",
                    name.text()?.escape_debug(),
                    self.set.name
                );
                return Err(name.problem(&problem));
            };
            for (argument, value) in arguments {
                self.read_record(&mut case, argument, value, readers);
            }
            // The benchmark records no answers to actions.
            case.add_task_call(&tool.name, arguments.clone(), "{}".to_owned());
        }
        Ok(case)
    }

    /// Adds the call that reads the record with the key `value`, by the tool whose one argument is `argument`. Adds nothing if there is no such
    /// record or no such tool.
    fn read_record(
        &self,
        case: &mut CorpusCase,
        argument: &str,
        value: &Value,
        readers: &BTreeMap<&str, &CorpusTool>,
    ) {
        let record = value.as_str().and_then(|key| self.records.get(key));
        if let Some((record, tool)) = record.zip(readers.get(argument)) {
            let arguments = Map::from_iter([(argument.to_owned(), value.clone())]);
            case.add_task_call(&tool.name, arguments, record.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Benchmark, CallFate, CorpusSuite, METHODS, load};
    use super::*;

    /// A folder in the shape of the benchmark, in our own words.
    fn folder() -> BTreeMap<String, String> {
        let tool = |class: &str, name: &str, arguments: &[&str]| {
            let properties: Map<String, Value> =
                arguments.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
            let function = json!({"name": name, "description": "Works on loans.", "parameters": {
                "type": "object", "properties": properties, "required": arguments}});
            format!(
                "import json\n\nclass {class}(Tool):\n    @staticmethod\n    def invoke(data, **kwargs) -> str:\n        \
                 return json.dumps(data)\n\n    @staticmethod\n    def get_info():\n        return {{\"type\": \"function\", \
                 \"function\": {function}}}\n"
            )
        };
        let tasks = "from tau_bench.types import Action, Task\n\nTASKS_TEST = [\n    Task(\n        annotator=\"0\",\n        \
                     user_id=\"ada_1\",\n        instruction=\"You are ada_1. Give back the book that you borrowed \" \"last.\",\n        \
                     actions=[Action(name=\"return_loan\", kwargs={\"loan_id\": \"L7\", \"why\": \"done\"})],\n        outputs=[],\n    ),\n    \
                     Task(annotator=\"0\", user_id=\"ben_2\", instruction=\"Renew loan L9.\", actions=[\n        \
                     Action(name=\"renew_loan\", kwargs={\"loan_id\": \"L9\"})], outputs=[\"9\"]),\n]\n";
        let base = "tau_bench/envs/retail";
        [
            (format!("{base}/tools/__init__.py"), "ALL_TOOLS = [ReturnLoan]\n".to_owned()),
            (format!("{base}/tools/return_loan.py"), tool("ReturnLoan", "return_loan", &["loan_id", "why"])),
            (format!("{base}/tools/renew_loan.py"), tool("RenewLoan", "update_loan", &["loan_id"])),
            (format!("{base}/tools/get_loan.py"), tool("GetLoan", "get_loan_details", &["loan_id"])),
            (format!("{base}/tools/get_user.py"), tool("GetUser", "get_user_details", &["user_id"])),
            (format!("{base}/tasks_test.py"), tasks.replace("renew_loan", "update_loan")),
            (format!("{base}/data/users.json"), json!({"ada_1": {"loans": ["L7"]}}).to_string()),
            (format!("{base}/data/loans.json"), json!({"L7": {"title": "Emma"}}).to_string()),
        ]
        .into()
    }

    #[test]
    fn tasks_are_read_with_the_records_that_they_need() {
        let corpus = load(Benchmark::TauBench, &folder()).unwrap();
        let [give_back, renew] = corpus.cases.as_slice() else { panic!("{corpus:?}") };
        assert_eq!(give_back.name, "tau_bench/envs/retail/tasks_test.py: TASKS_TEST: [0]");
        assert_eq!(give_back.prompt, "You are ada_1. Give back the book that you borrowed last.");
        let calls: Vec<(&str, &[usize])> =
            give_back.calls.iter().map(|call| (call.tool.as_str(), call.needs.as_slice())).collect();
        // The loan is named by the record of the user, and not by the user.
        assert_eq!(calls, [("get_user_details", &[][..]), ("get_loan_details", &[0]), ("return_loan", &[0])]);
        assert_eq!(give_back.calls[1].answer, "{\"title\":\"Emma\"}");
        assert_eq!(renew.calls.len(), 1, "there is no record of this loan: {renew:?}");
    }

    #[test]
    fn every_recorded_action_is_possible() {
        let suite = CorpusSuite::new(load(Benchmark::TauBench, &folder()).unwrap()).unwrap();
        for method in METHODS {
            for row in suite.run_method(method, &mut || false).unwrap().unwrap() {
                assert_eq!(row.attack(), None);
                for (tool, _, fate) in &row.calls {
                    // The draft says that records are untrusted and private, and that a tool may tell others its arguments. So a person is
                    // asked about a call that takes an id from a record, also if the call only reads.
                    let takes_from_record = ["return_loan", "get_loan_details"].contains(&tool.as_str());
                    let expected = if takes_from_record { CallFate::Asked } else { CallFate::Permitted };
                    assert_eq!(*fate, expected, "{row:?}");
                }
            }
        }
    }

    #[test]
    fn broken_files_are_refused() {
        super::super::tests::check_broken_files(Benchmark::TauBench, &folder());
    }

    #[test]
    fn other_shapes_are_refused() {
        let check = |path: &str, from: &str, to: &str, error: &str| {
            super::super::tests::check_change(Benchmark::TauBench, folder(), path, (from, to), error);
        };
        let tasks = "tau_bench/envs/retail/tasks_test.py";
        check(
            tasks,
            "instruction=\"You",
            "text=\"You",
            "tau_bench/envs/retail/tasks_test.py: TASKS_TEST: [0]: the field `instruction` is missing; add it, or download the file again",
        );
        check(
            tasks,
            "name=\"return_loan\"",
            "name=\"burn_book\"",
            "tau_bench/envs/retail/tasks_test.py: TASKS_TEST: [0].actions[0].name: the tool `burn_book` is not described in tau_bench/envs/retail/tools; download the benchmark again",
        );
        check(
            tasks,
            "\"L7\"",
            "loan()[0]",
            "tau_bench/envs/retail/tasks_test.py:8: expected a literal, found other code, which Flowgate does not run; write the value itself here, or download the published version of the benchmark again",
        );
        check(
            "tau_bench/envs/retail/data/users.json",
            "{\"ada_1\":{\"loans\":[\"L7\"]}}",
            "[]",
            "tau_bench/envs/retail/data/users.json: expected an object, found a list; correct the file, or download it again",
        );
        let error = load(Benchmark::TauBench, &BTreeMap::new()).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "tau_bench/envs: there are no tools; the folder must have `tau_bench/envs/airline/tools/*.py`"
            ),
            "{error}"
        );
    }
}
