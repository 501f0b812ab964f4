//! Reads literals, constants and classes from Python files, since benchmarks publish tasks and tools in this form. No
//! code is executed: where a literal is expected and other code is found, the error names its line. The readers of
//! InjecAgent, PrivacyLens and τ-bench use this module.
//!
//! A call with keywords only, such as `Task(name="a")`, is read as an object with these fields.

use flowgate::detect::python::python_code;
use ruff_python_ast::{Expr, Number, Stmt, UnaryOp};
use ruff_python_parser::parse_module;
use ruff_text_size::Ranged as _;
use serde_json::{Map, Value};

use super::reading::CorpusError;

/// A Python file.
pub(super) struct PythonFile<'t> {
    /// The path, for errors.
    file: &'t str,
    text: &'t str,
    /// The statements outside functions and classes.
    body: Vec<Stmt>,
}

/// A class of a file.
pub(super) struct PythonClass<'f, 't> {
    file: &'f PythonFile<'t>,
    pub(super) name: &'f str,
    body: &'f [Stmt],
}

/// Reads a text that is one literal, such as a `dict`.
///
/// # Errors
/// If the text is not Python, or is not exactly one literal.
pub(super) fn literal(text: &str) -> Result<Value, String> {
    // The text is not a file of its own, so errors that name a file are replaced.
    let file = PythonFile::parse("", text).map_err(|_| {
        "expected a Python literal, found text that is not Python; download the benchmark again".to_owned()
    })?;
    match file.body.as_slice() {
        [Stmt::Expr(statement)] => value_of(&statement.value).map_err(|_| {
            "expected a Python literal, found other code; download the benchmark again".to_owned()
        }),
        _ => {
            Err("expected one Python literal, found something else; download the benchmark again".to_owned())
        }
    }
}

impl<'t> PythonFile<'t> {
    /// Parses the text of the file that is named `file`.
    ///
    /// # Errors
    /// If the text is not valid Python, is nested too deeply, or is longer than one mebibyte.
    pub(super) fn parse(file: &'t str, text: &'t str) -> Result<Self, CorpusError> {
        // `python_code` refuses code that is long or nested too deeply; `false` means that the code has no commands of
        // IPython. The tree of the parser is dropped recursively, so deep nesting could exhaust the stack.
        if let Some(problem) = python_code(text, false).syntax_error {
            return Err(CorpusError::new(
                file,
                format!("the Python code cannot be read: {problem}; download the benchmark again"),
            ));
        }
        let parsed = parse_module(text).map_err(|error| {
            CorpusError::new(
                file,
                format!("the Python code cannot be read: {error}; download the benchmark again"),
            )
        })?;
        Ok(Self { file, text, body: parsed.into_syntax().body.into_iter().collect() })
    }

    /// Returns the lists that the file assigns to names, outside functions and classes: the names, and the values.
    ///
    /// # Errors
    /// If a list contains code that is not a literal.
    pub(super) fn lists(&self) -> Result<Vec<(&str, Value)>, CorpusError> {
        let lists = self.body.iter().filter_map(assignment).filter(|(_, value)| value.is_list_expr());
        lists.map(|(name, value)| Ok((name, self.value(value)?))).collect()
    }

    /// Returns the classes of the file that are not within other statements.
    pub(super) fn classes(&self) -> impl Iterator<Item = PythonClass<'_, 't>> {
        self.body.iter().filter_map(|statement| match statement {
            Stmt::ClassDef(class) => {
                Some(PythonClass { file: self, name: class.name.as_str(), body: &class.body })
            }
            _ => None,
        })
    }

    /// Returns the value of a literal. If the expression is other code, the error names its line.
    fn value(&self, expression: &Expr) -> Result<Value, CorpusError> {
        value_of(expression).map_err(|offset| {
            let before = self.text.as_bytes().iter().take(offset);
            let line = before.filter(|byte| **byte == b'\n').count() + 1;
            CorpusError::new(
                &format!("{}:{line}", self.file),
                "expected a literal, found other code, which Flowgate does not run; write the value itself here, or download the published version of the benchmark again".to_owned(),
            )
        })
    }
}

impl PythonClass<'_, '_> {
    /// Returns the value that the class assigns to a name; `None` if it assigns none. It is an error if the value is not a literal.
    pub(super) fn constant(&self, name: &str) -> Result<Option<Value>, CorpusError> {
        let mut constants = self.body.iter().filter_map(assignment);
        let found = constants.find(|(assigned, _)| *assigned == name);
        found.map(|(_, value)| self.file.value(value)).transpose()
    }

    /// Returns the value of the first `return` of a method, outside nested statements; `None` if there is no such method, or it returns no value. It
    /// is an error if the value is not a literal.
    pub(super) fn returned(&self, method: &str) -> Result<Option<Value>, CorpusError> {
        let functions = self.body.iter().filter_map(|statement| match statement {
            Stmt::FunctionDef(function) if function.name.as_str() == method => Some(function),
            _ => None,
        });
        let mut returned =
            functions.flat_map(|function| &function.body).filter_map(|statement| match statement {
                Stmt::Return(returned) => returned.value.as_deref(),
                _ => None,
            });
        returned.next().map(|value| self.file.value(value)).transpose()
    }
}

