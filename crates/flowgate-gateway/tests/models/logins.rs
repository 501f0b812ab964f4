//! Tests of people who log in to the page at an issuer by OpenID Connect: who may, as whom their decisions are recorded,
//! what they may read, and what an attacker cannot do to a login.

use serde_json::{Value, json};
use ureq::http::{HeaderMap, Method, Request};

use crate::FORMS;
use crate::approvals::mails;
use crate::audit_log::records;
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config};
use crate::issuer::{IssuerDouble, encoded, now, query_of};
use crate::upstream::{UpstreamDouble, says};

const SESSION: &str = "/ui/api/session";
/// A lattice of readers: what `read` returns is for finance alone, everything else for everyone.
const READERS: &str = r#"
lattice readers: readers
label message as readers.bottom if:
    (message: Message)
    message.role in ["system", "user"]
label tool as readers.bottom if:
    (tool: Tool)
label out.content as readers.bottom if:
    (out: ToolOutput) is tool:send
label out.content as readers("group:finance") if:
    (out: ToolOutput) is tool:read
require top if:
    (call: ToolCall) is tool:send
require top if:
    (call: ToolCall) is tool:read
"#;

/// An answer: the status, the headers and the body.
struct LoginAnswer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl LoginAnswer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A browser, which keeps cookies by their names.
struct Browser<'g> {
    gateway: &'g TestGateway,
    cookies: Vec<(String, String)>,
    token: String,
}

impl<'g> Browser<'g> {
    fn new(gateway: &'g TestGateway) -> Self {
        Self { gateway, cookies: Vec::new(), token: String::new() }
    }

    fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> LoginAnswer {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into();
        let request = Request::builder().method(method).uri(format!("http://{}{path}", self.gateway.address));
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = request.header("cookie", cookies.join("; ")).header("x-flowgate-page", &self.token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = match body {
            "" => agent.run(request.body(()).unwrap()),
            body => {
                agent.run(request.header("content-type", "application/json").body(body.to_owned()).unwrap())
            }
        }
        .unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.body_mut().read_to_string().unwrap();
        for cookie in headers.get_all("set-cookie") {
            let (name, value) = cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        LoginAnswer { status, headers, body }
    }

    fn get(&mut self, path: &str) -> LoginAnswer {
        self.send(Method::GET, path, &[], "")
    }

    /// Begins a login, and returns the address at the issuer.
    fn begins(&mut self) -> String {
        let answer = self.get("/ui/login");
        assert_eq!(answer.status, 303, "{}", answer.body);
        let cookie = answer.header("set-cookie");
        assert!(cookie.contains("; Path=/ui; HttpOnly; SameSite=Lax; Max-Age=600"), "{cookie}");
        answer.header("location").to_owned()
    }

    /// Returns from the issuer with a code, and `more` in the address.
    fn returns(&mut self, address: &str, code: &str, more: &str) -> LoginAnswer {
        let state = query_of(address.split_once('?').unwrap().1)["state"].clone();
        self.get(&format!("/ui/login/callback?code={code}&state={state}{more}"))
    }

    /// Lets the page take the session of the completed login.
    fn takes_session(&mut self) -> LoginAnswer {
        let answer = self.send(Method::POST, SESSION, &[("x-flowgate-login", "1")], "");
        if answer.status == 200 {
            let session: Value = serde_json::from_str(&answer.body).unwrap();
            self.token = session["token"].as_str().unwrap().to_owned();
        }
        answer
    }

    /// Logs in as a person with these claims.
    fn logs_in(gateway: &'g TestGateway, issuer: &IssuerDouble, claims: &Value) -> Self {
        let mut browser = Self::new(gateway);
        let address = browser.begins();
        let answer = browser.returns(&address, &issuer.log_in(&address, claims), "");
        assert_eq!((answer.status, answer.header("location")), (303, "/ui/#login"), "{}", answer.body);
        let answer = browser.takes_session();
        assert_eq!(answer.status, 200, "{}", answer.body);
        browser
    }
}

/// Returns a home where the subject `s-ann` is ann, members of `desk` approve what they may read, members of `audit` see
/// everything, and `more` is in `[login.oidc]`.
fn home(upstream: &UpstreamDouble, issuer: &IssuerDouble, more: &str, policy: &str) -> GatewayHome {
    let text = format!(
        "[issuers.corp]\nissuer = \"{}\"\n[audit]\nfile = \"audit.jsonl\"\n\
         [people.ann]\nsubject = \"s-ann\"\nrole = \"admin\"\n[people.vic]\nkey-from = \"vic\"\nrole = \"viewer\"\n\
         [login.oidc]\nissuer = \"corp\"\nclient-id = \"gate\"\nclient-secret-from = \"SECRET\"\n\
         redirect = \"http://localhost:1/ui/login/callback\"\nscopes = [\"openid\", \"groups\"]\nname-claim = \"preferred_username\"\n{more}\n\
         [login.oidc.groups.desk]\nrole = \"approver\"\n[login.oidc.groups.audit]\nrole = \"viewer\"\n[approvals]\nwait-seconds = 0\n{}",
        issuer.url,
        config(
            &upstream.url,
            "chat-completions",
            "user-messages = \"trust-unmarked-even-if-pasted\"\nowner = \"ann\""
        ),
    );
    GatewayHome::new(&text, policy)
}

fn asking_policy() -> String {
    POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n"
}

/// A person of a group logs in, decides a question under their own name, and logs out.
#[test]
fn a_person_logs_in_by_a_group() {
    let (upstream, issuer) = (UpstreamDouble::new(mails), IssuerDouble::new());
    let home = home(&upstream, &issuer, "", &asking_policy());
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let mut browser = Browser::new(&gateway);
    let address = browser.begins();
    let asked = query_of(address.split_once('?').unwrap().1);
    assert!(
        address.starts_with(&format!("{}/authorize?tenant=1&response_type=code", issuer.url)),
        "{address}"
    );
    assert_eq!(
        (asked["client_id"].as_str(), asked["scope"].as_str(), asked["redirect_uri"].as_str()),
        ("gate", "openid groups", "http://localhost:1/ui/login/callback")
    );
    let claims = json!({"preferred_username": "dora", "groups": ["staff", "audit", "desk"]});
    let code = issuer.log_in(&address, &claims);
    assert_eq!(browser.returns(&address, &code, "&session_state=x").status, 303);
    let session: Value = serde_json::from_str(&browser.takes_session().body).unwrap();
    assert_eq!((&session["person"], &session["role"]), (&json!("dora"), &json!("approver")));
    let list: Value = serde_json::from_str(&browser.get("/api/v1/approvals").body).unwrap();
    let question = &list["questions"][0];
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    let body = json!({"decision": "allow", "digest": question["digest"]}).to_string();
    let decided = browser.send(Method::POST, &path, &[], &body);
    assert_eq!(decided.status, 200, "{}", decided.body);
    assert_eq!(browser.send(Method::DELETE, SESSION, &[], "").status, 200);
    assert_eq!(browser.get(SESSION).status, 401);
    gateway.stop();
    let decided = records(&home).into_iter().find(|record| record.kind.name() == "decided").unwrap();
    assert_eq!(decided.object["who"], "dora");
    // The secret goes to the issuer alone, in the header.
    let exchanges = issuer.exchanges();
    assert!(exchanges[0].0.starts_with("Basic ") && !exchanges[0].1.contains("secret"), "{exchanges:?}");
}

/// A person with a section has its role and name, and does not decide for the client that asks on their behalf.
#[test]
fn a_person_logs_in_by_a_subject() {
    let (upstream, issuer) = (UpstreamDouble::new(mails), IssuerDouble::new());
    issuer.describe_as(json!({"token_endpoint_auth_methods_supported": ["client_secret_post"]}));
    let gateway = home(&upstream, &issuer, "session-minutes = 30", &asking_policy()).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let claims = json!({"sub": "s-ann", "preferred_username": "whatever", "exp": now() + 30});
    let mut browser = Browser::logs_in(&gateway, &issuer, &claims);
    let session: Value = serde_json::from_str(&browser.get(SESSION).body).unwrap();
    assert_eq!((&session["person"], &session["role"]), (&json!("ann"), &json!("admin")));
    let list: Value = serde_json::from_str(&browser.get("/api/v1/approvals").body).unwrap();
    assert_eq!(list["questions"][0]["you_may_allow"], false);
    let (authorization, form) = issuer.exchanges().remove(0);
    assert!(authorization.is_empty() && form.contains("client_secret=secret"), "{form}");
}

/// Each row is what the ID token has, and what the log says.
#[test]
fn people_without_a_role_are_rejected() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let (gateway, mut log) = home(&upstream, &issuer, "", POLICY).start_with_log();
    let no_role = "the person has no role: neither a section [people.NAME] with this subject nor a group of [login.oidc.groups]";
    let groups = "the claim `groups` is not a list of at most 1,000 groups";
    let name = "the ID token has no string of at most 256 printable bytes in the claim `preferred_username`: name another claim with `name-claim` in [login.oidc]";
    for (claims, status, expected) in [
        (json!({"preferred_username": "eve"}), 403, no_role),
        (json!({"preferred_username": "eve", "groups": []}), 403, no_role),
        (
            json!({"preferred_username": "eve", "groups": ["DESK", "desk "]}),
            502,
            "a group in the claim `groups` is not a string",
        ),
        (json!({"preferred_username": "eve", "groups": ["Desk", "desks"]}), 403, no_role),
        (json!({"preferred_username": "eve", "groups": "desk"}), 502, groups),
        (json!({"preferred_username": "eve", "groups": {"desk": 1}}), 502, groups),
        // The name of a person of the configuration, and that of a group of readers.
        (
            json!({"preferred_username": "ann", "groups": ["desk"]}),
            403,
            "the name in the ID token is also the name of another person",
        ),
        (
            json!({"preferred_username": "vic", "groups": ["desk"]}),
            403,
            "the name in the ID token is also the name of another person",
        ),
        (
            json!({"preferred_username": "group:finance", "groups": ["desk"]}),
            502,
            "the name of the person begins with `group:`, as the names of groups do: name another claim in \
            `name-claim`",
        ),
        (json!({"groups": ["desk"]}), 502, name),
        (json!({"preferred_username": "a\u{202e}b", "groups": ["desk"]}), 502, name),
        (json!({"preferred_username": "", "groups": ["desk"]}), 502, name),
        (
            json!({"preferred_username": "eve", "sub": null, "groups": ["desk"]}),
            502,
            "the ID token has no `sub`",
        ),
    ] {
        let mut browser = Browser::new(&gateway);
        let address = browser.begins();
        let answer = browser.returns(&address, &issuer.log_in(&address, &claims), "");
        assert_eq!(answer.status, status, "{claims} {}", answer.body);
        let sentence = match status {
            403 => "your account has no role at this gateway",
            _ => "The log of the gateway has the reason",
        };
        assert!(answer.body.contains(sentence) && !answer.body.contains("eve"), "{}", answer.body);
        let line = log.next("refused");
        let message = line["message"].as_str().unwrap();
        assert!(
            message.starts_with("login.oidc: a person was not logged in: ") && message.contains(expected),
            "{message}"
        );
    }
    assert_eq!(Browser::new(&gateway).takes_session().status, 401);
}

/// What an attacker does to a login of another person, or to their own.
#[test]
fn attacked_logins_fail() {
    let (upstream, issuer, other) =
        (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new(), IssuerDouble::new());
    let gateway = home(&upstream, &issuer, "", POLICY).start();
    let dora = json!({"preferred_username": "dora", "groups": ["desk"]});
    let state_of = |address: &str| query_of(address.split_once('?').unwrap().1)["state"].clone();
    let callback = |state: &str, code: &str| format!("/ui/login/callback?code={code}&state={state}");
    let fails = |browser: &mut Browser<'_>, path: &str, why: &str| {
        let answer = browser.get(path);
        assert!(matches!(answer.status, 400 | 502), "{why}: {} {}", answer.status, answer.body);
        assert!(answer.header("location").is_empty(), "{why}");
        assert_eq!(browser.takes_session().status, 401, "{why}");
    };
    // The state of another browser: the attacker lets the victim's browser complete the attacker's login.
    let (mut attacker, mut victim) = (Browser::new(&gateway), Browser::new(&gateway));
    let address = attacker.begins();
    let code = issuer.log_in(&address, &dora);
    victim.begins();
    fails(&mut victim, &callback(&state_of(&address), &code), "the state of another browser");
    let mut without_cookie = Browser::new(&gateway);
    fails(&mut without_cookie, &callback(&state_of(&address), &code), "no cookie");
    assert!(issuer.exchanges().is_empty());
    // The login of the attacker's own browser has not been used up by that.
    assert_eq!(attacker.returns(&address, &code, "").status, 303);
    // A replay of the state, and of the completed login.
    let answer = attacker.copy().get(&callback(&state_of(&address), &code));
    assert_eq!((answer.status, answer.header("location")), (400, ""));
    assert_eq!(attacker.copy().takes_session().status, 200);
    assert_eq!(attacker.takes_session().status, 401);
    // Each row is what differs in an address, or in the ID token.
    for (more, claims, why) in [
        ("", json!({"nonce": "another"}), "another nonce"),
        ("", json!({"nonce": null}), "no nonce"),
        ("", json!({"aud": "another"}), "another audience"),
        ("", json!({"aud": ["gate", "another"]}), "several audiences and no authorized party"),
        ("", json!({"azp": "another"}), "another authorized party"),
        ("", json!({"iss": other.url}), "an ID token of another issuer"),
        ("", json!({"exp": now() - 120}), "an expired ID token"),
        ("", json!({"exp": null}), "an ID token that never expires"),
        ("&error=access_denied", json!({}), "a refusal"),
        ("&code=x", json!({}), "two codes"),
        ("&state=x", json!({}), "two states"),
        ("&iss=https%3A%2F%2Fevil.example", json!({}), "the answer of another issuer"),
    ] {
        let mut browser = Browser::new(&gateway);
        let address = browser.begins();
        let mut claims = claims;
        for (name, value) in dora.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let code = issuer.log_in(&address, &claims);
        fails(&mut browser, &(callback(&state_of(&address), &code) + more), why);
    }
}

