//! Gives Python the class `Label`, and reads the labels that a program gives.
//!
//! In Python, a label consists of the names of elements, which mean the same in every session of a policy. The bits by
//! which the core represents a label depend on the table of names of a session, so a `Label` stores names, and the bits
//! are computed only for the duration of one operation.

use std::sync::Arc;

use flowgate::label::{DimensionKind, Label, NameTable};
use flowgate::policy::Policy;
use flowgate::policy::diagnostic::nearest;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use crate::values;

/// A point of the lattice that a policy declares: how trusted and how confidential something is.
#[pyclass(frozen, module = "flowgate", name = "Label")]
#[derive(Clone)]
pub(crate) struct PyLabel {
    policy: Arc<Policy>,
    names: Value,
}

impl PyLabel {
    /// Creates the label that these names represent or, if there is none, the next greater label. The names are
    /// converted to bits and back, so that equal labels have equal names.
    pub(crate) fn new(policy: Arc<Policy>, names: &Value) -> Self {
        let space = policy.space();
        let mut table = NameTable::new(space);
        let label = space.from_names(names, &mut table);
        let names = space.to_names(&label, &table);
        Self { policy, names }
    }

    /// Returns the label as an object with a field for each dimension.
    pub(crate) fn names(&self) -> &Value {
        &self.names
    }

    /// Returns this label, another one, and a table of names. The bits of both labels refer to this table, so that the
    /// labels can be compared and joined. Raises `ValueError` if the labels belong to different policies.
    fn with_other(&self, other: &Self) -> PyResult<(Label, Label, NameTable)> {
        if !Arc::ptr_eq(&self.policy, &other.policy) {
            return Err(PyValueError::new_err(
                "the labels belong to different policies: compare labels of one `Policy` object",
            ));
        }
        let space = self.policy.space();
        let mut table = NameTable::new(space);
        let (left, right) =
            (space.from_names(&self.names, &mut table), space.from_names(&other.names, &mut table));
        Ok((left, right, table))
    }

    /// Returns the label in the words of the policy: one text for each dimension, such as `untrusted`.
    fn phrases(&self) -> Vec<String> {
        let space = self.policy.space();
        let mut table = NameTable::new(space);
        let label = space.from_names(&self.names, &mut table);
        // `all` selects all dimensions.
        space.describe(&label, space.all(), &table)
    }
}

#[pymethods]
impl PyLabel {
    /// Whether what carries this label may go where `upper` is the greatest label that is permitted.
    fn flows_to(&self, upper: &Self) -> PyResult<bool> {
        let (lower, upper, _) = self.with_other(upper)?;
        Ok(lower.flows_to(&upper))
    }

    /// Returns the join of this label and another one: the least label that both flow to, which everything that depends
    /// on both carries.
    fn join(&self, other: &Self) -> PyResult<Self> {
        let (left, right, table) = self.with_other(other)?;
        let names = self.policy.space().to_names(&left.join(&right), &table);
        Ok(Self { policy: Arc::clone(&self.policy), names })
    }

    /// The label as a dict: for each dimension an element, or a list of names.
    #[getter(names)]
    fn py_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::from_json(py, &self.names)
    }

    /// The label in the words of the policy: one text for each dimension, such as `untrusted` or `readers(ann)`.
    #[getter]
    fn description(&self) -> Vec<String> {
        self.phrases()
    }

    // `a | b` is the join: the least label to which both flow.
    fn __or__(&self, other: &Self) -> PyResult<Self> {
        self.join(other)
    }

    // `a <= b` is that `a` flows to `b`, and `a >= b` that `b` flows to `a`. Both are false for incomparable labels.
    fn __le__(&self, other: &Self) -> PyResult<bool> {
        self.flows_to(other)
    }

    fn __ge__(&self, other: &Self) -> PyResult<bool> {
        other.flows_to(self)
    }

    // `a < b` is that `a` flows to `b` and not the reverse.
    fn __lt__(&self, other: &Self) -> PyResult<bool> {
        Ok(self.flows_to(other)? && !other.flows_to(self)?)
    }

    fn __gt__(&self, other: &Self) -> PyResult<bool> {
        other.__lt__(self)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        // Labels of different policies are unequal and no error, as Python expects of `==`.
        let Ok(other) = other.cast::<Self>() else { return false };
        self.with_other(other.get()).is_ok_and(|(left, right, _)| left == right)
    }

    fn __hash__(&self) -> PyResult<u64> {
        // Equal labels have equal names, so the hash of the names agrees with `==`.
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.names.to_string().hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// Returns the part of one dimension: an element, or a list of names. Raises `KeyError` for an unknown dimension.
    fn __getitem__<'py>(&self, py: Python<'py>, dimension: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.names.get(dimension) {
            Some(value) => values::from_json(py, value),
            None => Err(pyo3::exceptions::PyKeyError::new_err(unknown_dimension(&self.policy, dimension))),
        }
    }

    fn __str__(&self) -> String {
        self.phrases().join(", ")
    }

    fn __repr__(&self) -> String {
        format!("Label({})", self.phrases().join(", "))
    }
}

