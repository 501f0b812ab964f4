//! Converts values between Python and JSON.
//!
//! The conversion is strict: a value that JSON cannot express without loss is an error that names the part, since what
//! was judged must be what runs. Objects with a method `model_dump`, such as those of pydantic and of the clients of
//! model providers, are converted by this method. Every class of the package uses these functions for its arguments and
//! results.

use std::fmt::Write as _;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// The maximum nesting of lists and dicts, the same as that of the JSON reader.
const MAX_DEPTH: usize = 128;
/// The largest integer that every JSON parser represents exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Converts a Python value to JSON. `name` is its name in error messages. Raises `ValueError` if JSON cannot express it
/// without loss.
pub(crate) fn to_json(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Value> {
    convert(value, &ValuePath { name, parent: None, step: PathEnd::Root }, 0)
}

/// Converts a Python dict, or an object like one, to a JSON object. `name` is its name in error messages. Raises
/// `TypeError` for any other value.
pub(crate) fn to_object(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Map<String, Value>> {
    match to_json(value, name)? {
        Value::Object(map) => Ok(map),
        _ => {
            Err(PyTypeError::new_err(format!("`{name}` is not a dict but {}: pass a dict", type_name(value))))
        }
    }
}

/// Converts a Python list or tuple to a list of JSON values. `name` is its name in error messages. Raises `TypeError`
/// for any other value.
pub(crate) fn to_list(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<Value>> {
    match to_json(value, name)? {
        Value::Array(list) => Ok(list),
        _ => {
            Err(PyTypeError::new_err(format!("`{name}` is not a list but {}: pass a list", type_name(value))))
        }
    }
}

/// Converts what a program gives as the parameters of a policy, the values of `input.NAME`. Without a value, there are
/// no parameters. Raises `TypeError` for anything but a dict.
pub(crate) fn to_parameters(given: Option<&Bound<'_, PyAny>>) -> PyResult<Map<String, Value>> {
    given.map_or_else(|| Ok(Map::new()), |given| to_object(given, "parameters"))
}

/// Returns whether every JSON parser reads all numbers in the value alike: false if the value contains an integer
/// beyond [`MAX_EXACT`], since some parsers read an integer as a float of 64 bits, which rounds such integers. A large
/// float without a fraction, such as `1e300`, counts as an integer.
pub(crate) fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.as_f64().is_some_and(|float| float.abs() <= MAX_EXACT || float.fract() != 0.0)
        }
        Value::Array(list) => list.iter().all(is_exact),
        Value::Object(map) => map.values().all(is_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Converts a JSON value to Python. An integer that fits into 64 bits, signed or unsigned, becomes an `int`; any other
/// number becomes a `float`.
pub(crate) fn from_json<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(list) => {
            let items: Vec<_> = list.iter().map(|item| from_json(py, item)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Object(map) => from_object(py, map)?.into_any(),
    })
}

/// Converts a JSON object to a Python dict.
pub(crate) fn from_object<'py>(py: Python<'py>, map: &Map<String, Value>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in map {
        dict.set_item(key, from_json(py, value)?)?;
    }
    Ok(dict)
}

/// Returns an object as HTML for a notebook. The Python module `flowgate.display` creates the HTML.
pub(crate) fn display<'py, T>(object: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    object.py().import("flowgate.display")?.call_method1("html_of", (object.as_any(),))
}

/// The path to a part of a value, for error messages. A path has only its last step and a reference to the path of the
/// list or dict around the part, so that a text of it is built only for an error.
struct ValuePath<'p> {
    /// The name of the whole value, such as that of an argument.
    name: &'p str,
    /// The path to the list or dict that contains the part; `None` for the whole value.
    parent: Option<&'p Self>,
    /// The step from that list or dict to the part; [`PathEnd::Root`] for the whole value.
    step: PathEnd<'p>,
}

/// The last step of a path.
enum PathEnd<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl<'p> ValuePath<'p> {
    /// Returns the path to a part of this value: `step` leads from the value to the part.
    fn child(&'p self, step: PathEnd<'p>) -> Self {
        Self { name: self.name, parent: Some(self), step }
    }

    /// Appends the path to `path`, such as `arguments["to"][0]`.
    fn write(&self, path: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(path);
        }
        // Writing to a string does not fail.
        let _ = match self.step {
            PathEnd::Root => path.write_str(self.name),
            PathEnd::Key(key) => write!(path, "[{key:?}]"),
            PathEnd::Index(index) => write!(path, "[{index}]"),
        };
    }

    /// Returns a `ValueError` about this part. `problem` completes the sentence that begins with the path.
    fn error(&self, problem: &str) -> PyErr {
        let mut path = String::new();
        self.write(&mut path);
        PyValueError::new_err(format!("`{path}` {problem}"))
    }
}

