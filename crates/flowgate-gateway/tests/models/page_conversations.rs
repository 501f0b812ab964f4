//! Tests of conversations on the page: what was recorded is shown with its labels and verdicts, and a person with a lower
//! clearance is shown no text that it does not cover.

use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, TestGateway, config};
use crate::persisted_turns::tables;
use crate::upstream::UpstreamDouble;
use crate::upstream::{calls, says, text_of};
use crate::{FORMS, gullible};

pub(crate) const PEOPLE: &str = "[people.all]\nkey-from = \"all\"\nrole = \"viewer\"\n\
     [people.low]\nkey-from = \"low\"\nrole = \"viewer\"\nmay-read = \"trusted\"\n\
     [people.eve]\nkey-from = \"eve\"\nrole = \"admin\"\ntenants = [\"bank\"]\n";

/// Returns a home whose agents may be shown everything, so that the model obeys the page, and a person is asked about its payment.
/// `people` are the sections of persons.
pub(crate) fn home(upstream: &UpstreamDouble, people: &str) -> GatewayHome {
    let more = "user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"";
    GatewayHome::new(&(config(&upstream.url, "chat-completions", more) + people), POLICY)
}

/// Returns the answer to a request of a person.
pub(crate) fn get(gateway: &TestGateway, person: &str, path: &str) -> (u16, Value) {
    let (status, body) = gateway.get(path, &format!("key-of-the-person-{person}"));
    (status, serde_json::from_str(&body).unwrap())
}

/// Returns the answer to a request for the only conversation of the gateway.
fn conversation(gateway: &TestGateway, person: &str, more: &str) -> (u16, Value) {
    let (status, list) = get(gateway, person, "/ui/api/conversations");
    assert_eq!(status, 200, "{list}");
    let name = list["conversations"][0]["conversation"].as_str().unwrap().to_owned();
    get(gateway, person, &format!("/ui/api/conversation?client=agent&name={name}{more}"))
}

#[test]
fn a_call_shows_the_text_that_influenced_it() {
    let upstream = UpstreamDouble::new(gullible);
    let gateway = home(&upstream, PEOPLE).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let (status, trace) = conversation(&gateway, "all", "");
    assert_eq!(status, 200, "{trace}");
    let events = trace["events"].as_array().unwrap();
    let labels = trace["labels"].as_array().unwrap();
    let page = events.iter().find(|event| event["kind"] == "answer").unwrap();
    assert_eq!(page["source"], "read");
    let field = &page["fields"][0];
    assert!(field["text"].as_str().unwrap().contains("PAY MALLORY"), "{page}");
    let label_of = |index: &Value| usize::try_from(index.as_u64().unwrap()).unwrap();
    assert_eq!(labels[label_of(&field["label"])]["elements"], json!(["untrusted"]));
    // The call of `read` was decided before the page, the one of `send` after it.
    let verdicts = trace["verdicts"].as_array().unwrap();
    let outcome = |tool: &str| {
        verdicts.iter().find(|verdict| verdict["tool"] == tool).map(|verdict| verdict["outcome"].clone())
    };
    assert_eq!((outcome("read"), outcome("send")), (Some(json!("permitted")), Some(json!("asked"))));
    let asked = verdicts.iter().find(|verdict| verdict["tool"] == "send").unwrap();
    let regions = asked["reasons"][0]["regions"].as_array().unwrap();
    assert!(regions.iter().any(|region| region["event"] == page["number"]), "{asked}");
    // The step that read the question saw no more than its own label.
    let step = events.iter().find(|event| event["kind"] == "call").unwrap();
    let saw = label_of(&step["saw"]);
    let trusted = labels.iter().position(|label| label["elements"] == json!(["trusted"])).unwrap();
    assert!(labels[trusted]["flows_to"].as_array().unwrap().contains(&json!(saw)), "{trace}");
    assert_eq!(trace["next"], Value::Null);
    // From the last event on.
    let last = events.len() - 1;
    let (_, rest) = conversation(&gateway, "all", &format!("&from={last}"));
    assert_eq!(rest["events"].as_array().unwrap().len(), 1);
    assert_eq!(rest["events"][0]["number"], last);
}