/// Reads a label that a program gives, in one of three forms: a `Label`; an element of a dimension, such as
/// `"trusted"`, or a list of elements; or a dict with a value for each dimension. A dimension that the program does not
/// name is bottom. Returns the names of the label. Raises `ValueError` for a label of another policy or an unknown
/// name, and `TypeError` for any other form.
pub(crate) fn read(policy: &Arc<Policy>, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(label) = given.cast::<PyLabel>() {
        let label = label.get();
        if !Arc::ptr_eq(&label.policy, policy) {
            return Err(PyValueError::new_err(
                "the label belongs to another policy: create it with this `Policy` object",
            ));
        }
        return Ok(label.names.clone());
    }
    if let Ok(dimensions) = given.cast::<PyDict>() {
        return from_dimensions(policy, &values::to_object(dimensions, "label")?);
    }
    let elements: Vec<String> = match given.extract::<String>() {
        Ok(element) => vec![element],
        Err(_) => given.extract().map_err(|_| {
            PyTypeError::new_err(
                "a label must be a `Label`, an element such as \"trusted\", a list of elements, or a dict",
            )
        })?,
    };
    from_dimensions(policy, &by_dimension(policy, elements)?)
}

/// Groups elements by the dimensions that declare them. The result has the elements of a set as a list, and the element
/// of an order as a text, each under the name of the dimension. Raises `ValueError` for an element that no dimension or
/// several dimensions declare, and for two elements of one order, since it is then unclear which of the two is meant.
fn by_dimension(policy: &Policy, elements: Vec<String>) -> PyResult<Map<String, Value>> {
    // For each dimension, by its name: the list of its elements, or its one element.
    let mut names = Map::new();
    for element in elements {
        let name = dimension_of(policy, &element)?;
        let dimension = policy.space().dimensions().iter().find(|dimension| dimension.name == name);
        let is_set = dimension.is_some_and(|dimension| matches!(dimension.kind, DimensionKind::Set(_)));
        match names.get_mut(&name) {
            Some(Value::Array(list)) => list.push(Value::from(element)),
            Some(Value::String(other)) if *other != element => {
                return Err(PyValueError::new_err(format!(
                    "`{other}` and `{element}` are both elements of dimension `{name}`: name one of them"
                )));
            }
            // The same element of an order again.
            Some(_) => {}
            // `drop` discards the previous value of the dimension; there is none.
            None if is_set => drop(names.insert(name, Value::from(vec![element]))),
            None => drop(names.insert(name, Value::from(element))),
        }
    }
    Ok(names)
}

/// Returns the names of the greatest label.
pub(crate) fn top(policy: &Policy) -> Value {
    let space = policy.space();
    space.to_names(&space.top(), &NameTable::new(space))
}

/// Returns the names of the least label.
pub(crate) fn bottom(policy: &Policy) -> Value {
    let space = policy.space();
    space.to_names(&Label::BOTTOM, &NameTable::new(space))
}

/// Returns the name of the dimension that declares this element, so that a program need not name the dimension. Raises
/// `ValueError` if no dimension or several dimensions declare the element. Some dimensions, such as readers, declare no
/// elements: a program must name them.
fn dimension_of(policy: &Policy, element: &str) -> PyResult<String> {
    let dimensions = policy.space().dimensions();
    let has = |kind: &DimensionKind| match kind {
        DimensionKind::Order(lattice) => lattice.names().iter().any(|name| name == element),
        DimensionKind::Set(names) => names.iter().any(|name| name == element),
        // These declare no elements.
        _ => false,
    };
    let found: Vec<&str> =
        dimensions.iter().filter(|dimension| has(&dimension.kind)).map(|found| found.name.as_str()).collect();
    match found.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => {
            let known = dimensions.iter().flat_map(|dimension| match &dimension.kind {
                DimensionKind::Order(lattice) => lattice.names(),
                DimensionKind::Set(names) => names.as_slice(),
                _ => &[],
            });
            Err(PyValueError::new_err(with_nearest(
                format!("the policy declares no element `{}`", element.escape_debug()),
                element,
                known.map(String::as_str),
            )))
        }
        several => Err(PyValueError::new_err(format!(
            "`{}` is an element of several dimensions: name one, as in {{{:?}: {element:?}}}",
            element.escape_debug(),
            several.first().unwrap_or(&"")
        ))),
    }
}