/// Returns the name of a value's type, for error messages.
fn type_name(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name();
    name.map_or_else(|_| "another type".to_owned(), |name| format!("`{name}`"))
}

/// Converts a value and its parts to JSON. `path` is the path to the value, and `depth` the number of lists and dicts
/// around it.
///
/// A subclass of a dict may present other content than its entries, so only exact dicts are read directly; other
/// mappings are read by their method `items`. Booleans are checked before integers, because they are integers in
/// Python.
fn convert(value: &Bound<'_, PyAny>, path: &ValuePath<'_>, depth: usize) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        return Err(path.error("is nested more than 128 levels deep: pass a flatter value"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text_of(text, path)?));
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        let mut map = Map::new();
        for (key, item) in dict {
            insert(&mut map, &key, &item, path, depth)?;
        }
        return Ok(Value::Object(map));
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let number = value.extract::<i64>().map(Number::from);
        let number = number.or_else(|_| value.extract::<u64>().map(Number::from));
        let number =
            number.map_err(|_| path.error("is an integer of more than 64 bits: pass it as a string"))?;
        return Ok(Value::Number(number));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        let number = Number::from_f64(float.value());
        return number.map(Value::Number).ok_or_else(|| {
            path.error(
                "is not a finite number, which JSON has no value for: pass it as a string, or leave it out",
            )
        });
    }
    if let Ok(list) = value.cast::<PyList>() {
        return list_of(list.iter(), list.len(), path, depth);
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return list_of(tuple.iter(), tuple.len(), path, depth);
    }
    // A class has the method as well, but only its instances have values. Fields that are `None` count as absent.
    if value.hasattr(intern!(value.py(), "model_dump"))? && !value.is_instance_of::<pyo3::types::PyType>() {
        let options = PyDict::new(value.py());
        options.set_item("mode", "json")?;
        options.set_item("exclude_none", true)?;
        let dumped = value.call_method("model_dump", (), Some(&options))?;
        return convert(&dumped, path, depth + 1);
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let mut map = Map::new();
        for pair in mapping.items()?.iter() {
            let (key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            insert(&mut map, &key, &item, path, depth)?;
        }
        return Ok(Value::Object(map));
    }
    Err(path.error(&format!(
        "is {}, which JSON has no value for: convert it to a string, a number, a list or a dict",
        type_name(value)
    )))
}

/// Converts an entry of a dict, its `key` and its value `item`, and adds it to `map`. Keys must be strings, as in JSON:
/// converting `1` to `"1"` could make two keys equal. `path` and `depth` are those of the dict, as for [`convert`].
fn insert(
    map: &mut Map<String, Value>,
    key: &Bound<'_, PyAny>,
    item: &Bound<'_, PyAny>,
    path: &ValuePath<'_>,
    depth: usize,
) -> PyResult<()> {
    let Ok(key) = key.cast::<PyString>() else {
        return Err(path.error(&format!(
            "has a key that is {}, not a string: convert the key to a string",
            type_name(key)
        )));
    };
    let key = key.to_cow().map(std::borrow::Cow::into_owned).map_err(|_| {
        path.error(
            "has a key with half of a surrogate pair, which is not a character: remove it from the key",
        )
    })?;
    let value = convert(item, &path.child(PathEnd::Key(&key)), depth + 1)?;
    map.insert(key, value);
    Ok(())
}

/// Converts the items of a list or tuple. `length` is their expected number, for which room is reserved. `path` and
/// `depth` are those of the list, as for [`convert`].
fn list_of<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    length: usize,
    path: &ValuePath<'_>,
    depth: usize,
) -> PyResult<Value> {
    let mut list = Vec::with_capacity(length);
    for (index, item) in items.enumerate() {
        list.push(convert(&item, &path.child(PathEnd::Index(index)), depth + 1)?);
    }
    Ok(Value::Array(list))
}

/// Returns the text of a Python string. Raises `ValueError` for a lone surrogate, which UTF-8 cannot express.
fn text_of(text: &Bound<'_, PyString>, path: &ValuePath<'_>) -> PyResult<String> {
    let text = text.to_cow();
    text.map(std::borrow::Cow::into_owned)
        .map_err(|_| path.error("has half of a surrogate pair, which is not a character: remove it"))
}
