//! Follows what a script runs, and what flows through its pipes, and collects its unsafe commands.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::effective_command::{EffectiveCommand, INTERPRETERS, READERS, SHELLS, is_whole_tree};
use super::expansion::{ShellCommand, Variables, Word, constant_text};
use super::flow::{Flow, MAX_TEXTS, PlacedScript, ScriptLocation, document_text};
use super::function::{Function, Names};
use super::parser::parse;
use super::syntax::{CommandList, Group, Pipeline, Redirect, SimpleCommand, Stage, SyntaxWord, is_name};
use super::{IssueSeverity, UnsafeCommand};
use crate::MAX_FINDINGS;

/// Scripts in scripts (`bash -c`), substitutions, groups and calls of functions are followed to this depth.
const MAX_DEPTH: usize = 48;

/// Scripts in scripts are followed to this depth.
const MAX_SCRIPTS: usize = 6;

/// Calls of functions are followed to this depth.
const MAX_CALLS: usize = 3;

/// Collects the unsafe commands of a script.
pub(super) struct CommandScanner {
    pub(super) issues: Vec<UnsafeCommand>,
    reported: BTreeSet<(&'static str, usize, usize)>,
    /// The names of the files into which earlier commands downloaded.
    fetched: BTreeSet<String>,
    /// What earlier commands wrote into files.
    written: BTreeMap<String, PlacedScript>,
    variables: Variables,
    /// What flows into variables from substitutions.
    flows: BTreeMap<String, Flow>,
    functions: BTreeMap<String, Function>,
    aliases: BTreeMap<String, String>,
    /// The calls that were followed, with what their effect depends on.
    followed: BTreeSet<(String, Vec<String>)>,
    depth: usize,
    scripts: usize,
    calls: usize,
    /// Whether `eval` runs the current script, which is then reported already.
    is_evaluated: bool,
    /// Whether the directory is a whole tree, such as the root.
    is_in_tree: bool,
    /// Whether a part was left out because of a limit.
    is_incomplete: bool,
}

impl CommandScanner {
    /// Creates a scanner for a script of this length in bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            issues: Vec::new(),
            reported: BTreeSet::new(),
            fetched: BTreeSet::new(),
            written: BTreeMap::new(),
            variables: Variables::new(bytes),
            flows: BTreeMap::new(),
            functions: BTreeMap::new(),
            aliases: BTreeMap::new(),
            followed: BTreeSet::new(),
            depth: 0,
            scripts: 0,
            calls: 0,
            is_evaluated: false,
            is_in_tree: false,
            is_incomplete: false,
        }
    }

    /// Returns whether something was not followed because of a limit.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete || self.variables.budget == 0
    }

    pub(super) fn report(&mut self, kind: &'static str, span: Range<usize>, severity: IssueSeverity) {
        // More than are returned, since they are sorted first.
        if self.issues.len() <= 2 * MAX_FINDINGS && self.reported.insert((kind, span.start, span.end)) {
            self.issues.push(UnsafeCommand { kind, span, severity });
        }
    }

    /// Scans a script, and reports also what in it is not understood.
    pub(super) fn scan_script(&mut self, script: &PlacedScript, input: &Flow) {
        let PlacedScript { text, location, is_exact } = script;
        if self.scripts >= MAX_SCRIPTS {
            self.is_incomplete = true;
            return;
        }
        self.scripts += 1;
        self.variables.budget = self.variables.budget.saturating_sub(text.len());
        let script = parse(text);
        let mut at = |start: usize| {
            let end = text
                .get(start..)
                .and_then(|rest| rest.chars().next())
                .map_or(start, |c| start + c.len_utf8());
            location.locate(start..end)
        };
        let (syntax, depth) = (script.syntax_error.map(&mut at), script.too_deep.map(&mut at));
        if let Some(span) = syntax.filter(|_| *is_exact) {
            self.report("SYNTAX_ERROR", span, IssueSeverity::Error);
        }
        if let Some(span) = depth {
            self.report("TOO_COMPLEX", span, IssueSeverity::Error);
        }
        self.scan_list(&script.list, location, input);
        self.scripts -= 1;
    }

    /// Scans the pipelines of a list, each of which can read `input`. Returns what they print.
    fn scan_list(&mut self, list: &CommandList, location: &ScriptLocation, input: &Flow) -> Flow {
        let mut printed = Flow::default();
        if self.depth >= MAX_DEPTH {
            self.is_incomplete = true;
            return printed;
        }
        self.depth += 1;
        for pipeline in list.iter() {
            printed.add_with_texts(self.scan_pipeline(pipeline, location, input));
        }
        self.depth -= 1;
        printed
    }

    fn scan_pipeline(&mut self, pipeline: &Pipeline, location: &ScriptLocation, input: &Flow) -> Flow {
        let whole = location.locate(pipeline.span.clone());
        let mut read = input.clone();
        let mut printed = Flow::default();
        for stage in &pipeline.stages {
            let mut output = self.scan_stage(stage, location, &read);
            for field in output.fields() {
                if field.is_some() {
                    *field = Some(whole.clone());
                }
            }
            read.texts.clone_from(&output.texts);
            printed.texts = std::mem::take(&mut output.texts);
            read.add(output.clone());
            printed.add(output);
        }
        printed
    }

    fn scan_stage(&mut self, stage: &Stage, location: &ScriptLocation, input: &Flow) -> Flow {
        match stage {
            Stage::Command(command) => self.scan_command(command, location, input),
            Stage::Group(group) => self.scan_group(group, location, input),
            Stage::Function(name, body) => {
                let mut names = Names::default();
                names.add_list(body);
                let names = Rc::new(names);
                let (body, location) = (body.clone(), location.clone());
                let mut function = Function { body, location, names, printed: Flow::default() };
                // It can call itself.
                self.functions.insert(name.clone(), function.clone());
                function.printed = self.scan_list(&function.body, &function.location, &Flow::default());
                self.functions.insert(name.clone(), function);
                Flow::default()
            }
        }
    }

    fn scan_group(&mut self, group: &Group, location: &ScriptLocation, input: &Flow) -> Flow {
        let was_in_tree = self.is_in_tree;
        let mut input = input.clone();
        for word in &group.head.words {
            self.flow_of(word, location);
        }
        match &group.binding {
            Some((name, Some(values))) => {
                for word in values {
                    let flow = self.flow_of(word, location);
                    self.flows.entry(name.clone()).or_default().add(flow.into_value());
                }
                for value in self.variables.loop_values(values) {
                    self.variables.assign(name, value, false);
                }
            }
            Some((name, None)) => self.variables.assign(name, None, false),
            None => {}
        }
        let redirects = &group.head.redirects;
        for redirect in redirects {
            let flow = self.flow_of(redirect.word(), location);
            if redirect.operator.starts_with('<') {
                input.add(flow);
            }
        }
        if !redirects.is_empty() {
            // The redirections are judged like those of a command without words.
            for choice in self.variables.variants(&[], redirects) {
                let variant = self.variables.expand_command(&[], redirects, &choice);
                let call = EffectiveCommand::new(&variant);
                if let Some((operator, word)) = call.documents().next() {
                    input.texts = vec![document_text(operator, word, location)];
                }
                self.report_effects(&call, location);
            }
        }
        let printed = self.scan_list(&group.list, location, &input);
        if group.is_subshell {
            self.is_in_tree = was_in_tree;
        }
        printed
    }

    fn report_effects(&mut self, call: &EffectiveCommand<'_>, location: &ScriptLocation) {
        let span = location.locate(call.command.span());
        call.report_effects(&mut |kind, severity| self.report(kind, span.clone(), severity));
    }

    /// Scans the commands in the substitutions of a word, and returns what flows into the word from them and from
    /// variables.
    fn flow_of(&mut self, word: &SyntaxWord, location: &ScriptLocation) -> Flow {
        let mut lists = Vec::new();
        word.visit_lists(&mut |list, rewritten| {
            let rewritten = rewritten.map(|range| ScriptLocation::Within(location.locate(range.clone())));
            lists.push((list.clone(), rewritten));
        });
        let mut flow = Flow::default();
        for (list, rewritten) in lists {
            let was_in_tree = self.is_in_tree;
            flow.add(self.scan_list(&list, rewritten.as_ref().unwrap_or(location), &Flow::default()));
            self.is_in_tree = was_in_tree;
        }
        word.visit_variables(&mut |name| {
            if let Some(value) = self.flows.get(name) {
                flow.add(value.clone());
            }
        });
        flow
    }

    fn scan_command(&mut self, command: &SimpleCommand, location: &ScriptLocation, input: &Flow) -> Flow {
        let words = command.words.iter().chain(command.redirects.iter().map(Redirect::word));
        let flows: Vec<Flow> = words.map(|word| self.flow_of(word, location)).collect();
        let mut printed = Flow::default();
        for choice in self.variables.variants(&command.words, &command.redirects) {
            let variant = self.variables.expand_command(&command.words, &command.redirects, &choice);
            printed.add_with_texts(self.judge(&variant, &flows, location, input));
            if self.variables.budget == 0 {
                break;
            }
        }
        self.assign(command, &flows);
        printed
    }

    /// Assigns what a command assigns.
    fn assign(&mut self, command: &SimpleCommand, flows: &[Flow]) {
        let mut is_declaration = true;
        let mut is_first = true;
        for (word, flow) in command.words.iter().zip(flows) {
            if let Some((name, is_appended, value)) = word.split_assignment().filter(|_| is_declaration) {
                for value in self.variables.values(&value) {
                    self.variables.assign(name, value, is_appended);
                }
                let mut flow = flow.clone().into_value();
                if !flow.is_empty() {
                    self.flows.entry(name.to_owned()).or_default().add(flow);
                }
            } else if is_first {
                is_first = false;
                let declarations = ["export", "local", "declare", "readonly", "typeset"];
                is_declaration =
                    constant_text(word).is_some_and(|text| declarations.contains(&text.as_str()));
            }
        }
    }

    /// Reports what is unsafe about one command: alone, and with what it reads. `flows` are those into its words as
    /// they are written. Returns what it prints.
    fn judge(
        &mut self,
        command: &ShellCommand,
        flows: &[Flow],
        location: &ScriptLocation,
        input: &Flow,
    ) -> Flow {
        let aliased = self.expand_alias(command);
        let command = aliased.as_ref().unwrap_or(command);
        let call = EffectiveCommand::new(command);
        let span = location.locate(command.span());
        self.report_effects(&call, location);
        if call.program().is_some_and(|word| word.computed) && !self.is_evaluated {
            self.report("COMPUTED_COMMAND", span.clone(), IssueSeverity::Warning);
        }
        let arguments = Flow::union(call.words().filter_map(|word| flows.get(word.source))).at(&span);
        let mut input = input.clone();
        let redirected = command.redirects.iter().filter(|(operator, _)| operator.starts_with('<'));
        input.add(Flow::union(redirected.filter_map(|(_, word)| flows.get(word.source))).at(&span));
        if let Some((operator, word)) = call.documents().next() {
            input.texts = vec![document_text(operator, word, location)];
        }
        if call.takes_input_as_arguments && !input.texts.is_empty() {
            self.judge_with_input(&call, &input, flows, location);
        }
        if call.reads_script() {
            self.run_input(&call, &input);
        }
        self.judge_arguments(&call, &arguments, &span);
        if call.connects() {
            if let Some(whole) = input.interactive.clone() {
                self.report("REVERSE_SHELL", whole, IssueSeverity::Error);
            }
            if let Some(whole) = input.private.clone() {
                self.report("UPLOAD", whole, IssueSeverity::Error);
            }
        }
        self.run_files(&call, &span);
        let called = self.follow_call(&call, flows, &input);
        if let Some(script) = call.inner_script() {
            let was_evaluated = std::mem::replace(&mut self.is_evaluated, call.is_one_of(&["eval"]));
            self.scan_script(&PlacedScript::new(script, location), &input.without_texts());
            self.is_evaluated = was_evaluated;
        }
        for found in call.found_commands() {
            self.judge(&found, flows, location, &Flow::default());
        }
        self.change_directory(&call, &span);
        self.note_files(&call, location);
        if call.is_one_of(&["read", "mapfile", "readarray", "getopts"]) {
            for name in call.texts().filter(|text| is_name(text)) {
                self.variables.assign(name, None, false);
                self.flows.entry(name.to_owned()).or_default().add(input.clone().into_value());
            }
        }
        let mut output = self.output_of(&call, &arguments, &input, &span, location);
        if let Some(called) = called {
            output.add_with_texts(called);
        }
        output
    }

    /// Runs the standard input of a command as its script.
    fn run_input(&mut self, call: &EffectiveCommand<'_>, input: &Flow) {
        if let Some(whole) = input.fetched.clone() {
            self.report("PIPE_TO_SHELL", whole, IssueSeverity::Error);
        }
        if let Some(whole) = input.decoded.clone() {
            self.report("DECODE_TO_SHELL", whole, IssueSeverity::Error);
        }
        if call.runs_shell() {
            for script in &input.texts {
                self.scan_script(script, &Flow::default());
            }
        }
    }

    /// Judges what flows into the arguments of a command from substitutions.
    fn judge_arguments(&mut self, call: &EffectiveCommand<'_>, arguments: &Flow, span: &Range<usize>) {
        let is_source = call.is_one_of(&["source", "."]);
        if call.is_one_of(INTERPRETERS) || is_source {
            if arguments.fetched.is_some() {
                self.report("PIPE_TO_SHELL", span.clone(), IssueSeverity::Error);
            }
            let runs = is_source || call.texts().any(|text| text.starts_with('-') && text.ends_with('c'));
            if runs && arguments.decoded.is_some() {
                self.report("DECODE_TO_SHELL", span.clone(), IssueSeverity::Error);
            }
        }
        if call.fetches() && (arguments.read.is_some() || arguments.private.is_some()) {
            self.report("UPLOAD", span.clone(), IssueSeverity::Error);
        }
    }

    /// Reports downloaded files that a command runs, and scans those that the script itself wrote.
    fn run_files(&mut self, call: &EffectiveCommand<'_>, span: &Range<usize>) {
        for file in call.executed_files() {
            let file = file.trim_start_matches("./");
            if self.fetched.contains(file) {
                self.report("PIPE_TO_SHELL", span.clone(), IssueSeverity::Error);
            }
            if let Some(script) = self.written.get(file).cloned() {
                self.scan_script(&script, &Flow::default());
            }
        }
    }

    /// Scans the body of the function that a command calls, with its arguments, and returns what it prints.
    fn follow_call(&mut self, call: &EffectiveCommand<'_>, flows: &[Flow], input: &Flow) -> Option<Flow> {
        let word = call.program()?;
        let function = self.functions.get(&word.text)?.clone();
        let arguments: Vec<Word> = call.words().cloned().collect();
        if self.calls >= MAX_CALLS || self.variables.budget == 0 {
            return Some(function.printed);
        }
        let state = self.state_of_call(&function, &arguments, input);
        if !self.followed.insert((word.text.clone(), state)) {
            return Some(function.printed);
        }
        self.calls += 1;
        let before = self.variables.enter_function(&arguments);
        let mut all = Flow::default();
        let mut flows_before = Vec::new();
        for (i, word) in arguments.iter().enumerate().take(9) {
            let flow = flows.get(word.source).cloned().unwrap_or_default().into_value();
            all.add(flow.clone());
            let name = (i + 1).to_string();
            flows_before.push((name.clone(), self.flows.insert(name, flow)));
        }
        for name in ["@", "*"] {
            flows_before.push((name.to_owned(), self.flows.insert(name.to_owned(), all.clone())));
        }
        let mut printed = self.scan_list(&function.body, &function.location, input);
        self.variables.leave_function(before);
        for (name, flow) in flows_before {
            match flow {
                Some(flow) => self.flows.insert(name, flow),
                None => self.flows.remove(&name),
            };
        }
        self.calls -= 1;
        printed.add_with_texts(function.printed);
        Some(printed)
    }

    /// Returns what the effect of a call depends on: the arguments, if the function uses them, and the values of the
    /// variables of the function and of those that it calls.
    fn state_of_call(&mut self, function: &Function, arguments: &[Word], input: &Flow) -> Vec<String> {
        let mut state = vec![format!("{} {}", input.fetched.is_some(), input.decoded.is_some())];
        let (mut functions, mut next) = (vec![function.names.clone()], 0);
        let mut seen = BTreeSet::new();
        let mut variables = BTreeSet::new();
        while let Some(names) = functions.get(next).cloned() {
            next += 1;
            self.variables.spend(names.variables.len() + names.programs.len());
            variables.extend(names.variables.iter().cloned());
            for (name, called) in names.programs.iter().filter_map(|name| self.functions.get_key_value(name))
            {
                if seen.insert(name.clone()) {
                    functions.push(called.names.clone());
                }
            }
        }
        let is_parameter = |name: &str| name.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '_');
        if variables.iter().any(|name| is_parameter(name)) {
            state.extend(arguments.iter().map(|word| word.text.clone()));
        }
        let states =
            variables.iter().filter(|name| !is_parameter(name)).map(|name| self.variables.state_of(name));
        state.extend(states.map(|state| state.to_string()));
        state
    }

    /// Judges the command of `xargs` with the words of its input.
    fn judge_with_input(
        &mut self,
        call: &EffectiveCommand<'_>,
        input: &Flow,
        flows: &[Flow],
        location: &ScriptLocation,
    ) {
        let mut words: Vec<Word> = call.program().into_iter().chain(call.words()).cloned().collect();
        let span = call.command.span();
        for script in &input.texts {
            let more = script.text.split_whitespace().map(|text| Word {
                text: text.to_owned(),
                code: text.to_owned(),
                span: span.clone(),
                source: usize::MAX,
                ..Word::default()
            });
            words.extend(more);
        }
        let command = ShellCommand { words, redirects: Vec::new() };
        self.judge(&command, flows, location, &Flow::default());
    }

    /// Replaces the name of an alias by its words.
    fn expand_alias(&self, command: &ShellCommand) -> Option<ShellCommand> {
        let (first, rest) = command.words.split_first()?;
        let value = self.aliases.get(&first.text)?;
        let words = value.split_whitespace().map(|text| Word {
            text: text.to_owned(),
            code: text.to_owned(),
            ..first.clone()
        });
        let words = words.chain(rest.iter().cloned()).collect();
        Some(ShellCommand { words, redirects: command.redirects.clone() })
    }

    /// Notes the current directory, and reports the removal of everything in it.
    fn change_directory(&mut self, call: &EffectiveCommand<'_>, span: &Range<usize>) {
        if call.is_one_of(&["cd", "pushd"]) {
            self.is_in_tree = call.texts().next().is_none_or(is_whole_tree);
        } else if self.is_in_tree && call.removes_directory() {
            self.report("REMOVE_ALL", span.clone(), IssueSeverity::Error);
        }
    }

    /// Notes the files that a command downloads or writes, and the names that it gives to commands.
    fn note_files(&mut self, call: &EffectiveCommand<'_>, location: &ScriptLocation) {
        let bare = |file: &str| file.trim_start_matches("./").to_owned();
        if call.fetches() {
            let kept = |(op, word): &&(&str, Word)| op.starts_with('>') && word.text != "/dev/null";
            let named = call.command.redirects.iter().filter(kept);
            self.fetched.extend(named.map(|(_, word)| bare(&word.text)));
            let options = ["-o", "-O", "--output", "--output-document"];
            self.fetched.extend(
                options.iter().filter_map(|option| call.option_value(option)).map(|file| bare(&file)),
            );
            // Without such an option, `wget` names the file after the address.
            let last = |address: &str| {
                address.contains("://").then(|| address.rsplit('/').next()).flatten().map(bare)
            };
            self.fetched.extend(call.texts().filter_map(last).filter(|file| !file.is_empty()));
        }
        if let Some(script) = call.printed_text() {
            let script = PlacedScript::new(script, location);
            for file in call.written_files() {
                if self.written.len() >= MAX_TEXTS {
                    self.is_incomplete = true;
                    break;
                }
                self.written.insert(bare(file), script.clone());
            }
        }
        if call.is_one_of(&["alias"]) {
            for (name, value) in call.texts().filter_map(|text| text.split_once('=')) {
                self.aliases.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Returns what a command prints.
    fn output_of(
        &self,
        call: &EffectiveCommand<'_>,
        arguments: &Flow,
        input: &Flow,
        span: &Range<usize>,
        location: &ScriptLocation,
    ) -> Flow {
        let given = |condition: bool| condition.then(|| span.clone());
        let mut output = Flow {
            fetched: given(call.fetches()),
            decoded: given(call.decodes()),
            interactive: given(call.is_one_of(SHELLS) && call.has_argument("-i")),
            private: given(
                call.reads_sensitive() || call.is_one_of(&["tar", "zip"]) || call.dumps_environment(),
            ),
            read: given(call.is_one_of(READERS) || call.dumps_environment()),
            texts: Vec::new(),
        };
        if let Some(script) = call.printed_text() {
            output.texts.push(PlacedScript::new(script, location));
        } else if call.passes_input_on() {
            output.texts.clone_from(&input.texts);
        }
        if call.is_one_of(&["echo", "printf"]) {
            output.add(arguments.clone().into_value());
        }
        output
    }
}
