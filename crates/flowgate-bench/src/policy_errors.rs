//! Formats the compile errors of a policy as one line, for an error message. The measurements call it for policies that
//! ship with this crate or that they draft. An error in such a policy is a defect of Flowgate.

use flowgate::policy::Diagnostic;

/// Returns the errors in one line, separated by semicolons.
pub(crate) fn one_line(errors: &[Diagnostic]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
