//! Tests of questions to people: which calls an approval is for, how many may be asked, and that each is decided once
//! and used once.

use super::*;
use crate::database::{DatabaseAddress, FreezeKind};
use proptest::prelude::*;

/// A step in the life of the questions of two conversations.
#[derive(Debug, Clone)]
enum QuestionStep {
    /// A conversation asks one of three questions, which expires in an hour or at once.
    Ask { name: usize, what: usize, stands: bool },
    /// A person decides the question with this index, with the right digest or another.
    Decide { question: usize, is_right: bool, allow: bool },
    /// A turn uses it.
    Use(usize),
    /// A turn uses it and is rolled back.
    Fail(usize),
    /// A conversation continues without it.
    GiveUp(usize),
    /// Expired questions are marked.
    Sweep,
    /// The gateway is killed and restarted.
    Restart,
}

fn step() -> impl Strategy<Value = QuestionStep> {
    let question = 0..6_usize;
    prop_oneof![
        4 => (0..2_usize, 0..3_usize, prop::bool::weighted(0.8))
            .prop_map(|(name, what, stands)| QuestionStep::Ask { name, what, stands }),
        4 => (question.clone(), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(question, is_right, allow)| QuestionStep::Decide { question, is_right, allow }),
        3 => question.clone().prop_map(QuestionStep::Use),
        1 => question.prop_map(QuestionStep::Fail),
        1 => (0..2_usize).prop_map(QuestionStep::GiveUp),
        1 => Just(QuestionStep::Sweep),
        1 => Just(QuestionStep::Restart),
    ]
}

/// The expected state of a question.
#[derive(Debug, Clone)]
struct QuestionModel {
    id: String,
    name: usize,
    what: usize,
    stands: bool,
    state: QuestionState,
}

impl QuestionModel {
    fn is(&self, states: &[QuestionState]) -> bool {
        self.stands && states.contains(&self.state)
    }

    fn shown(&self) -> QuestionState {
        let is_over = !self.stands && matches!(self.state, QuestionState::Open | QuestionState::Allowed);
        if is_over { QuestionState::Expired } else { self.state }
    }
}

/// Uses an approval; in a transaction that is rolled back, unless `is_kept`.
async fn use_question(store: &Database, id: &str, is_kept: bool) -> Result<(), DatabaseError> {
    let id = id.to_owned();
    let operation = store.run(Access::Transaction, move |tx| {
        Box::pin(async move {
            use_approval(tx, &id).await?;
            if !is_kept {
                tx.discard();
            }
            Ok(())
        })
    });
    operation.await
}

