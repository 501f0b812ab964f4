//! Expressions: names become slots, functions rows of the table, patterns compiled.

use regex::RegexBuilder;

use super::super::diagnostic::Span;
use super::super::pattern::{REGEX_SIZE, describe, whole};
use super::super::plan::{Ex, RegexUse, Shape};
use super::super::syntax::{Comparison, Expr, ExprKind, Name, ToolRef};
use super::body::Scope;
use super::{Compiled, Compiler};
use crate::builtin::{self, Builtin};
use crate::eval::Value;

/// How many constants may be put into each other.
const MAX_OPEN: usize = 64;

impl Compiler<'_> {
    pub(super) fn expression(&mut self, expr: &Expr, scope: &mut Scope) -> Compiled<Ex> {
        let boxed = |ex: Ex| Box::new(ex);
        self.charge(1, &expr.span)?;
        Ok(match &*expr.kind {
            ExprKind::None | ExprKind::Missing => Ex::Constant(Value::None),
            ExprKind::Bool(b) => Ex::Constant(Value::Bool(*b)),
            ExprKind::Int(n) => Ex::Constant(Value::Int(*n)),
            ExprKind::Float(x) => Ex::Constant(Value::Float(*x)),
            ExprKind::Str(text) => Ex::Constant(Value::text(text)),
            ExprKind::Name(name) => return self.variable_or_constant(name, expr, scope),
            ExprKind::Typed(name, _) => match scope.slot(&name.text) {
                Some(slot) => Ex::Slot(slot),
                None => {
                    let help = "put the declaration on a line of its own: `(x: str) in LIST`";
                    return self.fail(
                        "no-domain",
                        &expr.span,
                        format!("`{}` has nothing to range over", name.text),
                        help,
                    );
                }
            },
            ExprKind::List(items) => Ex::List(self.expressions(items, scope)?),
            ExprKind::Dict(entries) => {
                let mut pairs = Vec::new();
                for (key, value) in entries {
                    let ExprKind::Str(key) = &*key.kind else { continue };
                    pairs.push((key.as_str().into(), self.expression(value, scope)?));
                }
                Ex::Dict(pairs)
            }
            ExprKind::Member(object, name) => {
                Ex::Member(boxed(self.expression(object, scope)?), name.text.as_str().into())
            }
            ExprKind::Index(object, index) => {
                Ex::Index(boxed(self.expression(object, scope)?), boxed(self.expression(index, scope)?))
            }
            ExprKind::Each(_) => {
                let help = "bind a variable to the items: `(row: dict) in out.content`";
                return self.fail("each", &expr.span, "`[*]` stands in regions, not in conditions", help);
            }
            ExprKind::Slice(object, from, to) => {
                let mut bound = |expr: &Option<Expr>| {
                    expr.as_ref().map(|expr| self.expression(expr, scope).map(Box::new)).transpose()
                };
                let (from, to) = (bound(from)?, bound(to)?);
                Ex::Slice(boxed(self.expression(object, scope)?), from, to)
            }
            ExprKind::Call(function, arguments, named) => {
                return self.call(expr, function, arguments, named, scope);
            }
            ExprKind::Not(inner) => Ex::Not(boxed(self.expression(inner, scope)?)),
            ExprKind::Negate(inner) => Ex::Negate(boxed(self.expression(inner, scope)?)),
            ExprKind::And(items) => Ex::And(self.expressions(items, scope)?),
            ExprKind::Or(items) => Ex::Or(self.expressions(items, scope)?),
            ExprKind::Arithmetic(op, a, b) => {
                Ex::Arithmetic(*op, boxed(self.expression(a, scope)?), boxed(self.expression(b, scope)?))
            }
            ExprKind::Compare(first, rest) => return self.comparison(first, rest, scope),
            ExprKind::Choice { value, condition, other } => {
                let parts = [condition, value, other].map(|part| self.expression(part, scope));
                let [condition, value, other] = parts;
                Ex::Choice(Box::new([condition?, value?, other?]))
            }
            ExprKind::Comprehension { value, name, list, condition } => {
                let list = boxed(self.expression(list, scope)?);
                let slot = self.bind(scope, name)?;
                let condition =
                    condition.as_ref().map(|c| self.expression(c, scope).map(Box::new)).transpose();
                let value = self.expression(value, scope);
                scope.forget_last();
                Ex::Comprehension { slot, list, condition: condition?, value: boxed(value?) }
            }
            ExprKind::Tool(_) => {
                return self.fail(
                    "tool",
                    &expr.span,
                    "a tool pattern stands behind `is`",
                    "write `call is tool:NAME`",
                );
            }
            ExprKind::Anything | ExprKind::Matcher(_) => {
                let help = "write it as an argument in `tool:NAME({...})`";
                return self.fail("matcher", &expr.span, "a matcher stands in a tool pattern", help);
            }
        })
    }

    /// Counts parts of expressions, so that a short policy cannot become a long one.
    fn charge(&mut self, parts: usize, span: &Span) -> Compiled<()> {
        match self.budget.checked_sub(parts) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => self.fail(
                "too-large",
                span,
                "the expressions of the policy are too large",
                "use predicates instead of constants",
            ),
        }
    }

    fn expressions(&mut self, list: &[Expr], scope: &mut Scope) -> Compiled<Vec<Ex>> {
        let compiled: Vec<_> = list.iter().map(|expr| self.expression(expr, scope)).collect();
        compiled.into_iter().collect()
    }

    fn variable_or_constant(&mut self, name: &str, expr: &Expr, scope: &mut Scope) -> Compiled<Ex> {
        if let Some(slot) = scope.slot(name) {
            return Ok(Ex::Slot(slot));
        }
        if let Some(value) = self.constants.get(name).copied() {
            if self.open.iter().any(|open| open == name) {
                let message = format!("`{name}` is defined by itself");
                return self.fail("cycle", &expr.span, message, "define it by other constants");
            }
            if self.open.len() >= MAX_OPEN {
                let message = format!("`{name}` is defined by a chain of more than {MAX_OPEN} constants");
                return self.fail("too-deep", &expr.span, message, "define it more directly");
            }
            self.open.push(name.to_owned());
            let compiled = self.expression(value, &mut Scope::default());
            self.open.pop();
            return compiled;
        }
        let mut known: Vec<String> = scope.names().map(str::to_owned).collect();
        known.extend(self.constants.keys().map(|name| (*name).to_owned()));
        known.sort_unstable();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.unknown("name", name, &expr.span, &known)
    }

    fn comparison(&mut self, first: &Expr, rest: &[(Comparison, Expr)], scope: &mut Scope) -> Compiled<Ex> {
        let mut parts = Vec::new();
        let mut left = self.expression(first, scope)?;
        for (operator, right_expr) in rest {
            if let ExprKind::Tool(tool) = &*right_expr.kind {
                let is = self.is_tool(left.clone(), tool, right_expr, scope)?;
                match operator {
                    Comparison::Is => parts.push(is),
                    Comparison::IsNot => parts.push(Ex::Not(Box::new(is))),
                    _ => {
                        let help = "write `call is tool:NAME`";
                        return self.fail(
                            "tool",
                            &right_expr.span,
                            "a tool pattern stands behind `is`",
                            help,
                        );
                    }
                }
                continue;
            }
            let right = self.expression(right_expr, scope)?;
            if rest.len() > 1 {
                // The middle of a chain stands in two comparisons.
                let mut size = 0;
                right.walk(&mut |_| size += 1);
                self.charge(size, &right_expr.span)?;
            }
            parts.push(Ex::Compare(*operator, Box::new(left), Box::new(right.clone())));
            left = right;
        }
        match parts.pop() {
            Some(only) if parts.is_empty() => Ok(only),
            Some(last) => {
                parts.push(last);
                Ok(Ex::And(parts))
            }
            None => Ok(left),
        }
    }

    fn is_tool(&mut self, event: Ex, tool: &ToolRef, expr: &Expr, scope: &mut Scope) -> Compiled<Ex> {
        let pattern = self.pattern(&tool.name, &expr.span)?;
        // `out.tool is tool:NAME` asks the same as `out is tool:NAME`.
        let event = match event {
            Ex::Member(event, name) if *name == *"tool" => *event,
            event => event,
        };
        let shape = tool.arguments.as_ref().map(|arguments| self.shape(arguments, scope)).transpose()?;
        Ok(Ex::IsTool(Box::new(event), pattern, shape))
    }

    fn shape(&mut self, expr: &Expr, scope: &mut Scope) -> Compiled<Shape> {
        Ok(match &*expr.kind {
            ExprKind::Anything => Shape::Anything,
            ExprKind::Dict(entries) => {
                let mut shapes = Vec::new();
                for (key, value) in entries {
                    let ExprKind::Str(key) = &*key.kind else { continue };
                    shapes.push((key.as_str().into(), self.shape(value, scope)?));
                }
                Shape::Dict(shapes)
            }
            ExprKind::List(items) => {
                let shapes: Vec<_> = items.iter().map(|item| self.shape(item, scope)).collect();
                Shape::List(shapes.into_iter().collect::<Compiled<_>>()?)
            }
            ExprKind::Str(text) => Shape::Text(text.as_str().into(), whole(text).ok()),
            ExprKind::Matcher(name) => {
                let kinds = [("EMAIL_ADDRESS", "is_email")];
                match kinds.iter().find(|(known, _)| known == name).and_then(|(_, f)| Builtin::find(f)) {
                    Some(builtin) => Shape::Kind(builtin),
                    None => return self.unknown("matcher", name, &expr.span, &kinds.map(|(known, _)| known)),
                }
            }
            _ => match self.expression(expr, scope)? {
                Ex::Constant(value) => Shape::Equal(value),
                Ex::Negate(inner) => match *inner {
                    Ex::Constant(Value::Int(n)) => Shape::Equal(Value::Int(n.wrapping_neg())),
                    Ex::Constant(Value::Float(x)) => Shape::Equal(Value::Float(-x)),
                    _ => return self.no_constant(expr),
                },
                _ => return self.no_constant(expr),
            },
        })
    }

    fn no_constant<T>(&mut self, expr: &Expr) -> Compiled<T> {
        let help = "compare in a condition of its own: `call.arguments.x == y`";
        self.fail("pattern", &expr.span, "the arguments of a tool pattern are constants and matchers", help)
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &Expr,
        arguments: &[Expr],
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> Compiled<Ex> {
        if let Some((name, _)) = named.first() {
            let help = "write the arguments in order";
            return self.fail(
                "arguments",
                &name.span,
                format!("`{}=` is not understood here", name.text),
                help,
            );
        }
        match &*function.kind {
            ExprKind::Name(name) => {
                if matches!(name.as_str(), "match" | "find") {
                    return self.regex(expr, name, arguments, scope);
                }
                let compiled = self.expressions(arguments, scope)?;
                if let Some(index) = self.predicates.get(name.as_str()).copied() {
                    let expected =
                        self.plan.predicates.get(index).map_or(0, |predicate| predicate.parameters);
                    self.arity(expr, name, (expected, expected), compiled.len())?;
                    return Ok(Ex::Predicate(index, compiled));
                }
                let Some(builtin) = Builtin::find(name) else {
                    let mut known: Vec<&str> = builtin::names().chain(["match", "find"]).collect();
                    let mut predicates: Vec<String> =
                        self.predicates.keys().map(|name| (*name).to_owned()).collect();
                    predicates.sort_unstable();
                    known.extend(predicates.iter().map(String::as_str));
                    return self.unknown("function", name, &function.span, &known);
                };
                self.arity(expr, name, builtin.0.arguments, compiled.len())?;
                Ok(Ex::Call(builtin, compiled))
            }
            ExprKind::Member(object, name) => {
                let Some(builtin) = Builtin::find(&name.text).filter(|builtin| builtin.0.is_method) else {
                    let known: Vec<&str> = builtin::names()
                        .filter(|n| Builtin::find(n).is_some_and(|b| b.0.is_method))
                        .collect();
                    return self.unknown("method", &name.text, &name.span, &known);
                };
                let mut compiled = vec![self.expression(object, scope)?];
                compiled.extend(self.expressions(arguments, scope)?);
                self.arity(expr, &name.text, builtin.0.arguments, compiled.len())?;
                Ok(Ex::Call(builtin, compiled))
            }
            _ => self.fail("call", &function.span, "this is no function", "call a function by its name"),
        }
    }

    fn arity(
        &mut self,
        expr: &Expr,
        name: &str,
        (least, most): (usize, usize),
        given: usize,
    ) -> Compiled<()> {
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

    /// `match(r"...", text)` and `find(r"...", text)`.
    fn regex(&mut self, expr: &Expr, name: &str, arguments: &[Expr], scope: &mut Scope) -> Compiled<Ex> {
        self.arity(expr, name, (2, 2), arguments.len())?;
        let [pattern, text] = arguments else { return Err(super::Broken) };
        let Ex::Constant(Value::Str(source)) = self.expression(pattern, scope)? else {
            return self.fail(
                "pattern",
                &pattern.span,
                "the pattern must be a text known beforehand",
                "write it as r\"...\"",
            );
        };
        let how = if name == "match" { RegexUse::Match } else { RegexUse::Find };
        let source = if how == RegexUse::Match { format!(r"\A(?:{source})") } else { source.to_string() };
        match RegexBuilder::new(&source).size_limit(REGEX_SIZE).build() {
            Ok(regex) => Ok(Ex::Regex(how, regex, Box::new(self.expression(text, scope)?))),
            Err(error) => {
                let message = format!("the pattern is malformed: {}", describe(&error));
                self.fail(
                    "pattern",
                    &pattern.span,
                    message,
                    "patterns have the syntax of Rust's regex crate: no look-around",
                )
            }
        }
    }
}
