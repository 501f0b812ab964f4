//! Decides which `endorse` statements describe a class of values that one approval of a person may cover (`grant
//! conversation by class`), and describes the class in words for the question to the person. The compiler calls
//! [`Compiler::value_class`] for each `endorse` statement.
//!
//! Under such a grant, an attacker who can influence a call chooses any value of the class, each time the tool is
//! called. So the class must leave little to gain:
//!
//! * an argument that names a recipient, an account, a URL, a path, code, a credential or an object: only the values
//!   that trusted answers of a tool list (`in tool:NAME`);
//! * an amount: only listed values;
//! * any other argument: listed values, dates, times, and yes or no. Numbers and patterns do not form a class, since a
//!   number can be a sum of money or select an object although the name of the argument does not say so.
//!
//! The endorsed value must be a whole argument. The items of a list do not form a class.

use super::super::argument_role::ArgumentRole;
use super::super::plan::{
    CompiledExpr, CompiledQuery, ListSource, ListedForm, QueryItem, TargetPath, TargetStep,
};
use super::super::role_guess::decisive_word;
use super::Compiler;
use super::endorsement::{Restriction, restriction};
use super::target::argument_name;

/// The most bits of choice that a class may leave if only the form of its values is fixed: as many as a date with its
/// time has.
const MAX_CLASS_BITS: u32 = 39;

impl Compiler<'_> {
    /// Returns the class of values that the conditions `query` of an `endorse` statement describe: the name of the
    /// argument, and the class in words. `None` if a grant must not cover a class of this argument's values.
    pub(super) fn value_class(&self, target: &TargetPath, query: &CompiledQuery) -> Option<(String, String)> {
        let [TargetStep::Key(_), TargetStep::Key(name)] = target.steps.as_slice() else { return None };
        if target.root != 0 || target.capture.is_some() {
            return None;
        }
        let argument = argument_name(target);
        let roles = self.roles_of(&argument, query, |name| decisive_word(name).map(|(role, _)| role));
        // Which restriction describes a class depends on the role. A destination or a command must be listed in a
        // tool's answer, an amount in any list. For other arguments, a kind with a canonical form and few values
        // suffices.
        let needs_answers = roles.iter().any(|role| role.needs_listed_values());
        let needs_list = needs_answers || roles.contains(&ArgumentRole::Amount);
        for item in &query.items {
            let QueryItem::Test(test) = item else { continue };
            let is_class = match restriction(test, target) {
                Some(Restriction::Listed(_)) => !needs_answers || lists_answers(test),
                Some(Restriction::Typed(value)) => {
                    !needs_list
                        && value.canonical.is_some()
                        && value.bits.is_some_and(|bits| bits <= MAX_CLASS_BITS)
                }
                Some(Restriction::Within(_)) | None => false,
            };
            if is_class {
                return Some((name.to_string(), self.description(test)));
            }
        }
        None
    }

    /// Describes in words, for the question to a person, the class of values that satisfy a condition.
    fn description(&self, test: &CompiledExpr) -> String {
        match test {
            CompiledExpr::Call(function, _) => format!("a value for which `{}` holds", function.name),
            CompiledExpr::Listed(
                _,
                ListSource::Answers(pattern) | ListSource::MatchingAnswers(pattern, _),
                _,
            ) => match self.plan.patterns.get(pattern.0) {
                Some(pattern) => format!("a value that a trusted answer of `{pattern}` lists"),
                None => "a value that a trusted answer lists".to_owned(),
            },
            // `VALUE in [...]`, or `VALUE == CONSTANT`, a list of one value. The caller passes no other condition.
            _ => "a value that the policy lists".to_owned(),
        }
    }
}

/// Returns whether a condition is `VALUE in tool:NAME` without arguments. `in tool:NAME({...})` does not count, since
/// it also accepts a field of an answer whose other fields are untrusted.
fn lists_answers(test: &CompiledExpr) -> bool {
    matches!(test, CompiledExpr::Listed(_, ListSource::Answers(_), ListedForm::Whole))
}
