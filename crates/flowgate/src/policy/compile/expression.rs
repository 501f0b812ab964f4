//! Compiles expressions: resolves names to slots and functions to rows of the table, and compiles patterns.

use std::sync::Arc;

use super::super::diagnostic::{Diagnostic, Span, nearest};
use super::super::dialect::Dialect;
use super::super::pattern_bits::matched_text_bits;
use super::super::plan::{ArgumentShape, CompiledExpr, FunctionId, QuantifierKind, RegexUse, Type};
use super::super::regex::{MatchExtent, Pattern, is_pattern};
use super::super::syntax::{Comparison, Expr, ExprKind, FormatPart, Name, ToolRef};
use super::body::Scope;
use super::imports::parses_python;
use super::{CompileResult, Compiler};
use crate::builtin::{self, FUNCTIONS};
use crate::detect::python;
use crate::eval::Function;
use crate::value::Value;

/// Maximum nesting depth of constants.
const MAX_OPEN: usize = 64;

impl Compiler<'_> {
    pub(super) fn expression(&mut self, expr: &Expr, scope: &mut Scope) -> CompileResult<CompiledExpr> {
        let boxed = |ex: CompiledExpr| Box::new(ex);
        self.charge(1, &expr.span)?;
        if self.has_many_errors() {
            return Err(super::ReportedCompileError);
        }
        Ok(match &*expr.kind {
            ExprKind::None | ExprKind::Missing => CompiledExpr::Constant(Value::None),
            ExprKind::Bool(b) => CompiledExpr::Constant(Value::Bool(*b)),
            ExprKind::Int(n) => CompiledExpr::Constant(Value::Int(*n)),
            ExprKind::Float(x) => CompiledExpr::Constant(Value::Float(*x)),
            ExprKind::Str(text) => CompiledExpr::Constant(Value::text(text)),
            ExprKind::Format(parts) => {
                let parts = parts.iter().map(|part| match part {
                    FormatPart::Text(text) => Ok(CompiledExpr::Constant(Value::text(text))),
                    FormatPart::Value(expr) => self.expression(expr, scope),
                });
                CompiledExpr::Format(parts.collect::<CompileResult<_>>()?)
            }
            ExprKind::Quantified(quantifier, body) => {
                return self.quantified(quantifier, body, &expr.span, scope);
            }
            ExprKind::Name(name) => return self.variable_or_constant(name, expr, scope),
            ExprKind::Typed(name, _) => match scope.slot(&name.text) {
                Some(slot) => CompiledExpr::Slot(slot),
                None => {
                    let help = "write the declaration on a line of its own: `(x: str) in LIST`";
                    return self.fail(
                        "no-domain",
                        &expr.span,
                        format!("the variable `{}` has no list to range over", name.text),
                        help,
                    );
                }
            },
            ExprKind::List(items) => CompiledExpr::List(self.expressions(items, scope)?),
            ExprKind::Dict(entries) => {
                let mut pairs = Vec::new();
                for (key, value) in entries {
                    let ExprKind::Str(key) = &*key.kind else { continue };
                    pairs.push((key.as_str().into(), self.expression(value, scope)?));
                }
                CompiledExpr::Dict(pairs)
            }
            ExprKind::Member(object, name) if is_input(object) && scope.slot("input").is_none() => {
                CompiledExpr::Parameter(name.text.as_str().into())
            }
            ExprKind::Member(object, name) => {
                self.check_field(object, name, scope);
                CompiledExpr::Member(boxed(self.expression(object, scope)?), name.text.as_str().into())
            }
            ExprKind::Index(object, index) => {
                let (object, index) = (self.expression(object, scope)?, self.expression(index, scope)?);
                match index {
                    CompiledExpr::Constant(Value::Str(key)) => CompiledExpr::Member(boxed(object), key),
                    index => CompiledExpr::Index(boxed(object), boxed(index)),
                }
            }
            ExprKind::Each(_) => {
                let help = "bind a variable to the items: `(row: dict) in out.content`";
                return self.fail(
                    "each",
                    &expr.span,
                    "the condition contains `[*]`, which only regions may contain",
                    help,
                );
            }
            ExprKind::Slice(object, from, to) => {
                let mut bound = |expr: &Option<Expr>| {
                    expr.as_ref().map(|expr| self.expression(expr, scope).map(Box::new)).transpose()
                };
                let (from, to) = (bound(from)?, bound(to)?);
                CompiledExpr::Slice(boxed(self.expression(object, scope)?), from, to)
            }
            ExprKind::Call(function, arguments, named) => {
                return self.call(expr, function, arguments, named, scope);
            }
            ExprKind::Not(inner) => match self.expression(inner, scope)? {
                CompiledExpr::Quantified(mut block)
                    if matches!(block.how, QuantifierKind::ForAll { or_none: false }) =>
                {
                    // Over no events, neither `forall` nor its negation holds.
                    Arc::make_mut(&mut block).how = QuantifierKind::NotForAll;
                    CompiledExpr::Quantified(block)
                }
                inner => CompiledExpr::Not(boxed(inner)),
            },
            ExprKind::Negate(inner) => CompiledExpr::Negate(boxed(self.expression(inner, scope)?)),
            ExprKind::And(items) => CompiledExpr::And(self.expressions(items, scope)?),
            ExprKind::Or(items) => CompiledExpr::Or(self.expressions(items, scope)?),
            ExprKind::Arithmetic(op, a, b) => CompiledExpr::Arithmetic(
                *op,
                boxed(self.expression(a, scope)?),
                boxed(self.expression(b, scope)?),
            ),
            ExprKind::Compare(first, rest) => return self.comparison(first, rest, scope),
            ExprKind::Choice { value, condition, other } => {
                let parts = [condition, value, other].map(|part| self.expression(part, scope));
                let [condition, value, other] = parts;
                CompiledExpr::Choice(Box::new([condition?, value?, other?]))
            }
            ExprKind::Comprehension { value, name, list, condition } => {
                let list = boxed(self.expression(list, scope)?);
                let slot = self.bind(scope, name)?;
                let condition =
                    condition.as_ref().map(|c| self.expression(c, scope).map(Box::new)).transpose();
                let value = self.expression(value, scope);
                scope.forget_last();
                CompiledExpr::Comprehension { slot, list, condition: condition?, value: boxed(value?) }
            }
            ExprKind::Tool(_) => {
                return self.fail(
                    "tool",
                    &expr.span,
                    "a tool pattern is at a place other than after `is`",
                    "write `call is tool:NAME`",
                );
            }
            ExprKind::Anything | ExprKind::Matcher(_) => {
                let help = "write it as an argument in `tool:NAME({...})`";
                return self.fail(
                    "matcher",
                    &expr.span,
                    "a matcher of arguments is outside a tool pattern",
                    help,
                );
            }
        })
    }

    /// Charges for parts of expressions, which bounds the expansion of a short policy.
    fn charge(&mut self, parts: usize, span: &Span) -> CompileResult<()> {
        match self.budget.checked_sub(parts) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => self.fail(
                "too-large",
                span,
                "the expressions of the policy exceed the size limit after constants were replaced by their \
                definitions",
                "use predicates instead of constants",
            ),
        }
    }

    fn expressions(&mut self, list: &[Expr], scope: &mut Scope) -> CompileResult<Vec<CompiledExpr>> {
        let compiled: Vec<_> = list.iter().map(|expr| self.expression(expr, scope)).collect();
        compiled.into_iter().collect()
    }

    fn variable_or_constant(
        &mut self,
        name: &str,
        expr: &Expr,
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        if let Some(slot) = scope.slot(name) {
            return Ok(CompiledExpr::Slot(slot));
        }
        if let Some(value) = self.constants.get(name).copied() {
            if self.open.iter().any(|open| open == name) {
                let message = format!("the definition of `{name}` refers to itself");
                return self.fail("cycle", &expr.span, message, "define it without the constant itself");
            }
            if self.open.len() >= MAX_OPEN {
                let message = format!("`{name}` is defined by a chain of more than {MAX_OPEN} constants");
                return self.fail(
                    "too-deep",
                    &expr.span,
                    message,
                    "define it by fewer intermediate constants",
                );
            }
            self.open.push(name.to_owned());
            let compiled = self.expression(value, &mut Scope::default());
            self.open.pop();
            return compiled;
        }
        if name == "input" {
            return Ok(CompiledExpr::Parameters);
        }
        let mut known: Vec<String> = scope.names().map(str::to_owned).collect();
        known.extend(self.constants.keys().map(|name| (*name).to_owned()));
        known.sort_unstable();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.unknown_name("name", name, &expr.span, &known)
    }

    fn comparison(
        &mut self,
        first: &Expr,
        rest: &[(Comparison, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        let mut parts = Vec::new();
        if let (ExprKind::Typed(name, ty), [(Comparison::In, list)]) = (&*first.kind, rest) {
            // A declaration within an expression holds by itself; its domain or test is compiled separately.
            let test = self.compile_ranged_variable(first, name, ty, list, scope)?;
            return Ok(test.unwrap_or(CompiledExpr::Constant(Value::Bool(true))));
        }
        let mut left = self.expression(first, scope)?;
        for (operator, right_expr) in rest {
            if let Some(tool) = self.tool_or_group(right_expr, scope)? {
                if *operator == Comparison::In && self.is_endorsement && tool.arguments.is_none() {
                    let pattern = self.pattern(&tool.name, &right_expr.span)?;
                    parts.push(CompiledExpr::AnsweredBy(Box::new(left.clone()), pattern));
                    continue;
                }
                let is = self.is_tool(left.clone(), &tool, right_expr, scope)?;
                match operator {
                    Comparison::Is => parts.push(is),
                    Comparison::IsNot => parts.push(CompiledExpr::Not(Box::new(is))),
                    _ => {
                        let help = match operator {
                            Comparison::In => {
                                "write `call is tool:NAME`; only `endorse` takes `VALUE in tool:NAME`"
                            }
                            _ => "write `call is tool:NAME`",
                        };
                        let message = "a tool pattern is at a place other than after `is`";
                        return self.fail("tool", &right_expr.span, message, help);
                    }
                }
                continue;
            }
            let right = self.expression(right_expr, scope)?;
            if rest.len() > 1 {
                // The middle operand of a chain is part of two comparisons.
                let mut size = 0;
                right.walk(&mut |_| size += 1);
                self.charge(size, &right_expr.span)?;
            }
            parts.push(CompiledExpr::Compare(*operator, Box::new(left), Box::new(right.clone())));
            left = right;
        }
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            Some(last) => {
                parts.push(last);
                Ok(CompiledExpr::And(parts))
            }
            None => Ok(left),
        }
    }

    /// Compiles `event is tool:PATTERN(ARGUMENTS)`.
    fn is_tool(
        &mut self,
        event: CompiledExpr,
        tool: &ToolRef,
        expr: &Expr,
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        let pattern = self.pattern(&tool.name, &expr.span)?;
        // `out.tool is tool:NAME` is equivalent to `out is tool:NAME`.
        let event = match event {
            CompiledExpr::Member(event, name) if *name == *"tool" => *event,
            event => event,
        };
        let shape = tool.arguments.as_ref().map(|arguments| self.shape(arguments, scope)).transpose()?;
        Ok(CompiledExpr::IsTool(Box::new(event), pattern, shape))
    }

    fn shape(&mut self, expr: &Expr, scope: &mut Scope) -> CompileResult<ArgumentShape> {
        Ok(match &*expr.kind {
            ExprKind::Anything => ArgumentShape::Anything,
            ExprKind::Dict(entries) => {
                let mut shapes = Vec::new();
                for (key, value) in entries {
                    let ExprKind::Str(key) = &*key.kind else { continue };
                    shapes.push((key.as_str().into(), self.shape(value, scope)?));
                }
                ArgumentShape::Dict(shapes)
            }
            ExprKind::List(items) => {
                let shapes: Vec<_> = items.iter().map(|item| self.shape(item, scope)).collect();
                ArgumentShape::List(shapes.into_iter().collect::<CompileResult<_>>()?)
            }
            ExprKind::Str(text) => {
                let extent = match self.plan.dialect {
                    Dialect::Flowgate => MatchExtent::Whole,
                    Dialect::Compat => MatchExtent::CompatWhole,
                };
                // A text that is not a valid pattern is compared literally; a pattern that is too large is an error.
                let is_plain = !text.contains(['\\', '.', '[', '(', '*', '+', '?', '{', '|', '^', '$']);
                let pattern = if is_plain {
                    None
                } else {
                    self.charge_pattern(text, &expr.span)?;
                    match Pattern::new(text, extent) {
                        Err(problem) if is_pattern(text) => {
                            let message = format!("the pattern is malformed: {problem}");
                            return self.fail(
                                "pattern",
                                &expr.span,
                                message,
                                "repeat classes such as `\\w` less often",
                            );
                        }
                        pattern => pattern.ok(),
                    }
                };
                ArgumentShape::Text(text.as_str().into(), pattern.map(Box::new))
            }
            ExprKind::Matcher(name) if name == "EMAIL_ADDRESS" && self.plan.dialect == Dialect::Flowgate => {
                match FUNCTIONS.find("is_email") {
                    Some((id, _)) => ArgumentShape::Kind(id),
                    None => ArgumentShape::Finds(name.as_str().into()),
                }
            }
            ExprKind::Matcher(name) if builtin::MATCHERS.contains(&name.as_str()) => {
                ArgumentShape::Finds(name.as_str().into())
            }
            ExprKind::Matcher(name) => {
                return self.unknown_name("matcher", name, &expr.span, &builtin::MATCHERS);
            }
            _ => match self.expression(expr, scope)? {
                CompiledExpr::Constant(value) => ArgumentShape::Equal(value),
                CompiledExpr::Negate(inner) => match *inner {
                    CompiledExpr::Constant(Value::Int(n)) => {
                        ArgumentShape::Equal(Value::Int(n.wrapping_neg()))
                    }
                    CompiledExpr::Constant(Value::Float(x)) => ArgumentShape::Equal(Value::Float(-x)),
                    inner => ArgumentShape::Computed(Box::new(CompiledExpr::Negate(Box::new(inner)))),
                },
                computed => ArgumentShape::Computed(Box::new(computed)),
            },
        })
    }

    /// Compiles a call of a function or a method. `expr` is the whole call, for diagnostics.
    fn call(
        &mut self,
        expr: &Expr,
        function: &Expr,
        arguments: &[Expr],
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        match &*function.kind {
            ExprKind::Name(name) => {
                let imported = self.imports.functions.get(name).copied();
                self.function(expr, &function.span, imported.unwrap_or(name), arguments, named, scope)
            }
            ExprKind::Member(object, name) => {
                if let Some(module) = dotted_name(object).filter(|module| scope.slot(module).is_none())
                    && let Some(canonical) = self.function_in_module(&module, name)?
                {
                    return self.function(expr, &name.span, canonical, arguments, named, scope);
                }
                if self.plan.dialect == Dialect::Compat {
                    let object = Box::new(self.expression(object, scope)?);
                    let arguments = self.expressions(arguments, scope)?;
                    return Ok(CompiledExpr::CompatMethod(object, name.text.as_str().into(), arguments));
                }
                let Some(found) = FUNCTIONS.find(&name.text).filter(|(_, function)| function.is_method)
                else {
                    let methods = FUNCTIONS.all().filter(|function| function.is_method);
                    let known: Vec<&str> = methods.map(|method| method.name).collect();
                    return self.unknown_name("method", &name.text, &name.span, &known);
                };
                let object = self.expression(object, scope)?;
                let arguments = self.expressions(arguments, scope)?;
                // `", ".join(list)` and `"{}".format(x)` have the text first, as the functions do.
                let compiled = std::iter::once(object).chain(arguments).collect();
                self.builtin(expr, found, compiled, named, scope)
            }
            _ => self.fail(
                "call",
                &function.span,
                "the expression before the parentheses is not the name of a function",
                "call a function by its name",
            ),
        }
    }

    /// Compiles a call of the function `name`: a predicate of the policy or a built-in function. `expr` is the whole
    /// call and `span` its name, for diagnostics.
    fn function(
        &mut self,
        expr: &Expr,
        span: &Span,
        name: &str,
        arguments: &[Expr],
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        match name {
            "match" | "find" | "fullmatch" => return self.regex(expr, name, arguments, named, scope),
            "isinstance" => return self.is_instance(expr, arguments, scope),
            _ => {}
        }
        if let Some(index) = self.predicates.get(name).copied() {
            let compiled = self.expressions(arguments, scope)?;
            let parameters =
                self.plan.predicates.get(index).map(|p| p.parameters.clone()).unwrap_or_default();
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            let compiled = self.append_named_arguments(name, &parameters, compiled, named, scope)?;
            self.check_arity(expr, name, (parameters.len(), parameters.len()), compiled.len())?;
            return Ok(CompiledExpr::Predicate(index, compiled));
        }
        if let Some(index) = self.externs.get(name).copied() {
            let compiled = self.expressions(arguments, scope)?;
            let known = self.plan.externs.get(index).map_or(&[] as &[_], |known| &known.parameters);
            let parameters: Vec<String> = known.iter().map(|(name, _)| name.clone()).collect();
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            let compiled = self.append_named_arguments(name, &parameters, compiled, named, scope)?;
            self.check_arity(expr, name, (parameters.len(), parameters.len()), compiled.len())?;
            return Ok(CompiledExpr::Extern(index, compiled));
        }
        let Some(found) = FUNCTIONS.find(name) else {
            // The arguments may contain errors.
            let _ = self.expressions(arguments, scope);
            self.report_unavailable(name, span)?;
            let mut known: Vec<&str> =
                builtin::function_names().chain(["match", "find", "fullmatch", "isinstance"]).collect();
            let mut predicates: Vec<String> = self.predicates.keys().map(|name| (*name).to_owned()).collect();
            predicates.extend(self.externs.keys().map(|name| (*name).to_owned()));
            predicates.sort_unstable();
            known.extend(predicates.iter().map(String::as_str));
            return self.unknown_name("function", name, span, &known);
        };
        let compiled = self.expressions(arguments, scope)?;
        self.builtin(expr, found, compiled, named, scope)
    }

    /// Compiles a call of a built-in function with compiled positional arguments, after the named arguments are
    /// appended and all are counted.
    fn builtin(
        &mut self,
        expr: &Expr,
        (id, function): (FunctionId, &Function),
        arguments: Vec<CompiledExpr>,
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        let arguments =
            self.append_named_arguments(function.name, function.parameters, arguments, named, scope)?;
        self.check_arity(expr, function.name, function.arguments, arguments.len())?;
        if !python::AVAILABLE && parses_python(function.name, &arguments) {
            let message = format!("`{}` is not available: this build has no Python parser", function.name);
            return self.fail(
                "unavailable",
                &expr.span,
                message,
                "build `flowgate` with the feature `python`",
            );
        }
        Ok(CompiledExpr::Call(id, arguments))
    }

    /// Appends named arguments in the order of the parameters.
    fn append_named_arguments(
        &mut self,
        function: &str,
        parameters: &[&str],
        mut arguments: Vec<CompiledExpr>,
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<Vec<CompiledExpr>> {
        let given = arguments.len();
        for (name, value) in named {
            let Some(place) = parameters.iter().position(|known| *known == name.text) else {
                let message = format!("`{function}` has no argument `{}`", name.text);
                let help = match nearest(&name.text, parameters.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if parameters.is_empty() => "write the arguments in order".to_owned(),
                    None => format!("known are: {}", parameters.join(", ")),
                };
                return self.fail("arguments", &name.span, message, help);
            };
            if arguments.len() <= place {
                arguments.resize(place + 1, CompiledExpr::Constant(Value::Absent));
            }
            let is_free = |ex: &CompiledExpr| matches!(ex, CompiledExpr::Constant(Value::Absent));
            let value = self.expression(value, scope)?;
            match arguments.get_mut(place).filter(|ex| place >= given && is_free(ex)) {
                Some(free) => *free = value,
                None => {
                    let message = format!("the argument `{}` is given twice", name.text);
                    return self.fail("arguments", &name.span, message, "remove one of the two");
                }
            }
        }
        Ok(arguments)
    }

    fn check_arity(
        &mut self,
        expr: &Expr,
        name: &str,
        (least, most): (usize, usize),
        given: usize,
    ) -> CompileResult<()> {
        if (least..=most).contains(&given) {
            return Ok(());
        }
        let expected = match (least, most) {
            (1, 1) => "1 argument".to_owned(),
            _ if least == most => format!("{least} arguments"),
            _ => format!("{least} to {most} arguments"),
        };
        let message = format!("`{name}` takes {expected}, not {given}");
        self.fail("arguments", &expr.span, message, "add or remove arguments")
    }

    /// Compiles `match(r"...", text)`, `fullmatch(r"...", text)` and `find(r"...", text)`.
    fn regex(
        &mut self,
        expr: &Expr,
        name: &str,
        arguments: &[Expr],
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        let compiled = self.expressions(arguments, scope)?;
        let compiled = self.append_named_arguments(name, &["pattern", "text"], compiled, named, scope)?;
        self.check_arity(expr, name, (2, 2), compiled.len())?;
        let [pattern, text] =
            <[CompiledExpr; 2]>::try_from(compiled).map_err(|_| super::ReportedCompileError)?;
        let how = match (name, &pattern) {
            ("match", _) => RegexUse::Match,
            ("find", _) => RegexUse::Find,
            (_, CompiledExpr::Constant(Value::Str(source))) => {
                RegexUse::FullMatch { bits: matched_text_bits(source) }
            }
            _ => RegexUse::FullMatch { bits: None },
        };
        let CompiledExpr::Constant(Value::Str(source)) = &pattern else {
            return Ok(CompiledExpr::ComputedRegex(how, Box::new([pattern, text])));
        };
        self.charge_pattern(source, &expr.span)?;
        match Pattern::new(source, how.extent()) {
            Ok(pattern) => Ok(CompiledExpr::Regex(how, Box::new(pattern), Box::new(text))),
            Err(problem) => {
                let span = arguments.first().map_or(expr.span.clone(), |pattern| pattern.span.clone());
                let message = format!("the pattern is malformed: {problem}");
                self.fail(
                    "pattern",
                    &span,
                    message,
                    "write it in the syntax of Python's `re`, preferably as r\"...\"",
                )
            }
        }
    }

    /// Compiles `isinstance(x, str)` or `isinstance(x, (str, int))`.
    fn is_instance(
        &mut self,
        expr: &Expr,
        arguments: &[Expr],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        self.check_arity(expr, "isinstance", (2, 2), arguments.len())?;
        let [value, types] = arguments else { return Err(super::ReportedCompileError) };
        let names: Vec<&Expr> = match &*types.kind {
            ExprKind::List(items) => items.iter().collect(),
            _ => vec![types],
        };
        let mut found: Vec<Type> = Vec::new();
        for name in names {
            let known = match &*name.kind {
                ExprKind::Name(text) => self.named_type(text),
                _ => None,
            };
            let Some(ty) = known else {
                let names = Type::NAMES.map(|(name, _)| name).join(", ");
                return self.fail(
                    "unknown-type",
                    &name.span,
                    "the expression is not the name of a type",
                    format!("known are: {names}"),
                );
            };
            found.push(ty);
        }
        Ok(CompiledExpr::IsInstance(Box::new(self.expression(value, scope)?), found))
    }

    /// Warns of a field that events of this kind do not have.
    fn check_field(&mut self, object: &Expr, name: &Name, scope: &Scope) {
        let ExprKind::Name(variable) = &*object.kind else { return };
        let Some(variable) = scope.slot(variable).and_then(|slot| self.variable(scope, slot)) else { return };
        let known: &[&str] = match variable.ty {
            Type::Message => &["role", "content", "tool_calls", "metadata", "server"],
            Type::ToolCall => &["function", "name", "tool", "server", "arguments", "id", "type", "metadata"],
            Type::ToolOutput => &[
                "content",
                "tool_call_id",
                "role",
                "name",
                "tool",
                "server",
                "is_error",
                "structured",
                "metadata",
            ],
            Type::Tool => &["name", "description", "inputSchema", "outputSchema", "server", "metadata"],
            _ => return,
        };
        let is_known = known.contains(&name.text.as_str());
        let Some(near) = nearest(&name.text, known.iter().copied()).filter(|_| !is_known) else { return };
        let kind = Type::NAMES.iter().find(|(_, ty)| *ty == variable.ty).map_or("", |(name, _)| name);
        let message = format!("a {kind} has no field `{}`", name.text);
        let warning = Diagnostic::warning("unknown-field", name.span.clone(), message);
        self.diagnostics.push(warning.help(format!("did you mean `{near}`?")));
    }
}

/// Returns whether an expression is the name of the policy's parameters.
fn is_input(expr: &Expr) -> bool {
    matches!(&*expr.kind, ExprKind::Name(name) if name == "input")
}

/// Returns the name of a module: `json`, `invariant.detectors`.
fn dotted_name(expr: &Expr) -> Option<String> {
    match &*expr.kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Member(object, name) => dotted_name(object).map(|path| format!("{path}.{}", name.text)),
        _ => None,
    }
}
