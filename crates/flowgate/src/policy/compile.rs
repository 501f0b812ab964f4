//! Compiles the syntax tree of a policy to a [`Plan`]: resolves names, checks declarations and compiles patterns.
//! [`Policy::load`](super::Policy::load) calls [`compile`] after the parser. [`Compiler`] is the state of the
//! compilation. Each submodule compiles one part of a statement, such as its `body`, `label` or `target`, or one kind
//! of statement or condition, such as a `rule`, an `endorsement` or `imports`.
//!
//! Every statement is checked, so that one error does not hide the next. A policy with an error is rejected as a whole.

mod answers;
mod body;
mod body_reads;
mod call;
mod capture_position;
mod consent;
mod endorsement;
mod expression;
mod imports;
mod label;
mod role;
mod rule;
mod target;
mod tool_group;
mod url_list;
mod value_class;

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, Severity, Span, nearest};
use super::dialect::Dialect;
use super::pattern::{PatternId, ToolPattern};
use super::plan::{
    CompiledExpr, CompiledQuery, Consent, DeclaredStore, Dispatch, Endorsement, ExternPredicate,
    LabelStatement, Payload, Plan, Predicate, Requirement, Type,
};
use super::regex::weight;
use super::syntax::{ConditionBody, Expr, Name, PolicyFile, Statement, StatementKind, ToolName};
use body::Scope;

/// The error of a part that cannot be compiled; its diagnostic has been reported.
#[derive(Debug)]
pub(super) struct ReportedCompileError;

/// The result of compiling a part of the policy.
pub(super) type CompileResult<T> = Result<T, ReportedCompileError>;

/// Maximum number of parts of all expressions of a policy, after constants are substituted.
const MAX_PARTS: usize = 500_000;

/// Maximum number of errors that are listed.
const MAX_ERRORS: usize = 100;

/// Maximum total size of the patterns of a policy, as [`weight`] estimates it.
const MAX_PATTERNS: usize = 2_000_000;

/// The state of the compilation of one policy.
pub(super) struct Compiler<'a> {
    plan: Plan,
    diagnostics: Vec<Diagnostic>,
    /// The definitions of the constants, by name.
    constants: HashMap<&'a str, &'a Expr>,
    /// The names of the constants that are being substituted, so that a constant cannot contain itself.
    open_constants: Vec<String>,
    imports: imports::Imports,
    /// The indices of the predicates in the plan, by name.
    predicates: HashMap<&'a str, usize>,
    /// The indices of the extern predicates in the plan, by name.
    externs: HashMap<&'a str, usize>,
    /// For each predicate, whether it reads the trace in addition to its arguments.
    predicate_looks_around: Vec<bool>,
    /// The ids of the tool patterns, by their text.
    patterns: HashMap<String, PatternId>,
    /// The number of parts that the expressions of the policy may still add.
    parts_left: usize,
    /// The size that its patterns may still add.
    patterns_left: usize,
    /// Whether the conditions being compiled may test a value against a list in trusted text: those of `endorse` and
    /// `consent`.
    tests_lists: bool,
    /// Whether the policy has a `lattice` statement, even an invalid one.
    has_lattice: bool,
}

/// Compiles a policy: first the lattices, imports, names and roles, on which other statements depend, and then each
/// statement. Returns the plan with all errors and warnings; the plan is usable only if none of them is an error.
pub(super) fn compile(file: &PolicyFile, dialect: Dialect) -> (Plan, Vec<Diagnostic>) {
    let mut compiler = Compiler {
        plan: Plan { dialect, ..Plan::default() },
        diagnostics: Vec::new(),
        constants: HashMap::new(),
        open_constants: Vec::new(),
        imports: imports::Imports::default(),
        predicates: HashMap::new(),
        externs: HashMap::new(),
        predicate_looks_around: Vec::new(),
        patterns: HashMap::new(),
        tests_lists: false,
        has_lattice: false,
        parts_left: MAX_PARTS,
        patterns_left: MAX_PATTERNS,
    };
    compiler.dimensions(file);
    for statement in &file.statements {
        if let StatementKind::Import { module, alias, names } = &statement.kind {
            // An error has been reported, here and below; compilation continues.
            let _ = compiler.import(module, alias.as_ref(), names.as_deref());
        }
    }
    compiler.declare(file);
    // Other statements about an argument depend on its role.
    for statement in &file.statements {
        if let StatementKind::Role { target, role, body } = &statement.kind {
            let _ = compiler.role(target, role, body);
        }
    }
    for statement in &file.statements {
        // The error of an invalid statement has been reported; compilation continues with the next one.
        let _ = compiler.statement(statement);
        if compiler.has_many_errors() {
            let message =
                format!("the policy has more than {MAX_ERRORS} errors; the rest of it was not checked");
            let _ =
                compiler.fail::<()>("too-many", &statement.span, message, "correct the errors above first");
            break;
        }
    }
    compiler.finish_patterns();
    compiler.plan.patterns_weight = MAX_PATTERNS - compiler.patterns_left;
    (compiler.plan, compiler.diagnostics)
}

