//! Stores grants, the approvals that a person gives for the rest of a session, and applies them to later calls. The
//! program that asks people calls [`Monitor::approve_for_session`]; `call_examination` applies the grants to each call.
//!
//! A grant covers equal calls: the same tool, the same values, and only reasons that the person was shown. A call with
//! another value, reason or label is a new question. Two kinds of arguments may have another value, unless a reason is
//! about them:
//!
//! * a payload argument, if no rule asked (the rule may have read the value);
//! * an argument with a *class of values*: the values that one `endorse` statement accepts for it, such as dates, or
//!   the values that a trusted answer lists. The new value must be in the same class, and every reason must come from a
//!   statement with `by class`. `policy::compile::value_class` decides which statements describe a class. An argument
//!   with several classes stays fixed, since a question names one class.
//!
//! A question can be answered with a grant only if each of its reasons comes from a statement with the scope
//! `grant conversation` or a longer one, and no reason comes from a rule that also matched other events. A call of a tool
//! that can read external state, such as a draft by its id, cannot be granted: with the same arguments, it can mean
//! something else later. (A tool that no `store` statement mentions can read the store of its server.) All this depends
//! on the policy alone, and not on the data that was read, which could be hidden from an observer of the question.
//!
//! A grant has the label of the question that it answered, and covers a call only if this label flows to the label of
//! the verdict on the call. So an observer who may see that verdict may know that there is a grant.

use serde_json::{Map, Value};

use super::{
    Denial, Judgement, Monitor, Permit, Question, Reason, ReasonKind, ValueClass, applicable_statements,
};
use crate::label::Label;
use crate::policy::{Action, GrantScope};
use crate::trace::{Call, Path, PathStep, Tool};

/// The maximum number of grants of one session.
const MAX_GRANTS: usize = 1_000;

/// An approval that covers equal calls of this session.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The tool.
    pub tool: Tool,
    /// The arguments that must be the same, with `null` for the values that may change.
    pub arguments: Map<String, Value>,
    /// The reasons that the person was shown.
    pub reasons: Vec<Reason>,
    /// The call that the person approved.
    call: Call,
    /// The label of the call as text: one item for each dimension.
    label: Vec<String>,
    /// The label of the question.
    decided: Label,
    /// The arguments whose values may change: payload arguments, and those in `classes`.
    free: Vec<String>,
    /// The arguments whose values may change within a class.
    classes: Vec<ValueClass>,
}

impl Grant {
    /// Returns the call that the person approved.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns a sentence for a person: it names the arguments that may have other values in further calls, and says
    /// which values these may be. `None` if further calls must have the same values.
    pub fn other_values(&self) -> Option<String> {
        // A payload argument that the approved call does not have stays absent.
        let present = self.free.iter().filter(|name| self.arguments.contains_key(*name));
        let phrases = present.map(|name| match self.classes.iter().find(|class| class.argument == *name) {
            Some(class) => format!("`{name}` can be {}", class.description),
            None => format!("`{name}` can have any value"),
        });
        let phrases = phrases.collect::<Vec<_>>().join(", and ");
        (!phrases.is_empty()).then(|| format!("Further calls can have other values: {phrases}."))
    }

    /// Returns whether the person was shown this reason, and the reason can be granted: its action is to ask, and the
    /// policy permits an answer for the rest of the conversation or for longer.
    fn covers(&self, reason: &Reason) -> bool {
        let is_same = |shown: &Reason| {
            (shown.kind, &shown.statement, &shown.part, &shown.label, &shown.message)
                == (reason.kind, &reason.statement, &reason.part, &reason.label, &reason.message)
        };
        reason.grant_scope >= GrantScope::Conversation
            && reason.action == Action::Ask
            && self.reasons.iter().any(is_same)
    }
}

impl Question {
    /// Returns the longest scope for which a person may answer the question: the shortest scope of its reasons, or one
    /// call if the tool can read external state.
    pub fn grant_scope(&self) -> GrantScope {
        let scopes = self.judgement().reasons.iter().map(|reason| reason.grant_scope);
        // The default scope is one call.
        scopes.min().filter(|_| !self.reads_state).unwrap_or_default()
    }