async fn follow(steps: &[QuestionStep], place: &DatabaseAddress) {
    let mut store = Database::open(place).await.unwrap();
    let mut model: Vec<QuestionModel> = Vec::new();
    let digest = |what: usize| format!("digest {what}");
    let mut used = 0;
    for (number, step) in steps.iter().enumerate() {
        match *step {
            QuestionStep::Ask { name, what, stands } => {
                let new = NewQuestion {
                    id: &number.to_string(),
                    client: "c",
                    name: &name.to_string(),
                    tenant: "t",
                    config_fingerprint: "b",
                    digest: &digest(what),
                    content: "{}",
                    expires_after: if stands { 3_600_000 } else { -1 },
                    origin: QuestionOrigin::Chat { turns: 0, since: 0 },
                    used: &[],
                    limits: QuestionLimits::UNLIMITED,
                };
                let (id, is_new) = match store.ask(&new, |_| Ok(())).await.unwrap() {
                    AskOutcome::Known(id) => (id, false),
                    AskOutcome::New(id) => (id, true),
                    full => panic!("{full:?}"),
                };
                let about_call = |states: &[QuestionState]| -> Vec<&str> {
                    let found = model.iter().filter(|q| q.name == name && q.what == what && q.is(states));
                    found.map(|q| q.id.as_str()).collect()
                };
                // A denial holds if no question is open or allowed.
                let open = about_call(&[QuestionState::Open, QuestionState::Allowed]);
                let found = if open.is_empty() { about_call(&[QuestionState::Denied]) } else { open };
                assert_eq!(
                    (is_new, found.contains(&id.as_str())),
                    (found.is_empty(), !found.is_empty()),
                    "{number}"
                );
                if is_new {
                    model.push(QuestionModel { id, name, what, stands, state: QuestionState::Open });
                }
            }
            QuestionStep::Decide { question, is_right, allow } => {
                let Some(q) = model.get_mut(question) else { continue };
                let digest = if is_right { digest(q.what) } else { "another".to_owned() };
                let mut recorded = false;
                let record = || {
                    recorded = true;
                    Ok(())
                };
                let decision = if allow { PersonDecision::AllowOnce } else { PersonDecision::Deny };
                let decided = store.decide((&q.id, &digest), decision, "ann", None, record).await.unwrap();
                let may = is_right && q.is(&[QuestionState::Open]);
                assert_eq!((decided.is_ok(), recorded), (may, may), "{number}");
                if may {
                    q.state = if allow { QuestionState::Allowed } else { QuestionState::Denied };
                }
            }
            QuestionStep::Use(question) | QuestionStep::Fail(question) => {
                let Some(q) = model.get_mut(question) else { continue };
                let is_kept = matches!(step, QuestionStep::Use(_));
                let done = use_question(&store, &q.id, is_kept).await;
                assert_eq!(done.is_ok(), q.is(&[QuestionState::Allowed]), "{number}");
                if done.is_ok() && is_kept {
                    q.state = QuestionState::Used;
                    used += 1;
                }
            }
            QuestionStep::GiveUp(name) => {
                let given_up = store.void_questions("c", &name.to_string(), &[]).await.unwrap();
                let allowed = model.iter().filter(|q| q.name == name && q.is(&[QuestionState::Allowed]));
                let mut allowed: Vec<&str> = allowed.map(|q| q.id.as_str()).collect();
                allowed.sort_unstable();
                let mut found: Vec<&str> = given_up
                    .iter()
                    .filter(|q| q.state == QuestionState::Allowed)
                    .map(|q| q.id.as_str())
                    .collect();
                found.sort_unstable();
                assert_eq!(found, allowed, "{number}");
                let open = |q: &&mut QuestionModel| {
                    q.name == name && matches!(q.state, QuestionState::Open | QuestionState::Allowed)
                };
                model.iter_mut().filter(open).for_each(|q| q.state = QuestionState::Void);
            }
            QuestionStep::Sweep => drop(store.expire(i64::MAX / 4).await.unwrap()),
            QuestionStep::Restart => {
                drop(store);
                store = Database::open(place).await.unwrap();
            }
        }
        for q in &model {
            let kept = store.question(&q.id).await.unwrap().unwrap();
            // A question that had expired when it was given up may have been marked before.
            let is_same = kept.state == q.shown() || !q.stands && kept.state == QuestionState::Expired;
            assert!(is_same, "{number}: {kept:?} {q:?}");
        }
    }
    assert_eq!(model.iter().filter(|q| q.state == QuestionState::Used).count(), used);
}

/// An approval is for one question: for its reasons, for the state that it is about, and for one of two equal calls.
#[tokio::test]
async fn a_yes_is_for_one_question() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let ask = async |id: &str, content: &str, used: &[String]| {
        let most = QuestionLimits::UNLIMITED;
        let (client, name, tenant, digest) = ("c", "n", "t", "d");
        let (expires_after, origin) = (3_600_000, QuestionOrigin::OutsideChat);
        let new = NewQuestion {
            id,
            client,
            name,
            tenant,
            config_fingerprint: "b",
            digest,
            content,
            expires_after,
            origin,
            used,
            limits: most,
        };
        let mut recorded = None;
        let record = |void: &[String]| {
            recorded = Some(void.to_vec());
            Ok(())
        };
        let posed = store.ask(&new, record).await.unwrap();
        (posed, recorded)
    };
    let new = |id: &str, void: &[&str]| {
        let void: Vec<String> = void.iter().map(|id| (*id).to_owned()).collect();
        (AskOutcome::New(id.to_owned()), Some(void))
    };
    let (one, other) =
        (r#"{"reasons":["a"],"flowgate":{"state":"1"}}"#, r#"{"reasons":["b"],"flowgate":{"state":"1"}}"#);
    assert_eq!(ask("1", one, &[]).await, new("1", &[]));
    assert!(
        store.decide(("1", "d"), PersonDecision::AllowOnce, "ann", None, || Ok(())).await.unwrap().is_ok()
    );
    assert_eq!(ask("2", one, &[]).await, (AskOutcome::Known("1".to_owned()), None));
    // With other reasons, and for the second of two equal calls of one turn, it is another question.
    assert_eq!(ask("3", other, &[]).await, new("3", &[]));
    assert_eq!(ask("4", one, &["1".to_owned()]).await, new("4", &[]));
    // The state has changed: the approval is void, and the question with other reasons remains open.
    let changed = r#"{"reasons":["a"],"flowgate":{"state":"2"}}"#;
    assert_eq!(ask("5", changed, &[]).await, new("5", &["1"]));
    assert_eq!(store.question("1").await.unwrap().unwrap().state, QuestionState::Void);
    assert_eq!(store.question("3").await.unwrap().unwrap().state, QuestionState::Open);
    assert!(use_question(&store, "1", true).await.is_err());
}

