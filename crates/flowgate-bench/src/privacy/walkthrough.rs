//! Tests that a guarded conversation follows RTBAS's Algorithm 4: drives a conversation through one task, and checks it
//! at each line of the algorithm. Appendix A of RTBAS does the same with another example. That example cannot be
//! repeated here, since it is given only as a drawing (Figure 8).
//!
//! The test requires what the lines of the algorithm say, with one exception. Line 18 generates the reply from the
//! messages before redaction, although its type is that of redacted messages. A guarded conversation generates the
//! reply from the redacted messages.

use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::{Conversation, Method, Need};
use flowgate_lm::chat::Request;
use serde_json::json;

use super::double::{call, say};
use super::read;
use super::runner::PrivacyRunner;
use super::turn::run_tool;
use super::world::PrivacyWorld;
use crate::screening::{screening_answer, tagged_regions, text_of};

const ADDRESS: &str = "Lindengasse 14";
const FREQUENT_FLYER: &str = "FF-220917";

/// Returns everything that a request shows a model, as one text.
fn chat_text(request: &Request) -> String {
    request.messages.iter().map(text_of).collect::<Vec<_>>().join("\n")
}

/// Answers a screening: the regions that contain the text `needed` are needed. The lines in the messages are those of
/// RTBAS's Algorithm 4.
fn screen(conversation: &mut Conversation, needed: &str) {
    let Need::Screen(request) = conversation.need() else {
        panic!("the screener is asked first (line 5, line 16)")
    };
    let regions = tagged_regions(&request);
    assert!(
        regions.iter().any(|(_, text)| text.contains(ADDRESS)),
        "the screener reads everything: {regions:?}"
    );
    let names = regions.into_iter().filter(|(_, text)| text.contains(needed)).map(|(name, _)| name);
    conversation.accept_screening(&screening_answer(&names.collect::<Vec<_>>(), true));
}

/// Drives the conversation by hand instead of the model, the screener and the person, and checks after each line of
/// RTBAS's Algorithm 4 what is shown, asked or run.
#[test]
fn algorithm_4_line_by_line() {
    let tasks = read::all().unwrap();
    let task = tasks.iter().find(|task| task.name == "frequent-flyer").unwrap();
    let mut world = PrivacyWorld::new(task.suite);
    // Lines 1 and 2: the tagged messages so far, with the user's profile.
    let mut conversation = PrivacyRunner::new().unwrap().begin(task, Method::Judge, &mut world).unwrap();
    // Line 4.
    conversation.add_user_message(task.request.as_str().into()).unwrap();
    // Line 5: the screener says that the frequent flyer number is needed.
    screen(&mut conversation, FREQUENT_FLYER);
    // Line 6: every region whose label is more restrictive than that of the needed region is redacted.
    let Need::Complete(view) = conversation.need() else { panic!("the model is asked") };
    let shown = chat_text(&view.request);
    assert!(
        shown.contains(FREQUENT_FLYER) && !shown.contains(ADDRESS) && shown.contains("[hidden"),
        "{shown}"
    );
    // Line 7.
    let arguments = json!({"flight": "f1", "voucher": "V9", "frequent_flyer": FREQUENT_FLYER});
    conversation.accept_completion(call("flights__book_flight", arguments.as_object().cloned().unwrap()));
    // Lines 9 to 11: the label of the step does not flow to what the call may carry, so a person is asked, with exactly
    // that label.
    let Need::Approve(ask) = conversation.need() else { panic!("a person is asked") };
    assert!(ask.label.contains(&"categories(loyalty)".to_owned()), "{:?}", ask.label);
    assert!(world.done().iter().all(|done| done.tool != "book_flight"), "nothing ran before");
    conversation.accept_decision(Decision::AllowOnce);
    // Line 13.
    let Need::Run(authorized) = conversation.need() else { panic!("the call runs") };
    let answer = run_tool(&mut world, &authorized);
    assert_eq!(world.done().last().unwrap().tool, "book_flight");
    conversation.accept_tool_answer(answer);
    // Lines 16 and 17: the reply is screened and redacted, too.
    screen(&mut conversation, "confirmed");
    let Need::Complete(view) = conversation.need() else { panic!("the model writes the reply") };
    let shown = chat_text(&view.request);
    assert!(
        shown.contains("confirmed") && !shown.contains(ADDRESS),
        "line 18, from the redacted messages: {shown}"
    );
    conversation.accept_completion(say("It is booked."));
    // Line 19: the reply carries the label of what it was generated from.
    let Need::User(turn) = conversation.need() else { panic!("the turn is over") };
    assert!(
        turn.replies.iter().all(|reply| reply.label.contains(&"categories(loyalty)".to_owned())),
        "{turn:?}"
    );
    // Line 14: the answer of the tool carries the label of the call, so the next step is not shown it.
    conversation.add_user_message("Thanks.".into()).unwrap();
    let Need::Screen(request) = conversation.need() else { panic!("the screener is asked") };
    let regions = tagged_regions(&request);
    assert!(regions.iter().any(|(_, text)| text.contains("confirmed")), "{regions:?}");
}
