//! Visits a parsed script: reports the commands that it runs, those that are unsafe alone or together, and everything
//! that cannot be read.
//!
//! It follows every script inside a script, in the budget of the whole text. The variables that it follows are known in
//! code that runs in order only; a list, loop, function or background command makes them unknown again.

use std::collections::BTreeSet;
use std::ops::Range;

use super::effective_command::{EffectiveCommand, INTERPRETERS, READERS, RedirectTarget, SHELLS};
use super::environment::{EnvironmentEffect, effect_of_assignment};
use super::expansion::{Argument, ShellVariables};
use super::launches::{CommandInput, Launch, launches};
use super::lexer::{ScriptLocation, TextFacts};
use super::limits::{ReadBudget, ReadError};
use super::syntax::{Command, CommandForm, CompoundKind, PartKind, Pipeline, Redirect, Script, Word};
use super::{Invocation, IssueSeverity, UNREAD_KINDS, UnreadPart, UnreadReason, UnsafeCommand, parser};
use crate::MAX_FINDINGS;

/// The builtins after which the value of any variable may have changed, or assignments no longer do what they say.
const CHANGES_VARIABLES: &[&str] = &[
    "eval",
    "source",
    ".",
    "read",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "printf",
    "getopts",
    "mapfile",
    "readarray",
    "let",
    "trap",
    "alias",
    "unalias",
    "shopt",
    "set",
    "enable",
    "wait",
    "builtin",
    "coproc",
    "integer",
    "float",
    "autoload",
    "zmodload",
    "setopt",
];
/// The unsafe effects that already say that a command runs a script which is not in the text.
const COVERING: &[&str] = &["PIPE_TO_SHELL", "DECODE_TO_SHELL", "EVAL", "REVERSE_SHELL"];

/// The code around a script.
#[derive(Clone, Copy)]
struct ScriptContext<'d> {
    /// The contents of the here-documents.
    documents: &'d [Word],
    /// The standard input of its commands.
    input: &'d CommandInput,
    /// Whether it runs at most once and in order.
    in_order: bool,
}

/// The words and redirections of a simple command.
struct SimpleCall<'s> {
    words: Vec<Argument<'s>>,
    redirects: Vec<RedirectTarget<'s>>,
    span: Range<usize>,
}

/// Collects what a text runs.
pub(super) struct CommandScanner {
    budget: ReadBudget,
    pub(super) commands: Vec<Invocation>,
    pub(super) unread: Vec<UnreadPart>,
    pub(super) issues: Vec<UnsafeCommand>,
    /// The names of the files into which earlier commands downloaded.
    fetched: BTreeSet<String>,
    /// Whether a limit ends the reading.
    stopped: bool,
    /// Whether `exec` has replaced the standard input.
    replaced_input: bool,
    /// Whether a function is defined.
    defines_function: bool,
    /// Whether a function may have been removed or replaced, so that a call of it may run a program.
    may_remove_functions: bool,
    /// Whether a variable may have a value with a substitution that is not run yet.
    has_quoted_substitution: bool,
    /// The bytes of the first construct that evaluates variables as arithmetic, which runs substitutions in their values.
    arithmetic: Option<Range<usize>>,
}

impl CommandScanner {
    /// Creates a scanner for one text.
    pub(super) fn new() -> Self {
        Self {
            budget: ReadBudget::new(),
            commands: Vec::new(),
            unread: Vec::new(),
            issues: Vec::new(),
            fetched: BTreeSet::new(),
            stopped: false,
            replaced_input: false,
            defines_function: false,
            may_remove_functions: false,
            has_quoted_substitution: false,
            arithmetic: None,
        }
    }

    /// Records a part that cannot be read. `covered` says whether an unsafe effect of the same command reports it.
    pub(super) fn note_unread(&mut self, reason: UnreadReason, span: Range<usize>, covered: bool) {
        if reason == UnreadReason::Limit {
            if self.stopped {
                return;
            }
            self.stopped = true;
        } else if self.unread.len() >= MAX_FINDINGS {
            self.note_unread(UnreadReason::Limit, span, false);
            return;
        }
        if let Some((kind, severity)) = reason.issue().filter(|_| !covered) {
            self.issues.push(UnsafeCommand { kind, span: span.clone(), severity });
        }
        self.unread.push(UnreadPart { reason, span });
    }

