//! Tests of methods of an embedding program: they are registered by name, and used like the built-in ones.

use flowgate::monitor::Judgement;
use flowgate_guard::approve::Decision;
use flowgate_guard::method::{MethodRegistry, NameTaken, StepMethod};

use super::script::{POLICY, ScriptedConversation};

/// Shows what flows to the strictest requirement, and has a person confirm every call.
#[derive(Debug)]
struct ConfirmRedacted;

impl StepMethod for ConfirmRedacted {
    fn name(&self) -> &'static str {
        "confirm-redacted"
    }

    fn doc(&self) -> &'static str {
        "what flows into the strictest tool on offer, and a person is asked about every call"
    }

    fn confirms(&self, _: &Judgement) -> bool {
        true
    }
}

#[test]
fn a_program_adds_a_method() {
    let mut registry = MethodRegistry::builtin();
    registry.register(&ConfirmRedacted).unwrap();
    assert_eq!(registry.register(&ConfirmRedacted), Err(NameTaken("confirm-redacted")));
    let method = registry.find("confirm-redacted").unwrap();
    let mut run = ScriptedConversation::new(POLICY, method);
    run.decision = Decision::AllowOnce;
    let turn = run.turn("Read it.", &["read {}", "Done."]);
    assert_eq!((turn.spent.questions, turn.spent.hidden), (1, 1));
    assert!(run.last_view().contains("[hidden h1]"), "{}", run.last_view());
}
