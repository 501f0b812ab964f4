//! Compiles the limits of `consent` statements, such as `up to 3 calls, 50 of call.arguments.amount`: how many calls a
//! consent covers, and up to which sum of an argument. The compiler of statements ([`super`]) calls this module.

use super::super::plan::{ConsentLimit, TargetStep};
use super::super::syntax;
use super::body::Scope;
use super::{CompileResult, Compiler};

impl Compiler<'_> {
    /// Compiles the limits of one `consent`. Fails if a summed amount is not an argument of the call or a field of one:
    /// a path with `[*]` or an index is rejected, since a limit sums one number of each call.
    pub(super) fn consent_limits(
        &mut self,
        limits: &[syntax::ConsentLimit],
        scope: &Scope,
    ) -> CompileResult<Vec<ConsentLimit>> {
        let mut compiled = Vec::new();
        for limit in limits {
            let amount = match &limit.amount {
                None => None,
                Some(expr) => {
                    let target = self.argument(expr, scope)?;
                    if !target.steps.iter().all(|step| matches!(step, TargetStep::Key(_))) {
                        let message = "the summed amount is not one named value";
                        let help =
                            "write `call.arguments.NAME`, or a field of a map: `call.arguments.NAME.FIELD`";
                        return self.fail("consent-limit", &expr.span, message, help);
                    }
                    Some(target)
                }
            };
            compiled.push(ConsentLimit { most: limit.most, amount });
        }
        Ok(compiled)
    }
}