/// What an issuer may not say about itself or in its answers, each at a gateway of its own.
#[test]
fn attacked_issuers_do_not_log_in() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let home = home(&upstream, &issuer, "", POLICY);
    let dora = json!({"preferred_username": "dora", "groups": ["desk"]});
    let start = |description: Value| {
        issuer.describe_as(description);
        home.start()
    };
    // The issuer says that it names itself, and the answer does not.
    let gateway = start(json!({"authorization_response_iss_parameter_supported": true}));
    let mut browser = Browser::new(&gateway);
    let address = browser.begins();
    assert_eq!(browser.returns(&address, &issuer.log_in(&address, &dora), "").status, 400);
    let address = browser.begins();
    let named = format!("&iss={}", encoded(&issuer.url));
    assert_eq!(browser.returns(&address, &issuer.log_in(&address, &dora), &named).status, 303);
    assert_eq!(browser.takes_session().status, 200);
    gateway.stop();
    // An ID token whose key the issuer does not serve.
    let gateway = start(json!({"jwks_uri": format!("{}/none", issuer.url)}));
    let mut browser = Browser::new(&gateway);
    let address = browser.begins();
    assert_eq!(browser.returns(&address, &issuer.log_in(&address, &dora), "").status, 502);
    gateway.stop();
    // The addresses that the description names are protected ones.
    for description in [
        json!({"authorization_endpoint": "http://10.0.0.1/authorize"}),
        json!({"authorization_endpoint": "javascript:alert(1)"}),
        json!({"authorization_endpoint": null}),
        json!({"issuer": "https://evil.example"}),
    ] {
        let gateway = start(description.clone());
        let answer = Browser::new(&gateway).get("/ui/login");
        assert_eq!((answer.status, answer.header("location")), (502, ""), "{description}");
        gateway.stop();
    }
    let gateway = start(json!({"token_endpoint": "http://169.254.169.254/token"}));
    let mut browser = Browser::new(&gateway);
    let address = browser.begins();
    assert_eq!(browser.returns(&address, &issuer.log_in(&address, &dora), "").status, 502);
}