    /// Returns whether a person may answer the question for the rest of the session.
    pub fn is_grantable(&self) -> bool {
        self.grant_scope() >= GrantScope::Conversation
    }
}

/// # Grants
///
/// Approvals that hold for the rest of the session.
impl Monitor {
    /// Turns a person's approval into a permit, as [`approve`](Self::approve) does, and lets equal calls of this
    /// session run without a question from now on.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all, or if the question cannot be answered for the rest of the
    /// session. A session that has reached its maximum number of grants permits this one call.
    pub fn approve_for_session(&mut self, question: Question) -> Result<Permit, Denial> {
        if !question.is_grantable() {
            let message = "the policy does not permit answering this question for the rest of the \
                conversation; answer it for one call";
            return Err(self.stale_denial(question.judgement, message));
        }
        // Computed first, since `approve` consumes the question.
        let grant = self.grant_of(&question).filter(|_| self.grants.len() < MAX_GRANTS);
        let permit = self.approve(question)?;
        // Verdicts that were given before the grant stay valid: it only permits more.
        self.grants.extend(grant);
        Ok(permit)
    }

    /// Returns the grants of this session.
    pub fn session_grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Withdraws all grants of this session. Calls that were permitted by them but have not run may no longer run.
    /// Returns whether there were any.
    pub fn withdraw_grants(&mut self) -> bool {
        self.withdraw_grants_if(|_| true)
    }

    /// Withdraws the grants for whose approved call `is_withdrawn` returns true, as
    /// [`withdraw_grants`](Self::withdraw_grants) does with all grants. Returns whether there was one.
    pub fn withdraw_grants_if(&mut self, mut is_withdrawn: impl FnMut(&Call) -> bool) -> bool {
        let before = self.grants.len();
        self.grants.retain(|grant| !is_withdrawn(&grant.call));
        let has_withdrawn = self.grants.len() < before;
        // Calls that a withdrawn grant permitted, and that have not run, are judged again before they run.
        self.version += u64::from(has_withdrawn);
        has_withdrawn
    }

    /// Returns the grant that would answer a question for the rest of the session: the call without the values that may
    /// change, with the reasons and labels of the question. `None` if the call has no valid arguments. Does not check
    /// whether the question can be answered with a grant.
    fn grant_of(&self, question: &Question) -> Option<Grant> {
        let call = question.call()?;
        let reasons = question.judgement.reasons.clone();
        // A reason names an argument by its printed path.
        let is_about = |name: &String, reason: &Reason| {
            let path = Path(vec![PathStep::Key("arguments".into()), PathStep::Key(name.as_str().into())]);
            reason.part.as_deref() == Some(path.to_string().as_str())
        };
        // A rule may have read the value of any argument, so a grant for a reason of a rule fixes all of them.
        // Otherwise the payload arguments are free, except those that a reason is about.
        let has_rule_reason = reasons.iter().any(|reason| reason.kind == ReasonKind::Rule);
        let mut free = if has_rule_reason { Vec::new() } else { self.payload_arguments(&call.tool) };
        free.retain(|name| !reasons.iter().any(|reason| is_about(name, reason)));
        // If the statement of each reason says `by class`, the value of an argument can change within its class, even if
        // a rule has read it. An argument with several classes stays fixed, since a question names only one.
        let mut classes = question.judgement.classes.clone();
        let all_grant_classes = reasons.iter().all(|reason| reason.grants_class);
        classes.retain(|class| {
            all_grant_classes
                && !free.contains(&class.argument)
                && !reasons.iter().any(|reason| is_about(&class.argument, reason))
                && self.class_statement_count(&call.tool, &class.argument) == 1
        });
        free.extend(classes.iter().map(|class| class.argument.clone()));
        let (tool, decided) = (call.tool.clone(), question.judgement.decided);
        let arguments = fixed_arguments(call, &free)?;
        let label = question.judgement.label.clone();
        Some(Grant { tool, arguments, reasons, call: call.clone(), label, decided, free, classes })
    }

    /// Returns the arguments whose values may change under a grant that answers the question; none if the call has no
    /// valid arguments. Does not check whether the question can be answered with a grant
    /// ([`Question::is_grantable`]).
    pub fn changeable_arguments(&self, question: &Question) -> Vec<String> {
        self.grant_of(question).map(|grant| grant.free).unwrap_or_default()
    }

