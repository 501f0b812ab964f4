//! Tests of tokens of issuers in place of keys of clients: which are accepted, what they separate, what a policy learns of
//! them, and what becomes of the keys of an issuer.

use ring::hmac;
use serde_json::{Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config, until};
use crate::issuer::{IssuerDouble, KeyAnswer, TestKey, merge, now};
use crate::upstream::{UpstreamDouble, says};

/// What a client learns of a refused token, whatever the reason.
const REFUSAL: &str = "the token is not accepted: send `Authorization: Bearer TOKEN` with a token that has not expired and is from the issuer and for the audience that the operator of this gateway has configured";

/// Returns the configuration of a gateway whose client `ci` takes tokens of an issuer, with `more` in its section.
fn home(upstream: &UpstreamDouble, issuer: &IssuerDouble, more: &str, policy: &str) -> GatewayHome {
    let text = format!(
        "[issuers.corp]\nissuer = \"{}\"\n[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n{}\
         [clients.ci]\nupstream = \"double\"\npolicy = \"policy.flow\"\nuser-messages = \"trust-unmarked-even-if-pasted\"\n\
         [clients.ci.token]\nissuer = \"corp\"\naudience = \"flowgate\"\n{more}\n",
        issuer.url,
        config(&upstream.url, "chat-completions", ""),
    );
    GatewayHome::new(&text, policy)
}

/// Asks for an answer; returns the status and the body.
fn ask(gateway: &TestGateway, headers: &[(&str, &str)]) -> (u16, String) {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello?"}]});
    gateway.post("/v1/chat/completions", headers, &body.to_string())
}

fn ask_with(gateway: &TestGateway, token: &str) -> (u16, String) {
    ask(gateway, &[("authorization", &format!("Bearer {token}"))])
}

/// A token works in every API, in the header that its clients use, with keys of both kinds, and is sent to no model.
#[test]
fn a_token_authenticates_its_client() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let gateway = home(&upstream, &issuer, "", POLICY).start();
    for key in [TestKey::ed("second"), TestKey::ec("third")] {
        issuer.rotate(key);
        let token = issuer.token(&json!({}));
        for (api, _) in FORMS {
            for streaming in [false, true] {
                let mut agent = TestAgent::new(&gateway, api, streaming, &token);
                assert_eq!(agent.says("Hello?"), "Hello.", "{api:?} {streaming}");
                assert_eq!(agent.says("Again?"), "Hello.", "{api:?} {streaming}");
            }
        }
        assert_eq!(ask(&gateway, &[("x-flowgate-key", &token)]).0, 200);
    }
    assert!(upstream.keys().iter().all(|key| key.contains("key-of-the-upstream")));
    // The keys of other clients work as ever.
    assert_eq!(ask_with(&gateway, KEY).0, 200);
}

