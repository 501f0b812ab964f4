//! Visits a parsed script, and reports the commands that it runs, the unsafe effects of single commands and of
//! pipelines, and everything that cannot be read. [`shell_code`](super::shell_code) calls [`CommandScanner::scan_text`]
//! for the whole text.
//!
//! The scanner follows every script inside a script, within the limits of the whole text. It knows the value of a
//! variable only if the assignment certainly runs once and in order, and forgets all values after a branch or a loop.
//! In a script that defines a function, it knows no values.

use std::collections::BTreeSet;
use std::ops::Range;

use super::combinations::{SimpleCall, expand_command, report_combinations};
use super::effective_command::EffectiveCommand;
use super::environment::{EnvironmentEffect, effect_of_assignment};
use super::expansion::{Argument, ShellVariables};
use super::input::{ScriptContext, inner_input, input_of, output_of};
use super::launch::{CommandInput, Launch};
use super::launches::launches;
use super::lexer::{ScriptLocation, TextFacts};
use super::limits::{ReadLimits, ShellReadError};
use super::syntax::{Command, CommandForm, CompoundKind, Pipeline, Redirect, Script, Word};
use super::{Invocation, IssueSeverity, UnreadPart, UnreadReason, UnsafeCommand, UnsafeCommandKind, parser};
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
const COVERING: &[UnsafeCommandKind] = &[
    UnsafeCommandKind::PipeToShell,
    UnsafeCommandKind::DecodeToShell,
    UnsafeCommandKind::Eval,
    UnsafeCommandKind::ReverseShell,
];

/// Collects what a text runs.
pub(super) struct CommandScanner {
    limits: ReadLimits,
    pub(super) commands: Vec<Invocation>,
    pub(super) unread: Vec<UnreadPart>,
    pub(super) issues: Vec<UnsafeCommand>,
    /// The names of the files into which earlier commands downloaded.
    fetched: BTreeSet<String>,
    /// Whether a limit was exceeded: nothing more is read then.
    stopped: bool,
    /// Whether `exec` has replaced the standard input.
    replaced_input: bool,
    /// Whether a function is defined.
    defines_function: bool,
    /// Whether a function may have been removed or replaced; then a call of it may run a program.
    may_remove_functions: bool,
    /// Whether a variable may have a value with a substitution that is not run yet.
    has_quoted_substitution: bool,
    /// The bytes of the first construct that evaluates variables as arithmetic, which runs substitutions in their
    /// values.
    arithmetic: Option<Range<usize>>,
}

