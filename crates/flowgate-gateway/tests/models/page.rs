//! Tests of the page for people over sockets: logging in, what a session permits and another site cannot do, and that the
//! page shows what the routes show to the same person.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;

use serde_json::{Value, json};
use ureq::http::{HeaderMap, Method, Request};

use crate::approvals::{PersonClient, home, mails};
use crate::gateway::{GatewayHome, KEY, PATIENCE, POLICY, TestAgent, TestGateway, config};
use crate::upstream::UpstreamDouble;
use crate::{FORMS, gullible};

const SESSION: &str = "/ui/api/session";

/// An answer: the status, the headers and the body.
struct PageAnswer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl PageAnswer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// Sends a request with these headers.
fn send(
    gateway: &TestGateway,
    method: &Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> PageAnswer {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into();
    let mut request = Request::builder().method(method).uri(format!("http://{}{path}", gateway.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = match body {
        "" => agent.run(request.body(()).unwrap()),
        body => agent.run(request.header("content-type", "application/json").body(body.to_owned()).unwrap()),
    }
    .unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    PageAnswer { status, headers, body: response.body_mut().read_to_string().unwrap() }
}

/// A browser in which a person is logged in.
struct Browser<'g> {
    gateway: &'g TestGateway,
    cookie: String,
    token: String,
}

impl<'g> Browser<'g> {
    fn log_in(gateway: &'g TestGateway, person: &str) -> Self {
        let key = format!("Bearer key-of-the-person-{person}");
        let answer = send(gateway, &Method::POST, SESSION, &[("authorization", &key)], "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        let token = answer.json()["token"].as_str().unwrap().to_owned();
        Self { gateway, cookie, token }
    }

    /// Sends a request as the page does, as a browser marks it.
    fn send(&self, method: &Method, path: &str, body: &str) -> PageAnswer {
        let origin = format!("http://{}", self.gateway.address);
        let headers = [
            ("cookie", self.cookie.as_str()),
            ("x-flowgate-page", &self.token),
            ("origin", &origin),
            ("sec-fetch-site", "same-origin"),
        ];
        send(self.gateway, method, path, &headers, body)
    }

    fn get(&self, path: &str) -> PageAnswer {
        self.send(&Method::GET, path, "")
    }

    fn decide(&self, question: &Value, decision: &str) -> PageAnswer {
        let body = json!({"decision": decision, "digest": question["digest"]}).to_string();
        self.send(&Method::POST, &question_path(question), &body)
    }
}

fn question_path(question: &Value) -> String {
    format!("/api/v1/approvals/{}", question["id"].as_str().unwrap())
}

/// Starts a gateway whose agent has asked a question, which is open.
fn asking(upstream: &UpstreamDouble) -> (TestGateway, Value) {
    let gateway = home(upstream, 0).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let question = PersonClient(&gateway, "bob").first();
    (gateway, question)
}

#[test]
fn a_person_logs_in_and_out() {
    let upstream = UpstreamDouble::new(mails);
    let (gateway, question) = asking(&upstream);
    let answer =
        send(&gateway, &Method::POST, SESSION, &[("authorization", "Bearer key-of-the-person-bob")], "");
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200"), "{cookie}");
    let mut session = answer.json();
    let token = session.as_object_mut().unwrap().remove("token").unwrap();
    let expected = json!({"person": "bob", "role": "admin", "tenants": [], "may_read": null});
    assert_eq!(session, expected);
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let bob = Browser { gateway: &gateway, cookie, token: token.as_str().unwrap().to_owned() };
    assert_eq!(bob.get(SESSION).json(), expected);
    // Neither half of the secret contains the key.
    assert!(!format!("{} {}", bob.cookie, bob.token).contains("key-of"));

    for (path, method) in
        [("/api/v1/approvals", "list"), ("/api/v1/grants", "list"), ("/api/v1/freezes", "list")]
    {
        let (status, body) = gateway.get(path, &PersonClient(&gateway, "bob").key());
        let answer = bob.get(path);
        assert_eq!((answer.status, answer.body), (status, body), "{method} {path}");
    }
    assert_eq!(bob.decide(&question, "deny").json()["decided_by"], "bob");

    let answer = bob.send(&Method::DELETE, SESSION, "");
    assert_eq!((answer.status, answer.header("set-cookie").contains("Max-Age=0")), (200, true));
    assert_eq!(bob.get("/api/v1/approvals").status, 401);
    assert_eq!(bob.send(&Method::DELETE, SESSION, "").status, 401);
}

/// A role limits a session as it limits a key.
#[test]
fn a_session_has_the_role_of_its_person() {
    let upstream = UpstreamDouble::new(mails);
    let (gateway, question) = asking(&upstream);
    let vic = Browser::log_in(&gateway, "vic");
    assert_eq!(vic.decide(&question, "deny").status, 403);
    // Ann owns the agent, and eve is of another tenant.
    assert_eq!(Browser::log_in(&gateway, "ann").decide(&question, "allow").status, 403);
    let eve = Browser::log_in(&gateway, "eve");
    assert_eq!(eve.decide(&question, "deny").status, 404);
    assert_eq!(eve.get("/api/v1/approvals").json()["questions"], json!([]));
    assert_eq!(PersonClient(&gateway, "bob").open().len(), 1);
}

/// What the page of another site can cause: requests with the cookie alone, and with headers that say where it is.
#[test]
fn another_site_cannot_act() {
    let upstream = UpstreamDouble::new(mails);
    let (gateway, question) = asking(&upstream);
    let bob = Browser::log_in(&gateway, "bob");
    let body = json!({"decision": "allow", "digest": question["digest"]}).to_string();
    let path = question_path(&question);
    let (cookie, token) = (("cookie", bob.cookie.as_str()), ("x-flowgate-page", bob.token.as_str()));
    let own = format!("http://{}", gateway.address);
    let rows: [(&[(&str, &str)], u16); 9] = [
        (&[cookie], 401),
        (&[token], 401),
        (&[cookie, ("x-flowgate-page", "")], 401),
        (&[cookie, ("x-flowgate-page", "0123456789")], 401),
        (&[cookie, token, ("sec-fetch-site", "cross-site")], 401),
        (&[cookie, token, ("sec-fetch-site", "same-site")], 401),
        (&[cookie, token, ("origin", "http://evil.example")], 401),
        (&[cookie, token, ("origin", "null")], 401),
        // A key that is not valid is not replaced by the session.
        (&[cookie, token, ("authorization", "Bearer wrong")], 401),
    ];
    for (headers, expected) in rows {
        let answer = send(&gateway, &Method::POST, &path, headers, &body);
        assert_eq!(answer.status, expected, "{headers:?}");
        for path in ["/api/v1/approvals", "/api/v1/approvals/events", SESSION] {
            assert_eq!(
                send(&gateway, &Method::GET, path, headers, "").status,
                expected,
                "{path} {headers:?}"
            );
        }
    }
    assert_eq!(PersonClient(&gateway, "bob").open().len(), 1);
    let key = ("authorization", "Bearer key-of-the-person-bob");
    let foreign = [key, ("sec-fetch-site", "cross-site")];
    assert_eq!(send(&gateway, &Method::POST, SESSION, &foreign, "").status, 403);
    // A preflight gets no permission.
    let asked = [("origin", "http://evil.example"), ("access-control-request-headers", "x-flowgate-page")];
    let answer = send(&gateway, &Method::OPTIONS, &path, &asked, "");
    assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")));
    // The page itself can act.
    let answer = send(&gateway, &Method::POST, &path, &[cookie, token, ("origin", &own)], &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn failed_logins_are_limited() {
    let upstream = UpstreamDouble::new(mails);
    let (gateway, mut log) = home(&upstream, 0).start_with_log();
    let log_in = |key: &str| send(&gateway, &Method::POST, SESSION, &[("authorization", key)], "");
    let bob = Browser::log_in(&gateway, "bob");
    for wrong in ["", "Bearer", "Bearer wrong", KEY, "Basic key-of-the-person-bob"].iter().cycle().take(10) {
        assert_eq!(log_in(wrong).status, 401, "{wrong}");
    }
    for key in ["Bearer wrong", "Bearer key-of-the-person-bob"] {
        let answer = log_in(key);
        assert_eq!((answer.status, answer.header("retry-after")), (429, "60"), "{key}");
    }
    let line = log.next("limit");
    assert_eq!(line["limit"], "failed logins of one address in a minute");
    // Requests with a session or a key are not affected.
    assert_eq!(bob.get("/api/v1/approvals").status, 200);
    assert!(PersonClient(&gateway, "bob").open().is_empty());
}

/// The files restrict what they may load, and a frame of another site cannot show them.
#[test]
fn the_files_of_the_page_are_restricted() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    let answer = send(&gateway, &Method::GET, "/ui", &[], "");
    assert_eq!((answer.status, answer.header("location")), (308, "/ui/"));
    for (path, kind) in [
        ("/ui/", "text/html; charset=utf-8"),
        ("/ui/main.js", "text/javascript; charset=utf-8"),
        ("/ui/page.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
    ] {
        let answer = send(&gateway, &Method::GET, path, &[], "");
        assert_eq!((answer.status, answer.header("content-type")), (200, kind), "{path}");
        let rules: Vec<&str> = answer.header("content-security-policy").split("; ").collect();
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(rules.contains(&rule), "{path}: {rules:?}");
        }
        for (name, expected) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), expected, "{path}");
        }
    }
    for path in ["/ui/nothing.js", "/ui/..%2fopenapi.json", "/ui/%2e%2e"] {
        let answer = send(&gateway, &Method::GET, path, &[], "");
        assert_eq!((answer.status, answer.header("content-type")), (404, "application/json"), "{path}");
    }
    let other = TestGateway::configured(&config(&upstream.url, "chat-completions", ""), POLICY);
    let key = [("authorization", "Bearer key-of-the-person-bob")];
    assert_eq!(send(&other, &Method::POST, SESSION, &key, "").status, 401, "a gateway without people");
}

/// A person with a lower clearance sees no more on the page than over the routes: not the text of the page that the mail
/// would send.
#[test]
fn the_page_shows_what_the_clearance_covers() {
    let upstream = UpstreamDouble::new(gullible);
    let people = "[people.low]\nkey-from = \"low\"\nrole = \"approver\"\nmay-read = \"trusted\"\n\
                  [people.all]\nkey-from = \"all\"\nrole = \"approver\"\n[approvals]\nwait-seconds = 0\n";
    let trust = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let policy = POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
    let home = GatewayHome::new(&(config(&upstream.url, "chat-completions", trust) + people), &policy);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail the page to Bob.");
    let [low, all] = ["low", "all"].map(|name| Browser::log_in(&gateway, name));
    assert_eq!(low.get(SESSION).json()["may_read"], json!(["trusted"]));
    for (person, name, sees) in [(&low, "low", false), (&all, "all", true)] {
        let answer = person.get("/api/v1/approvals");
        assert_eq!(answer.body, gateway.get("/api/v1/approvals", &format!("key-of-the-person-{name}")).1);
        assert_eq!(answer.body.contains("Otters are back"), sees, "{name}: {}", answer.body);
    }
    let question = low.get("/api/v1/approvals").json()["questions"][0].clone();
    assert_eq!(low.decide(&question, "allow").status, 403);
    assert_eq!(low.decide(&question, "deny").status, 200);
}

/// Of two people who decide at the same time, one decides, and the other one learns who it was.
#[test]
fn two_people_decide_once() {
    for _ in 0..4 {
        let upstream = UpstreamDouble::new(mails);
        let text = "[people.cy]\nkey-from = \"cy\"\nrole = \"approver\"\n[people.bob]";
        let mut home = home(&upstream, 0);
        home.edit("[people.bob]", text);
        let gateway = home.start();
        TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
        let question = PersonClient(&gateway, "bob").first();
        let start = Barrier::new(2);
        let answers = std::thread::scope(|scope| {
            let deciders = [("bob", "allow"), ("cy", "deny")].map(|(name, decision)| {
                let (gateway, question, start) = (&gateway, &question, &start);
                scope.spawn(move || {
                    let browser = Browser::log_in(gateway, name);
                    start.wait();
                    (name, browser.decide(question, decision), browser)
                })
            });
            deciders.map(|decider| decider.join().unwrap())
        });
        let winner = answers.iter().find(|(_, answer, _)| answer.status == 200).unwrap();
        let (loser, refused, browser) = answers.iter().find(|(_, answer, _)| answer.status == 409).unwrap();
        assert!(refused.body.contains("no longer open"), "{}", refused.body);
        let seen = browser.get(&question_path(&question)).json();
        assert_eq!(seen["decided_by"], winner.0, "{loser} lost");
    }
}

/// The stream of questions that a session has opened ends with the session.
#[test]
fn a_stream_ends_with_its_session() {
    let upstream = UpstreamDouble::new(mails);
    let (gateway, question) = asking(&upstream);
    let bob = Browser::log_in(&gateway, "bob");
    std::thread::scope(|scope| {
        let (opened, is_open) = std::sync::mpsc::channel();
        let (bob, gateway) = (&bob, &gateway);
        let stream = scope.spawn(move || {
            let request = Request::builder()
                .uri(format!("http://{}/api/v1/approvals/events", gateway.address))
                .header("cookie", &bob.cookie)
                .header("x-flowgate-page", &bob.token);
            let mut response = ureq::Agent::new_with_defaults().run(request.body(()).unwrap()).unwrap();
            opened.send(()).unwrap();
            // Returns only when the gateway ends the stream.
            response.body_mut().read_to_string().unwrap()
        });
        is_open.recv().unwrap();
        assert_eq!(bob.decide(&question, "deny").status, 200);
        assert_eq!(bob.send(&Method::DELETE, SESSION, "").status, 200);
        stream.join().unwrap();
    });
}

/// A reload logs out a person whose key has changed, and nobody else; every event stream ends, and can be opened again.
#[test]
fn a_reload_ends_the_session_of_a_replaced_key() {
    let upstream = UpstreamDouble::new(mails);
    let mut home = home(&upstream, 0);
    let (gateway, _lines) = home.start_reloadable();
    let [vic, bob] = ["vic", "bob"].map(|name| Browser::log_in(&gateway, name));
    let status = |browser: &Browser<'_>| browser.send(&Method::GET, "/api/v1/approvals", "").status;
    assert_eq!((status(&vic), status(&bob)), (200, 200));
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "GET /api/v1/approvals/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer key-of-the-person-ann\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut begun = [0_u8; 15];
    stream.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    home.edit("[people.vic]\nkey-from = \"vic\"", "[people.vic]\nkey-from = \"vic-later\"");
    home.save();
    let reloaded = PersonClient(&gateway, "bob").post("/api/v1/policies/reload", &json!({}));
    assert_eq!(reloaded.0, 200, "{}", reloaded.1);
    assert_eq!((status(&vic), status(&bob)), (401, 200));
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
}

const LINK: &str = "/ui/api/login-link";

/// Makes a login link of a person, and returns its token.
fn link_of(gateway: &TestGateway, person: &str) -> String {
    let key = format!("Bearer key-of-the-person-{person}");
    let answer = send(gateway, &Method::POST, LINK, &[("authorization", &key)], "");
    assert_eq!((answer.status, &answer.json()["seconds"]), (200, &json!(300)), "{}", answer.body);
    answer.json()["link"].as_str().unwrap().strip_prefix("/ui/#link/").unwrap().to_owned()
}

/// A login link logs in the person who made it, once, and a guessed one nobody.
#[test]
fn a_login_link_is_used_once() {
    let upstream = UpstreamDouble::new(mails);
    let (gateway, _) = asking(&upstream);
    let token = link_of(&gateway, "bob");
    let take = |token: &str, more: &[(&str, &str)]| {
        let headers = [&[("x-flowgate-login-link", token)], more].concat();
        send(&gateway, &Method::POST, SESSION, &headers, "")
    };
    // A web page of another site does not use it up.
    assert_eq!(take(&token, &[("sec-fetch-site", "cross-site")]).status, 403);
    // Neither does a request with two tokens.
    assert_eq!(take(&token, &[("x-flowgate-login-link", &token)]).status, 401);
    let answer = take(&token, &[]);
    assert_eq!((answer.status, &answer.json()["person"]), (200, &json!("bob")), "{}", answer.body);
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    let session = answer.json()["token"].as_str().unwrap().to_owned();
    let bob = Browser { gateway: &gateway, cookie, token: session };
    assert_eq!(bob.get(SESSION).json()["role"], "admin");
    assert!(!format!("{} {}", bob.cookie, bob.token).contains(&token));
    let used = take(&token, &[]);
    assert_eq!(used.status, 401);
    assert!(
        used.body.contains("this login link was used already, is older than five minutes"),
        "{}",
        used.body
    );
    // A session makes no link, and neither does a request without a key.
    let refused = bob.send(&Method::POST, LINK, "");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.body.contains("made with the key of a person, not with a session"), "{}", refused.body);
    assert_eq!(send(&gateway, &Method::POST, LINK, &[("authorization", "Bearer wrong")], "").status, 401);
    assert_eq!(send(&gateway, &Method::POST, LINK, &[], "").status, 401);
    let key = format!("Bearer {KEY}");
    assert_eq!(send(&gateway, &Method::POST, LINK, &[("authorization", &key)], "").status, 401, "a client");
    // Guesses count as failed logins, after which the address waits; the right link then waits too.
    let right = link_of(&gateway, "bob");
    let statuses: Vec<u16> = (0..12).map(|guess| take(&format!("{guess:064x}"), &[]).status).collect();
    assert!(statuses.ends_with(&[429]) && statuses.starts_with(&[401]), "{statuses:?}");
    assert_eq!(take(&right, &[]).status, 429);
}
