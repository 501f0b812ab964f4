//! Compiles expressions that call something: predicates of the policy, extern predicates, built-in functions and
//! methods, and the functions that take a pattern or a type (`match`, `isinstance`). The compiler of expressions calls
//! [`Compiler::call`].

use super::super::diagnostic::{Span, nearest};
use super::super::dialect::Dialect;
use super::super::pattern_bits::matched_text_bits;
use super::super::plan::{CompiledExpr, FunctionId, RegexUse, Type};
use super::super::regex::Pattern;
use super::super::syntax::{Expr, ExprKind, Name};
use super::body::Scope;
use super::imports::parses_python;
use super::{CompileResult, Compiler};
use crate::builtin::{self, FUNCTIONS};
use crate::detect::python;
use crate::eval::Function;
use crate::value::Value;

impl Compiler<'_> {
    /// Compiles a call of a function (`f(x)`), of a function in an imported module (`m.f(x)`), or of a method
    /// (`x.f()`). `expr` is the whole call, for diagnostics.
    pub(super) fn call(
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
                // `m.f(x)`, unless `m` is a variable.
                if let Some(module) = dotted_name(object).filter(|module| scope.slot(module).is_none())
                    && let Some(canonical) = self.function_in_module(&module, name)?
                {
                    return self.function(expr, &name.span, canonical, arguments, named, scope);
                }
                // In invariant-ai, the methods of an object depend on its value, so the method is looked up when the
                // call is evaluated.
                if self.plan.dialect == Dialect::Compat {
                    if let Some((argument, _)) = named.first() {
                        return self.fail(
                            "call",
                            &argument.span,
                            "a method in the dialect of invariant-ai takes no named arguments",
                            "pass the arguments by position",
                        );
                    }
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
                // A method is a built-in function with the object as its first argument: `", ".join(list)` is
                // `join(", ", list)`.
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

    /// Compiles a call of the function `name`. The name is looked up among the functions that take a pattern or a
    /// type, the predicates of the policy, the extern predicates, and the other built-in functions, in this order. So
    /// a policy may redefine any built-in function except those of the first group. `expr` is the whole call and `span`
    /// its name, for diagnostics.
    fn function(
        &mut self,
        expr: &Expr,
        span: &Span,
        name: &str,
        arguments: &[Expr],
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        // These come first, so a policy cannot redefine them: they take a pattern or a type, which no other function
        // does.
        match name {
            "match" | "find" | "fullmatch" => return self.regex(expr, name, arguments, named, scope),
            "isinstance" => {
                // The empty list of parameters makes every named argument an error.
                self.append_named_arguments(name, &[], Vec::new(), named, scope)?;
                return self.is_instance(expr, arguments, scope);
            }
            _ => {}
        }
        // A predicate of the policy.
        if let Some(index) = self.predicates.get(name).copied() {
            let compiled = self.expressions(arguments, scope)?;
            let parameters =
                self.plan.predicates.get(index).map(|p| p.parameters.clone()).unwrap_or_default();
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            let compiled = self.append_named_arguments(name, &parameters, compiled, named, scope)?;
            self.check_arity(expr, name, (parameters.len(), parameters.len()), compiled.len())?;
            return Ok(CompiledExpr::Predicate(index, compiled));
        }
        // An extern predicate.
        if let Some(index) = self.externs.get(name).copied() {
            let compiled = self.expressions(arguments, scope)?;
            let known = self.plan.externs.get(index).map_or(&[] as &[_], |known| &known.parameters);
            let parameters: Vec<String> = known.iter().map(|(name, _)| name.clone()).collect();
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            let compiled = self.append_named_arguments(name, &parameters, compiled, named, scope)?;
            self.check_arity(expr, name, (parameters.len(), parameters.len()), compiled.len())?;
            return Ok(CompiledExpr::Extern(index, compiled));
        }
        // A built-in function, or an unknown name.
        let Some((id, found)) = FUNCTIONS.find(name) else {
            // The arguments are compiled only to report their errors.
            let _ = self.expressions(arguments, scope);
            return self.unknown_function(name, span);
        };
        // `is_url_on(url, tool:NAME)` takes a tool pattern, which is not an expression.
        if let Some(listed) = self.listed_url(found.name, arguments, scope)? {
            return Ok(listed);
        }
        let compiled = self.expressions(arguments, scope)?;
        self.builtin(expr, (id, found), compiled, named, scope)
    }

    /// Fails because no function or predicate is called `name`: with the reason if it is a function of invariant-ai
    /// that Flowgate does not have, and otherwise with a suggestion. `span` is the location of the name.
    fn unknown_function(&mut self, name: &str, span: &Span) -> CompileResult<CompiledExpr> {
        self.report_unavailable(name, span)?;
        let mut known: Vec<&str> =
            builtin::function_names().chain(["match", "find", "fullmatch", "isinstance"]).collect();
        let mut predicates: Vec<String> = self.predicates.keys().map(|name| (*name).to_owned()).collect();
        predicates.extend(self.externs.keys().map(|name| (*name).to_owned()));
        predicates.sort_unstable();
        known.extend(predicates.iter().map(String::as_str));
        self.unknown_name("function", name, span, &known)
    }

    /// Compiles `expr`, a call of the built-in function `function`, whose place in the table of functions is `id`.
    /// `arguments` are the positional arguments, which are compiled already; the named ones are appended to them. Fails
    /// if there are too few or too many arguments, or if this build cannot execute the function.
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

    /// Compiles the named arguments of a call of `function`, and puts each at the position of its parameter in
    /// `arguments`, which contains the positional arguments. A position that is left out becomes a missing value. Fails
    /// for a name that is not one of `parameters`, and for an argument that is given twice.
    fn append_named_arguments(
        &mut self,
        function: &str,
        parameters: &[&str],
        mut arguments: Vec<CompiledExpr>,
        named: &[(Name, Expr)],
        scope: &mut Scope,
    ) -> CompileResult<Vec<CompiledExpr>> {
        let positional = arguments.len();
        for (name, value) in named {
            let Some(index) = parameters.iter().position(|known| *known == name.text) else {
                let message = format!("`{function}` has no argument `{}`", name.text);
                let help = match nearest(&name.text, parameters.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if parameters.is_empty() => {
                        "write the arguments without names, in the order of the declaration".to_owned()
                    }
                    None => format!("known are: {}", parameters.join(", ")),
                };
                return self.fail("arguments", &name.span, message, help);
            };
            // Positions up to this one that have no argument yet are filled with missing values.
            if arguments.len() <= index {
                arguments.resize(index + 1, CompiledExpr::Constant(Value::Absent));
            }
            let is_free = |ex: &CompiledExpr| matches!(ex, CompiledExpr::Constant(Value::Absent));
            let value = self.expression(value, scope)?;
            // A position is free only if it is after the positional arguments and no earlier named argument is there.
            match arguments.get_mut(index).filter(|ex| index >= positional && is_free(ex)) {
                Some(free) => *free = value,
                None => {
                    let message = format!("the argument `{}` is given twice", name.text);
                    return self.fail("arguments", &name.span, message, "give the argument once");
                }
            }
        }
        Ok(arguments)
    }

    /// Fails unless `given`, the number of arguments of the call `expr` of the function `name`, is between `least` and
    /// `most`.
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

    /// Compiles `match(r"...", text)`, `fullmatch(r"...", text)` and `find(r"...", text)`. A constant pattern is
    /// compiled now, a computed one when it is evaluated. For `fullmatch` with a constant pattern, the plan also
    /// records how many texts match at most (`bits`, the binary logarithm of this number): `endorse` judges by it
    /// whether the pattern restricts a value enough.
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
        // The check above guarantees two arguments.
        let [pattern, text] =
            <[CompiledExpr; 2]>::try_from(compiled).map_err(|_| super::ReportedCompileError)?;
        let how = match (name, &pattern) {
            ("match", _) => RegexUse::Match,
            ("find", _) => RegexUse::Find,
            (_, CompiledExpr::Constant(Value::Str(source))) => {
                RegexUse::FullMatch { bits: matched_text_bits(source) }
            }
            // How many texts a computed pattern matches is unknown.
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

    /// Compiles `isinstance(x, str)` or `isinstance(x, (str, int))`, the test whether a value has one of these types.
    /// The second argument consists of names of types, which are not expressions, so this call is not compiled like
    /// other calls. `expr` is the whole call, for diagnostics.
    fn is_instance(
        &mut self,
        expr: &Expr,
        arguments: &[Expr],
        scope: &mut Scope,
    ) -> CompileResult<CompiledExpr> {
        self.check_arity(expr, "isinstance", (2, 2), arguments.len())?;
        // Always matches, since there are two arguments.
        let [value, types] = arguments else { return Err(super::ReportedCompileError) };
        // The parser reads a tuple as a list.
        let type_names: Vec<&Expr> = match &*types.kind {
            ExprKind::List(items) => items.iter().collect(),
            _ => vec![types],
        };
        let mut compiled_types: Vec<Type> = Vec::new();
        for name in type_names {
            let known = match &*name.kind {
                ExprKind::Name(text) => self.named_type(text),
                _ => None,
            };
            let Some(ty) = known else {
                let known = Type::NAMES.map(|(name, _)| name).join(", ");
                return self.fail(
                    "unknown-type",
                    &name.span,
                    "the expression is not the name of a type",
                    format!("known are: {known}"),
                );
            };
            compiled_types.push(ty);
        }
        Ok(CompiledExpr::IsInstance(Box::new(self.expression(value, scope)?), compiled_types))
    }
}

/// Returns the dotted name that an expression spells, such as `json` or `invariant.detectors`, since it may name a
/// module; `None` for another expression.
fn dotted_name(expr: &Expr) -> Option<String> {
    match &*expr.kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Member(object, name) => dotted_name(object).map(|path| format!("{path}.{}", name.text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{Dialect, Policy};

    /// At run time, a method in the dialect of invariant-ai receives only the positional arguments.
    #[test]
    fn a_method_with_named_arguments_is_an_error_in_compat() {
        let parse = |call: &str| {
            let source = format!("raise \"found\" if:\n    (call: ToolCall)\n    \"a\" in {call}\n");
            Policy::parse_as(&source, Dialect::Compat).map(|_| ())
        };
        assert_eq!(parse("\"a,b\".split(\",\")"), Ok(()));
        let errors = parse("\"a,b\".split(sep=\",\")").unwrap_err();
        assert!(errors.iter().any(|error| error.message.contains("no named arguments")), "{errors:?}");
    }
}