/// Of two approvals of one person at the same time, the second finds the question open and does not count again.
#[tokio::test]
async fn an_approval_counts_once_for_its_person() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let new = NewQuestion {
        id: "1",
        client: "c",
        name: "n",
        tenant: "t",
        config_fingerprint: "b",
        digest: "d",
        content: r#"{"approvers":["ann","bob"]}"#,
        expires_after: 3_600_000,
        origin: CHAT,
        used: &[],
        limits: QuestionLimits::UNLIMITED,
    };
    store.ask(&new, |_| Ok(())).await.unwrap();
    let approve = async |who: &str| {
        store.decide(("1", "d"), PersonDecision::AllowOnce, who, None, || Ok(())).await.unwrap()
    };
    assert_eq!(approve("ann").await.unwrap().approved_by, ["ann"]);
    let Err(DecideError::NotCounted(question)) = approve("ann").await else { panic!("it counts twice") };
    assert_eq!((question.state, question.approved_by), (QuestionState::Open, vec!["ann".to_owned()]));
    assert_eq!(approve("bob").await.unwrap().state, QuestionState::Allowed);
    let Err(DecideError::NotCounted(question)) = approve("bob").await else { panic!("it is decided") };
    assert_eq!(question.state, QuestionState::Allowed);
}

/// A question of a chat with three turns.
const CHAT: QuestionOrigin = QuestionOrigin::Chat { turns: 3, since: 3 };

/// Asks a question of the conversation `name` of a client, which expires in an hour, within these limits.
async fn ask_within(
    store: &Database,
    (id, name, origin): (&str, &str, QuestionOrigin),
    asked: AskedLimits,
) -> AskOutcome {
    let most = QuestionLimits { asked: Some(asked), ..QuestionLimits::UNLIMITED };
    let (client, tenant, content, expires_after, used) = ("c", "t", "{}", 3_600_000, &[]);
    let new = NewQuestion {
        id,
        client,
        name,
        tenant,
        config_fingerprint: "b",
        digest: id,
        content,
        expires_after,
        origin,
        used,
        limits: most,
    };
    store.ask(&new, |_| Ok(())).await.unwrap()
}

/// Decides a question, and requires that it could be decided.
async fn decide(store: &Database, id: &str, decision: PersonDecision) {
    assert!(store.decide((id, id), decision, "ann", None, || Ok(())).await.unwrap().is_ok(), "{id}");
}

/// A denial answers an equal question about the same message of the model, unless the turn has used the denial already.
/// Outside the chat, where messages have no turns, it answers no later question.
#[tokio::test]
async fn a_denial_answers_equal_questions_of_its_message() {
    let later_chat = QuestionOrigin::Chat { turns: 4, since: 4 };
    let same_message = QuestionOrigin::Chat { turns: 4, since: 3 };
    for (asked, again, used, is_known) in [
        (CHAT, CHAT, &[][..], true),
        (CHAT, same_message, &[], true),
        (CHAT, CHAT, &["first".to_owned()], false),
        (CHAT, later_chat, &[], false),
        (QuestionOrigin::OutsideChat, QuestionOrigin::OutsideChat, &[], false),
    ] {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let ask = async |id: &str, origin, used| {
            let new = NewQuestion {
                id,
                client: "c",
                name: "n",
                tenant: "t",
                config_fingerprint: "b",
                digest: "first",
                content: "{}",
                expires_after: 3_600_000,
                origin,
                used,
                limits: QuestionLimits::UNLIMITED,
            };
            store.ask(&new, |_| Ok(())).await.unwrap()
        };
        assert_eq!(ask("first", asked, &[]).await, AskOutcome::New("first".to_owned()));
        decide(&store, "first", PersonDecision::Deny).await;
        let expected = if is_known {
            AskOutcome::Known("first".to_owned())
        } else {
            AskOutcome::New("again".to_owned())
        };
        assert_eq!(ask("again", again, used).await, expected, "{asked:?} {again:?} {used:?}");
    }
}