/// Each row is a token, and what the log says about it.
#[test]
fn tokens_that_are_not_accepted() {
    let (upstream, issuer, other) =
        (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new(), IssuerDouble::new());
    issuer.rotate(TestKey::ec("ec"));
    let more = "claims = { team = \"build\", on = true }";
    let key = issuer.key();
    let claims = |more: Value| {
        let mut claims = issuer.claims(&json!({"team": "build", "on": true}));
        merge(&mut claims, &more);
        claims
    };
    let good = claims(json!({}));
    let signed = |more: Value| key.sign(&claims(more));
    let header = |more: Value| key.sign_with(&more, &good);
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let unsigned = |alg: &str| {
        let header = json!({"alg": alg, "kid": key.id, "typ": "JWT"}).to_string();
        format!("{}.{}.", encoded(&header), encoded(&good.to_string()))
    };
    // HS256 with the bytes of the public key as the secret.
    let confused = {
        let signed = unsigned("HS256");
        let signed = signed.trim_end_matches('.');
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &key.public());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&secret, signed.as_bytes())))
    };
    let twice = |text: &str, what: &str| text.replacen('{', &format!("{{{what},"), 1);
    let own_header = json!({"alg": "ES256", "kid": key.id, "typ": "JWT"}).to_string();
    // Another key under the id of the right one, embedded or at an address of the attacker.
    let forger = TestKey::ec("ec");
    let tampered = {
        let token = signed(json!({}));
        let parts: Vec<&str> = token.split('.').collect();
        format!("{}.{}.{}", parts[0], encoded(&claims(json!({"sub": "root"})).to_string()), parts[2])
    };
    let (algorithm, signature) = (
        "the algorithm of the token (`alg`) is not among `algorithms` of its issuer",
        "the signature of the token is not valid",
    );
    let (malformed, unknown_key) = (
        "the token is not a signed JWT, or one of its parts is not a JSON object that has each field once",
        "the key of the token (`kid`) is not among those of its issuer",
    );
    let unknown_issuer = "no client accepts tokens of the issuer of this token (`iss`): check [issuers.NAME] and [clients.NAME.token]";
    let audience = "the audience of the token (`aud`) is not the configured one";
    let claim = "the token does not have the `claims` that a client of its issuer and audience requires";
    let time = "a time in the token (`exp`, `nbf` or `iat`) is not a number of seconds";
    let kind = "the type of the token (`typ`) is that of a token for another purpose";
    let critical = "the token needs an extension (`crit`) that the gateway does not have";
    let rows: Vec<(String, &str)> = vec![
        (unsigned("none"), algorithm),
        (unsigned("None"), algorithm),
        (unsigned("ES256"), signature),
        (confused, algorithm),
        (header(json!({"alg": "RS256"})), "the key of the token (`kid`) is not for its algorithm (`alg`)"),
        (header(json!({"alg": null})), algorithm),
        (header(json!({"alg": ["ES256"]})), algorithm),
        (forger.sign(&good), signature),
        (forger.sign_with(&json!({"jwk": forger.jwk()}), &good), signature),
        (forger.sign_with(&json!({"jku": format!("{}/keys", other.url)}), &good), signature),
        (forger.sign_with(&json!({"x5u": format!("{}/keys", other.url)}), &good), signature),
        (other.key().sign(&good), unknown_key),
        (header(json!({"kid": "../../keys"})), unknown_key),
        (header(json!({"kid": null})), "the token does not name its key (`kid`)"),
        (header(json!({"kid": 1})), "the token does not name its key (`kid`)"),
        (header(json!({"crit": ["b64"], "b64": false})), critical),
        (header(json!({"crit": []})), critical),
        (header(json!({"typ": "logout+jwt"})), kind),
        (header(json!({"typ": 1})), kind),
        (tampered, signature),
        (other.token(&json!({"team": "build", "on": true})), unknown_issuer),
        (signed(json!({"iss": other.url})), unknown_issuer),
        (signed(json!({"iss": [issuer.url]})), "the token does not name its issuer (`iss`)"),
        (signed(json!({"iss": null})), "the token does not name its issuer (`iss`)"),
        (signed(json!({"aud": "another"})), audience),
        (signed(json!({"aud": ["another", "flowgate-2"]})), audience),
        (signed(json!({"aud": null})), audience),
        (signed(json!({"aud": 1})), audience),
        (signed(json!({"exp": now() - 120})), "the token has expired (`exp`)"),
        (signed(json!({"exp": 0})), "the token has expired (`exp`)"),
        (signed(json!({"exp": null})), "the token has no `exp`, or one that is not a time"),
        (signed(json!({"exp": "never"})), "the token has no `exp`, or one that is not a time"),
        (signed(json!({"exp": -1})), "the token has no `exp`, or one that is not a time"),
        (signed(json!({"exp": 1e300})), "the token has no `exp`, or one that is not a time"),
        (signed(json!({"nbf": now() + 300})), "the token is not valid yet (`nbf`)"),
        (signed(json!({"nbf": "soon"})), time),
        (signed(json!({"team": "sales"})), claim),
        (signed(json!({"team": null})), claim),
        (signed(json!({"on": "true"})), claim),
        (
            signed(json!({"sub": null})),
            "the token has no string of 1 to 256 bytes in the claim that `subject` of the client's `token` names (by default `sub`)",
        ),
        (
            signed(json!({"sub": 7})),
            "the token has no string of 1 to 256 bytes in the claim that `subject` of the client's `token` names (by default `sub`)",
        ),
        (
            signed(json!({"sub": "x".repeat(257)})),
            "the token has no string of 1 to 256 bytes in the claim that `subject` of the client's `token` names (by default `sub`)",
        ),
        (key.sign_text(&own_header, &twice(&good.to_string(), "\"sub\":\"root\"")), malformed),
        (key.sign_text(&twice(&own_header, "\"alg\":\"none\""), &good.to_string()), malformed),
        (key.sign_text(&own_header, "[]"), malformed),
        (key.sign_text(&own_header, "{"), malformed),
        (key.sign_text("{\"a\":1", &good.to_string()), malformed),
        (key.sign(&good) + "=", malformed),
        (signed(json!({"more": "x".repeat(13 << 10)})), "the token is longer than 16 KiB"),
        (format!("{}.a.b.c", encoded("{\"a\":1}")), ""),
        (format!("{}.", encoded("{\"a\":1}")), ""),
    ];
    // The log has few lines of one kind at a time.
    let configured = home(&upstream, &issuer, more, POLICY);
    for rows in rows.chunks(15) {
        let (gateway, mut log) = configured.start_with_log();
        for (token, reason) in rows {
            let (status, body) = ask_with(&gateway, token);
            assert_eq!(status, 401, "{reason} {token} {body}");
            let line = log.next("refused");
            // What does not look like a token is an unknown key.
            let expected = if reason.is_empty() { "no client of this gateway has this key" } else { REFUSAL };
            assert!(body.contains(expected), "{body}");
            assert_eq!(line["detail"].as_str().unwrap_or_default(), *reason, "{token}");
        }
        gateway.stop();
        let log = log.rest();
        for (token, _) in rows {
            let claims = token.split('.').nth(1).filter(|part| part.len() > 8);
            assert!(claims.is_none_or(|part| !log.contains(part)), "{token}");
        }
    }
    let gateway = configured.start();
    // Clocks may differ, and a claim that is a list has the values of its elements.
    for more in [
        json!({"exp": now() - 20}),
        json!({"nbf": now() + 20}),
        json!({"aud": ["x", "flowgate"]}),
        json!({"team": ["build", "sales"]}),
        json!({"exp": 1e300_f64.min(4e9)}),
    ] {
        assert_eq!(ask_with(&gateway, &signed(more.clone())).0, 200, "{more}");
    }
    assert_eq!(
        ask_with(&gateway, &header(json!({"typ": "at+JWT", "jwk": forger.jwk(), "jku": other.url}))).0,
        200
    );
    assert_eq!(other.fetches(), 0);
}

