//! Runs the specifications in `spec/`: Markdown whose code blocks are policies, traces and expected verdicts.
//!
//! `spec/README.md` describes the format. Every trace block is judged under the last policy before it.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::string_slice, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate::monitor::{
    Attribution, AuthorizedCall, CallDependency, Denial, Judgement, Limits, Monitor, Outcome, Permit,
    Question, Verdict,
};
use flowgate::policy::{Dialect, Policy, suggested_role};
use flowgate::trace::{Call, EventBody, EventId, Message, NodeId, Output, Tool, TraceEntry};
use serde_json::Value;

#[test]
fn specifications_hold() {
    let mut files = Vec::new();
    markdown(&Path::new(env!("CARGO_MANIFEST_DIR")).join("spec"), &mut files);
    let (mut traces, mut failures) = (0, Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let mut policy: Option<Result<Arc<Policy>, String>> = None;
        let mut imported: Vec<(String, String)> = Vec::new();
        for block in blocks(&text) {
            match block.language.as_str() {
                "flow" => policy = Some(load(&block.text, &imported)),
                language if language.starts_with("flow ") => {
                    let path = language.trim_start_matches("flow ").to_owned();
                    imported.retain(|(known, _)| *known != path);
                    imported.push((path, block.text));
                }
                "trace" => {
                    traces += 1;
                    let policy = policy
                        .as_ref()
                        .unwrap_or_else(|| panic!("{name}:{}: no policy before the trace", block.line));
                    match policy {
                        Ok(policy) => run(policy, &block, &name, &mut failures),
                        Err(error) => failures.push(format!("{name}:{}: {error}", block.line)),
                    }
                }
                "error" => match policy.as_ref().expect("a policy before the error") {
                    Ok(_) => failures.push(format!("{name}:{}: the policy has no error", block.line)),
                    Err(error) if error.trim() == block.text.trim() => {}
                    Err(error) => failures
                        .push(format!("{name}:{}: expected:\n{}\nfound:\n{error}", block.line, block.text)),
                },
                "" | "text" => {}
                other => panic!("{name}:{}: unknown block `{other}`", block.line),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(traces >= 100, "only {traces} traces were found");
}

/// The policies in the documentation and the examples compile.
#[test]
fn documentation_and_examples_are_policies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    for file in ["README.md", "docs/guard.md", "docs/language.md"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        // Excerpts may use dimensions that another excerpt declares.
        let preface = "lattice integrity: trusted < partner < untrusted\nlattice secrecy: public < internal < private\nlattice readers: readers\n";
        for block in blocks(&text).into_iter().filter(|block| block.language == "python") {
            let preface = if block.text.contains("lattice ") { "" } else { preface };
            sources.push((format!("{file}:{}", block.line), format!("{preface}{}", block.text)));
        }
    }
    for folder in [
        "examples/agentdojo",
        "examples/gateway",
        "examples/hooks",
        "examples/mcp",
        "examples/run",
        "crates/flowgate-cli/demo",
    ] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "flow") {
                sources.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(sources.len() >= 10);
    for (place, source) in sources {
        let imported = [
            ("servers/bank.flow".to_owned(), String::new()),
            ("../shared/contacts.flow".to_owned(), String::new()),
        ];
        let policy = load(&source, &imported).unwrap_or_else(|error| panic!("{place}: {error}"));
        // What users copy must not let a stranger choose a destination.
        let copied = ["payload-sensitive", "capture-and-fields"];
        let found = policy.warnings().iter().find(|warning| copied.contains(&warning.code));
        assert_eq!(found, None, "{place}");
    }
}

/// Each word in the documentation of the names of arguments suggests the role of its row.
#[test]
fn documented_names_suggest_roles() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language.md");
    let text = std::fs::read_to_string(file).unwrap();
    let section = text.split("### Names of arguments\n").nth(1).unwrap();
    let section = section.split("\n### ").next().unwrap();
    let mut words = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [role, anywhere, last] = cells[..] else { panic!("{row}") };
        let role = role.trim_matches('`');
        // Phrases such as `any other key` are no words.
        let names = |cell: &str| -> Vec<String> {
            cell.split([',', ';'])
                .map(str::trim)
                .filter(|word| !word.contains(' ') && !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let check = |name: &str| {
            assert_eq!(suggested_role(name).map(|role| role.name()), Some(role), "{name}");
        };
        for word in names(anywhere) {
            words += 1;
            check(&word);
            check(&format!("new_{word}"));
            check(&format!("{word}_2"));
        }
        for word in names(last) {
            words += 1;
            check(&word);
            check(&format!("new_{word}"));
            assert_eq!(suggested_role(&format!("{word}_2")), None, "{word}_2");
        }
    }
    assert!(words >= 60, "only {words} words were found");
}

fn markdown(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            markdown(&path, files);
        } else if path.extension().is_some_and(|e| e == "md")
            && path.file_name().is_some_and(|n| n != "README.md")
        {
            files.push(path);
        }
    }
}