impl<'a> Compiler<'a> {
    /// Completes the plan once all statements are compiled:
    ///
    /// * for each statement that grants something, records the tool patterns that it tests: the statement grants
    ///   nothing while one of them is ambiguous (matches tools of two servers);
    /// * records the patterns by which each rule can exempt a tool, as in `not (call is tool:NAME)`;
    /// * indexes the rules by kind of event.
    ///
    /// This comes last because a statement also tests the patterns of the predicates that it calls.
    fn finish_patterns(&mut self) {
        // First all patterns are determined, which reads the whole plan; then they are stored in it.
        let mut plan = std::mem::take(&mut self.plan);
        let patterns_of = |query: &CompiledQuery| plan.patterns_of(query.expressions());
        let labels: Vec<_> = plan.labels.iter().map(|s| patterns_of(&s.query)).collect();
        let requirements: Vec<_> = plan.requirements.iter().map(|s| patterns_of(&s.query)).collect();
        let payloads: Vec<_> = plan.payloads.iter().map(|s| patterns_of(&s.query)).collect();
        let consents: Vec<_> = plan.consents.iter().map(|s| patterns_of(&s.query)).collect();
        let endorsements: Vec<_> = plan.endorsements.iter().map(|s| patterns_of(&s.query)).collect();
        let exempting: Vec<_> = plan.rules.iter().map(|rule| plan.exempting_patterns(&rule.query)).collect();
        plan.rules.iter_mut().zip(exempting).for_each(|(rule, patterns)| rule.exempting = patterns);
        plan.labels.iter_mut().zip(labels).for_each(|(s, patterns)| s.query.patterns = patterns);
        plan.requirements.iter_mut().zip(requirements).for_each(|(s, patterns)| s.query.patterns = patterns);
        plan.payloads.iter_mut().zip(payloads).for_each(|(s, patterns)| s.query.patterns = patterns);
        plan.consents.iter_mut().zip(consents).for_each(|(s, patterns)| s.query.patterns = patterns);
        plan.endorsements.iter_mut().zip(endorsements).for_each(|(s, patterns)| s.query.patterns = patterns);
        plan.dispatch = Dispatch::new(&plan.rules);
        self.plan = plan;
    }

    /// Reports an error, and returns it so that the caller can add help.
    fn error(&mut self, code: &'static str, span: &Span, message: impl Into<String>) -> &mut Diagnostic {
        let index = self.diagnostics.len();
        self.diagnostics.push(Diagnostic::error(code, span.clone(), message));
        #[expect(clippy::indexing_slicing, reason = "INVARIANT: the diagnostic was pushed above")]
        &mut self.diagnostics[index]
    }