impl CommandScanner {
    /// Creates a scanner for one text.
    pub(super) fn new() -> Self {
        Self {
            limits: ReadLimits::new(),
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

    /// Records a part that cannot be read, and reports it as an issue. With `covered`, the part is recorded but not
    /// reported: an issue about the same command already says that it runs a script which is not in the text. Only the
    /// first [`UnreadReason::Limit`] is recorded; a part beyond [`MAX_FINDINGS`] parts is recorded as such a limit.
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

    /// Records the bytes of a construct that evaluates arithmetic, unless an earlier one was recorded.
    fn note_arithmetic(&mut self, span: Option<Range<usize>>) {
        self.arithmetic = self.arithmetic.take().or(span);
    }

    /// Reports the first construct that evaluates arithmetic, if a variable may have a value with a substitution: the
    /// arithmetic may then run it. Called after the whole text is scanned.
    pub(super) fn finish(&mut self) {
        if let Some(span) = self.arithmetic.take().filter(|_| self.has_quoted_substitution) {
            // `false`: no other issue says that this is not read.
            self.note_unread(UnreadReason::Script, span, false);
        }
    }

    /// Records whether one of the words, which become values of variables, contains a quoted substitution: arithmetic
    /// could run it later.
    fn note_values<'w>(&mut self, words: impl IntoIterator<Item = &'w Word>) {
        if !self.has_quoted_substitution {
            self.has_quoted_substitution = words.into_iter().any(Word::has_quoted_substitution);
        }
    }

    /// Adds a command to the result. `name` is the word of its program, and `span` the bytes of the command. If there
    /// are too many commands, or too much text was read, records only that a limit is exceeded.
    fn note_command(&mut self, name: &Argument<'_>, arguments: &[Argument<'_>], span: &Range<usize>) {
        let length = name.text.len() + arguments.iter().map(|word| word.text.len() + 1).sum::<usize>();
        if self.commands.len() >= MAX_FINDINGS || self.limits.spend(length).is_err() {
            // `false`: no other issue says that this is not read.
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

    /// Parses a script and scans its statements. What cannot be parsed is recorded as unread. `location` is the place
    /// of the script in the whole text, and `input` the standard input of its commands.
    pub(super) fn scan_text(&mut self, text: &str, location: &ScriptLocation, input: &CommandInput) {
        if self.stopped {
            return;
        }
        let span = location.locate(&(0..text.len()));
        if self.limits.enter().is_err() || self.limits.spend(text.len()).is_err() {
            // `false`, here and below: no other issue says that this is not read.
            self.note_unread(UnreadReason::Limit, span, false);
            return;
        }
        let mut facts = TextFacts::default();
        let depth = self.limits.depth();
        let (script, failures) = parser::parse(text, location.clone(), &mut self.limits, &mut facts);
        self.limits.return_to(depth);
        for (error, span) in failures {
            let reason = match error {
                ShellReadError::Limit => UnreadReason::Limit,
                ShellReadError::Syntax => UnreadReason::Syntax,
            };
            self.note_unread(reason, span, false);
        }
        for span in facts.prompt_expansions {
            self.note_unread(UnreadReason::Script, span, false);
        }
        // Functions, assigning expansions and arithmetic can change variables at unknown places, so no variable is
        // followed.
        let mut variables = ShellVariables::default();
        if facts.defines_function || facts.assigns_in_expansion || facts.arithmetic.is_some() {
            variables.disable();
        }
        self.has_quoted_substitution |= facts.has_quoted_substitution;
        self.defines_function |= facts.defines_function;
        self.note_arithmetic(facts.arithmetic);
        let context = ScriptContext { documents: &facts.documents, input, in_order: true };
        // The statements that were parsed before a limit was exceeded are scanned, although `stopped` is then set.
        let stopped = std::mem::replace(&mut self.stopped, false);
        self.scan_script(&script, &mut variables, context);
        self.stopped |= stopped;
        self.limits.leave();
    }

    /// Scans the statements of a script in order. `variables` are the variables that are known at the beginning of the
    /// script, and after the call those that are known at its end.
    fn scan_script(&mut self, script: &Script, variables: &mut ShellVariables, context: ScriptContext<'_>) {
        for statement in &script.statements {
            for (i, pipeline) in statement.pipelines.iter().enumerate() {
                // The limit is greater than the number of issues that are returned, since duplicates are removed later.
                // `note_unread` with `Limit` sets `stopped`; `false`: no other issue reports this.
                if self.issues.len() > 2 * MAX_FINDINGS {
                    let at = pipeline.commands.first().map_or(0..0, |command| command.span.clone());
                    self.note_unread(UnreadReason::Limit, at, false);
                }
                if self.stopped {
                    return;
                }
                let alone = !statement.background && pipeline.commands.len() == 1;
                if alone {
                    // Whether a pipeline after `&&` or `||` runs depends on the one before it.
                    self.scan_pipeline(pipeline, variables, i == 0 && context.in_order, context);
                } else {
                    // Each command has a process of its own, so its assignments do not reach these variables. If one of
                    // the commands disables its variables, these variables are disabled as well, which is stricter than
                    // necessary.
                    let mut inner = variables.clone();
                    self.scan_pipeline(pipeline, &mut inner, false, context);
                    variables.disable_if_disabled_in(&inner);
                }
            }
        }
    }

    /// Scans a pipeline: reports what its commands do together, then scans each command with its assignments,
    /// substitutions and redirections. `certain` says whether the pipeline runs in order and exactly once; only then
    /// are its assignments followed.
    fn scan_pipeline(
        &mut self,
        pipeline: &Pipeline,
        variables: &mut ShellVariables,
        certain: bool,
        context: ScriptContext<'_>,
    ) {
        // What the commands do together, and the files into which they download.
        let simple: Vec<SimpleCall<'_>> =
            pipeline.commands.iter().map(|command| expand_command(command, variables)).collect();
        let calls: Vec<EffectiveCommand<'_, '_>> = simple
            .iter()
            .map(|call| EffectiveCommand::new(&call.words, &call.redirects, call.span.clone()))
            .collect();
        // The number of issues before this pipeline: the later ones are its own.
        let first_issue = self.issues.len();
        report_combinations(pipeline, &calls, &self.fetched, &mut self.issues);
        for call in calls.iter().filter(|call| call.fetches()) {
            self.fetched.extend(call.written_files());
        }
        // Whether an issue already says that the pipeline runs a script that is not in the text.
        let mut covered = self.issues.iter().skip(first_issue).any(is_covering);
        for (i, command) in pipeline.commands.iter().enumerate() {
            // What the command before this one writes; `None` for the first command.
            let previous_output = i.checked_sub(1).map(|before| {
                let call = calls.get(before);
                let redirects = pipeline.commands.get(before).map_or(&[][..], |command| &command.redirects);
                call.map_or(CommandInput::Unknown, |call| output_of(call, redirects, context, variables))
            });
            let input = input_of(self.replaced_input, command, previous_output, context, variables);
            let context = ScriptContext { input: &input, ..context };
            match &command.form {
                CommandForm::Simple { assignments, words } => {
                    if let Some(call) = calls.get(i) {
                        self.scan_call(call, &input, variables, &mut covered);
                        // `exec < file` replaces the standard input of the commands after it.
                        self.replaced_input |=
                            call.name == "exec" && command.redirects.iter().any(Redirect::feeds_input);
                    }
                    for assignment in assignments {
                        self.note_values([&assignment.value]);
                        let value = variables.expand(&assignment.value);
                        self.check_environment(&assignment.name, &value);
                        self.scan_words([&assignment.value], variables, context);
                        // Before words, an assignment is only for this command. If a redirection fails, the assignment
                        // may not happen.
                        let certainly_stays = certain && words.is_empty() && command.redirects.is_empty();
                        variables.assign(assignment, certainly_stays);
                    }
                    self.scan_words(words, variables, context);
                    if let Some(call) = calls.get(i) {
                        self.note_changes(call, words, variables);
                    }
                }
                CommandForm::Compound { kind, words, bodies } => {
                    self.note_values(words);
                    self.scan_words(words, variables, context);
                    self.scan_bodies(*kind, bodies, variables, certain, context);
                }
                CommandForm::Function { name, body } => {
                    self.scan_function_body(body, context);
                    match name {
                        // Only a function that is certainly defined takes the place of a program of its name.
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

    /// Records how a simple command may change variables: its `words` that can become values, arithmetic that it
    /// evaluates, and changes that are not followed, after which no variable is known.
    fn note_changes(
        &mut self,
        call: &EffectiveCommand<'_, '_>,
        words: &[Word],
        variables: &mut ShellVariables,
    ) {
        let changes_variables = CHANGES_VARIABLES.contains(&call.name);
        // The arguments of these commands, and of a function, can become values of variables. `test -v` evaluates the
        // index in its argument, as arithmetic evaluates a value.
        if changes_variables || self.defines_function || matches!(call.name, "test" | "[" | "echo") {
            self.note_values(words);
        }
        if evaluates_arithmetic(call) {
            self.note_arithmetic(Some(call.span.clone()));
        }
        // The command changes variables in a way that is not followed, or may do so.
        if changes_variables || call.unclear || call.program.is_some_and(|program| !program.known) {
            variables.disable();
            // These commands remove no function.
            let keeps_functions = ["export", "set", "printf", "read", "declare", "local", "shopt", "trap"];
            self.may_remove_functions |= !keeps_functions.contains(&call.name);
        }
    }

    /// Scans the body of a function at its definition, with nothing known of variables and input: a call can be anywhere
    /// later.
    fn scan_function_body(&mut self, body: &Command, context: ScriptContext<'_>) {
        let mut inner = ShellVariables::default();
        inner.disable();
        let context = ScriptContext { input: &CommandInput::Unknown, in_order: false, ..context };
        if let CommandForm::Compound { kind, words, bodies } = &body.form {
            self.scan_words(words, &inner, context);
            self.scan_bodies(*kind, bodies, &mut inner, false, context);
        }
        self.scan_redirects(&body.redirects, &inner, context);
    }

    /// Scans `bodies`, the scripts of a compound command; `kind` decides how often each of them runs. `certain` says
    /// whether the command runs in order and exactly once. Afterwards, `variables` contains only values that are known
    /// regardless of which of the scripts has run.
    fn scan_bodies(
        &mut self,
        kind: CompoundKind,
        bodies: &[Script],
        variables: &mut ShellVariables,
        certain: bool,
        context: ScriptContext<'_>,
    ) {
        // `{ …; }` runs like its commands without the braces.
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
            variables.disable_if_disabled_in(&inner);
        }
        match kind {
            // A subshell is a process of its own: `exec` in it has not replaced the input of the script.
            CompoundKind::Subshell => self.replaced_input = replaced_input,
            // The scripts are substitutions, which run in processes of their own.
            CompoundKind::Test => {}
            _ => variables.forget(),
        }
    }

    /// Scans the scripts in the substitutions of words. They run in a process of their own, so they change no variables
    /// here.
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

    /// Scans the scripts in the targets of redirections and in here-documents. `variables` are the variables that are
    /// known at the command, and `context` contains the contents of the here-documents.
    fn scan_redirects(
        &mut self,
        redirects: &[Redirect],
        variables: &ShellVariables,
        context: ScriptContext<'_>,
    ) {
        // A command such as `read` can make these texts values of variables, so `note_values` records them.
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

    /// Reports the simple command `call` with its effects, and scans what it runs. `input` is its standard input, and
    /// `variables` are the variables that are known at the command. `covered` says whether an issue about its pipeline
    /// already reports that it runs a script which is not in the text; the function sets `covered` if it adds such an
    /// issue.
    fn scan_call(
        &mut self,
        call: &EffectiveCommand<'_, '_>,
        input: &CommandInput,
        variables: &ShellVariables,
        covered: &mut bool,
    ) {
        let first_issue = self.issues.len();
        // The closure must borrow only the issues.
        let Self { issues, .. } = self;
        call.report_effects(&mut |kind, severity| {
            issues.push(UnsafeCommand { kind, span: call.span.clone(), severity });
        });
        *covered |= self.issues.iter().skip(first_issue).any(is_covering);
        let has_computed_name = self.note_programs(call, variables);
        // `false`, here and below: no other issue says that this is not known.
        if has_computed_name {
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

    /// Adds the wrappers of a command and its program to the result. Returns whether the shell computes the name of one of
    /// them.
    fn note_programs(&mut self, call: &EffectiveCommand<'_, '_>, variables: &ShellVariables) -> bool {
        let mut is_computed = false;
        for wrapper in &call.wrappers {
            is_computed |= !wrapper.known;
            if wrapper.known {
                self.note_command(wrapper, &[], &call.span);
            }
        }
        if let Some(program) = call.program {
            is_computed |= !program.known;
            // A function of the script is not a program; its body is scanned at its definition.
            let is_function = call.wrappers.is_empty()
                && !self.may_remove_functions
                && variables.functions.contains(&program.text);
            if program.known && !is_function && !program.text.is_empty() {
                self.note_command(program, call.arguments, &call.span);
            }
        }
        is_computed
    }

    /// Scans `launch`, which the command `call` runs because of its arguments or its input (`input`). `covered` says
    /// whether an issue already reports that the command runs a script which is not in the text.
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
            // A part of the text is unknown, so only the effects of its known parts count.
            Launch::Guess(text, span) => {
                let (unread, issues) = (self.unread.len(), self.issues.len());
                self.scan_text(&text, &ScriptLocation::Within(span), inner_input(input));
                // That the script cannot be read is already reported; a limit ends the whole reading.
                if !self.stopped {
                    self.unread.truncate(unread);
                    let added = self.issues.split_off(issues);
                    let is_effect = |issue: &UnsafeCommand| !issue.kind.is_unread();
                    self.issues.extend(added.into_iter().filter(is_effect));
                }
            }
            Launch::Words(words) => {
                if self.limits.enter().is_err() || self.limits.spend(words.len()).is_err() {
                    self.note_unread(UnreadReason::Limit, call.span.clone(), false);
                    return;
                }
                let inner = EffectiveCommand::new(&words, &[], call.span.clone());
                // `xargs` reads its input itself, so the input of its command is another, unknown one.
                let input = if call.name == "xargs" { &CommandInput::Unknown } else { input };
                let mut covered = covered;
                // Only a shell knows the functions of the script.
                let mut no_functions = variables.clone();
                no_functions.functions.clear();
                self.scan_call(&inner, input, &no_functions, &mut covered);
                self.limits.leave();
            }
        }
    }

    /// Reports the effect of an assignment among the arguments of a command.
    fn check_environment_argument(&mut self, argument: &Argument<'_>) {
        let Some((name, value)) = argument.text.split_once('=') else { return };
        let value = Argument { text: value.to_owned(), ..argument.clone() };
        self.check_environment(name, &value);
    }

    /// Reports what an assignment to a variable makes later commands run, such as the script in `GIT_PAGER`.
    fn check_environment(&mut self, name: &str, value: &Argument<'_>) {
        match effect_of_assignment(name, value) {
            EnvironmentEffect::Harmless => {}
            EnvironmentEffect::Unknown => {
                // `false`: no other issue says that this is not read.
                self.note_unread(UnreadReason::Environment, value.span.clone(), false);
            }
            EnvironmentEffect::Runs(script) => {
                // `Unknown`: the later command decides what its script gets as its standard input.
                self.scan_text(&script, &ScriptLocation::Within(value.span.clone()), &CommandInput::Unknown);
            }
        }
    }
}

/// Returns whether an issue already says that a command runs a script which is not in the text (see [`COVERING`]).
fn is_covering(issue: &UnsafeCommand) -> bool {
    issue.severity == IssueSeverity::Error && COVERING.contains(&issue.kind)
}

/// Returns whether a builtin evaluates a word as arithmetic, or as the name of an element of an array: the shell
/// evaluates the index in such a name, as in `a[$i]`, as arithmetic.
fn evaluates_arithmetic(call: &EffectiveCommand<'_, '_>) -> bool {
    match call.name {
        "let" | "declare" | "typeset" | "local" | "readonly" | "unset" | "read" | "getopts" => true,
        // `-v`, and `-p` of `wait`, take the name of a variable. A word that splits can become `-v`.
        "test" | "[" | "printf" => {
            call.has_option('v', "-v") || call.arguments.iter().any(|word| word.splits)
        }
        "wait" => call.has_option('p', "-p"),
        _ => false,
    }
}