/// No part of an address leads elsewhere, and only the page of the gateway takes the session.
#[test]
fn a_login_leads_to_the_page_alone() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let gateway = home(&upstream, &issuer, "", POLICY).start();
    let mut browser = Browser::new(&gateway);
    assert!(browser.get("/ui/login?next=https://evil.example").header("location").starts_with(&issuer.url));
    let address = browser.begins();
    let dora = json!({"preferred_username": "dora", "groups": ["desk"]});
    let code = issuer.log_in(&address, &dora);
    let more = "&next=https%3A%2F%2Fevil.example&redirect_uri=https%3A%2F%2Fevil.example";
    let answer = browser.returns(&address, &code, more);
    assert_eq!((answer.status, answer.header("location")), (303, "/ui/#login"));
    let foreign = [("x-flowgate-login", "1"), ("sec-fetch-site", "cross-site")];
    assert_eq!(browser.send(Method::POST, SESSION, &foreign, "").status, 403);
    assert_eq!(browser.send(Method::POST, SESSION, &[], "").status, 401);
    assert_eq!(browser.takes_session().status, 200);
    // Another site cannot keep people of an address from logging in by many requests to the callback.
    for _ in 0..12 {
        assert_eq!(Browser::new(&gateway).get("/ui/login/callback?state=x&code=y").status, 400);
    }
    assert_eq!(Browser::new(&gateway).get("/ui/login").status, 303);
}

