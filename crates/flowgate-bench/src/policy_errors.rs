//! Formats the compile errors of a policy that is part of this crate, as the text of one error message. The measurements
//! use it: such an error is a defect of Flowgate.

use flowgate::policy::Diagnostic;

/// Returns the errors in one line, separated by semicolons.
pub(crate) fn one_line(errors: &[Diagnostic]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