const ANY_NUMBER: AskedLimits = AskedLimits {
    in_all: i64::MAX,
    an_hour: i64::MAX,
    of_client_an_hour: i64::MAX,
    refusals: i64::MAX,
    refusals_of_client: i64::MAX,
};

/// A conversation may ask so many questions, in an hour and in all, whatever became of them, and a client so many in an
/// hour. Other conversations have their own hour.
#[tokio::test]
async fn the_questions_that_were_asked_are_counted() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let most = AskedLimits { in_all: 4, an_hour: 2, of_client_an_hour: 3, ..ANY_NUMBER };
    let ask = async |id: &str, name: &str, origin| ask_within(&store, (id, name, origin), most).await;
    let new = |id: &str| AskOutcome::New(id.to_owned());
    assert_eq!(ask("1", "n", QuestionOrigin::OutsideChat).await, new("1"));
    decide(&store, "1", PersonDecision::Deny).await;
    assert_eq!(ask("2", "n", CHAT).await, new("2"));
    decide(&store, "2", PersonDecision::AllowOnce).await;
    assert_eq!(ask("3", "n", CHAT).await, AskOutcome::Full(QuestionLimit::OfConversationAnHour));
    assert_eq!(ask("2", "n", CHAT).await, AskOutcome::Known("2".to_owned()), "it is no new question");
    assert_eq!(ask("4", "other", CHAT).await, new("4"));
    assert_eq!(ask("5", "n", QuestionOrigin::ToolOffer).await, new("5"), "a tool on offer is no call");
    assert_eq!(ask("6", "third", CHAT).await, AskOutcome::Full(QuestionLimit::OfClientAnHour));
    let hour_later = "UPDATE questions SET asked = asked - 3600001";
    store.execute_for_test(hour_later).await.unwrap();
    assert_eq!(ask("7", "n", CHAT).await, new("7"));
    assert_eq!(ask("8", "n", CHAT).await, new("8"));
    store.execute_for_test(hour_later).await.unwrap();
    assert_eq!(ask("9", "n", CHAT).await, AskOutcome::Full(QuestionLimit::OfConversation));
    assert_eq!(ask("10", "third", CHAT).await, new("10"));
}

/// After three refusals in a row in a conversation, nobody is asked there for a day. A question without an answer in
/// time counts as a refusal; an approval by a person ends the row, and one by a lasting grant does not.
#[tokio::test]
async fn refusals_in_a_row_end_the_questions_of_a_conversation() {
    let full = AskOutcome::Full(QuestionLimit::RefusalsOfConversation);
    let rows: [(&[&str], bool); 10] = [
        (&["deny", "deny"], true),
        (&["deny", "deny", "deny"], false),
        (&["deny", "expire", "expire"], false),
        (&["expire", "sweep", "deny", "deny"], false),
        (&["deny", "deny", "allow", "deny", "deny"], true),
        (&["deny", "deny", "use", "deny"], true),
        (&["deny", "deny", "grant-answers", "deny"], false),
        (&["deny", "deny", "give-up", "deny"], false),
        // A question whose time is over stays a refusal if the conversation continues before that is marked.
        (&["deny", "expire", "give-up", "deny"], false),
        (&["deny", "deny", "deny", "day"], true),
    ];
    for (steps, may_ask) in rows {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let most = AskedLimits { refusals: 3, ..ANY_NUMBER };
        let run = async |sql: String| {
            store.execute_for_test(&sql).await.unwrap();
        };
        for (number, step) in steps.iter().enumerate() {
            // The questions of one millisecond have no order, so every step makes the earlier ones older.
            run("UPDATE questions SET asked = asked - 5, decided = CASE WHEN decided > 0 THEN decided - 5 ELSE 0 END".to_owned())
                .await;
            let id = number.to_string();
            if !["sweep", "day"].contains(step) {
                assert_eq!(
                    ask_within(&store, (&id, "n", CHAT), most).await,
                    AskOutcome::New(id.clone()),
                    "{steps:?}"
                );
            }
            match *step {
                "deny" => decide(&store, &id, PersonDecision::Deny).await,
                "allow" => decide(&store, &id, PersonDecision::AllowOnce).await,
                "use" => {
                    decide(&store, &id, PersonDecision::AllowOnce).await;
                    use_question(&store, &id, true).await.unwrap();
                }
                "expire" => run(format!("UPDATE questions SET expires = asked WHERE id = '{id}'")).await,
                "sweep" => drop(store.expire(i64::MAX / 4).await.unwrap()),
                "grant-answers" => {
                    run(format!(
                        "UPDATE questions SET state = 'used', decided = asked, lasting_grant = 'g' WHERE id = '{id}'"
                    ))
                    .await;
                }
                "give-up" => drop(store.void_questions("c", "n", &[]).await.unwrap()),
                "day" => run("UPDATE questions SET decided = decided - 86400001".to_owned()).await,
                other => panic!("{other}"),
            }
        }
        let next = ask_within(&store, ("next", "n", CHAT), most).await;
        assert_eq!(next != full, may_ask, "{steps:?} {next:?}");
        assert_eq!(
            ask_within(&store, ("other", "other", CHAT), most).await,
            AskOutcome::New("other".to_owned())
        );
    }
}