/// Over TLS, the cookies have names that only this host can set: another host of the domain cannot plant the login of an
/// attacker.
#[test]
fn a_login_over_tls_has_a_cookie_of_its_host() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "", POLICY);
    home.edit("http://localhost:1/ui/login/callback", "https://gate.example/ui/login/callback");
    let gateway = home.start();
    let mut browser = Browser::new(&gateway);
    let answer = browser.get("/ui/login");
    let cookie = answer.header("set-cookie");
    assert!(cookie.starts_with("__Host-flowgate-login=") && cookie.ends_with("; Secure"), "{cookie}");
    assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Lax") && !cookie.contains("Domain"), "{cookie}");
    let address = answer.header("location").to_owned();
    let claims = json!({"preferred_username": "dora", "groups": ["desk"]});
    let code = issuer.log_in(&address, &claims);
    // The same cookie without the prefix.
    let mut planted = browser.copy();
    planted.cookies.iter_mut().for_each(|(name, _)| *name = name.replace("__Host-", ""));
    assert_eq!(planted.returns(&address, &code, "").status, 400);
    assert_eq!(browser.returns(&address, &code, "").status, 303);
    let mut planted = browser.copy();
    planted.cookies.iter_mut().for_each(|(name, _)| *name = name.replace("__Host-", ""));
    assert_eq!(planted.takes_session().status, 401);
    let over_tls =
        [("x-flowgate-login", "1"), ("origin", "https://gate.example"), ("sec-fetch-site", "same-origin")];
    let answer = browser.send(Method::POST, SESSION, &over_tls, "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.header("set-cookie").starts_with("__Host-flowgate-session="));
    let session: Value = serde_json::from_str(&answer.body).unwrap();
    browser.token = session["token"].as_str().unwrap().to_owned();
    assert_eq!(browser.get(SESSION).status, 200);
}

/// Anybody can begin logins and return with invented codes: after some of them, the issuer is not asked any more. People
/// with keys still log in.
#[test]
fn invented_codes_are_refused_before_the_issuer_is_asked() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let (gateway, mut log) = home(&upstream, &issuer, "", POLICY).start_with_log();
    let invents = || {
        let mut browser = Browser::new(&gateway);
        let address = browser.begins();
        browser.returns(&address, "invented", "").status
    };
    let statuses: Vec<u16> = (0..12).map(|_| invents()).collect();
    assert_eq!(statuses, [[502; 10].as_slice(), &[429; 2]].concat());
    assert_eq!(issuer.exchanges().len(), 10);
    assert!(log.next("limit").to_string().contains("codes from one address that the issuer has refused"));
    let key = [("authorization", "Bearer key-of-the-person-vic")];
    assert_eq!(Browser::new(&gateway).send(Method::POST, SESSION, &key, "").status, 200);
}