/// Returns the name and the value of a statement `NAME = VALUE` or `NAME: TYPE = VALUE`; `None` for any other statement.
fn assignment(statement: &Stmt) -> Option<(&str, &Expr)> {
    let (target, value) = match statement {
        Stmt::Assign(assign) => match assign.targets.as_slice() {
            [target] => (target, &*assign.value),
            _ => return None,
        },
        Stmt::AnnAssign(assign) => (&*assign.target, assign.value.as_deref()?),
        _ => return None,
    };
    Some((target.as_name_expr()?.id.as_str(), value))
}

/// Returns the value of a literal as JSON. A tuple becomes a list, and a key of a `dict` that is not a text becomes a text. A
/// call that has only named arguments, such as the creation of an object, becomes an object of these arguments; the
/// name of the called function is dropped.
///
/// # Errors
/// The offset, in bytes, of the first expression that is not a literal.
fn value_of(expression: &Expr) -> Result<Value, usize> {
    let offset = || expression.range().start().to_usize();
    match expression {
        Expr::StringLiteral(text) => Ok(Value::String(text.value.to_str().to_owned())),
        Expr::BooleanLiteral(literal) => Ok(Value::Bool(literal.value)),
        Expr::NoneLiteral(_) => Ok(Value::Null),
        Expr::NumberLiteral(number) => number_of(&number.value, 1).ok_or_else(offset),
        // Python has no literal below 0: such a number is a minus sign and a literal.
        Expr::UnaryOp(operation) => match (operation.op, &*operation.operand) {
            (UnaryOp::USub, Expr::NumberLiteral(number)) => number_of(&number.value, -1).ok_or_else(offset),
            _ => Err(offset()),
        },
        Expr::List(list) => list.elts.iter().map(value_of).collect(),
        Expr::Tuple(tuple) => tuple.elts.iter().map(value_of).collect(),
        Expr::Dict(dict) => {
            let mut fields = Map::new();
            for item in &dict.items {
                // An item without a key is `**other`, which is not part of a literal.
                let key = item.key.as_ref().ok_or_else(offset)?;
                let key = match value_of(key)? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                fields.insert(key, value_of(&item.value)?);
            }
            Ok(Value::Object(fields))
        }
        Expr::Call(call) if call.arguments.args.is_empty() => {
            let mut fields = Map::new();
            for keyword in &call.arguments.keywords {
                // An argument without a name is `**other`, which is not part of a literal.
                let name = keyword.arg.as_ref().ok_or_else(offset)?;
                fields.insert(name.as_str().to_owned(), value_of(&keyword.value)?);
            }
            Ok(Value::Object(fields))
        }
        _ => Err(offset()),
    }
}

/// Returns `number` multiplied by `sign`, which is 1 or -1, as a JSON number. `None` if it is complex, an integer of more than 64 bits, or not finite.
fn number_of(number: &Number, sign: i64) -> Option<Value> {
    match number {
        Number::Int(number) => Some(Value::from(number.as_i64()?.checked_mul(sign)?)),
        Number::Float(number) => {
            let negative = sign < 0;
            serde_json::Number::from_f64(if negative { -number } else { *number }).map(Value::Number)
        }
        Number::Complex { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literals_are_read() {
        let check = |text: &str, value: Value| assert_eq!(literal(text), Ok(value), "{text}");
        check(r#"{'a': ['b', "c'd"], 'n': None}"#, json!({"a": ["b", "c'd"], "n": null}));
        check("(1, -2, 2.5, True)", json!([1, -2, 2.5, true]));
        check("'a' 'b\\n'", json!("ab\n"));
        check("Action(name='x', kwargs={})", json!({"name": "x", "kwargs": {}}));
        check("{1: 'a'}", json!({"1": "a"}));
        for text in ["open('x')", "x", "{'a': b}", "1 +", "1; 2", "{**a}", "f'{x}'", ""] {
            assert!(literal(text).is_err(), "{text}");
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(literal(&deep).is_err());
    }

    #[test]
    fn files_have_constants_and_classes() {
        let text = "import x\nT: List = [1]\nn = 3\n\nclass A(B):\n    name = 'a'\n\n    @staticmethod\n    \
                    def info():\n        return {'k': 1}\n\n    def run(self):\n        return self.x\n";
        let file = PythonFile::parse("f.py", text).unwrap();
        assert_eq!(file.lists().unwrap(), [("T", json!([1]))]);
        let classes: Vec<_> = file.classes().collect();
        assert_eq!(classes[0].name, "A");
        assert_eq!(classes[0].constant("name").unwrap(), Some(json!("a")));
        assert_eq!(classes[0].constant("other").unwrap(), None);
        assert_eq!(classes[0].returned("info").unwrap(), Some(json!({"k": 1})));
        assert_eq!(classes[0].returned("none").unwrap(), None);
        let error = classes[0].returned("run").unwrap_err().to_string();
        assert_eq!(
            error,
            "f.py:13: expected a literal, found other code, which Flowgate does not run; write the value itself here, or download the published version of the benchmark again"
        );
        let broken = PythonFile::parse("g.py", "def (").err().unwrap().to_string();
        assert!(broken.starts_with("g.py: the Python code cannot be read: "), "{broken}");
    }
}
