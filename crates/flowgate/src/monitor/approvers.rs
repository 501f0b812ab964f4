//! Enforces labels over people (separation of duty): in a dimension of approvers, a label names the people who must all
//! approve a call before it runs, as in the example of *Permissive Information-Flow Analysis for Large Language
//! Models*, section 2.1. `requirement` calls [`Monitor::approvers_of_excess`] to learn who must approve a call. The
//! gateway calls [`Monitor::approve_by`] with the people who have approved it.

use super::{Denial, Monitor, Permit, Question};
use crate::label::{DimensionSet, Label};

impl Monitor {
    /// Turns the approvals of the people called `who` into a permit, as [`approve`](Self::approve) does. The caller
    /// vouches that each of them has approved exactly this question. `who` may also name people who need not approve.
    ///
    /// # Errors
    /// Returns the denial if somebody who must approve is not among them, or if the call must not run after all.
    pub fn approve_by(&mut self, question: Question, who: &[String]) -> Result<Permit, Denial> {
        let missing = question.approvers().into_iter().filter(|name| !who.contains(name));
        let missing: Vec<String> = missing.collect();
        if missing.is_empty() {
            return self.permit_approved(question);
        }
        let message = format!(
            "the call needs the approval of {} as well; let each of them answer the question at the gateway",
            missing.iter().map(|name| format!("`{}`", name.escape_debug())).collect::<Vec<_>>().join(", ")
        );
        Err(self.stale_denial(question.judgement, &message))
    }

    /// Returns the people who must approve that a part of a call carries `label`, although the policy permits at most
    /// `allowed` there. These are the people whom `label` names and `allowed` does not, in each dimension of approvers
    /// among `over`; they are sorted. `None` if `label` is top in such a dimension: it then does not say who must
    /// approve, so nobody can approve.
    pub(super) fn approvers_of_excess(
        &self,
        label: &Label,
        allowed: &Label,
        over: DimensionSet,
    ) -> Option<Vec<String>> {
        let space = self.policy.space();
        // The names in one dimension of a label; `None` if the label is top there.
        let names = |label: &Label, dimension: &str| -> Option<Vec<String>> {
            let names = self.to_names(label);
            let names = names.get(dimension)?.as_array()?;
            Some(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
        };
        let mut approvers = Vec::new();
        // The intersection: the dimensions of approvers among `over`.
        let people = over.without(over.without(space.approvers()));
        for (_, dimension) in space.dimensions().iter().enumerate().filter(|(index, _)| people.has(*index)) {
            // `allowed` is not top here: `label` would not exceed it.
            let allowed = names(allowed, &dimension.name).unwrap_or_default();
            approvers
                .extend(names(label, &dimension.name)?.into_iter().filter(|name| !allowed.contains(name)));
        }
        approvers.sort_unstable();
        approvers.dedup();
        Some(approvers)
    }
}