/// Two clients of one issuer, told apart by their claims. A token that fits both, or none, is refused.
#[test]
fn claims_choose_the_client() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "claims = { tenant = \"acme\" }", POLICY);
    home.edit(
        "[issuers.corp]",
        "[clients.ci2]\nupstream = \"double\"\npolicy = \"policy.flow\"\n[clients.ci2.token]\nissuer = \"corp\"\naudience = \"flowgate\"\n\
         claims = { tenant = \"beta\" }\n[issuers.corp]",
    );
    let (gateway, mut log) = home.start_with_log();
    let mut check = |tenant: Value, expected: Result<&str, &str>| {
        let (status, _) = ask_with(&gateway, &issuer.token(&json!({"tenant": tenant})));
        match expected {
            Ok(client) => assert_eq!((status, log.next("turn")["client"].as_str()), (200, Some(client))),
            Err(why) => assert_eq!((status, log.next("refused")["detail"].as_str()), (401, Some(why))),
        }
    };
    check(json!("acme"), Ok("ci"));
    check(json!("beta"), Ok("ci2"));
    check(
        json!("gamma"),
        Err("the token does not have the `claims` that a client of its issuer and audience requires"),
    );
    check(
        json!(["acme", "beta"]),
        Err("more than one client accepts this token: write different `claims` for them"),
    );
}

/// Two clients of one issuer, told apart by their audiences.
#[test]
fn the_audience_chooses_the_client() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "", POLICY);
    home.edit(
        "[issuers.corp]",
        "[clients.ci2]\nupstream = \"double\"\npolicy = \"policy.flow\"\n[clients.ci2.token]\nissuer = \"corp\"\naudience = \"flowgate-2\"\n[issuers.corp]",
    );
    let (gateway, mut log) = home.start_with_log();
    for (audience, client) in [("flowgate", "ci"), ("flowgate-2", "ci2")] {
        assert_eq!(ask_with(&gateway, &issuer.token(&json!({"aud": audience}))).0, 200);
        assert_eq!(log.next("turn")["client"], client);
    }
}

/// Each subject has its own conversations and limits, and is named in records.
#[test]
fn subjects_are_separate() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let home = home(&upstream, &issuer, "requests-per-minute = 2", POLICY);
    let gateway = home.start();
    let asks = |subject: &str| {
        let token = format!("Bearer {}", issuer.token(&json!({"sub": subject})));
        ask(&gateway, &[("authorization", &token), ("x-flowgate-conversation", "c1")]).0
    };
    let found: Vec<u16> =
        ["ann", "ann", "ann", "bob «x»", "bob «x»", "bob «x»"].into_iter().map(asks).collect();
    assert_eq!(found, [200, 200, 429, 200, 200, 429]);
    let (_, list) = gateway.get("/ui/api/conversations", &PersonClient(&gateway, "bob").key());
    let list: Value = serde_json::from_str(&list).unwrap();
    let mut names: Vec<&str> = list["conversations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["conversation"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names.len(), 2, "{names:?}");
    for (name, begin) in names.iter().zip(["«fgk:jwt-ann-", "«fgk:jwt-bob__x_-"]) {
        assert!(name.starts_with(begin) && name.ends_with("»c1"), "{name}");
    }
}