    /// Returns the sentence for a person that says which classes of values a grant of the question covers. `None` if it
    /// covers none, or if the question can be answered for this call only.
    pub fn granted_classes(&self, question: &Question) -> Option<String> {
        let classes = self.grant_of(question).filter(|_| question.is_grantable())?.classes;
        let phrases =
            classes.iter().map(|class| format!("`{}` can be {}", class.argument, class.description));
        let phrases = phrases.collect::<Vec<_>>().join(", and ");
        (!phrases.is_empty())
            .then(|| format!("An answer for longer than this call covers other values: {phrases}."))
    }

    /// Returns the number of `endorse` statements about calls of a tool that describe a class of values for an
    /// argument. A grant can cover such a class.
    fn class_statement_count(&self, tool: &Tool, argument: &str) -> usize {
        let plan = &self.policy.plan;
        let applicable = applicable_statements::statements_for_tool(plan, tool).endorsements;
        let statements = applicable.iter().filter_map(|index| plan.endorsements.get(*index));
        statements
            .filter(|statement| statement.class.as_ref().is_some_and(|(name, _)| name == argument))
            .count()
    }

    /// Looks for a grant that covers a call and all reasons against it: the grant is for the same tool, the same
    /// arguments except those that may change, and a call with the same label. If there is one, moves the reasons to
    /// the notes, so that the call is permitted. The label of the question that the grant answered (`decided`) must
    /// flow to the label of this verdict, since the verdict reveals that there is a grant. Where an argument may change
    /// only within a class of values, the call must have the same class.
    pub(super) fn apply_grants(&self, call: &Call, judgement: &mut Judgement) {
        if judgement.reasons.is_empty() {
            return;
        }
        let covers = |grant: &&Grant| {
            grant.tool == call.tool
                && grant.label == judgement.label
                && grant.decided.flows_to(&judgement.decided)
                && judgement.reasons.iter().all(|reason| grant.covers(reason))
                && grant.classes.iter().all(|class| judgement.classes.contains(class))
                && fixed_arguments(call, &grant.free).as_ref() == Some(&grant.arguments)
        };
        if self.grants.iter().any(|grant| covers(&grant)) {
            let covered = judgement.reasons.drain(..).map(|reason| Reason {
                kind: ReasonKind::Granted,
                action: Action::Log,
                message: format!("granted for this conversation: {}", reason.message),
                ..reason
            });
            judgement.notes.extend(covered);
        }
    }
}