#[test]
fn a_conversation_is_shown_as_far_as_the_clearance_covers_it() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let (status, trace) = conversation(&gateway, "low", "");
    assert_eq!(status, 200, "{trace}");
    let text = trace.to_string();
    assert!(!text.contains("MALLORY") && !text.contains("mallory") && !text.contains("Otters"), "{text}");
    assert!(text.contains("What is new?"), "{text}");
    let events = trace["events"].as_array().unwrap();
    let numbers: Vec<Value> = events.iter().map(|event| event["number"].clone()).collect();
    assert_eq!(numbers, (0..events.len()).map(|number| json!(number)).collect::<Vec<_>>());
    let page = events.iter().find(|event| event["kind"] == "answer").unwrap();
    assert_eq!(page["fields"][0]["hidden"], true, "{page}");
    assert!(page["fields"][0].get("text").is_none());

    let rows = [
        ("eve", "/ui/api/conversations", 200),
        ("eve", "/ui/api/conversation?client=agent&name=c1", 404),
        ("all", "/ui/api/conversation?client=agent&name=nothing", 404),
        ("all", "/ui/api/conversation?client=nobody&name=c1", 404),
        ("all", "/ui/api/conversation?client=agent", 400),
        ("all", "/ui/api/conversations?before=x", 400),
        ("nobody", "/ui/api/conversations", 401),
    ];
    for (person, path, expected) in rows {
        let (status, answer) = get(&gateway, person, path);
        assert_eq!(status, expected, "{person} {path}: {answer}");
    }
    let (_, list) = get(&gateway, "eve", "/ui/api/conversations");
    assert_eq!((&list["conversations"], &list["clients"]), (&json!([]), &json!([])));
}

/// After a change of the policy, a conversation is shown as its next request finds it: with the labels of the present
/// policy. Nothing is stored: under the earlier policy, it is what it was.
#[test]
fn a_conversation_is_shown_under_the_present_policy_and_stays_as_it_is() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let page_label = |trace: &Value| {
        let events = trace["events"].as_array().unwrap();
        let page = events.iter().find(|event| event["kind"] == "answer").unwrap();
        assert!(page["fields"][0]["text"].as_str().unwrap().contains("PAY MALLORY"), "{page}");
        let index = usize::try_from(page["fields"][0]["label"].as_u64().unwrap()).unwrap();
        trace["labels"][index]["elements"].clone()
    };
    let view = |gateway: &TestGateway| {
        let (status, mut trace) = conversation(gateway, "all", "");
        assert_eq!(status, 200, "{trace}");
        // It also depends on how often the configuration was read.
        trace["version"].take();
        trace
    };
    let before = view(&gateway);
    assert_eq!((&before["is_carried_over"], page_label(&before)), (&json!(false), json!(["untrusted"])));
    let quoted = |gateway: &TestGateway| get(gateway, "all", "/api/v1/quotations").1.to_string();
    let remembered = quoted(&gateway);
    gateway.stop();

    home.policy(&POLICY.replace("label out.content as untrusted if:", "label out.content as trusted if:"));
    let gateway = home.start();
    let carried = view(&gateway);
    assert_eq!((&carried["is_carried_over"], page_label(&carried)), (&json!(true), json!(["trusted"])));
    assert_eq!(carried["verdicts"], json!([]));
    assert_eq!(view(&gateway), carried);
    assert_eq!(quoted(&gateway), remembered);
    let (status, trace) = exported(&gateway, "all", "");
    assert!(status == 200 && trace.to_string().contains("PAY MALLORY"), "{trace}");
    // Who may not read untrusted text reads what is trusted now.
    assert!(conversation(&gateway, "low", "").1.to_string().contains("PAY MALLORY"));
    gateway.stop();

    home.policy(POLICY);
    assert_eq!(view(&home.start()), before);
}