/// A reload takes effect for sessions that have begun: a person whose group has no role any more is out.
#[test]
fn a_reload_ends_sessions_of_people_without_a_role() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "", POLICY);
    let (gateway, _log) = home.start_reloadable();
    let mut ann = Browser::logs_in(&gateway, &issuer, &json!({"sub": "s-ann", "preferred_username": "a"}));
    let claims = json!({"preferred_username": "dora", "groups": ["desk"]});
    let mut dora = Browser::logs_in(&gateway, &issuer, &claims);
    assert_eq!(dora.get(SESSION).status, 200);
    home.edit("[login.oidc.groups.desk]", "[login.oidc.groups.chair]");
    home.save();
    assert_eq!(ann.send(Method::POST, "/api/v1/policies/reload", &[], "").status, 200);
    assert_eq!((ann.get(SESSION).status, dora.get(SESSION).status), (200, 401));
}

/// A login that has begun under other settings is not completed: its code would go to another party than that which made it.
#[test]
fn a_reload_of_the_issuer_ends_logins_that_have_begun() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "", POLICY);
    let (gateway, _log) = home.start_reloadable();
    let mut ann = Browser::logs_in(&gateway, &issuer, &json!({"sub": "s-ann", "preferred_username": "a"}));
    let mut dora = Browser::new(&gateway);
    let address = dora.begins();
    let code = issuer.log_in(&address, &json!({"preferred_username": "dora", "groups": ["desk"]}));
    home.edit("client-id = \"gate\"", "client-id = \"gate-2\"");
    home.save();
    assert_eq!(ann.send(Method::POST, "/api/v1/policies/reload", &[], "").status, 200);
    let before = issuer.exchanges().len();
    assert_eq!(dora.returns(&address, &code, "").status, 400);
    assert_eq!(issuer.exchanges().len(), before);
}

/// What only finance may read is shown to people in the group, and to no other.
#[test]
fn groups_are_readers() {
    let (upstream, issuer) = (UpstreamDouble::new(mails), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "", READERS);
    home.edit("[login.oidc.groups.desk]\n", "[login.oidc.groups.desk]\nmay-read = \"readers(*)\"\n");
    home.edit("[people.vic]\n", "[people.vic]\nmay-read = \"readers(group:finance)\"\n");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.page = "The otters earn 4711.".to_owned();
    agent.says("Mail Bob.");
    let key = "Bearer key-of-the-person-vic";
    let shown = |browser: &mut Browser<'_>, headers: &[(&str, &str)]| {
        let list = browser.send(Method::GET, "/ui/api/conversations", headers, "");
        let list: Value = serde_json::from_str(&list.body).unwrap();
        let name = list["conversations"][0]["conversation"].as_str().unwrap().to_owned();
        let path = format!("/ui/api/conversation?client=agent&name={name}");
        let answer = browser.send(Method::GET, &path, headers, "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        (answer.body.contains("4711"), answer.body.contains("Mail Bob."))
    };
    for (groups, expected) in
        [(json!(["desk", "finance"]), true), (json!(["desk", "hr"]), false), (json!(["desk"]), false)]
    {
        let claims = json!({"preferred_username": "dora", "groups": groups});
        let mut browser = Browser::logs_in(&gateway, &issuer, &claims);
        assert_eq!(shown(&mut browser, &[]), (expected, true), "{groups}");
    }
    let mut vic = Browser::new(&gateway);
    assert_eq!(shown(&mut vic, &[("authorization", key)]), (true, true));
}

impl Browser<'_> {
    /// Returns a browser with the same cookies.
    fn copy(&self) -> Self {
        Self { gateway: self.gateway, cookies: self.cookies.clone(), token: String::new() }
    }
}