    /// Records the first construct that evaluates arithmetic.
    fn note_arithmetic(&mut self, span: Option<Range<usize>>) {
        self.arithmetic = self.arithmetic.take().or(span);
    }

    /// Reports arithmetic that may run a substitution in the value of a variable. Called after the whole text is scanned.
    pub(super) fn finish(&mut self) {
        if let Some(span) = self.arithmetic.take().filter(|_| self.has_quoted_substitution) {
            self.note_unread(UnreadReason::Script, span, false);
        }
    }

    /// Records whether words that become values of variables contain a substitution that is not run yet.
    fn note_values<'w>(&mut self, words: impl IntoIterator<Item = &'w Word>) {
        if !self.has_quoted_substitution {
            self.has_quoted_substitution = words.into_iter().any(Word::has_quoted_substitution);
        }
    }

    /// Records a command.
    fn note_command(&mut self, name: &Argument<'_>, arguments: &[Argument<'_>], span: &Range<usize>) {
        let length = name.text.len() + arguments.iter().map(|word| word.text.len() + 1).sum::<usize>();
        if self.commands.len() >= MAX_FINDINGS || self.budget.spend(length).is_err() {
            self.note_unread(UnreadReason::Limit, span.clone(), false);
            return;
        }
        self.commands.push(Invocation {
            name: name.text.clone(),
            arguments: arguments.iter().map(|word| word.text.clone()).collect(),
            computed: arguments.iter().any(|word| !word.known),
            span: span.clone(),
        });
    }

    /// Scans a script that is not parsed yet. `input` is the standard input of its commands.
    pub(super) fn scan_text(&mut self, text: &str, location: &ScriptLocation, input: &CommandInput) {
        if self.stopped {
            return;
        }
        let span = location.locate(&(0..text.len()));
        if self.budget.enter().is_err() || self.budget.spend(text.len()).is_err() {
            self.note_unread(UnreadReason::Limit, span, false);
            return;
        }
        let mut facts = TextFacts::default();
        let depth = self.budget.depth();
        let (script, failures) = parser::parse(text, location.clone(), &mut self.budget, &mut facts);
        self.budget.return_to(depth);
        for (error, span) in failures {
            let reason = match error {
                ReadError::Limit => UnreadReason::Limit,
                ReadError::Syntax => UnreadReason::Syntax,
            };
            self.note_unread(reason, span, false);
        }
        for span in facts.prompt_expansions {
            self.note_unread(UnreadReason::Script, span, false);
        }
        let mut variables = ShellVariables::default();
        if facts.defines_function || facts.assigns_in_expansion || facts.arithmetic.is_some() {
            variables.disable();
        }
        self.has_quoted_substitution |= facts.has_quoted_substitution;
        self.defines_function |= facts.defines_function;
        self.note_arithmetic(facts.arithmetic);
        let context = ScriptContext { documents: &facts.documents, input, in_order: true };
        // What was parsed before a limit is scanned as well.
        let stopped = std::mem::replace(&mut self.stopped, false);
        self.scan_script(&script, &mut variables, context);
        self.stopped |= stopped;
        self.budget.leave();
    }

    /// Scans the statements of a script in order. `variables` are those at its beginning, and at return those at its
    /// end.
    fn scan_script(&mut self, script: &Script, variables: &mut ShellVariables, context: ScriptContext<'_>) {
        for statement in &script.statements {
            for (i, pipeline) in statement.pipelines.iter().enumerate() {
                // More than are returned, since duplicates are removed later.
                if self.issues.len() > 2 * MAX_FINDINGS {
                    let at = pipeline.commands.first().map_or(0..0, |command| command.span.clone());
                    self.note_unread(UnreadReason::Limit, at, false);
                }
                if self.stopped {
                    return;
                }
                let alone = !statement.background && pipeline.commands.len() == 1;
                if alone {
                    self.scan_pipeline(pipeline, variables, i == 0 && context.in_order, context);
                } else {
                    // Each command has a process of its own.
                    let mut inner = variables.clone();
                    self.scan_pipeline(pipeline, &mut inner, false, context);
                    variables.join(&inner);
                }
            }
        }
    }

    /// Scans the commands of a pipeline. `certain` says whether it runs in order and exactly once.
    fn scan_pipeline(
        &mut self,
        pipeline: &Pipeline,
        variables: &mut ShellVariables,
        certain: bool,
        context: ScriptContext<'_>,
    ) {
        let simple: Vec<SimpleCall<'_>> =
            pipeline.commands.iter().map(|command| expand_command(command, variables)).collect();
        let calls: Vec<EffectiveCommand<'_, '_>> = simple
            .iter()
            .map(|call| EffectiveCommand::new(&call.words, &call.redirects, call.span.clone()))
            .collect();
        let first_issue = self.issues.len();
        self.report_combinations(pipeline, &calls);
        for call in calls.iter().filter(|call| call.fetches()) {
            self.fetched.extend(call.written_files());
        }
        let mut covered = self.issues.iter().skip(first_issue).any(is_covering);
        for (i, command) in pipeline.commands.iter().enumerate() {
            let previous = i.checked_sub(1).map(|previous| {
                let call = calls.get(previous);
                let redirects = pipeline.commands.get(previous).map_or(&[][..], |command| &command.redirects);
                call.map_or(CommandInput::Unknown, |call| self.output(call, redirects, context, variables))
            });
            let input = self.input(command, previous, context, variables);
            let context = ScriptContext { input: &input, ..context };
            match &command.form {
                CommandForm::Simple { assignments, words } => {
                    if let Some(call) = calls.get(i) {
                        self.scan_call(call, &input, variables, &mut covered);
                        self.replaced_input |=
                            call.name == "exec" && command.redirects.iter().any(Redirect::feeds_input);
                    }
                    for assignment in assignments {
                        self.note_values([&assignment.value]);
                        let value = variables.expand(&assignment.value);
                        self.check_environment(&assignment.name, &value);
                        self.scan_words([&assignment.value], variables, context);
                        // If a redirection fails, the assignment may not happen.
                        let alone = words.is_empty() && command.redirects.is_empty();
                        variables.assign(assignment, certain && alone);
                    }
                    self.scan_words(words, variables, context);
                    if let Some(call) = calls.get(i) {
                        let changes = CHANGES_VARIABLES.contains(&call.name);
                        if changes || self.defines_function || matches!(call.name, "test" | "[" | "echo") {
                            self.note_values(words);
                        }
                        if evaluates_arithmetic(call) {
                            self.note_arithmetic(Some(call.span.clone()));
                        }
                        if changes || call.unclear || call.program.is_some_and(|program| !program.known) {
                            variables.disable();
                            let keeps =
                                ["export", "set", "printf", "read", "declare", "local", "shopt", "trap"];
                            self.may_remove_functions |= !keeps.contains(&call.name);
                        }
                    }
                }
                CommandForm::Compound { kind, words, bodies } => {
                    self.note_values(words);
                    self.scan_words(words, variables, context);
                    self.scan_bodies(*kind, bodies, variables, certain, context);
                }
                CommandForm::Function { name, body } => {
                    let mut inner = ShellVariables::default();
                    inner.disable();
                    let context = ScriptContext { input: &CommandInput::Unknown, in_order: false, ..context };
                    if let CommandForm::Compound { kind, words, bodies } = &body.form {
                        self.scan_words(words, &inner, context);
                        self.scan_bodies(*kind, bodies, &mut inner, false, context);
                    }
                    self.scan_redirects(&body.redirects, &inner, context);
                    match name {
                        Some(name) if certain => {
                            variables.functions.insert(name.clone());
                        }
                        Some(_) => {}
                        None => self.note_unread(UnreadReason::Name, command.span.clone(), false),
                    }
                }
            }
            self.scan_redirects(&command.redirects, variables, context);
        }
    }

    /// Scans the scripts of a compound command.
    fn scan_bodies(
        &mut self,
        kind: CompoundKind,
        bodies: &[Script],
        variables: &mut ShellVariables,
        certain: bool,
        context: ScriptContext<'_>,
    ) {
        if kind == CompoundKind::Group && certain {
            bodies.iter().for_each(|body| self.scan_script(body, variables, context));
            return;
        }
        let in_order = context.in_order && kind != CompoundKind::Loop;
        let replaced_input = self.replaced_input;
        for (i, body) in bodies.iter().enumerate() {
            let mut inner = variables.clone();
            // A loop may have changed the variables in an earlier round, and another branch before this one.
            if kind == CompoundKind::Loop || i > 0 {
                inner.forget();
            }
            self.scan_script(body, &mut inner, ScriptContext { in_order, ..context });
            variables.join(&inner);
        }
        match kind {
            CompoundKind::Subshell => self.replaced_input = replaced_input,
            CompoundKind::Test => {}
            _ => variables.forget(),
        }
    }

    /// Scans the scripts in the substitutions of words.
    fn scan_words<'w>(
        &mut self,
        words: impl IntoIterator<Item = &'w Word>,
        variables: &ShellVariables,
        context: ScriptContext<'_>,
    ) {
        for script in words.into_iter().flat_map(Word::scripts) {
            let mut inner = variables.clone();
            self.scan_script(script, &mut inner, context);
        }
    }

    /// Scans the scripts in the targets of redirections and in here-documents.
    fn scan_redirects(
        &mut self,
        redirects: &[Redirect],
        variables: &ShellVariables,
        context: ScriptContext<'_>,
    ) {
        for redirect in redirects {
            if redirect.operator == "<<<" {
                self.note_values([&redirect.target]);
            }
            match redirect.document.and_then(|number| context.documents.get(number)) {
                Some(content) => {
                    self.note_values([content]);
                    self.scan_words([content], variables, context);
                }
                None => self.scan_words([&redirect.target], variables, context),
            }
        }
    }

    /// Reports a simple command with its effects, and scans what it runs. `covered` says whether an effect of its
    /// pipeline already reports that a script is not in the text.
    fn scan_call(
        &mut self,
        call: &EffectiveCommand<'_, '_>,
        input: &CommandInput,
        variables: &ShellVariables,
        covered: &mut bool,
    ) {
        let first_issue = self.issues.len();
        let Self { issues, .. } = self;
        call.report_effects(&mut |kind, severity| {
            issues.push(UnsafeCommand { kind, span: call.span.clone(), severity });
        });
        *covered |= self.issues.iter().skip(first_issue).any(is_covering);
        let mut computed = false;
        for wrapper in &call.wrappers {
            computed |= !wrapper.known;
            if wrapper.known {
                self.note_command(wrapper, &[], &call.span);
            }
        }
        if let Some(program) = call.program {
            computed |= !program.known;
            let is_function = call.wrappers.is_empty()
                && !self.may_remove_functions
                && variables.functions.contains(&program.text);
            if program.known && !is_function && !program.text.is_empty() {
                self.note_command(program, call.arguments, &call.span);
            }
        }
        if computed {
            self.note_unread(UnreadReason::Name, call.span.clone(), false);
        }
        if call.unclear {
            self.note_unread(UnreadReason::Arguments, call.span.clone(), false);
        }
        for argument in &call.assigned {
            self.check_environment_argument(argument);
        }
        if matches!(call.name, "export" | "declare" | "typeset" | "readonly" | "local") {
            for argument in call.arguments.iter().filter(|word| !word.text.starts_with('-')) {
                self.check_environment_argument(argument);
            }
        }
        for launch in launches(call, input) {
            self.follow(launch, call, input, variables, *covered);
        }
    }

    /// Scans what a command runs because of its arguments or its input.
    fn follow(
        &mut self,
        launch: Launch<'_>,
        call: &EffectiveCommand<'_, '_>,
        input: &CommandInput,
        variables: &ShellVariables,
        covered: bool,
    ) {
        match launch {
            Launch::Unread(reason, span) => self.note_unread(reason, span, covered),
            Launch::Text(text, span) => {
                self.scan_text(&text, &ScriptLocation::Within(span), inner_input(input))
            }
            Launch::Guess(text, span) => {
                let (unread, issues) = (self.unread.len(), self.issues.len());
                self.scan_text(&text, &ScriptLocation::Within(span), inner_input(input));
                // That the script cannot be read is already reported; a limit ends the whole reading.
                if !self.stopped {
                    self.unread.truncate(unread);
                    let added = self.issues.split_off(issues);
                    let is_effect = |issue: &UnsafeCommand| !UNREAD_KINDS.contains(&issue.kind);
                    self.issues.extend(added.into_iter().filter(is_effect));
                }
            }
            Launch::Words(words) => {
                if self.budget.enter().is_err() || self.budget.spend(words.len()).is_err() {
                    self.note_unread(UnreadReason::Limit, call.span.clone(), false);
                    return;
                }
                let inner = EffectiveCommand::new(&words, &[], call.span.clone());
                let input = if call.name == "xargs" { &CommandInput::Unknown } else { input };
                let mut covered = covered;
                // Only a shell knows the functions of the script.
                let mut no_functions = variables.clone();
                no_functions.functions.clear();
                self.scan_call(&inner, input, &no_functions, &mut covered);
                self.budget.leave();
            }
        }
    }

    /// Reports the effect of an assignment among the arguments of a command.
    fn check_environment_argument(&mut self, argument: &Argument<'_>) {
        let Some((name, value)) = argument.text.split_once('=') else { return };
        let value = Argument { text: value.to_owned(), ..argument.clone() };
        self.check_environment(name, &value);
    }

    /// Reports the effect of a variable that decides what programs run.
    fn check_environment(&mut self, name: &str, value: &Argument<'_>) {
        match effect_of_assignment(name, value) {
            EnvironmentEffect::Harmless => {}
            EnvironmentEffect::Unknown => {
                self.note_unread(UnreadReason::Environment, value.span.clone(), false);
            }
            EnvironmentEffect::Runs(script) => {
                self.scan_text(&script, &ScriptLocation::Within(value.span.clone()), &CommandInput::Unknown);
            }
        }
    }

    /// Returns the standard input of a command. `previous` is what the command before it in the pipeline writes.
    fn input(
        &self,
        command: &Command,
        previous: Option<CommandInput>,
        context: ScriptContext<'_>,
        variables: &ShellVariables,
    ) -> CommandInput {
        let mut feeds = command.redirects.iter().filter(|redirect| redirect.feeds_input());
        match (feeds.next(), feeds.next()) {
            (None, _) if previous.is_none() && self.replaced_input => CommandInput::Unknown,
            (None, _) => previous.unwrap_or_else(|| match (&command.form, context.input) {
                // Several commands may read parts of one text.
                (_, CommandInput::Text { .. }) => CommandInput::Unknown,
                (_, input) => input.clone(),
            }),
            (Some(redirect), None) => {
                let is_text = redirect.document.is_some() || redirect.operator == "<<<";
                if is_text {
                    text_of(redirect, context, variables)
                } else {
                    let target = variables.expand(&redirect.target);
                    let is_file = |text: &str| !text.contains("/dev/") && !text.contains("/proc/");
                    match target.known_text() {
                        Some(text) if redirect.operator == "<" && is_file(text) => CommandInput::File,
                        Some("/dev/null") => CommandInput::File,
                        _ => CommandInput::Unknown,
                    }
                }
            }
            (Some(_), Some(_)) => CommandInput::Unknown,
        }
    }

    /// Returns what a command writes to the next one of its pipeline: the text that `echo` or `cat` repeats.
    fn output(
        &self,
        call: &EffectiveCommand<'_, '_>,
        redirects: &[Redirect],
        context: ScriptContext<'_>,
        variables: &ShellVariables,
    ) -> CommandInput {
        let direct = call.wrappers.is_empty() && !variables.functions.contains(call.name);
        match (call.name, redirects) {
            ("echo", []) if direct => {
                let is_option = call.texts().next().is_some_and(|first| first.starts_with('-'));
                let plain = |word: &Argument<'_>| word.known && !word.text.contains('\\');
                let known = !is_option && call.arguments.iter().all(plain);
                let text: Vec<&str> = call.texts().collect();
                CommandInput::Text { text: text.join(" "), known, span: call.span.clone() }
            }
            ("cat", [redirect]) if direct && call.arguments.is_empty() && redirect.document.is_some() => {
                text_of(redirect, context, variables)
            }
            _ => CommandInput::Unknown,
        }
    }

    /// Reports what the commands of a pipeline do together, such as a download that a shell executes.
    fn report_combinations(&mut self, pipeline: &Pipeline, calls: &[EffectiveCommand<'_, '_>]) {
        let first = pipeline.commands.first().map_or(0, |command| command.span.start);
        let last = pipeline.commands.last().map_or(first, |command| command.span.end);
        let fetched = &self.fetched;
        let issues = &mut self.issues;
        let mut report =
            |kind, span| issues.push(UnsafeCommand { kind, span, severity: IssueSeverity::Error });
        for (i, call) in calls.iter().enumerate() {
            let earlier = calls.get(..i).unwrap_or_default();
            let whole = || first.min(last)..last.max(first);
            if call.reads_script() {
                if earlier.iter().any(EffectiveCommand::fetches) {
                    report("PIPE_TO_SHELL", whole());
                }
                if earlier.iter().any(EffectiveCommand::decodes) {
                    report("DECODE_TO_SHELL", whole());
                }
            }
            if call.connects() {
                if earlier.iter().any(|call| call.is_one_of(SHELLS) && call.has_argument("-i")) {
                    report("REVERSE_SHELL", whole());
                }
                if earlier.iter().any(|call| {
                    call.reads_sensitive() || call.is_one_of(&["tar", "zip"]) || call.dumps_environment()
                }) {
                    report("UPLOAD", whole());
                }
            }
            let scripts: Vec<&Script> =
                call.arguments.iter().filter_map(|word| word.word).flat_map(Word::scripts).collect();
            let any_inner = |test: &dyn Fn(&EffectiveCommand<'_, '_>) -> bool| {
                scripts.iter().any(|script| any_direct_command(script, test))
            };
            let runs = call.is_one_of(INTERPRETERS) || call.is_one_of(&["source", "."]);
            if runs
                && (any_inner(&|inner| inner.fetches()) || call.texts().any(|text| fetched.contains(text)))
            {
                report("PIPE_TO_SHELL", call.span.clone());
            }
            if call.fetches() && any_inner(&|inner| inner.is_one_of(READERS) || inner.dumps_environment()) {
                report("UPLOAD", call.span.clone());
            }
        }
    }
}