struct CodeBlock {
    language: String,
    text: String,
    line: usize,
}

fn blocks(markdown: &str) -> Vec<CodeBlock> {
    let mut blocks: Vec<CodeBlock> = Vec::new();
    let mut open = false;
    for (index, line) in markdown.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            open = !open;
            if open {
                blocks.push(CodeBlock {
                    language: language.trim().to_owned(),
                    text: String::new(),
                    line: index + 2,
                });
            }
        } else if open {
            let block = blocks.last_mut().unwrap();
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    blocks
}

/// Returns a policy that may import files, given by path and text, or its diagnostics, one per line:
/// `line:column code: message; help: advice`.
fn load(source: &str, files: &[(String, String)]) -> Result<Arc<Policy>, String> {
    let read = |path: &str| {
        let file = files.iter().find(|(known, _)| known == path);
        file.map(|(_, text)| text.clone()).ok_or_else(|| "there is no such file".to_owned())
    };
    Policy::load(source, Dialect::Flowgate, read).map(Arc::new).map_err(|invalid| {
        let lines = invalid.diagnostics.iter().map(|d| {
            let place = invalid.source.locate(d.span.start);
            let help = d.help.as_ref().map(|help| format!("; help: {help}")).unwrap_or_default();
            format!("{place} {}: {}{help}", d.code, d.message)
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// The state of one trace block.
struct TraceBlockRun<'a> {
    monitor: Monitor,
    /// Permits and questions by the id of their call.
    permits: Vec<(String, Permit)>,
    questions: Vec<(String, Question)>,
    running: Vec<AuthorizedCall>,
    calls: Vec<(String, EventId)>,
    last: Option<EventId>,
    place: String,
    failures: &'a mut Vec<String>,
}

fn run(policy: &Arc<Policy>, block: &CodeBlock, name: &str, failures: &mut Vec<String>) {
    let mut limits = Limits::default();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (index, line) in block.text.lines().enumerate() {
        match line.strip_prefix("    ") {
            // A line with deeper indentation continues the previous line.
            Some(more) if !lines.is_empty() => {
                let last = &mut lines.last_mut().unwrap().1;
                last.push('\n');
                last.push_str(more);
            }
            _ if line.trim().is_empty() || line.starts_with('#') => {}
            _ => lines.push((block.line + index, line.to_owned())),
        }
    }
    if let Some((_, fuel)) = lines.first().filter(|(_, line)| line.starts_with("fuel ")).cloned() {
        limits.fuel = fuel[5..].trim().parse().unwrap();
        lines.remove(0);
    }
    let monitor = Monitor::with_limits(Arc::clone(policy), limits);
    let (permits, questions, running, calls) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut run = TraceBlockRun {
        monitor,
        permits,
        questions,
        running,
        calls,
        last: None,
        place: String::new(),
        failures,
    };
    for (line, text) in lines {
        run.place = format!("{name}:{line}");
        run.step(&text);
    }
}

impl TraceBlockRun<'_> {
    fn fail(&mut self, message: &str) {
        self.failures.push(format!("{}: {message}", self.place));
    }

    fn step(&mut self, line: &str) {
        let (agent, parents, line) = standing(line);
        let (line, name) = match line.rsplit_once(" @") {
            Some((rest, name)) if !name.contains(' ') => (rest, Some(name.to_owned())),
            _ => (line, None),
        };
        let entry = |body: EventBody| TraceEntry {
            agent: agent.clone(),
            parents: parents.clone(),
            name: name.clone(),
            ..TraceEntry::from(body)
        };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "system:" | "user:" | "assistant:" => {
                let role = word.trim_end_matches(':').to_owned();
                self.push(entry(EventBody::Message(Message {
                    role,
                    content: Value::String(rest.to_owned()),
                })));
            }
            "out" | "error" => {
                let (id, text) = rest.split_once(": ").unwrap_or((rest.trim_end_matches(':'), ""));
                let content = Value::String(text.to_owned());
                let (call_id, is_error) = (id.to_owned(), Some(word == "error"));
                self.push(entry(EventBody::Output(Output {
                    call_id,
                    tool: None,
                    content,
                    structured: None,
                    is_error,
                })));
            }
            "call" | "judge" => {
                let (id, rest) = rest.split_once(' ').unwrap();
                let (body, expected) =
                    rest.split_once(" # ").expect("a call says what is expected: `# permit`");
                let (body, sources) = match body.split_once(" from ") {
                    Some((body, sources)) => (body, Some(sources)),
                    None => (body, None),
                };
                let (tool, arguments) = body.trim().split_once('(').unwrap();
                let tool = match tool.split_once('/') {
                    Some((server, name)) => Tool::of(server, name),
                    None => Tool::local(tool),
                };
                let call = Call::from_json(id, tool, arguments.strip_suffix(')').unwrap());
                let attribution =
                    sources.map_or_else(Attribution::everything, |sources| self.attribution(sources));
                let verdict = self.monitor.judge_entry(entry(EventBody::Call(call)), attribution);
                self.expect(id, verdict, expected, word == "call");
            }
            // Redeems the permit of a judged call.
            "redeem" => {
                let (id, expected) = rest.split_once(" # ").unwrap();
                let index = self.permits.iter().position(|(known, _)| known == id).expect("a permit");
                let (_, permit) = self.permits.remove(index);
                let result = self.monitor.redeem(permit);
                self.ran(id, result, expected);
            }
            "drop" => {
                let index = self.permits.iter().position(|(known, _)| known == rest).expect("a permit");
                drop(self.permits.remove(index));
            }
            // `approve ID by NAME, NAME`: each of them approves.
            "approve" | "grant" => {
                let (id, expected) = rest.split_once(" # ").unwrap();
                let (id, names) = id.split_once(" by ").unwrap_or((id, ""));
                let names: Vec<String> = names.split(", ").map(str::to_owned).collect();
                let index = self.questions.iter().position(|(known, _)| known == id).expect("a question");
                let (_, question) = self.questions.remove(index);
                let permit = match word {
                    "grant" => self.monitor.approve_for_session(question),
                    _ => self.monitor.approve_by(question, &names),
                };
                let result = permit.and_then(|permit| self.monitor.redeem(permit));
                self.ran(id, result, expected);
            }
            // `runs ID ARGUMENTS`: the arguments that the tool receives.
            "runs" => {
                let (id, expected) = rest.split_once(' ').unwrap();
                let event = self.calls.iter().rev().find(|(known, _)| known == id).map(|(_, event)| *event);
                let found = self
                    .running
                    .iter()
                    .find(|a| Some(a.event()) == event)
                    .map(AuthorizedCall::arguments_json);
                if found.as_deref() != Some(expected) {
                    self.fail(&format!("expected {expected}, found {found:?}"));
                }
            }
            // `label PATH: elements`: the label of a part of the last event.
            "label" => {
                let (path, expected) = rest.split_once(": ").unwrap();
                let event = self.last.unwrap();
                let found = self.node(event, path).map(|node| {
                    let label = self.monitor.trace().event(event).unwrap().document.node(node).unwrap().label;
                    self.monitor.describe(&label).join(", ")
                });
                if found.as_deref() != Some(expected) {
                    self.fail(&format!("expected {path} to be {expected}, found {found:?}"));
                }
            }
            // `tools SERVER/NAME ...`: the tools that the client declares.
            "tools" => {
                let tools: Vec<Tool> = rest
                    .split_whitespace()
                    .map(|tool| match tool.split_once('/') {
                        Some((server, name)) => Tool::of(server, name),
                        None => Tool::local(tool),
                    })
                    .collect();
                self.monitor.declare_tools(&tools);
            }
            other => panic!("{}: unknown word `{other}`", self.place),
        }
    }

    /// Pushes a message or an output; ` # finding WORDS` states the expected finding.
    fn push(&mut self, mut entry: TraceEntry) {
        let content = match &mut entry.body {
            EventBody::Message(message) => &mut message.content,
            EventBody::Output(output) => &mut output.content,
            EventBody::Call(_) | EventBody::Tool(_) => panic!("only messages and outputs have content"),
        };
        let text = content.as_str().unwrap().to_owned();
        let (text, expected) = match text.rsplit_once(" # finding ") {
            Some((text, expected)) => (text.to_owned(), Some(expected.trim().to_owned())),
            None => (text, None),
        };
        *content = Value::String(text.clone());
        if let EventBody::Output(output) = &mut entry.body
            && let Some((text, structured)) = text.split_once(" ~~ ")
        {
            output.content = Value::String(text.to_owned());
            output.structured = Some(serde_json::from_str(structured).unwrap());
        }
        match self.monitor.push(entry) {
            Ok((event, findings)) => {
                self.last = Some(event);
                let found = findings.iter().map(|f| f.reason.message.clone()).collect::<Vec<_>>().join("; ");
                match expected {
                    Some(expected) if !found.contains(&expected) => {
                        self.fail(&format!("expected finding {expected:?}, found {found:?}"))
                    }
                    None if !found.is_empty() => self.fail(&format!("unexpected finding {found:?}")),
                    _ => {}
                }
            }
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn expect(&mut self, id: &str, verdict: Verdict, expected: &str, runs: bool) {
        let outcome = verdict.judgement().outcome();
        let why = why(verdict.judgement());
        let mut authorized = None;
        match verdict {
            Verdict::Permit(permit) if runs => match self.monitor.redeem(permit) {
                Ok(running) => authorized = Some(running),
                Err(denial) => self.fail(&format!("judged, but not run: {}", crate::why(denial.judgement()))),
            },
            Verdict::Permit(permit) => self.permits.push((id.to_owned(), permit)),
            Verdict::Confirm(question) => self.questions.push((id.to_owned(), question)),
            Verdict::Deny(_) => {}
        }
        self.outcome(id, outcome, &why, expected, authorized);
    }

    /// Checks the outcome of a permit or an approval.
    fn ran(&mut self, id: &str, result: Result<AuthorizedCall, Denial>, expected: &str) {
        match result {
            Ok(authorized) => self.outcome(id, Outcome::Permit, "", expected, Some(authorized)),
            Err(denial) => self.outcome(id, Outcome::Deny, &why(denial.judgement()), expected, None),
        }
    }

    fn outcome(
        &mut self,
        id: &str,
        outcome: Outcome,
        why: &str,
        expected: &str,
        authorized: Option<AuthorizedCall>,
    ) {
        if let Some(authorized) = authorized {
            self.calls.push((id.to_owned(), authorized.event()));
            self.last = Some(authorized.event());
            self.running.push(authorized);
        }
        let (word, reason) = expected.trim().split_once(": ").unwrap_or((expected.trim(), ""));
        if outcome.name() != word || !why.contains(reason) {
            self.fail(&format!("expected {expected:?}, found {}: {why}", outcome.name()));
        }
    }

    /// Parses `from user, c1.content[0].id; body=c2.content`: the sources of the decision and all arguments,
    /// then of single arguments.
    fn attribution(&self, text: &str) -> Attribution {
        let mut attribution = Attribution { method: "spec", ..Attribution::everything() };
        for (index, part) in text.split(';').enumerate() {
            match part.split_once('=') {
                Some((name, sources)) => {
                    attribution.arguments.retain(|(known, _)| known != name.trim());
                    attribution.arguments.push((name.trim().to_owned(), self.sources(sources)));
                }
                None if index == 0 => {
                    attribution.decision = self.sources(part);
                    for name in
                        ["to", "amount", "subject", "body", "url", "day", "id", "text", "city", "code", "n"]
                    {
                        attribution.arguments.push((name.to_owned(), self.sources(part)));
                    }
                }
                None => panic!("{}: {part:?}", self.place),
            }
        }
        attribution
    }

    fn sources(&self, text: &str) -> CallDependency {
        let mut regions = Vec::new();
        for source in text.split(',').map(str::trim).filter(|source| *source != "nowhere") {
            let (event, path) = source.split_once('.').unwrap_or((source, "content"));
            let events: Vec<EventId> = (0..self.monitor.trace().len()).map(EventId).collect();
            let found =
                events.into_iter().rev().find(|id| match &self.monitor.trace().event(*id).unwrap().body {
                    EventBody::Message(message) => message.role == event,
                    EventBody::Output(output) => output.call_id == event,
                    EventBody::Call(_) | EventBody::Tool(_) => false,
                });
            let found = found.unwrap_or_else(|| panic!("{}: no event `{event}`", self.place));
            let node = self.node(found, path).unwrap_or_else(|| panic!("{}: no region `{path}`", self.place));
            regions.push((found, node));
        }
        CallDependency::Regions(regions)
    }

    fn node(&self, event: EventId, path: &str) -> Option<NodeId> {
        let document = &self.monitor.trace().event(event)?.document;
        (0..document.nodes().len()).find(|node| document.path(*node).to_string() == path)
    }
}

/// Returns all reasons of a judgement on one line.
fn why(judgement: &Judgement) -> String {
    judgement.reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join("; ")
}

/// Parses `[agent < parent, parent] line`.
fn standing(line: &str) -> (Option<String>, Vec<String>, &str) {
    let Some((head, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
        return (None, Vec::new(), line);
    };
    let (agent, parents) = head.split_once('<').unwrap_or((head, ""));
    let parents = parents.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect();
    (Some(agent.trim().to_owned()).filter(|agent| agent != "main"), parents, rest)
}