/// A page that shows a conversation learns without a replay that nothing has changed, and otherwise receives it again.
#[test]
fn an_open_conversation_is_asked_for_again_by_its_version() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("What is new?");
    let (_, first) = conversation(&gateway, "all", "");
    let version = first["version"].as_str().unwrap();
    let (status, same) = conversation(&gateway, "all", &format!("&version={version}"));
    assert_eq!((status, &same), (200, &json!({"version": version, "is_unchanged": true})));
    agent.says("And what else?");
    let (_, later) = conversation(&gateway, "all", &format!("&version={version}"));
    assert_ne!(later["version"], version);
    let count = |trace: &Value| trace["events"].as_array().unwrap().len();
    assert!(count(&later) > count(&first), "{later}");
    // Only who may see the conversation learns whether it has changed.
    let name = first["conversation"].as_str().unwrap();
    let path = format!("/ui/api/conversation?client=agent&name={name}&version={version}");
    assert_eq!(get(&gateway, "eve", &path).0, 404);
    // While nothing has changed, no turn is read: one that cannot be read does not matter.
    assert_eq!(tables(&home, &["UPDATE turns SET inputs = 'damaged' WHERE number = 0"]), 1);
    let version = later["version"].as_str().unwrap();
    let (status, same) = conversation(&gateway, "all", &format!("&version={version}"));
    assert_eq!((status, &same), (200, &json!({"version": version, "is_unchanged": true})));
    assert_ne!(conversation(&gateway, "all", "").0, 200);
}

/// Returns the answer to a request for the trace of the only conversation of the gateway.
fn exported(gateway: &TestGateway, person: &str, more: &str) -> (u16, Value) {
    let (_, list) = get(gateway, "all", "/ui/api/conversations");
    let name = list["conversations"][0]["conversation"].as_str().unwrap().to_owned();
    get(gateway, person, &format!("/ui/api/trace?client=agent&name={name}{more}"))
}

/// The exported trace is one that other commands read, and has no text above the clearance of the person.
#[test]
fn a_trace_is_exported_as_far_as_the_clearance_covers_it() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let read = |trace: &Value| {
        let lines: Vec<String> =
            trace["events"].as_array().unwrap().iter().map(ToString::to_string).collect();
        let runs = flowgate::trace::read::file(&lines.join("\n")).unwrap();
        assert_eq!(runs.len(), 1, "{trace}");
        runs[0].entries.len()
    };
    let (status, all) = exported(&gateway, "all", "");
    assert_eq!((status, &all["client"], &all["next"]), (200, &json!("agent"), &Value::Null), "{all}");
    let text = all.to_string();
    assert!(text.contains("PAY MALLORY") && text.contains("What is new?"), "{text}");
    assert_eq!(read(&all), all["events"].as_array().unwrap().len());
    assert_eq!(all["parameters"], json!({"tenant": "agent"}), "{all}");
    // The call that was only asked about did not run.
    assert!(!text.contains("\"name\":\"send\",\"arguments\"") && !text.contains("[hidden"), "{text}");

    let (status, low) = exported(&gateway, "low", "");
    assert_eq!(status, 200, "{low}");
    let text = low.to_string();
    assert!(!text.contains("MALLORY") && !text.contains("mallory") && !text.contains("Otters"), "{text}");
    assert!(text.contains("What is new?") && text.contains("[hidden: your clearance"), "{text}");
    assert_eq!(read(&low), low["events"].as_array().unwrap().len());
    assert_eq!(low["parameters"], json!({}), "{low}");

    let last = all["events"].as_array().unwrap().len() - 1;
    let (_, rest) = exported(&gateway, "all", &format!("&from={last}"));
    assert_eq!(rest["events"], json!([all["events"][last]]));
    for (person, path, expected) in [
        ("eve", "/ui/api/trace?client=agent&name=c1", 404),
        ("all", "/ui/api/trace?client=agent&name=nothing", 404),
        ("all", "/ui/api/trace?client=agent", 400),
        ("nobody", "/ui/api/trace?client=agent&name=c1", 401),
    ] {
        let (status, answer) = get(&gateway, person, path);
        assert_eq!(status, expected, "{person} {path}: {answer}");
    }
}

#[test]
fn conversations_are_listed_in_pages() {
    let upstream = UpstreamDouble::new(|_| crate::upstream::says("Hello."));
    let gateway = home(&upstream, PEOPLE).start();
    for number in 0..60 {
        let key = if number % 6 == 0 { OTHER_KEY } else { KEY };
        TestAgent::new(&gateway, FORMS[0].0, false, key).says(&format!("Hello {number}"));
    }
    let check = |query: &str, expected: &[usize]| {
        let (mut counts, mut before) = (Vec::new(), String::new());
        loop {
            let (_, list) = get(&gateway, "all", &format!("/ui/api/conversations?{query}{before}"));
            counts.push(list["conversations"].as_array().unwrap().len());
            let Some(next) = list["next"].as_i64() else { break };
            before = format!("&before={next}");
        }
        assert_eq!(counts, expected, "{query}");
    };
    check("", &[50, 10]);
    check("client=other", &[10]);
    check("client=agent", &[50]);
}