    /// Reports an error with help, and returns the `Err` that ends the compilation of the statement. `code` names the
    /// kind of error, such as `unknown-name`.
    fn fail<T>(
        &mut self,
        code: &'static str,
        span: &Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> CompileResult<T> {
        self.diagnostics.push(Diagnostic::error(code, span.clone(), message).help(help));
        Err(ReportedCompileError)
    }

    /// Returns whether the error limit is reached, so that compilation can stop.
    fn has_many_errors(&self) -> bool {
        // The cheap test first: the list contains warnings as well, and is counted only if it is long enough.
        self.diagnostics.len() > MAX_ERRORS
            && self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count()
                > MAX_ERRORS
    }

    /// Fails because `name` is not declared. `what` is its kind, such as *function*, and `known` are the declared
    /// names, for a suggestion.
    fn unknown_name<T>(&mut self, what: &str, name: &str, span: &Span, known: &[&str]) -> CompileResult<T> {
        // The search for a similar name is slow, so it is skipped in a policy with many errors.
        let near = if self.has_many_errors() { None } else { nearest(name, known.iter().copied()) };
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            // A list of more than 12 names would not fit into a message.
            None if known.len() <= 12 && !known.is_empty() => format!("known are: {}", known.join(", ")),
            None if matches!(what, "function" | "method") => {
                format!("`flowgate functions` lists every {what}")
            }
            None => "declare it first".to_owned(),
        };
        self.fail("unknown-name", span, format!("unknown {what} `{name}`"), help)
    }

    /// Records the names of constants and predicates, which may be used before they are defined, and declares extern
    /// predicates. A name that is defined twice is an error. Also determines which predicates read events that are not
    /// their arguments (`predicate_looks_around`), directly or through a predicate that they call: a statement about
    /// one event must not call such a predicate.
    fn declare(&mut self, file: &'a PolicyFile) {
        let mut names: HashMap<&str, &Span> = HashMap::new();
        let mut bodies: Vec<&ConditionBody> = Vec::new();
        self.has_lattice = file.statements.iter().any(|s| matches!(s.kind, StatementKind::Lattice { .. }));
        // Every statement that defines a name.
        for statement in &file.statements {
            let name: &Name = match &statement.kind {
                StatementKind::Constant { name, value } => {
                    self.constants.insert(&name.text, value);
                    name
                }
                StatementKind::Predicate { name, parameters, body } => {
                    self.predicates.insert(&name.text, self.plan.predicates.len());
                    bodies.push(body);
                    let query = CompiledQuery::default();
                    let text = name.text.clone();
                    let parameters = parameters.iter().map(|(name, _)| name.text.clone()).collect();
                    self.plan.predicates.push(Predicate { name: text, parameters, query, ops: Vec::new() });
                    name
                }
                StatementKind::Extern { name, parameters, result } => {
                    // If it fails, it has reported the error itself.
                    let _ = self.external(name, parameters, result);
                    name
                }
                StatementKind::Store { name, .. } => name,
                _ => continue,
            };
            if names.insert(&name.text, &name.span).is_some() {
                self.error("duplicate-name", &name.span, format!("`{}` is defined twice", name.text)).help =
                    Some("rename or remove one of the definitions".to_owned());
            }
        }
        self.find_trace_reading_predicates(&bodies);
    }

    /// Sets `predicate_looks_around`: for each predicate, whether it reads events that are not its arguments, directly
    /// or through a predicate that it calls. `bodies` are the bodies of all predicates, in the order of the plan.
    fn find_trace_reading_predicates(&mut self, bodies: &[&ConditionBody]) {
        self.predicate_looks_around = bodies.iter().map(|body| self.reads_other_events(body)).collect();
        // A predicate that calls a trace-reading predicate reads the trace, too. So the property is passed on from each
        // such predicate (`pending`) to its callers, until no caller is left that does not have it.
        let mut callers: HashMap<usize, Vec<usize>> = HashMap::new();
        for (caller, body) in bodies.iter().enumerate() {
            for called in self.called_predicates(body) {
                callers.entry(called).or_default().push(caller);
            }
        }
        let looking = self.predicate_looks_around.iter().enumerate().filter(|(_, looks)| **looks);
        let mut pending: Vec<usize> = looking.map(|(index, _)| index).collect();
        while let Some(index) = pending.pop() {
            for caller in callers.get(&index).map_or(&[] as &[_], Vec::as_slice) {
                if let Some(looks @ false) = self.predicate_looks_around.get_mut(*caller) {
                    *looks = true;
                    pending.push(*caller);
                }
            }
        }
    }

