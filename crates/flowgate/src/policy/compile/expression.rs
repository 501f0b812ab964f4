//! Compiles expressions: resolves the names of variables to their numbers (*slots*) and the names of functions to rows
//! of the table of built-in functions, and compiles patterns. The compilers of bodies, labels and rules call this
//! module.

use std::sync::Arc;

use super::super::diagnostic::{Diagnostic, Span, nearest};
use super::super::dialect::Dialect;
use super::super::plan::{ArgumentShape, CompiledExpr, ListedForm, QuantifierKind, Type};
use super::super::regex::{MatchExtent, Pattern, is_pattern};
use super::super::syntax::{Comparison, Expr, ExprKind, FormatPart, Name, ToolRef};
use super::body::Scope;
use super::{CompileResult, Compiler, MAX_PARTS};
use crate::builtin::{self, FUNCTIONS};
use crate::value::Value;

/// Maximum number of constants whose definitions are compiled one within the other.
const MAX_OPEN: usize = 64;

impl Compiler<'_> {
    /// Compiles an expression with its subexpressions. Each of them is subtracted from `parts_left`, the number of
    /// parts that the policy may still have. Fails without a further diagnostic once the policy has too many errors.
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
                    let key = self.map_key(key)?;
                    pairs.push((key.into(), self.expression(value, scope)?));
                }
                CompiledExpr::Dict(pairs)
            }
            // `input.NAME` is a parameter of the evaluation, unless a variable is called `input`.
            ExprKind::Member(object, name) if is_input(object) && scope.slot("input").is_none() => {
                self.plan.parameters.insert(name.text.clone());
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
                    "the condition contains `[*]`, which may only be in the region that a statement is about",
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
                    // If nothing matches the declarations of a `forall:`, neither the block nor its negation holds. So
                    // the negation is a kind of block of its own, and not a `Not` around the block.
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
                // The name is known only within the comprehension. Errors are returned after it is forgotten, so that
                // it does not stay in the scope.
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
                    "a tool pattern can only follow `is`",
                    "write `call is tool:NAME`",
                );
            }
            ExprKind::Anything | ExprKind::Matcher(_) => {
                let help = "write it as an argument in `tool:NAME({...})`";
                return self.fail(
                    "matcher",
                    &expr.span,
                    "`*` or a matcher such as `<EMAIL_ADDRESS>` is outside the arguments of a tool pattern",
                    help,
                );
            }
        })
    }

    /// Subtracts `parts` from `parts_left`, the number of parts that the expressions of the policy may still have.
    /// Reports an error if fewer are left. The limit is needed because constants that use each other can expand a short
    /// policy exponentially.
    fn charge(&mut self, parts: usize, span: &Span) -> CompileResult<()> {
        match self.parts_left.checked_sub(parts) {
            Some(left) => {
                self.parts_left = left;
                Ok(())
            }
            None => self.fail(
                "too-large",
                span,
                format!(
                    "with constants replaced by their definitions, the expressions of the policy have more than {MAX_PARTS} parts"
                ),
                "use predicates instead of constants",
            ),
        }
    }

    /// Compiles several expressions. All are checked, even if one has an error.
    pub(super) fn expressions(
        &mut self,
        list: &[Expr],
        scope: &mut Scope,
    ) -> CompileResult<Vec<CompiledExpr>> {
        let compiled: Vec<_> = list.iter().map(|expr| self.expression(expr, scope)).collect();
        compiled.into_iter().collect()
    }

    /// Compiles a name: a variable of the scope, or a constant, whose definition is compiled in its place. Otherwise,
    /// `input` is the map of all parameters.
    ///
    /// # Errors
    /// If the name is unknown, or the constant refers to itself or to a chain of too many constants.
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
            // `open_constants` are the constants whose definitions are being compiled, one within the other.
            if self.open_constants.iter().any(|open| open == name) {
                let message = format!("the definition of `{name}` refers to itself");
                return self.fail("cycle", &expr.span, message, "write a definition that does not use the constant, neither directly nor through another constant");
            }
            if self.open_constants.len() >= MAX_OPEN {
                let message = format!("`{name}` is defined by a chain of more than {MAX_OPEN} constants");
                return self.fail(
                    "too-deep",
                    &expr.span,
                    message,
                    "define the constant by fewer intermediate ones",
                );
            }
            self.open_constants.push(name.to_owned());
            // A definition does not see the variables that are in scope where the constant is used.
            let compiled = self.expression(value, &mut Scope::default());
            self.open_constants.pop();
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

    /// Compiles a chain of comparisons, such as `a < b < c`, to their conjunction. A comparison by `is` or `is not` with
    /// `tool:NAME` compiles to a test of the tool, and `VALUE in tool:NAME` (in `endorse` and `consent` only) to a test
    /// whether an answer of the tool lists the value. A tool pattern after any other operator is an error.
    ///
    /// A declaration `(x: T) in list` sets the domain of a variable, and compiles to `True`. The exception is a call in
    /// the calls of a message: this variable ranges over the trace, and the declaration compiles to the test that the
    /// message proposes the call.
    fn comparison(
        &mut self,
        first: &Expr,
        rest: &[(Comparison, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        let mut parts = Vec::new();
        // A declaration `(x: T) in list`, which is no part of a longer chain.
        if let (ExprKind::Typed(name, ty), [(Comparison::In, list)]) = (&*first.kind, rest) {
            let test = self.compile_ranged_variable(first, name, ty, list, scope)?;
            return Ok(test.unwrap_or(CompiledExpr::Constant(Value::Bool(true))));
        }
        // Each operand is compared with the next one.
        let mut left = self.expression(first, scope)?;
        for (operator, right_expr) in rest {
            if let Some(tool) = self.tool_or_group(right_expr, scope)? {
                // `left` stays the operand that is compared next, since a tool pattern has no value.
                parts.push(self.tool_comparison(left.clone(), *operator, &tool, right_expr, scope)?);
                continue;
            }
            let right = self.expression(right_expr, scope)?;
            if rest.len() > 1 {
                // A middle operand of a chain becomes part of two comparisons, so its copy counts against the limit.
                let mut size = 0;
                right.walk(&mut |_| size += 1);
                self.charge(size, &right_expr.span)?;
            }
            parts.push(CompiledExpr::Compare(*operator, Box::new(left), Box::new(right.clone())));
            left = right;
        }
        // A single comparison needs no conjunction.
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            Some(last) => {
                parts.push(last);
                Ok(CompiledExpr::And(parts))
            }
            None => Ok(left),
        }
    }

    /// Compiles the comparison of a value with a tool pattern: `left is tool:NAME`, `left is not tool:NAME` or, in
    /// `endorse` and `consent`, `left in tool:NAME`. Fails for any other operator. `expr` is the expression of `tool`.
    fn tool_comparison(
        &mut self,
        left: CompiledExpr,
        operator: Comparison,
        tool: &ToolRef,
        expr: &Expr,
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        if operator == Comparison::In && self.tests_lists {
            let source = self.answers(tool, expr, scope)?;
            return Ok(CompiledExpr::Listed(Box::new(left), source, ListedForm::Whole));
        }
        let is = self.is_tool(left, tool, expr, scope)?;
        match operator {
            Comparison::Is => Ok(is),
            Comparison::IsNot => Ok(CompiledExpr::Not(Box::new(is))),
            _ => {
                let help = match operator {
                    Comparison::In => {
                        "write `call is tool:NAME`; only `endorse` and `consent` take `VALUE in tool:NAME`"
                    }
                    _ => "write `call is tool:NAME`",
                };
                let message = "a tool pattern can only follow `is`";
                self.fail("tool", &expr.span, message, help)
            }
        }
    }

    /// Compiles `event is tool:PATTERN(ARGUMENTS)`, the test that the event is a call, an output or a description of a
    /// tool that the pattern matches. With `ARGUMENTS`, it also tests that the call's arguments have this form (the
    /// `shape`).
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

    /// Returns the text of a key of a map. A key that is an f-string is an error: it has no fixed text, and if its
    /// entry were left out, a tool pattern would restrict less than the policy says.
    fn map_key<'k>(&mut self, key: &'k Expr) -> CompileResult<&'k str> {
        // The parser yields only names, text literals and f-strings as keys; a name counts as a text literal.
        let ExprKind::Str(text) = &*key.kind else {
            let help = "write it without `f`, such as `\"to\"`";
            return self.fail("syntax", &key.span, "the key of the map is an f-string", help);
        };
        Ok(text)
    }

    /// Compiles the shape that a tool pattern requires of arguments, such as `{to: "bob", body: <SECRET>}`. A text is a
    /// regular expression if it is a valid one, and is compared literally otherwise. `*` admits any value, and `<KIND>`
    /// a text of this kind. An argument must equal the value of any other expression.
    fn shape(&mut self, expr: &Expr, scope: &mut Scope) -> CompileResult<ArgumentShape> {
        Ok(match &*expr.kind {
            ExprKind::Anything => ArgumentShape::Anything,
            ExprKind::Dict(entries) => {
                let mut shapes = Vec::new();
                for (key, value) in entries {
                    let key = self.map_key(key)?;
                    shapes.push((key.into(), self.shape(value, scope)?));
                }
                ArgumentShape::Dict(shapes)
            }
            ExprKind::List(items) => {
                let shapes: Vec<_> = items.iter().map(|item| self.shape(item, scope)).collect();
                ArgumentShape::List(shapes.into_iter().collect::<CompileResult<_>>()?)
            }
            ExprKind::Str(text) => {
                let pattern = self.shape_pattern(text, &expr.span)?;
                ArgumentShape::Text(text.as_str().into(), pattern.map(Box::new))
            }
            // In Flowgate's dialect, the whole text must be an e-mail address. In that of invariant-ai, the next arm
            // handles it: a text that contains one suffices, as for every other kind in both dialects.
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
                    // Literals have no sign, so the negation does not overflow.
                    CompiledExpr::Constant(Value::Int(n)) => {
                        ArgumentShape::Equal(Value::Int(n.wrapping_neg()))
                    }
                    CompiledExpr::Constant(Value::Float(x)) => ArgumentShape::Equal(Value::Float(-x)),
                    inner => ArgumentShape::Computed(Box::new(CompiledExpr::Negate(Box::new(inner)))),
                },
                expression => ArgumentShape::Computed(Box::new(expression)),
            },
        })
    }

    /// Compiles a text in the shape of arguments to a pattern; `None` if the text is not a valid pattern, and so is
    /// compared literally. Fails for a pattern that is too large and so cannot be compiled, although its syntax is valid
    /// (`is_pattern`). `span` is the location of the text.
    fn shape_pattern(&mut self, text: &str, span: &Span) -> CompileResult<Option<Pattern>> {
        let extent = match self.plan.dialect {
            Dialect::Flowgate => MatchExtent::Whole,
            Dialect::Compat => MatchExtent::CompatWhole,
        };
        // A text without the special characters of patterns is always compared literally.
        if !text.contains(['\\', '.', '[', '(', '*', '+', '?', '{', '|', '^', '$']) {
            return Ok(None);
        }
        self.charge_pattern(text, span)?;
        match Pattern::new(text, extent) {
            Err(problem) if is_pattern(text) => {
                let message = format!("the pattern cannot be compiled: {problem}");
                self.fail("pattern", span, message, "repeat classes such as `\\w` less often")
            }
            pattern => Ok(pattern.ok()),
        }
    }

    /// Warns about a misspelled field of an event, such as `call.argument`: one that events of this type do not have,
    /// but that resembles one that they have (`arguments`). Other unknown fields cause no warning, since a client may
    /// add fields to an event. `object` is the expression before the field, and `name` the field.
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

/// Returns whether an expression is `input`, the name of the policy's parameters.
fn is_input(expr: &Expr) -> bool {
    matches!(&*expr.kind, ExprKind::Name(name) if name == "input")
}