/// New conversations do not begin the row of a client's refusals again. Only answers of people count there.
#[tokio::test]
async fn refusals_in_a_row_end_the_questions_of_a_client() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let most = AskedLimits { refusals_of_client: 2, ..ANY_NUMBER };
    let ask = async |id: &str| ask_within(&store, (id, &format!("conversation of {id}"), CHAT), most).await;
    let new = |id: &str| AskOutcome::New(id.to_owned());
    let full = AskOutcome::Full(QuestionLimit::RefusalsOfClient);
    assert_eq!(ask("1").await, new("1"));
    decide(&store, "1", PersonDecision::Deny).await;
    assert_eq!(ask("2").await, new("2"));
    store.execute_for_test("UPDATE questions SET expires = asked WHERE id = '2'").await.unwrap();
    assert_eq!(ask("3").await, new("3"), "nobody was at work");
    decide(&store, "3", PersonDecision::Deny).await;
    assert_eq!(ask("4").await, full);
    store.execute_for_test("UPDATE questions SET decided = decided - 3600001 WHERE id = '1'").await.unwrap();
    assert_eq!(ask("5").await, new("5"));
}

/// A server that offers other tools again and again is not asked about without end: after as many refusals as may be
/// open, nobody is asked for an hour. An approval ends the row, and other servers and calls are not affected.
#[tokio::test]
async fn refusals_in_a_row_end_the_questions_about_a_servers_tools() {
    let rows: [(&str, bool); 4] =
        [("deny", false), ("deny, and an hour passes", true), ("allow the last", true), ("expire", true)];
    for (what, may_ask) in rows {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let ask =
            async |id: &str, name: &str, origin| ask_within(&store, (id, name, origin), ANY_NUMBER).await;
        let new = |id: &str| AskOutcome::New(id.to_owned());
        for number in 0..super::MAX_OFFERED {
            let id = number.to_string();
            assert_eq!(ask(&id, "tools of s", QuestionOrigin::ToolOffer).await, new(&id), "{what}");
            let is_allowed = what.starts_with("allow") && number + 1 == super::MAX_OFFERED;
            match (what, is_allowed) {
                ("expire", _) => {
                    store.execute_for_test("UPDATE questions SET expires = asked").await.unwrap();
                }
                // The content of these questions has no tool, so an approval approves none.
                (_, true) => decide(&store, &id, PersonDecision::AllowOnce).await,
                (_, false) => decide(&store, &id, PersonDecision::Deny).await,
            }
        }
        if what.contains("hour") {
            store.execute_for_test("UPDATE questions SET decided = decided - 3600001").await.unwrap();
        }
        let expected = if may_ask { new("next") } else { AskOutcome::Full(QuestionLimit::RefusedOffers) };
        assert_eq!(ask("next", "tools of s", QuestionOrigin::ToolOffer).await, expected, "{what}");
        assert_eq!(ask("other", "tools of t", QuestionOrigin::ToolOffer).await, new("other"), "{what}");
        assert_eq!(ask("call", "n", CHAT).await, new("call"), "{what}");
    }
}

