//! Withdraws standing consents (`consent` statements of the policy) in a session. [`Monitor::withdraw_consents`] sets
//! the whole set of withdrawn consents, and so restores every consent that is not in the new set. The gateway passes
//! the consents that an admin has frozen; a program that uses the Python package chooses them itself.
//!
//! A withdrawn consent applies to no verdict from then on, and a permit that relied on it is judged again. The policy
//! is unchanged.

use std::collections::BTreeSet;

use super::Monitor;

/// # Consents
///
/// Standing consents can be withdrawn in the session, and restored.
impl Monitor {
    /// Withdraws the consents that begin on these lines of the policy, counted from 1, and restores all others. A line
    /// on which no consent begins has no effect. Returns whether the set of withdrawn consents has changed.
    pub fn withdraw_consents(&mut self, lines: &BTreeSet<usize>) -> bool {
        let consents = self.policy.plan.consents.iter();
        let withdrawn = consents.filter(|consent| lines.contains(&self.policy.line(&consent.span)));
        // A consent is identified by the byte at which its statement begins.
        let withdrawn: BTreeSet<usize> = withdrawn.map(|consent| consent.span.start).collect();
        if withdrawn == self.withdrawn {
            return false;
        }
        self.withdrawn = withdrawn;
        // Permits that were created before are judged again before their calls run.
        self.version += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::label::Label;
    use crate::monitor::{Attribution, CallDependency, Verdict};
    use crate::policy::Policy;
    use crate::trace::{Call, Tool, TraceEntry};

    const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private
label message as trusted, private if:
    (message: Message)
require trusted, public else deny if:
    (call: ToolCall) is tool:book
consent private for call.arguments.card if:
    (call: ToolCall) is tool:book
"#;

    #[test]
    fn calls_with_a_withdrawn_consent_are_judged_again() {
        let policy = Arc::new(Policy::parse(POLICY).unwrap());
        let consents: Vec<(usize, &str)> = policy.consents().collect();
        assert!(matches!(consents[..], [(8, text)] if text.starts_with("consent private")), "{consents:?}");
        let mut monitor = Monitor::new(policy);
        let content = json!("My card is 4111.");
        let (said, _) = monitor.push(TraceEntry::user(content)).unwrap();
        let nodes = monitor.trace().event(said).unwrap().document.nodes().len();
        // The model has not seen the card, which a slot passes on.
        let slot = CallDependency::Slot {
            view: Label::BOTTOM,
            regions: (0..nodes).map(|node| (said, node)).collect(),
        };
        let judge = |monitor: &mut Monitor, id: &str| {
            let call = Call::from_json(id.to_owned(), Tool::local("book"), r#"{"card": "4111"}"#);
            let mut attribution = Attribution::view("test", Label::BOTTOM, 1);
            attribution.arguments = [("card".to_owned(), slot.clone())].into();
            monitor.judge_entry(TraceEntry::from(call), attribution)
        };
        let consented = |verdict: &Verdict| matches!(verdict, Verdict::Permit(_));
        let first = judge(&mut monitor, "1");
        assert!(consented(&first), "{first:?}");
        assert!(
            monitor.withdraw_consents(&BTreeSet::from([8]))
                && !monitor.withdraw_consents(&BTreeSet::from([8]))
        );
        let Verdict::Permit(permit) = first else { return };
        assert!(monitor.redeem(permit).is_err());
        assert!(!consented(&judge(&mut monitor, "2")));
        // Neither line is a consent, so all consents are restored.
        assert!(monitor.withdraw_consents(&BTreeSet::from([6, 9])));
        assert!(consented(&judge(&mut monitor, "3")));
    }
}