/// Returns the standard input of the commands in a script: if the script itself is a text from the standard input, what
/// remains of it.
fn inner_input(input: &CommandInput) -> &CommandInput {
    match input {
        CommandInput::Text { .. } => &CommandInput::Unknown,
        other => other,
    }
}

/// Returns whether an effect says that a command runs a script which is not in the text.
fn is_covering(issue: &UnsafeCommand) -> bool {
    issue.severity == IssueSeverity::Error && COVERING.contains(&issue.kind)
}

/// Returns whether a builtin evaluates a word as arithmetic, or as the name of an element of an array.
fn evaluates_arithmetic(call: &EffectiveCommand<'_, '_>) -> bool {
    match call.name {
        "let" | "declare" | "typeset" | "local" | "readonly" | "unset" | "read" | "getopts" => true,
        "test" | "[" | "printf" => {
            call.has_option('v', "-v") || call.arguments.iter().any(|word| word.splits)
        }
        "wait" => call.has_option('p', "-p"),
        _ => false,
    }
}

/// Returns the words and redirections of a simple command, as far as they are known; none for another command.
fn expand_command<'s>(command: &'s Command, variables: &ShellVariables) -> SimpleCall<'s> {
    let words = match &command.form {
        CommandForm::Simple { words, .. } => words.iter().map(|word| variables.expand(word)).collect(),
        _ => Vec::new(),
    };
    let target = |redirect: &'s Redirect| RedirectTarget {
        operator: redirect.operator,
        target: variables.expand(&redirect.target),
    };
    SimpleCall {
        words,
        redirects: command.redirects.iter().map(target).collect(),
        span: command.span.clone(),
    }
}

/// Returns the text that a here-document or a here-string has.
fn text_of(redirect: &Redirect, context: ScriptContext<'_>, variables: &ShellVariables) -> CommandInput {
    let content = redirect.document.and_then(|number| context.documents.get(number));
    let word = content.unwrap_or(&redirect.target);
    let argument = variables.expand(word);
    // A here-document has no patterns.
    let known = argument.known
        || content.is_some() && word.parts.iter().all(|part| part.quoted && part.kind == PartKind::Literal);
    CommandInput::Text { text: argument.text, known, span: word.span.clone() }
}

/// Returns whether a command of a script fulfils a condition: one that is not inside a construct.
fn any_direct_command(script: &Script, test: &dyn Fn(&EffectiveCommand<'_, '_>) -> bool) -> bool {
    let variables = ShellVariables::default();
    let commands = script.statements.iter().flat_map(|statement| &statement.pipelines);
    commands.flat_map(|pipeline| &pipeline.commands).any(|command| {
        let call = expand_command(command, &variables);
        test(&EffectiveCommand::new(&call.words, &call.redirects, call.span.clone()))
    })
}