/// Checks a dict of dimensions and completes it to the names of a label: a dimension that it lacks is bottom, and a
/// single name of a set becomes a list. Raises `ValueError` for an unknown dimension or element, or a value that does
/// not fit the dimension. The words `top` and `everyone` for a set or readers, and `top` and `fresh` for a time, denote
/// a value of the whole dimension and are not changed.
fn from_dimensions(policy: &Policy, given: &Map<String, Value>) -> PyResult<Value> {
    let space = policy.space();
    // The names of a label are always an object, so the other case does not occur.
    let Value::Object(mut names) = bottom(policy) else { return Ok(Value::Null) };
    for (name, value) in given {
        let Some(index) = space.index(name) else {
            return Err(PyValueError::new_err(unknown_dimension(policy, name)));
        };
        let kind = space.dimensions().get(index).map(|dimension| &dimension.kind);
        names.insert(name.clone(), fitting_value(name, kind, value)?);
    }
    Ok(Value::Object(names))
}

/// Returns the value that a dict gives for the dimension `name` of this kind; a single name of a set becomes a list.
/// Raises `ValueError` if the value does not fit the dimension, or names an unknown element.
fn fitting_value(name: &str, kind: Option<&DimensionKind>, value: &Value) -> PyResult<Value> {
    // The value must have a form that fits the dimension: an element for an order; a list of names, a single name or a
    // word for a set or readers; a number or a word for a time.
    let has_names =
        matches!(kind, Some(DimensionKind::Set(_) | DimensionKind::OpenSet | DimensionKind::Readers));
    let is_list_of_texts = value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let value = match (kind, value) {
        (Some(DimensionKind::Order(lattice)), Value::String(element)) => {
            if !lattice.names().contains(element) {
                return Err(PyValueError::new_err(with_nearest(
                    format!("dimension `{name}` has no element `{}`", element.escape_debug()),
                    element,
                    lattice.names().iter().map(String::as_str),
                )));
            }
            value.clone()
        }
        (_, Value::String(one)) if has_names && one != "top" && one != "everyone" => {
            Value::from(vec![one.clone()])
        }
        // The word `top` or `everyone`, which denotes a value of the whole dimension.
        (_, Value::String(_)) if has_names => value.clone(),
        _ if has_names && is_list_of_texts => value.clone(),
        (Some(DimensionKind::Time), Value::Number(seconds)) if seconds.is_i64() => value.clone(),
        (Some(DimensionKind::Time), Value::String(word)) if word == "fresh" || word == "top" => value.clone(),
        _ => {
            return Err(PyValueError::new_err(format!(
                "the value for dimension `{name}` does not fit it: pass an element for an order, a list of names for a set or \
                readers, and seconds since 1970 for a time"
            )));
        }
    };
    // A set with declared elements accepts no others.
    if let (Some(DimensionKind::Set(known)), Some(list)) = (kind, value.as_array())
        && let Some(odd) =
            list.iter().filter_map(Value::as_str).find(|name| !known.iter().any(|element| element == name))
    {
        return Err(PyValueError::new_err(with_nearest(
            format!("dimension `{name}` has no element `{}`", odd.escape_debug()),
            odd,
            known.iter().map(String::as_str),
        )));
    }
    Ok(value)
}

/// Returns the error message for a dimension that the policy does not declare, with a suggestion.
fn unknown_dimension(policy: &Policy, name: &str) -> String {
    let known = policy.space().dimensions().iter().map(|dimension| dimension.name.as_str());
    with_nearest(format!("the policy declares no dimension `{}`", name.escape_debug()), name, known)
}

/// Completes `problem`, the error message about an unknown `name`, with what to do: use the most similar of the `known`
/// names, or else one of them.
fn with_nearest<'a>(problem: String, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("{problem}: did you mean `{near}`?"),
        None if known.is_empty() => {
            format!("{problem}, and there are no others; declare it in the policy, or leave it out")
        }
        None => format!("{problem}; use one of {}", known.join(", ")),
    }
}