/// The policy learns the groups, also after a restart and on the page. Other groups are another conversation.
#[test]
fn a_policy_learns_groups() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("The money is here.")), IssuerDouble::new());
    let policy = POLICY.to_owned()
        + "raise \"money is for finance\" if:\n    (m: Message)\n    m.role == \"assistant\"\n    \"money\" in m.content\n    \
           not \"group:finance\" in input.groups\n    input.tenant == \"acme\"\n";
    let more = "groups = \"groups\"\ninput = { tenant = \"tid\" }";
    let home = home(&upstream, &issuer, more, &policy);
    let mut gateway = home.start();
    let claims = |groups: Value| json!({"groups": groups, "tid": "acme"});
    let check = |gateway: &TestGateway, claims: &Value, expected: bool| {
        let token = format!("Bearer {}", issuer.token(claims));
        let (status, body) = ask(gateway, &[("authorization", &token), ("x-flowgate-conversation", "c1")]);
        assert_eq!((status, body.contains("The money")), (200, expected), "{claims} {body}");
    };
    for _ in 0..2 {
        check(&gateway, &claims(json!(["hr", "finance"])), true);
        check(&gateway, &claims(json!(["finance", "hr"])), true);
        check(&gateway, &claims(json!(["hr"])), false);
        check(&gateway, &claims(Value::Null), false);
        gateway.stop();
        gateway = home.start();
    }
    let bob = PersonClient(&gateway, "bob").key();
    let (_, list) = gateway.get("/ui/api/conversations", &bob);
    let list: Value = serde_json::from_str(&list).unwrap();
    let list = list["conversations"].as_array().unwrap();
    assert_eq!(list.len(), 3);
    for one in list {
        let name = crate::issuer::encoded(one["conversation"].as_str().unwrap());
        let (status, shown) = gateway.get(&format!("/ui/api/conversation?client=ci&name={name}"), &bob);
        assert_eq!(status, 200, "{shown}");
    }
    // A claim of another form is refused, since the policy could not rely on it.
    for groups in [json!("finance"), json!([1]), json!({"finance": true}), json!(["x".repeat(257)])] {
        assert_eq!(ask_with(&gateway, &issuer.token(&claims(groups.clone()))).0, 401, "{groups}");
    }
}

/// A new key of the issuer is found when a token names it; names of keys that do not exist cause few fetches.
#[test]
fn keys_are_fetched_when_they_are_needed() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let gateway = home(&upstream, &issuer, "", POLICY).start();
    let first = issuer.token(&json!({}));
    assert_eq!(ask_with(&gateway, &first).0, 200);
    issuer.rotate(TestKey::ed("second"));
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 200);
    // The issuer has withdrawn the first key.
    assert_eq!(ask_with(&gateway, &first).0, 401);
    for number in 0..30 {
        let token = TestKey::ed(&format!("forged-{number}")).sign(&issuer.claims(&json!({})));
        assert_eq!(ask_with(&gateway, &token).0, 401);
    }
    // One at the start, and four in a minute.
    assert!(issuer.fetches() <= 5, "{}", issuer.fetches());
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 200);
}

