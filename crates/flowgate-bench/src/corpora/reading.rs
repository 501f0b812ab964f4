//! Reads JSON values with their paths, so that an error names the position, as in `cases.json: [3].name: expected a
//! text, found a list`. The readers of all benchmarks use this module.

use std::fmt;

use serde_json::{Map, Value};

/// Why a benchmark cannot be read or run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorpusError {
    /// A file, with a line or a path in it, or the name of a case or of a set of tools.
    place: String,
    problem: String,
}

impl CorpusError {
    /// Creates an error about `place`: a file, with a line or a path in it, or the name of a case or of a set of tools.
    pub fn new(place: &str, problem: String) -> Self {
        Self { place: place.to_owned(), problem }
    }
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            // The folder of the corpus itself, which the caller names.
            "" => f.write_str(&self.problem),
            place => write!(f, "{}: {}", place.escape_debug(), self.problem),
        }
    }
}

impl std::error::Error for CorpusError {}

/// Parses the text of the JSON file that is named `file`; an error names the file and the line.
pub(super) fn parse_json(file: &str, text: &str) -> Result<Value, CorpusError> {
    serde_json::from_str(text).map_err(|error| {
        // The line of an error without a position is 0; the error then names line 1.
        let place = format!("{file}:{}", error.line().max(1));
        CorpusError::new(
            &place,
            format!("the file is not valid JSON: {error}; correct it, or download the benchmark again"),
        )
    })
}

/// A JSON value, with its file and its path there, such as `[3].name`.
#[derive(Debug, Clone)]
pub(super) struct LocatedValue<'v> {
    value: &'v Value,
    file: &'v str,
    path: String,
}

impl<'v> LocatedValue<'v> {
    /// Returns the whole value of a file.
    pub(super) fn root(file: &'v str, value: &'v Value) -> Self {
        Self { value, file, path: String::new() }
    }

    /// Returns the file and the path, such as `cases.json: [3].name`.
    pub(super) fn place(&self) -> String {
        if self.path.is_empty() { self.file.to_owned() } else { format!("{}: {}", self.file, self.path) }
    }

    /// Returns an error at this value which says that `what` was expected, and what was found: a number or a truth value,
    /// or the type of any other value, which can be long.
    pub(super) fn expected(&self, what: &str) -> CorpusError {
        let found = match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => format!("the number {number}"),
            Value::String(_) => "a text".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        self.problem(&format!("expected {what}, found {found}; correct the file, or download it again"))
    }

    /// Returns an error at this value, with its file and path. `problem` says what is wrong with the value.
    pub(super) fn problem(&self, problem: &str) -> CorpusError {
        CorpusError::new(&self.place(), problem.to_owned())
    }

    /// Returns a field of the object; `None` if it is absent or null. It is an error if the value is not an object.
    pub(super) fn optional(&self, name: &str) -> Result<Option<Self>, CorpusError> {
        let field = self.object()?.get(name).filter(|value| !value.is_null());
        Ok(field.map(|value| {
            let dot = if self.path.is_empty() { "" } else { "." };
            Self { value, file: self.file, path: format!("{}{dot}{name}", self.path) }
        }))
    }

    /// Returns a field of the object. It is an error if the field is absent or null, or if the value is not an object.
    pub(super) fn field(&self, name: &str) -> Result<Self, CorpusError> {
        self.optional(name)?.ok_or_else(|| {
            self.problem(&format!("the field `{name}` is missing; add it, or download the file again"))
        })
    }

    /// Returns the text of a field; an error if the field is absent or not a text.
    pub(super) fn text_of(&self, name: &str) -> Result<&'v str, CorpusError> {
        self.field(name)?.text()
    }

    /// Returns the value as a text; an error with its path if it is not a text.
    pub(super) fn text(&self) -> Result<&'v str, CorpusError> {
        self.value.as_str().ok_or_else(|| self.expected("a text"))
    }

    /// Returns the fields of the object; an error with its path if the value is not an object.
    pub(super) fn object(&self) -> Result<&'v Map<String, Value>, CorpusError> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    /// Returns the items of the list, each with its path; an error if the value is not a list.
    pub(super) fn items(&self) -> Result<Vec<Self>, CorpusError> {
        let items = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        let located = items.iter().enumerate();
        let located =
            located.map(|(at, value)| Self { value, file: self.file, path: format!("{}[{at}]", self.path) });
        Ok(located.collect())
    }

    /// Returns the JSON value without its file and path.
    pub(super) fn value(&self) -> &'v Value {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_place() {
        let value = json!([{"name": 1, "steps": ["a"]}]);
        let root = LocatedValue::root("f.json", &value);
        let first = &root.items().unwrap()[0];
        let check = |error: CorpusError, text: &str| assert_eq!(error.to_string(), text);
        check(
            root.object().unwrap_err(),
            "f.json: expected an object, found a list; correct the file, or download it again",
        );
        check(
            first.text_of("name").unwrap_err(),
            "f.json: [0].name: expected a text, found the number 1; correct the file, or download it again",
        );
        check(
            first.field("x").unwrap_err(),
            "f.json: [0]: the field `x` is missing; add it, or download the file again",
        );
        let step = &first.field("steps").unwrap().items().unwrap()[0];
        assert_eq!((step.text().unwrap(), step.place().as_str()), ("a", "f.json: [0].steps[0]"));
        let broken = parse_json("g.json", "[\n1,\n").unwrap_err().to_string();
        assert!(broken.starts_with("g.json:3: the file is not valid JSON: "), "{broken}");
    }
}