/// A question that cannot be recorded is not asked, and the one that it would replace stays valid.
#[tokio::test]
async fn a_question_that_is_not_recorded_is_not_asked() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let ask = async |id: &str, content: &str, is_recorded: bool| {
        let most = QuestionLimits { of_conversation: 1, of_client: 1, ..QuestionLimits::UNLIMITED };
        let (client, name, tenant, digest) = ("c", "n", "t", "d");
        let (expires_after, origin, used) = (3_600_000, QuestionOrigin::OutsideChat, &[]);
        let new = NewQuestion {
            id,
            client,
            name,
            tenant,
            config_fingerprint: "b",
            digest,
            content,
            expires_after,
            origin,
            used,
            limits: most,
        };
        let failure = || DatabaseError::Audit("the disk is full".to_owned());
        store.ask(&new, |_| is_recorded.then_some(()).ok_or_else(failure)).await
    };
    let (before, after) = (r#"{"flowgate":{"state":"1"}}"#, r#"{"flowgate":{"state":"2"}}"#);
    assert!(matches!(ask("1", before, false).await, Err(DatabaseError::Audit(_))));
    assert_eq!(store.question("1").await.unwrap(), None);
    assert_eq!(ask("2", before, true).await.unwrap(), AskOutcome::New("2".to_owned()));
    assert!(ask("3", after, false).await.is_err());
    assert_eq!(store.question("2").await.unwrap().unwrap().state, QuestionState::Open);
    assert_eq!(store.question("3").await.unwrap(), None);
    assert_eq!(ask("4", after, true).await.unwrap(), AskOutcome::New("4".to_owned()));
    assert_eq!(store.question("2").await.unwrap().unwrap().state, QuestionState::Void);
}

/// A store that fails does not report that there are no freezes.
#[tokio::test]
async fn a_store_that_fails_does_not_say_that_nothing_is_stopped() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    assert!(store.freezes().await.unwrap().is_empty());
    store.execute_for_test("ALTER TABLE freezes RENAME TO gone").await.unwrap();
    assert!(store.freeze(FreezeKind::Tool, "send", "ann").await.is_err());
    assert!(store.freezes().await.is_err());
    store.execute_for_test("ALTER TABLE gone RENAME TO freezes").await.unwrap();
    assert!(store.freezes().await.unwrap().is_empty());
}

/// A change of the freezes is seen at once despite the cache, also if the request that made it was cancelled.
#[test]
fn what_is_stopped_is_seen_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let count = async || store.freezes().await.unwrap().len();
        assert_eq!(count().await, 0);
        assert!(store.cache.freezes().is_ok(), "it need not be asked again");
        store.freeze(FreezeKind::Tool, "send", "ann").await.unwrap();
        assert_eq!(count().await, 1);
        assert!(store.thaw(FreezeKind::Tool, "send").await.unwrap());
        assert_eq!(count().await, 0);
        for is_frozen in [true, false] {
            count().await;
            // An operation before it waits, so that it cannot have ended.
            let (release, released) = tokio::sync::oneshot::channel::<()>();
            let mut before = std::pin::pin!(store.run(Access::Statement, |_| {
                Box::pin(async move { released.await.map_err(|_| DatabaseError::Closed) })
            }));
            let is_over = std::future::poll_fn(|context| {
                std::task::Poll::Ready(before.as_mut().poll(context).is_ready())
            });
            assert!(!is_over.await);
            let begun = std::future::poll_fn(|context| {
                let polled = match is_frozen {
                    true => {
                        std::pin::pin!(store.freeze(FreezeKind::Tool, "pay", "ann")).poll(context).is_ready()
                    }
                    false => std::pin::pin!(store.thaw(FreezeKind::Tool, "pay")).poll(context).is_ready(),
                };
                std::task::Poll::Ready(polled)
            });
            assert!(!begun.await, "it is given up before it has ended");
            assert!(store.cache.freezes().is_err(), "nobody knows what became of it");
            release.send(()).unwrap();
            before.await.unwrap();
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// For any sequence of steps, a question is decided at most once, by its digest and before it expires, and an
    /// approval is used at most once.
    #[test]
    fn questions_are_decided_once_and_used_once(steps in prop::collection::vec(step(), 1..30)) {
        let folder = std::env::temp_dir().join(format!("flowgate-questions-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(follow(&steps, &DatabaseAddress::File(folder.join("store.db"))));
        let _ = std::fs::remove_dir_all(&folder);
    }
}