/// Without the keys of the issuer, its tokens are refused; the log, the health and the metrics say why.
#[test]
fn an_issuer_without_keys_authenticates_nobody() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    for (answer, reason) in [
        (KeyAnswer::Error, "the issuer answered with the HTTP status 500: check its address and its log"),
        (
            KeyAnswer::Html,
            "the JWKS of the issuer (its keys): it is not JSON, or an object in it has a field twice: correct the JWKS, or check its address",
        ),
        (
            KeyAnswer::Redirect("http://169.254.169.254/keys"),
            "the issuer answered with the redirect 302, which is not followed: configure the address to which it leads",
        ),
        (KeyAnswer::Endless, "the answer of the issuer is longer than 512 KiB: check its address"),
        (
            KeyAnswer::Silence,
            "the issuer did not answer within 5 s: check its address and that this machine can reach it",
        ),
    ] {
        let issuer = IssuerDouble::new();
        issuer.answer_with(answer);
        let (gateway, mut log) = home(&upstream, &issuer, "", POLICY).start_with_log();
        let line = log.next("failure");
        let expected = format!(
            "issuers.corp: the keys of the issuer could not be fetched, so its tokens are refused: {reason}"
        );
        assert_eq!(line["message"], expected);
        let (status, body) = ask_with(&gateway, &issuer.token(&json!({})));
        assert_eq!(status, 401, "{body}");
        assert!(body.contains(REFUSAL), "{body}");
        assert_eq!(log.next("refused")["detail"], "the keys of the issuer of the token could not be fetched");
        // Other clients are served, so the gateway is not failing.
        let (status, health) = gateway.get("/health", KEY);
        assert!(status == 200 && health.contains(r#""late":["issuer"]"#), "{health}");
        let (_, metrics) = gateway.get("/metrics", KEY);
        assert!(metrics.contains("\nflowgate_issuers_without_keys 1\n"), "{metrics}");
        assert_eq!(ask_with(&gateway, KEY).0, 200);
        // The keys are there again.
        issuer.answer_with(KeyAnswer::Keys);
        assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 200, "{reason}");
        assert!(gateway.get("/health", KEY).1.contains(r#""late":[]"#));
        // The last keys count while the issuer does not answer.
        issuer.answer_with(KeyAnswer::Error);
        assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 200, "{reason}");
    }
}

/// Keys in a file need no network. The issuer of a description must be the configured one.
#[test]
fn keys_come_from_a_file_or_from_the_issuer_alone() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut from_file = home(&upstream, &issuer, "", POLICY);
    std::fs::write(from_file.folder().join("keys.json"), json!({"keys": [issuer.key().jwk()]}).to_string())
        .unwrap();
    from_file.edit("[people.bob]", "jwks-file = \"keys.json\"\nalgorithms = [\"EdDSA\"]\n[people.bob]");
    let gateway = from_file.start();
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 200);
    issuer.rotate(TestKey::ec("first"));
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 401);
    assert_eq!(issuer.fetches(), 0);
    for (description, reason) in [
        (
            json!({"issuer": "https://evil.example"}),
            "the OpenID configuration of the issuer names another issuer: correct `issuer` in [issuers.corp]",
        ),
        (
            json!({"issuer": null}),
            "the OpenID configuration of the issuer names another issuer: correct `issuer` in [issuers.corp]",
        ),
        (
            json!({"jwks_uri": null}),
            "the OpenID configuration of the issuer has no `jwks_uri`: check `issuer` in [issuers.corp]",
        ),
        (
            json!({"jwks_uri": "http://10.0.0.1/keys"}),
            "`jwks_uri` in the OpenID configuration of the issuer in [issuers.corp] is not a protected address \
            (`https://HOST…`, without a user name or password): correct it at the issuer",
        ),
        (
            json!({"jwks_uri": "file:///etc/passwd"}),
            "`jwks_uri` in the OpenID configuration of the issuer in [issuers.corp] is not a protected address \
            (`https://HOST…`, without a user name or password): correct it at the issuer",
        ),
    ] {
        issuer.describe_as(description);
        let (_gateway, mut log) = home(&upstream, &issuer, "", POLICY).start_with_log();
        let line = log.next("failure");
        assert!(line["message"].as_str().unwrap().ends_with(reason), "{line}");
    }
}

/// A token that is the provider's passes to it, for a client with a certificate; without one it is refused.
#[test]
fn a_reload_changes_who_is_accepted() {
    let (upstream, issuer) = (UpstreamDouble::new(|_| says("Hello.")), IssuerDouble::new());
    let mut home = home(&upstream, &issuer, "", POLICY);
    let (gateway, _log) = home.start_reloadable();
    let bob = format!("Bearer {}", PersonClient(&gateway, "bob").key());
    let reload =
        || assert_eq!(gateway.post("/api/v1/policies/reload", &[("authorization", &bob)], "").0, 200);
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 200);
    let before = issuer.fetches();
    home.edit("audience = \"flowgate\"", "audience = \"another\"");
    home.save();
    reload();
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({}))).0, 401);
    // The keys are known already, also while the issuer does not answer.
    issuer.answer_with(KeyAnswer::Error);
    assert_eq!(ask_with(&gateway, &issuer.token(&json!({"aud": "another"}))).0, 200);
    assert!(until(|| issuer.fetches() > before));
}
