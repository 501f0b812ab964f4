//! Defines the table of the functions that policies can call ([`Functions`]): its rows, the lookup of a function, and
//! the call. `builtin` fills the table and passes it to the evaluator, so that the evaluator does not depend on the
//! implementations.

use super::{EvalError, Evaluator, Result, Value};
use crate::policy::plan::{CanonicalKind, FunctionId};

/// One row of the table of functions.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// The minimum and maximum number of arguments.
    pub(crate) arguments: (usize, usize),
    /// Parameter names, for functions that also take arguments by name.
    pub(crate) parameters: &'static [&'static str],
    /// One sentence on the result.
    pub(crate) doc: &'static str,
    /// The implementation. Its arguments have been evaluated, but may be references to parts of events.
    pub(crate) run: fn(&mut Evaluator<'_>, &[Value]) -> Result<Value>,
    /// For a function that recognises values with a canonical form: that form.
    pub(crate) canonical: Option<CanonicalKind>,
    /// Whether it may be called as a method: `text.lower()`.
    pub(crate) is_method: bool,
}

/// The functions that policies can call.
pub(crate) struct Functions {
    /// The functions by family, such as those on texts. A [`FunctionId`] is the index of a family and of a row in it.
    pub(crate) families: &'static [&'static [Function]],
    /// Returns whether a detector finds a kind of data in a value: the test of `<KIND>` in a tool pattern.
    pub(crate) finds: fn(&mut Evaluator<'_>, &str, &Value) -> Result<bool>,
}

impl Functions {
    /// Returns the functions of all families, in the order of the table.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Function> {
        self.families.iter().copied().flatten()
    }

    /// Returns the function with this name, and its identifier in the table; `None` if there is none.
    pub(crate) fn find(&self, name: &str) -> Option<(FunctionId, &'static Function)> {
        self.families.iter().enumerate().find_map(|(family, rows)| {
            let row = rows.iter().position(|function| function.name == name)?;
            let function = rows.get(row)?;
            Some((FunctionId { name: function.name, family, row }, function))
        })
    }

    /// Returns the function with this identifier; `None` if the table has no such row.
    pub(crate) fn get(&self, id: FunctionId) -> Option<&'static Function> {
        self.families.get(id.family)?.get(id.row)
    }
}

impl Evaluator<'_> {
    /// Calls a function, and spends the fuel for the value that it returns.
    pub(super) fn call(&mut self, id: FunctionId, arguments: &[Value]) -> Result<Value> {
        // The compiler takes its identifiers from the same table, so the function exists.
        let Some(function) = self.functions.get(id) else {
            return Err(EvalError::Type(format!(
                "the compiled policy calls the function `{}`, which the evaluator does not have: this is a defect of Flowgate; please report it",
                id.name
            )));
        };
        let value = (function.run)(self, arguments)?;
        self.charge_value(&value)?;
        Ok(value)
    }
}