/// Returns the arguments of a call, with `null` for the value of each argument in `free`, since these values may
/// change. Such an argument is not removed, since its presence is part of the decision that the person approved. `None`
/// if the call has no valid arguments.
fn fixed_arguments(call: &Call, free: &[String]) -> Option<Map<String, Value>> {
    let mut arguments = call.arguments.clone().ok()?;
    for name in free {
        if let Some(value) = arguments.get_mut(name) {
            *value = Value::Null;
        }
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Attribution, CallDependency, Outcome, Verdict};
    use super::*;
    use crate::policy::Policy;
    use crate::trace::{Message, TraceEntry};

    const POLICY: &str = r#"lattice integrity: trusted < untrusted
lattice secrecy: public < private
store drafts: written by edit, read by send_draft
store mail: written by send, erase, pay
store rooms: written by book
store notes: written by note
label m as trusted, public if:
    (m: Message)
    m.role == "user"
require trusted, public grant conversation if:
    (call: ToolCall) is tool:r"send|send_draft|edit|post"
payload call.arguments.body if:
    (call: ToolCall) is tool:send
payload call.arguments["more-text"] if:
    (call: ToolCall) is tool:send
require trusted, private grant conversation if:
    (call: ToolCall) is tool:note
require trusted, public if:
    (call: ToolCall) is tool:pay
require trusted, public grant conversation else deny if:
    (call: ToolCall) is tool:erase
require top if:
    (call: ToolCall) is tool:book
ask "book it?" grant conversation if:
    (call: ToolCall) is tool:book
payload call.arguments.note if:
    (call: ToolCall) is tool:book
ask "after the news?" if:
    (m: Message) -> (call: ToolCall)
    m.role == "news"
    call is tool:note
ask "by night?" if:
    (call: ToolCall) is tool:book({when: "night"})
"#;

    fn monitor() -> Monitor {
        let mut monitor = Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()));
        monitor.push(TraceEntry::from(Message::new("user", "Hello."))).unwrap();
        monitor.push(TraceEntry::from(Message::new("page", "A page."))).unwrap();
        monitor
    }

    fn judge(monitor: &mut Monitor, (name, arguments): (&str, &str), label: Label) -> Verdict {
        let id = format!("c{}", monitor.trace().len());
        let call = TraceEntry::from(Call::from_json(id, Tool::local(name), arguments));
        let decision = CallDependency::View(label);
        monitor.judge_entry(call, Attribution { decision, ..Attribution::everything() })
    }

    fn label(monitor: &Monitor, name: &str) -> Label {
        let dimension = if name == "untrusted" { "integrity" } else { "secrecy" };
        monitor.policy().space().element(dimension, name).unwrap().label
    }

    /// Returns the outcome of the call `second` after the call `first` was granted; `None` if `first` cannot be granted.
    /// Both calls were decided by untrusted text.
    fn after(first: (&str, &str), second: (&str, &str)) -> Option<Outcome> {
        let monitor = monitor();
        let label = label(&monitor, "untrusted");
        after_at(monitor, label, first, second)
    }

    /// Returns the same as [`after`], for calls that were decided at `label`.
    fn after_at(
        mut monitor: Monitor,
        label: Label,
        first: (&str, &str),
        second: (&str, &str),
    ) -> Option<Outcome> {
        let Verdict::Confirm(question) = judge(&mut monitor, first, label) else { return None };
        let is_grantable = question.is_grantable();
        let permit = match monitor.approve_for_session(question) {
            Ok(permit) => permit,
            Err(denial) => {
                assert!(!is_grantable, "{denial}");
                assert!(monitor.session_grants().is_empty());
                return None;
            }
        };
        assert!(is_grantable && monitor.session_grants().len() == 1);
        monitor.redeem(permit).unwrap();
        let again = judge(&mut monitor, second, label);
        let outcome = again.judgement().outcome();
        if let Verdict::Permit(permit) = again {
            assert!(permit.judgement().notes.iter().any(|note| note.kind == ReasonKind::Granted));
            assert!(monitor.withdraw_grants());
            let denial = monitor.redeem(permit).unwrap_err();
            assert!(denial.to_string().contains("now needs an approval"), "{denial}");
        }
        Some(outcome)
    }

    #[test]
    fn a_grant_covers_the_same_call_and_no_other() {
        let send = ("send", r#"{"to": "ann", "body": "a"}"#);
        let (permit, asks) = (Some(Outcome::Permit), Some(Outcome::Confirm));
        assert_eq!(after(send, send), permit);
        assert_eq!(after(send, ("send", r#"{"body": "b", "to": "ann"}"#)), permit, "payload may change");
        for other in [
            r#"{"to": "eve", "body": "a"}"#,
            r#"{"to": "ann"}"#,
            r#"{"to": "ann", "body": "a", "cc": "eve"}"#,
            r#"{"to": ["ann"], "body": "a"}"#,
        ] {
            assert_eq!(after(send, ("send", other)), asks, "{other}");
        }
        // What a payload argument discloses is fixed where a reason is about it.
        let private = || {
            let monitor = monitor();
            let label = label(&monitor, "private");
            (monitor, label)
        };
        let ((monitor, label), other) = (private(), ("send", r#"{"to": "ann", "body": "b"}"#));
        assert_eq!(after_at(monitor, label, send, other), asks);
        let (monitor, label) = private();
        assert_eq!(after_at(monitor, label, send, send), permit);
        let more = ("send", r#"{"to": "ann", "more-text": "a"}"#);
        let other = ("send", r#"{"to": "ann", "more-text": "b"}"#);
        let (monitor, label) = private();
        assert_eq!(after_at(monitor, label, more, other), asks);
        assert_eq!(after(more, other), permit);
        // Another tool of the same statement, and a tool whose statement allows no grant.
        let to_ann = r#"{"to": "ann"}"#;
        assert_eq!(after(("send", to_ann), ("send", to_ann)), permit);
        assert_eq!(after(("send", to_ann), ("edit", to_ann)), asks);
        assert_eq!(after(send, ("pay", r#"{"to": "ann", "body": "a"}"#)), asks);
        assert_eq!(after(("pay", r#"{"to": "ann"}"#), send), None);
        // What is denied is not asked about.
        assert_eq!(after(("erase", "{}"), ("erase", "{}")), None);
        // The state of the draft can change, and that of a server without a `store` statement.
        assert_eq!(after(("post", r#"{"id": 7}"#), ("post", r#"{"id": 7}"#)), None);
        assert_eq!(after(("send_draft", r#"{"id": 7}"#), ("send_draft", r#"{"id": 7}"#)), None);
        // A rule may read every argument, and another rule is another reason.
        let book = ("book", r#"{"when": "noon", "note": "a"}"#);
        assert_eq!(after(book, book), permit);
        assert_eq!(after(book, ("book", r#"{"when": "noon", "note": "b"}"#)), asks);
        assert_eq!(after(("book", r#"{"when": "night"}"#), ("book", r#"{"when": "night"}"#)), None);
    }

    /// A list of grants says which values of further calls may differ.
    #[test]
    fn a_grant_says_which_values_may_differ() {
        let by_class = "lattice integrity: trusted < untrusted\n\
                        store meetings: written by meet\n\
                        require trusted grant conversation by class if:\n    (call: ToolCall) is tool:meet\n\
                        payload call.arguments.note if:\n    (call: ToolCall) is tool:meet\n\
                        endorse call.arguments.day as trusted if:\n    (call: ToolCall) is tool:meet\n    is_date(call.arguments.day)\n";
        let check = |policy: &str, call: (&str, &str), expected: Option<&str>| {
            let mut monitor = Monitor::new(Arc::new(Policy::parse(policy).unwrap()));
            let untrusted = label(&monitor, "untrusted");
            let Verdict::Confirm(question) = judge(&mut monitor, call, untrusted) else { panic!("{call:?}") };
            let permit = monitor.approve_for_session(question).unwrap();
            monitor.redeem(permit).unwrap();
            let [grant] = monitor.session_grants() else { panic!("{call:?}") };
            assert_eq!(grant.other_values().as_deref(), expected, "{call:?}");
            let approved = Call::from_json(String::new(), Tool::local(call.0), call.1);
            assert_eq!((&grant.call().tool, &grant.call().arguments), (&approved.tool, &approved.arguments));
        };
        let any = "Further calls can have other values: `body` can have any value.";
        check(POLICY, ("send", r#"{"to": "ann", "body": "a"}"#), Some(any));
        check(POLICY, ("send", r#"{"to": "ann"}"#), None);
        check(POLICY, ("book", r#"{"when": "noon", "note": "a"}"#), None);
        let both = "Further calls can have other values: `note` can have any value, and `day` can be a value for which `is_date` holds.";
        check(by_class, ("meet", r#"{"day": "2026-11-29", "with": "ann", "note": "a"}"#), Some(both));
    }

    /// An observer below the label of the question must not learn that there is a grant.
    #[test]
    fn a_grant_covers_no_call_below_the_label_of_its_question() {
        let mut monitor = monitor();
        let (untrusted, private) = (label(&monitor, "untrusted"), label(&monitor, "private"));
        let both = untrusted.join(&private);
        let send = ("send", r#"{"to": "ann"}"#);
        let outcome = |monitor: &mut Monitor, label| judge(monitor, send, label).judgement().outcome();
        let Verdict::Confirm(question) = judge(&mut monitor, send, untrusted) else { panic!() };
        let permit = monitor.approve_for_session(question).unwrap();
        monitor.redeem(permit).unwrap();
        assert_eq!(outcome(&mut monitor, untrusted), Outcome::Permit);
        // The person was not shown that private text is sent.
        assert_eq!(outcome(&mut monitor, both), Outcome::Confirm);
        assert_eq!(outcome(&mut monitor, private), Outcome::Confirm);
    }

    /// A rule that looks at all events raises the label of a verdict about a view. The same call outside the chat is
    /// judged by everything, without that label: an observer of its verdict must not learn that there is a grant
    /// either. Two views need no such test, since the verdict on the later one carries what the verdict on the earlier
    /// one did.
    #[test]
    fn a_grant_covers_no_call_whose_verdict_carries_less_than_its_question() {
        let policy = "lattice secrecy: public < private < secret\n\
                      store notes: written by note\n\
                      label m as private if:\n    (m: Message)\n\
                      require public grant conversation if:\n    (call: ToolCall) is tool:note\n\
                      raise \"an alarm\" if:\n    (m: Message) -> (call: ToolCall)\n    m.role == \"alarm\"\n    call is tool:note\n";
        let mut monitor = Monitor::new(Arc::new(Policy::parse(policy).unwrap()));
        monitor.push(TraceEntry::from(Message::new("user", "Hello."))).unwrap();
        let private = monitor.policy().space().element("secrecy", "private").unwrap().label;
        let note = ("note", r#"{"text": "hello"}"#);
        let Verdict::Confirm(question) = judge(&mut monitor, note, private) else { panic!("asked") };
        assert_eq!(question.judgement().decided, monitor.policy().space().top());
        let permit = monitor.approve_for_session(question).unwrap();
        monitor.redeem(permit).unwrap();
        assert_eq!(judge(&mut monitor, note, private).judgement().outcome(), Outcome::Permit);
        // The same call, with the same label and the same reasons, outside the chat.
        let call = TraceEntry::from(Call::from_json("beside".to_owned(), Tool::local(note.0), note.1));
        let beside = monitor.judge_entry(call, Attribution::everything());
        assert_eq!(
            (&*beside.judgement().label, beside.judgement().decided),
            (&["private".to_owned()][..], private)
        );
        assert_eq!(beside.judgement().outcome(), Outcome::Confirm);
    }

    /// What a call carries beyond the reasons is part of what the person was shown, and every reason must be.
    #[test]
    fn a_grant_covers_no_call_that_carries_more_or_has_another_reason() {
        let mut monitor = monitor();
        let (untrusted, private) = (label(&monitor, "untrusted"), label(&monitor, "private"));
        let note = ("note", r#"{"text": "hello"}"#);
        let Verdict::Confirm(question) = judge(&mut monitor, note, untrusted) else { panic!() };
        let permit = monitor.approve_for_session(question).unwrap();
        monitor.redeem(permit).unwrap();
        let outcome = |monitor: &mut Monitor, label| judge(monitor, note, label).judgement().outcome();
        assert_eq!(outcome(&mut monitor, untrusted), Outcome::Permit);
        assert_eq!(outcome(&mut monitor, untrusted.join(&private)), Outcome::Confirm);
        monitor.push(TraceEntry::from(Message::new("news", "It rains."))).unwrap();
        assert_eq!(outcome(&mut monitor, untrusted), Outcome::Confirm);
    }

    /// A question may be answered for as long as every statement that asks allows.
    #[test]
    fn the_shortest_scope_of_the_statements_counts() {
        let check = |scopes: [&str; 2], expected: GrantScope| {
            let [require, ask] =
                scopes.map(|scope| if scope.is_empty() { String::new() } else { format!(" grant {scope}") });
            let policy = format!(
                "lattice integrity: trusted < untrusted\nstore mail: written by send\n\
                 require trusted{require} if:\n    (call: ToolCall) is tool:send\n\
                 ask \"send it?\"{ask} if:\n    (call: ToolCall) is tool:send\n"
            );
            let mut monitor = Monitor::new(Arc::new(Policy::parse(&policy).unwrap()));
            let untrusted = label(&monitor, "untrusted");
            let Verdict::Confirm(question) = judge(&mut monitor, ("send", "{}"), untrusted) else {
                panic!("asked")
            };
            assert_eq!(question.grant_scope(), expected, "{scopes:?}");
        };
        check(["always", "always"], GrantScope::Always);
        check(["always", "30 days"], GrantScope::Days(30));
        check(["1 day", "30 days"], GrantScope::Days(1));
        check(["always", "conversation"], GrantScope::Conversation);
        check(["always", ""], GrantScope::Call);
        check(["", "always"], GrantScope::Call);
    }
}