    /// Compiles one statement and adds it to the plan. Statements that other ones depend on were compiled before.
    fn statement(&mut self, statement: &Statement) -> CompileResult<()> {
        let span = statement.span.clone();
        match &statement.kind {
            // These statements have been handled before: an import of a file by the loader, the others by `compile`.
            StatementKind::Lattice { .. }
            | StatementKind::Import { .. }
            | StatementKind::ImportFile { .. }
            | StatementKind::Extern { .. }
            | StatementKind::Role { .. } => Ok(()),
            StatementKind::Constant { value, .. } if tool_group::is_group(value) => self.check_group(value),
            // The value is compiled here only to report its errors; it is substituted where the constant is used.
            StatementKind::Constant { value, .. } => {
                self.expression(value, &mut Scope::default()).map(|_| ())
            }
            StatementKind::Predicate { name, parameters, body } => self.predicate(name, parameters, body),
            StatementKind::Store { name, written, read } => {
                let written = self.tools(written)?;
                let read = self.tools(read)?;
                self.plan.stores.push(DeclaredStore { name: name.text.clone(), written, read });
                Ok(())
            }
            StatementKind::Default { label } => {
                let mut scope = Scope::default();
                let label_plan = self.label(label, &mut scope)?;
                // The dimensions that the statement does not name: they are at their tops.
                let rest = self.plan.space.all().without(label_plan.dims);
                if self.plan.default.is_some() {
                    let help = "keep one `default` statement in the policy and the files that it imports";
                    return self.fail("duplicate-name", &span, "the default label is declared twice", help);
                }
                match label_plan.fixed {
                    Some(fixed) if label_plan.computed.is_empty() => {
                        let top = self.plan.space.restrict(&self.plan.space.top(), rest);
                        self.plan.default = Some(fixed.label.join(&top));
                        Ok(())
                    }
                    _ => self.fail(
                        "default-label",
                        &span,
                        "the default label contains an element that is computed from an event",
                        "write only fixed elements, such as `default untrusted`",
                    ),
                }
            }
            StatementKind::Label { target, label, independence, body } => {
                self.require_lattice(&span)?;
                self.check_single_event(body, &span)?;
                let mut scope = self.single_event_scope(
                    body,
                    &[Type::Message, Type::ToolOutput, Type::Tool],
                    "a Message, a ToolOutput or a Tool",
                )?;
                let target_plan = self.target(target, &scope)?;
                let label = self.label(label, &mut scope)?;
                self.mark_quiet_iteration(&mut scope, target_plan.root);
                let mut query = self.finish(scope);
                // The slots that have a value before the search, as a set of bits: the event is in slot 0.
                query.ops = query.order(1);
                let independent_of = self.independence(independence, &target_plan, &query, &target.span)?;
                // Whether the effect of the statement depends on the content of the event, and not only on its kind and
                // tool.
                let reads = !label.computed.is_empty()
                    || body_reads::reads_content(&query.items)
                    || target_plan.root != 0;
                let mentions_error = body_reads::mentions(body, "is_error");
                self.plan.labels.push(LabelStatement {
                    span,
                    target: target_plan,
                    label,
                    query,
                    reads,
                    mentions_error,
                    independent_of,
                });
                Ok(())
            }
            StatementKind::Require { label, target, is_strict, grant, denies, body } => {
                self.require_lattice(&span)?;
                let mut scope = self.single_event_scope(body, &[Type::ToolCall], "a ToolCall")?;
                let target = target.as_ref().map(|target| self.argument(target, &scope)).transpose()?;
                let label = self.label(label, &mut scope)?;
                let query = self.granting_query(scope);
                let (is_strict, grant, denies) = (*is_strict, *grant, *denies);
                self.plan.requirements.push(Requirement {
                    span,
                    label,
                    target,
                    is_strict,
                    grant,
                    denies,
                    query,
                });
                Ok(())
            }
            StatementKind::Payload { target, body } => {
                self.require_integrity_dimension(&span, "`payload` lifts the requirement on integrity")?;
                let scope = self.single_event_scope(body, &[Type::ToolCall], "a ToolCall")?;
                let argument = self.argument(target, &scope)?;
                let query = self.granting_query(scope);
                self.warn_of_decisive_payload(&argument, target, &query);
                self.plan.payloads.push(Payload { span, target: argument, query });
                Ok(())
            }
            StatementKind::Consent { label, target, limits, body } => {
                self.require_integrity_dimension(&span, "`consent` holds only for calls that are trusted")?;
                let mut scope = self.list_testing_scope(body)?;
                let target_expr = target;
                let target = self.argument(target_expr, &scope)?;
                let limits = self.consent_limits(limits, &scope)?;
                let label_span = label.first().map_or(span.clone(), |part| part.span.clone());
                let label = self.label(label, &mut scope)?;
                let integrity = self.plan.space.integrity();
                let names_integrity = label.dims.without(integrity) != label.dims;
                if names_integrity {
                    let help = "name the elements of secrecy that the argument may carry, such as `private`; \
                        use `payload` to lift the requirement on integrity";
                    return self.fail(
                        "consent-integrity",
                        &label_span,
                        "the label of `consent` names a dimension that does not express secrecy",
                        help,
                    );
                }
                let query = self.granting_query(scope);
                self.reject_nested_list(&target_expr.span, &query)?;
                self.plan.consents.push(Consent { span, label, target, limits, query });
                Ok(())
            }
            StatementKind::Endorse { is_unsafe, target, label, body } => {
                self.require_integrity_dimension(&span, "`endorse` raises the integrity of a value")?;
                let mut scope = self.list_testing_scope(body)?;
                let target_plan = self.endorsed_target(target, &scope)?;
                let label_span = label.first().map_or(span.clone(), |part| part.span.clone());
                let label = self.label(label, &mut scope)?;
                if !label.dims.without(self.plan.space.integrity()).is_empty() {
                    let help = "no statement lowers secrecy; use `require` to permit the tool to receive \
                        more confidential data";
                    return self.fail(
                        "endorse-secrecy",
                        &label_span,
                        "the label of `endorse` names a dimension that does not express integrity",
                        help,
                    );
                }
                self.mark_quiet_iteration(&mut scope, target_plan.root);
                let query = self.granting_query(scope);
                let value = self.check_endorsement(&target_plan, target, &query, *is_unsafe)?;
                let class = if *is_unsafe { None } else { self.value_class(&target_plan, &query) };
                self.plan.endorsements.push(Endorsement {
                    span,
                    target: target_plan,
                    label,
                    value,
                    class,
                    query,
                });
                Ok(())
            }
            StatementKind::Rule { action, message, grant, body } => {
                self.rule(span, (*action, *grant), message, body)
            }
        }
    }