/// The figures count each request of an agent and its verdicts, and reveal nothing to people of some tenants.
#[test]
fn requests_and_verdicts_are_counted() {
    let upstream = UpstreamDouble::new(gullible);
    let gateway = home(&upstream, PEOPLE).start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("What is new?");
    let (status, figures) = get(&gateway, "all", "/ui/api/figures");
    assert_eq!(status, 200, "{figures}");
    let sum = |member: &str| -> u64 {
        let intervals = figures["intervals"].as_array().unwrap();
        intervals.iter().map(|interval| interval[member].as_u64().unwrap()).sum()
    };
    assert_eq!((sum("asked"), sum("denied"), sum("failed")), (1, 0, 0), "{figures}");
    assert_eq!((sum("rules"), sum("other_findings"), sum("withheld"), sum("watched")), (0, 0, 0, 0));
    let intervals = figures["intervals"].as_array().unwrap();
    assert!(intervals.iter().any(|interval| interval["slowest_ms"].as_f64() > Some(0.0)), "{figures}");
    // The requirement that the payment did not meet, with its line.
    let line = POLICY.lines().position(|line| line == "require trusted if:").unwrap() + 1;
    let found = &figures["findings"][0];
    assert!(sum("requirements") >= 1 && found["count"].as_u64() == Some(sum("requirements")), "{figures}");
    assert_eq!(
        (&found["client"], &found["tool"], &found["kind"]),
        (&json!("agent"), &json!("send"), &json!("requirement"))
    );
    assert_eq!(found["place"], format!("line {line}"));
    // A person who may not read everything learns no name of a tool, which a model may have chosen.
    let (_, low) = get(&gateway, "low", "/ui/api/figures");
    assert_eq!(
        (&low["findings"], &low["intervals"][0]["asked"]),
        (&json!([]), &figures["intervals"][0]["asked"])
    );
    assert!(sum("requests") >= 2 && sum("permitted") >= 1, "{figures}");
    assert_eq!(get(&gateway, "eve", "/ui/api/figures").0, 403);
    assert_eq!(get(&gateway, "nobody", "/ui/api/figures").0, 401);
}

/// A model that is not shown the page passes it on in a slot: the page is hidden from its steps, and the question is not.
#[test]
fn a_step_shows_what_was_hidden_from_it() {
    let upstream = UpstreamDouble::new(gullible);
    let trust = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let text = config(&upstream.url, "chat-completions", trust) + PEOPLE;
    let gateway = GatewayHome::new(&text, POLICY).start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    assert_eq!(agent.says("Mail the page to Bob."), "Done.");
    let (_, trace) = conversation(&gateway, "all", "");
    let events = trace["events"].as_array().unwrap();
    let index = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let step = events.iter().rfind(|event| event["kind"] == "call").unwrap();
    assert_eq!(step["source"], "send");
    let is_seen = |text: &str| {
        let fields = events.iter().flat_map(|event| event["fields"].as_array().unwrap());
        let is_field = |field: &&Value| field["text"].as_str().is_some_and(|shown| shown.contains(text));
        let field = fields.clone().find(is_field).unwrap();
        trace["labels"][index(&field["shown_at"])]["flows_to"].as_array().unwrap().contains(&step["saw"])
    };
    assert!(is_seen("Mail the page to Bob."), "{trace}");
    assert!(!is_seen("PAY MALLORY"), "{trace}");
}

/// A withheld reply and a hidden region are counted over time as well.
#[test]
fn withheld_replies_and_hidden_regions_are_counted() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("[hidden") {
        true => says("The password is hunter2."),
        false => calls(&[("read", "{}")]),
    });
    let trust = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let text = config(&upstream.url, "chat-completions", trust) + PEOPLE;
    let gateway = GatewayHome::new(&text, POLICY).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let (_, figures) = get(&gateway, "all", "/ui/api/figures");
    let sum = |member: &str| -> u64 {
        figures["intervals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|interval| interval[member].as_u64().unwrap())
            .sum()
    };
    assert_eq!(sum("withheld"), 1, "{figures}");
    assert!(sum("hidden") >= 1, "{figures}");
}