    /// Declares an extern predicate, one that a service, a WebAssembly module or the embedding program answers. Fails
    /// if a parameter or the result has a type that cannot be sent there: an event or a part of one, instead of a plain
    /// value.
    fn external(&mut self, name: &'a Name, parameters: &[(Name, Name)], result: &Name) -> CompileResult<()> {
        let mut sendable_type = |variable: &Name, ty: &Name| {
            let found = self.variable_type(variable, ty)?;
            if found.is_plain() {
                return Ok(found);
            }
            let message = format!(
                "an extern predicate cannot have the type {}: only plain values are sent to the program that answers it",
                ty.text
            );
            self.fail(
                "unknown-type",
                &ty.span,
                message,
                "pass the value that the predicate needs, with a type such as `str`, `int`, `dict` or `any`",
            )
        };
        // All types are checked before the first error is returned, so that every error is reported. The error for an
        // unknown type underlines the variable with its type. A result has no variable, so its type takes both places.
        let declared: Vec<_> =
            parameters.iter().map(|(name, ty)| Ok((name.text.clone(), sendable_type(name, ty)?))).collect();
        let result = sendable_type(result, result);
        let parameters = declared.into_iter().collect::<CompileResult<_>>()?;
        self.externs.insert(&name.text, self.plan.externs.len());
        self.plan.externs.push(ExternPredicate { name: name.text.clone(), parameters, result: result? });
        Ok(())
    }

    /// Compiles the body of a predicate, and completes its entry in the plan. The parameters are the first variables:
    /// they have values when the predicate is called, so the steps of its evaluation (`ops`) search only for the
    /// others.
    fn predicate(
        &mut self,
        name: &Name,
        parameters: &[(Name, Option<Name>)],
        body: &ConditionBody,
    ) -> CompileResult<()> {
        let mut scope = Scope::default();
        for (parameter, ty) in parameters {
            // The type must exist, but does not restrict the arguments: the compiled predicate has no types of
            // parameters.
            if let Some(ty) = ty {
                self.variable_type(parameter, ty)?;
            }
            self.bind(&mut scope, parameter)?;
        }
        self.body(body, &mut scope)?;
        // The slots of the parameters, as a set of bits.
        let bound =
            (0..parameters.len()).fold(0, |bits, slot| bits | CompiledExpr::Slot(slot).required_slots());
        let query = self.finish(scope);
        let ops = query.order(bound);
        // `declare` has made the entry.
        let entry = self.predicates.get(name.text.as_str()).copied();
        if let Some(predicate) = entry.and_then(|index| self.plan.predicates.get_mut(index)) {
            predicate.query = query;
            predicate.ops = ops;
        }
        Ok(())
    }

    /// Subtracts the size of a compiled pattern from `patterns_left`, the size that all further patterns of the policy
    /// may have together. Reports an error if less is left. The limit is on compiled sizes, since a short pattern such
    /// as `\w{1000}` can become a large automaton.
    fn charge_pattern(&mut self, pattern: &str, span: &Span) -> CompileResult<()> {
        match self.patterns_left.checked_sub(weight(pattern)) {
            Some(left) => {
                self.patterns_left = left;
                Ok(())
            }
            None => self.fail(
                "too-many",
                span,
                "the compiled patterns of the policy together exceed the size limit",
                "repeat classes such as `\\w` less often, or write `[a-zA-Z0-9_]`, which is smaller",
            ),
        }
    }

    /// Compiles a tool pattern and returns its id in the plan; equal patterns have one id.
    fn pattern(&mut self, name: &ToolName, span: &Span) -> CompileResult<PatternId> {
        // Only a regular expression is charged against the size limit of the policy's patterns: a name, even one with
        // `*`, compiles to about the size of its text.
        if let ToolName::Regex(source) = name {
            self.charge_pattern(source, span)?;
        }
        match ToolPattern::new(name) {
            Ok(pattern) => {
                let key = pattern.to_string();
                if let Some(known) = self.patterns.get(&key) {
                    return Ok(*known);
                }
                let id = PatternId(self.plan.patterns.len());
                self.plan.patterns.push(pattern);
                self.patterns.insert(key, id);
                Ok(id)
            }
            Err(problem) => self.fail(
                "pattern",
                span,
                format!("the pattern is malformed: {problem}"),
                "write `tool:name`, `tool:server/name` or `tool:r\"REGEX\"`",
            ),
        }
    }

    /// Fails unless the policy declares a lattice, without which there are no labels; statements about labels call this
    /// first.
    fn require_lattice(&mut self, span: &Span) -> CompileResult<()> {
        if self.plan.space.dimensions().is_empty() && self.has_lattice {
            // The policy has a `lattice` statement with an error, which has been reported.
            return Err(ReportedCompileError);
        }
        if self.plan.space.dimensions().is_empty() {
            let help = "declare a dimension first, for example `lattice integrity: trusted < untrusted`";
            return self.fail(
                "no-lattice",
                span,
                "the policy declares no lattice, so there are no labels",
                help,
            );
        }
        Ok(())
    }

    /// Fails unless the policy declares a dimension of integrity. `why` is the beginning of the message: it says what
    /// the statement does, which needs such a dimension.
    fn require_integrity_dimension(&mut self, span: &Span, why: &str) -> CompileResult<()> {
        self.require_lattice(span)?;
        if self.plan.space.integrity().is_empty() {
            let help = "name one dimension `integrity`, or write `lattice NAME (integrity): ...`";
            return self.fail(
                "no-integrity",
                span,
                format!("{why}, but no dimension of the policy expresses integrity"),
                help,
            );
        }
        Ok(())
    }
}
