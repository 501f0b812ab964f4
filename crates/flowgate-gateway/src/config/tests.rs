//! Tests of valid configuration files, and of the error messages about invalid ones.

use std::sync::LazyLock;

use super::*;

const UPSTREAM: &str = "[upstreams.local]\nurl = \"http://localhost:8080/v1\"\n";
const CLIENT: &str = "[clients.a]\nkey-from = \"KEY\"\nupstream = \"local\"\npolicy = \"p.flow\"\n";

/// The folder with the files that configurations name. It is written once, since tests run at the same time.
static FOLDER: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("flowgate-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.flow"), "lattice integrity: trusted < untrusted\n").unwrap();
    std::fs::write(folder.join("asks.flow"), "extern is_friend(name: str) -> bool\n").unwrap();
    std::fs::write(folder.join("bad.flow"), "lattice integrity: trusted <\n").unwrap();
    std::fs::create_dir_all(folder.join("shared")).unwrap();
    std::fs::write(folder.join("imports.flow"), "import \"shared/b.flow\"\nimport \"p.flow\"\n").unwrap();
    std::fs::write(folder.join("shared/b.flow"), "import \"../p.flow\"\n").unwrap();
    std::fs::write(folder.join("imports-bad.flow"), "import \"bad.flow\"\nx := \n").unwrap();
    std::fs::write(folder.join("imports-none.flow"), "import \"none.flow\"\n").unwrap();
    std::fs::write(folder.join("store.key"), format!("{}\n{}\n", "00".repeat(32), "11".repeat(32))).unwrap();
    folder
});

fn error_of(text: &str) -> String {
    let folder = &*FOLDER;
    let environment = |name: &str| match name {
        "ANN" => Some("fedcba9876543210".to_owned()),
        "KEY" => Some("0123456789abcdef".to_owned()),
        "SHORT" => Some("hunter2".to_owned()),
        _ => None,
    };
    let read = read(text, folder, &environment);
    read.map_or_else(
        |error| error.to_string().replace(&folder.display().to_string(), "DIR"),
        |_| String::new(),
    )
}

/// Returns a file with two keys of a database.
fn store_key() -> std::path::PathBuf {
    FOLDER.join("store.key")
}

/// Checks the error about a configuration; an empty text for a valid one.
fn check(text: &str, expected: &str) {
    assert_eq!(error_of(text), expected, "{text}");
}

/// Returns a configuration with one upstream, one client and these lines: further fields of the client, or sections.
fn with(more: &str) -> String {
    format!("{UPSTREAM}{CLIENT}{more}")
}

/// Returns a configuration whose client has another field in place of one of [`CLIENT`].
fn replaced(field: &str, other: &str) -> String {
    format!("{UPSTREAM}{}", CLIENT.replace(field, other))
}

#[test]
fn the_example_is_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway");
    let text = std::fs::read_to_string(folder.join("gateway.toml")).unwrap();
    let key = |_: &str| Some("0123456789abcdef".to_owned());
    let config = read(&text, &folder, &key).unwrap();
    let clients: Vec<&str> = config.clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(clients, ["assistant"]);
    // The template leaves these out for the reader to fill in.
    let filled = text.replace("# models", "models").replace("# key-from", "key-from");
    assert!(read(&filled, &folder, &key).is_ok());
}

#[test]
fn problems_of_upstreams_are_named() {
    let with_ca = |url: &str, file: &str| {
        UPSTREAM.replace("http://localhost:8080", url) + &format!("ca-file = \"{file}\"\n") + CLIENT
    };
    check(
        &with_ca("http://localhost", "p.flow"),
        "upstreams.local: the section has a `ca-file`, but its `url` does not begin with https://: correct the `url`, or remove the `ca-file`",
    );
    check(
        &with_ca("https://localhost", "p.flow"),
        "upstreams.local: ca-file: DIR/p.flow: the file contains no certificate; a certificate in PEM begins \
        with `-----BEGIN CERTIFICATE-----`",
    );
    check(
        &with_ca("https://localhost", "none.pem"),
        "upstreams.local: ca-file: DIR/none.pem: there is no file of this name; relative paths begin at the \
        folder of the configuration",
    );
    check(
        &format!("{UPSTREAM}pass-key = true\nkey-from = \"KEY\"\n{CLIENT}"),
        "upstreams.local: the section has both a key and `pass-key`: remove the key if clients send their own, or `pass-key` otherwise",
    );
    check(
        &format!("{UPSTREAM}prompt-caching = true\n{CLIENT}"),
        "upstreams.local: prompt-caching: servers of the API `chat-completions` cache without being asked: remove the field",
    );
    check(&format!("{UPSTREAM}api = \"messages\"\nprompt-caching = true\n{CLIENT}"), "");
}

#[test]
fn problems_of_clients_are_named() {
    check(&with(""), "");
    check(
        UPSTREAM,
        "the configuration has no client: write [clients.NAME] with key-from, upstream and policy",
    );
    check(
        &with("polcy = \"x\"\n"),
        "line 7: unknown field `polcy`, expected one of `mode`, `key-from`, `key-file`, `certificate`, `token`, `tenant`, `owner`, `policy`, `upstream`, `mcp`, `fallback`, `small-model`, `method`, `step-labels`, `interactive`, `user-messages`, `system-messages`, `safeguards`, `guardrail`, `pinned`, `input`, `requests-per-minute`, `tokens-per-day`, `cost-per-day`, `parallel`, `sessions`",
    );
    check(
        CLIENT,
        "clients.a: the configuration has no upstream `local`, and no other upstream: add a section for it",
    );
    check(
        &replaced("KEY", "OTHER"),
        "clients.a: the environment variable OTHER is not set: export it before the start, with the key that the provider gave you; for a client or a person, with a key from `openssl rand -hex 16`",
    );
    check(
        &replaced("KEY", "SHORT"),
        "clients.a: the key is too short and can be guessed: use at least 16 characters",
    );
    check(
        &with("method = \"lowestfirst\"\n"),
        "clients.a: there is no method `lowestfirst`; did you mean `lowest-first`? there are: lowest-first, cheapest-first, judge, introspection, \
         provenance, everything, tool-filter, confirm-acting, never-look",
    );
    check(
        &format!("{UPSTREAM}{CLIENT}{}", CLIENT.replace("clients.a", "clients.b")),
        "clients.b: the key is also that of a: give each client its own key",
    );
    check(
        &with("mcp = [\"web\"]\n"),
        "clients.a: the configuration has no server `web`, and no other server: add a section for it",
    );
    check(
        &CLIENT.replace("upstream = \"local\"\n", ""),
        "clients.a: the section has no upstream: write upstream = \"NAME\", or mcp = [\"NAME\"], or guardrail = true",
    );
    check(&with("owner = \"ann\"\n"), "clients.a: there is no person `ann`: write [people.ann]");
}

/// A policy, and the files that it imports.
#[test]
fn problems_of_policies_are_named() {
    check(&replaced("p.flow", "imports.flow"), "");
    check(
        &replaced("p.flow", "imports-bad.flow"),
        "clients.a: DIR/imports-bad.flow:3:1: expected a value, found the end of the policy (and 1 more error: run `flowgate check DIR/imports-bad.flow`)",
    );
    check(
        &replaced("p.flow", "imports-none.flow"),
        "clients.a: DIR/imports-none.flow:1:1: `none.flow` cannot be imported: DIR/none.flow: there is no file of this name; relative paths begin at the folder of the configuration",
    );
    check(
        &replaced("p.flow", "bad.flow"),
        "clients.a: DIR/bad.flow:1:29: expected an element, found the end of the line",
    );
}

#[test]
fn problems_of_watch_mode_are_named() {
    let watching = |more: &str| format!("{UPSTREAM}{CLIENT}mode = \"watch\"\n{more}");
    check(&watching("[watch]\nfile = \"watch.jsonl\"\n"), "");
    check(
        &watching(""),
        "clients.a: mode: watch mode needs a file for the verdicts: write file = \"watch.jsonl\" in [watch]",
    );
    check(
        &with("[watch]\nfile = \"watch.jsonl\"\n"),
        "watch: no client watches: write mode = \"watch\" in [clients.NAME], or remove the section",
    );
    check(&with("mode = \"off\"\n"), "line 7: unknown variant `off`, expected `enforce` or `watch`");
}

#[test]
fn problems_of_predicates_are_named() {
    let asks = |more: &str| format!("{UPSTREAM}{}{more}", CLIENT.replace("p.flow", "asks.flow"));
    check(&asks("[predicates]\nis_friend = \"http://127.0.0.1:9/ask\"\n"), "");
    check(
        &asks(""),
        "clients.a: the extern predicate `is_friend` has no implementation: write is_friend = \"http://...\" or \"FILE.wasm\" in [predicates]",
    );
    check(
        &asks("[predicates]\nis_friend = \"ask.py\"\n"),
        "predicates.is_friend: the source must be an address that begins with http://, or a FILE.wasm",
    );
    check(
        &asks("[predicates]\nis_friend = \"https://a.b\"\n"),
        "predicates.is_friend: the address does not begin with http://: for a service on another machine, \
        use a local proxy that adds TLS",
    );
    check(
        &asks("[predicates]\nis_friend = \"http://\"\n"),
        "predicates.is_friend: the address has no host after http://: write the host, the port and the path of \
        the service, such as http://127.0.0.1:9000/is_customer",
    );
    check(
        &asks("[predicates]\nis_friend = \"http://a.b\"\nis_foe = \"http://a.b\"\n"),
        "predicates: no policy declares `extern is_foe`: declare it in a policy, or remove the entry",
    );
}

#[test]
fn problems_of_the_database_are_named() {
    check(
        &with("[store]\nurl = \"mysql://db/x\"\n"),
        "store: the address of the database is none of `sqlite:FILE`, \
        `postgres://USER:PASSWORD@HOST/DATABASE` and `memory`: write one of these forms",
    );
    check(
        &with("[store]\nurl-from = \"DATABASE\"\n"),
        "store: the environment variable DATABASE is not set: set it to the address of the database",
    );
    check(&with(&format!("[store]\nencryption-key-file = \"{}\"\n", store_key().display())), "");
    check(
        &with("[store]\nencryption-key-from = \"ABSENT\"\n"),
        "store: encryption-key-from: the environment variable ABSENT is not set: set it to a key from `openssl rand -base64 32`",
    );
    check(
        &with("[store]\nencryption-key-from = \"SHORT\"\n"),
        "store: encryption-key-from: key 1 is not 32 bytes in base64 or hexadecimal: write one from `openssl rand -base64 32`",
    );
    check(
        &with("[store]\nencryption-key-from = \"KEY\"\nencryption-key-file = \"x\"\n"),
        "store: the section has both `encryption-key-from` and `encryption-key-file`: remove one of them",
    );
}

/// The section of the audit log, and of its witness.
#[test]
fn problems_of_the_audit_log_are_named() {
    check(
        &with("[audit]\nfile = \"audit.jsonl\"\ncontent-days = 0\n"),
        "line 9: invalid value: integer `0`, expected a nonzero u32",
    );
    let witness = |more: &str| with(&format!("[audit]\nfile = \"audit.jsonl\"\n[audit.witness]\n{more}\n"));
    check(&witness("file = \"heads.jsonl\""), "");
    check(
        &witness("url = \"https://localhost/heads\"\nkey-from = \"KEY\"\nrequired = true\nbehind-lines = 0"),
        "",
    );
    check(
        &witness("every = 9"),
        "audit.witness: the section has neither `file` nor `url`: write file = \"FILE\" or url = \"https://...\"",
    );
    check(
        &witness("file = \"audit.jsonl\""),
        "audit.witness: `file` is the file of the audit log itself: name another one, preferably on another \
        machine",
    );
    check(
        &witness("url = \"ftp://localhost\""),
        "audit.witness: the address in `url` does not begin with https:// or http://: write the whole address",
    );
    check(
        &witness("file = \"heads.jsonl\"\nkey-from = \"KEY\""),
        "audit.witness: the section has a key or a `ca-file`, but no server that uses them: write url = \
        \"https://...\", or remove them",
    );
    check(
        &witness("file = \"heads.jsonl\"\nbehind-seconds = 9"),
        "audit.witness: `behind-lines` and `behind-seconds` have no effect without `required`: write \
        required = true, or remove them",
    );
    check(
        &witness("url = \"https://localhost\"\nkey-from = \"OTHER\""),
        "audit.witness: the environment variable OTHER is not set: export it before the start, with the key that the provider gave you; for a client or a person, with a key from `openssl rand -hex 16`",
    );
}

#[test]
fn problems_of_people_are_named() {
    check(
        &with("[people.ann]\nkey-from = \"KEY\"\nrole = \"admin\"\n"),
        "people.ann: the key is also that of a: give each person their own key",
    );
    check(
        &with("[people.ann]\nrole = \"admin\"\n"),
        "people.ann: the section does not say how the person authenticates: write key-from = \"VARIABLE\" or key-file = \"FILE\", or a `subject` with [login.oidc]",
    );
    check(
        &with("[people.ann]\nkey-from = \"KEY\"\nrole = \"boss\"\n"),
        "line 9: unknown variant `boss`, expected one of `viewer`, `approver`, `admin`",
    );
}

#[test]
fn problems_of_mcp_servers_are_named() {
    check(
        &with("[mcp.web]\nurl = \"web\"\n"),
        "mcp.web: the address in `url` does not begin with https:// or http://: write the whole address",
    );
    check(
        &with("[mcp.flowgate]\nurl = \"http://web\"\n"),
        "mcp.flowgate: this name is reserved for the gateway itself: give the server another name",
    );
    let oauth =
        |url: &str, oauth: &str| with(&format!("[mcp.web]\nurl = \"{url}\"\noauth = {{ {oauth} }}\n"));
    let whole = "issuer = \"https://id.example\", client-id = \"c\", client-secret-from = \"KEY\"";
    for (text, expected) in [
        (
            oauth("http://web", whole),
            "oauth: tokens cannot be sent to `url` safely: write an address that begins with https://, without a user name and without `#`",
        ),
        (
            oauth("https://web", "issuer = \"http://id.example\""),
            "oauth: a secret cannot be sent to `issuer` safely: write an address that begins with https://, without a user name and without `#`",
        ),
        (
            oauth("https://web", ""),
            "oauth: the section has no `issuer`: write it, or the `token-file` of a login",
        ),
        (
            oauth("https://web", "issuer = \"https://id.example\""),
            "oauth: the section has no `client-id`: write it, or the `token-file` of a login",
        ),
        (
            oauth("https://web", "issuer = \"https://id.example\", client-id = \"c\""),
            "oauth: the section has no `client-secret-from`: write it, or the `token-file` of a login",
        ),
        (
            oauth("https://web", &format!("{whole}, token-file = \"t.json\"")),
            "oauth: the section has a `token-file`, which has the client and the scopes of the login: remove `client-id`, the secret and `scopes`",
        ),
        (
            oauth("https://web", whole) + "key-from = \"KEY\"\n",
            "the section has both a key and `oauth`: remove one of them",
        ),
    ] {
        check(&text, &format!("mcp.web: {expected}"));
    }
    check(
        &with("[mcp.web]\nurl = \"http://web\"\ntools = \"all\"\n"),
        "mcp.web: `tools` is neither \"first\" (the tools of the first list are on offer) nor \"approved\" \
        (tools that a person approves are on offer): write one of them",
    );
}

#[test]
fn problems_of_approvals_are_named() {
    check(
        &with("[approvals]\nwebhook = \"https://chat.example\"\n"),
        "approvals: the webhook has no secret to sign with: write webhook-secret-from = \"VARIABLE\"",
    );
    check(
        &with("[approvals]\nwebhook-format = \"slack\"\n"),
        "approvals: the section has a `webhook-format`, but no `webhook`: write webhook-from = \"VARIABLE\", or remove the format",
    );
    check(
        &with("[approvals]\nwebhook = \"https://a.example\"\nwebhook-from = \"B\"\n"),
        "approvals: the section has both `webhook` and `webhook-from`: remove one of them",
    );
    check(
        &with("[approvals]\npage = \"gateway\"\n"),
        "approvals: page: `gateway` does not begin with https:// or http://: write the address by which people \
         open the page",
    );
}

/// Returns the section of an issuer with these lines.
fn issuer(more: &str) -> String {
    format!("[issuers.corp]\nissuer = \"https://login.example\"\n{more}\n")
}

/// Returns a configuration with an issuer with these lines, or with these sections after it.
fn with_issuer(more: &str) -> String {
    format!("{UPSTREAM}{}{CLIENT}", issuer(more))
}

/// Returns a configuration whose client authenticates itself by tokens, with these lines in their section.
fn with_token(more: &str) -> String {
    with_issuer("") + &format!("[clients.a.token]\nissuer = \"corp\"\naudience = \"gate\"\n{more}\n")
}

/// Returns a configuration with the section of logins, with these lines or sections after it.
fn with_login(more: &str, redirect: &str) -> String {
    with_issuer("")
        + &format!(
            "[login.oidc]\nissuer = \"corp\"\nclient-id = \"gate\"\nredirect = \"{redirect}\"\n{more}\n"
        )
}

/// The address to which an issuer sends people back.
const REDIRECT: &str = "https://gate.example/ui/login/callback";

#[test]
fn problems_of_issuers_are_named() {
    check(&with_issuer("leeway-seconds = 300\nalgorithms = [\"ES256\"]"), "");
    check(
        &with_issuer("leeway-seconds = 301"),
        "issuers.corp: `leeway-seconds` is more than 300: set at most that, and correct the clocks",
    );
    check(
        &with_issuer("algorithms = [\"ES256\", \"HS256\"]"),
        "issuers.corp: algorithms: `HS256` is not an algorithm with a public key: use some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA",
    );
    check(
        &with_issuer("algorithms = [\"none\"]"),
        "issuers.corp: algorithms: `none` is not an algorithm with a public key: use some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA",
    );
    check(
        &with_issuer("jwks-url = \"http://login.example/keys\""),
        "issuers.corp: the address in `jwks-url` does not begin with https://: write one that does; http:// is \
         for this machine only",
    );
    check(
        &with_issuer("").replace("https://login", "http://login"),
        "issuers.corp: the address in `issuer` does not begin with https://: write one that does; http:// is for \
         this machine only",
    );
    check(
        &with_issuer("jwks-url = \"https://login.example/keys\"\njwks-file = \"keys.json\""),
        "issuers.corp: the section has both `jwks-file` and `jwks-url`: remove one of them",
    );
    check(
        &with_issuer("jwks-file = \"p.flow\""),
        "issuers.corp: jwks-file: DIR/p.flow: it is not JSON, or an object in it has a field twice: correct the JWKS, or check its address",
    );
    check(
        &with_issuer("[issuers.other]\nissuer = \"https://login.example\""),
        "issuers.other: `issuer` is the same as in issuers.corp: write one section for both",
    );
}

#[test]
fn problems_of_tokens_are_named() {
    check(
        &with_token("groups = \"groups\"\nclaims = { team = \"x\", n = 1, on = true, list = [\"a\"] }"),
        "",
    );
    check(
        &with_token("").replace("issuer = \"corp\"", "issuer = \"core\""),
        "clients.a: token: the configuration has no issuer `core`: write one of corp, or add a section for it",
    );
    check(
        &with_token("").replace("\"gate\"", "\"\""),
        "clients.a: token: `audience` is empty: write the audience that the issuer puts into tokens for this gateway",
    );
    check(
        &with_token("input = { groups = \"g\" }\ngroups = \"groups\""),
        "clients.a: token: the policy's parameter `groups` is set twice, by the setting `groups` and by `input.groups` of this section: remove one of them",
    );
    check(
        &with_token("groups = \"groups\"")
            .replace("[clients.a.token]", "input = { groups = 1 }\n[clients.a.token]"),
        "clients.a: token: the parameter `groups` is set by `input` of the client and by a claim: remove one of them",
    );
    check(
        &with_token("claims = { team = { a = 1 } }"),
        "clients.a: token: claims: the value of `team` is a table: write a string, a number, a bool or a list",
    );
    let second = "[clients.b]\nupstream = \"local\"\npolicy = \"p.flow\"\n[clients.b.token]\nissuer = \"corp\"\naudience = \"gate\"\n";
    check(
        &(with_token("") + second),
        "clients.b: token: the client a accepts the same tokens: write different `claims`, or another `audience`",
    );
    check(&(with_token("") + second + "claims = { team = \"x\" }\n"), "");
    check(
        &with_token("").replace("[clients.a]\n", "[clients.a]\nguardrail = true\n"),
        "clients.a: guardrail: another gateway sends one key for all its agents, so `token` cannot apply: remove one of the settings",
    );
}

#[test]
fn problems_of_logins_are_named() {
    check(&with_login("[people.ann]\nsubject = \"1\"\nrole = \"viewer\"", REDIRECT), "");
    let no_redirect = "login.oidc: `redirect` is not of the form https://GATEWAY/ui/login/callback: write the address by which browsers reach this gateway";
    check(&with_login("", "https://gate.example/ui/"), no_redirect);
    check(&with_login("", "http://gate.example/ui/login/callback"), no_redirect);
    check(
        &with_login("scopes = [\"groups\"]", REDIRECT),
        "login.oidc: `scopes` lacks \"openid\", without which the issuer returns no ID token: add it",
    );
    check(
        &with_login("[login.oidc.groups.g]\nrole = \"viewer\"\nmay-read = \"trusted, readers(*)\"", REDIRECT),
        "login.oidc: groups.g: may-read: no policy of a client that this person can see declares `lattice readers: readers`: correct the name, or declare the lattice",
    );
    let deciders = "[login.oidc.groups.desk]\nrole = \"approver\"\n";
    let owned = |person: &str| {
        with_login(
            &format!("{deciders}[people.ann]\nkey-from = \"ANN\"\nrole = \"viewer\"\n{person}"),
            REDIRECT,
        )
        .replace("[clients.a]\n", "[clients.a]\nowner = \"ann\"\n")
    };
    check(&owned("subject = \"1\""), "");
    check(
        &owned(""),
        "clients.a: its owner `ann` may be in a group of [login.oidc.groups] and then decide the client's questions: write the owner's `subject` in [people.ann]",
    );
    let both = with_token("") + &with_login("", REDIRECT).replace(&with_issuer(""), "");
    check(&both.replace("\"gate\"\nredirect", "\"page\"\nredirect"), "");
    check(
        &both,
        "clients.a: token: `audience` is the `client-id` of [login.oidc], so everyone who can log in at the issuer could use the client: let the issuer make tokens for another audience",
    );
    check(
        &(with_issuer("") + "[people.ann]\nsubject = \"1\"\nrole = \"viewer\"\n"),
        "people.ann: subject: people can log in at an issuer only with [login.oidc]: write the section, or remove the line",
    );
    check(
        &with_login(
            "[people.ann]\nsubject = \"1\"\nrole = \"viewer\"\n[people.bob]\nsubject = \"1\"\nrole = \"admin\"",
            REDIRECT,
        ),
        "people.bob: the subject is also that of ann: give each person their own",
    );
    check(
        &with_login("[people.\"group:a\"]\nsubject = \"1\"\nrole = \"viewer\"", REDIRECT),
        "people.group:a: the name begins with `group:`, by which lists of readers mark groups: rename the section",
    );
}

/// A key that has another key as a prefix is hidden completely.
#[test]
fn longer_keys_are_hidden_first() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway");
    let text = std::fs::read_to_string(folder.join("gateway.toml")).unwrap();
    let text = text + "\n[people.ann]\nkey-from = \"ANN\"\nrole = \"viewer\"\n";
    let key = |name: &str| {
        Some(if name == "ANN" { "0123456789abcdef-and-more" } else { "0123456789abcdef" }.to_owned())
    };
    let config = read(&text, &folder, &key).unwrap();
    let hidden =
        config.keys.iter().fold("0123456789abcdef-and-more".to_owned(), |text, key| key.redacted_from(&text));
    assert_eq!((config.keys.len(), hidden.as_str()), (2, "[key]"));
}

#[test]
fn the_policy_learns_the_tenant() {
    let check = |lines: &str, expected: serde_json::Value, is_in_fingerprint: bool| {
        let key = |_: &str| Some("0123456789abcdef".to_owned());
        let client = |lines: &str| {
            read(&format!("{UPSTREAM}{CLIENT}{lines}"), &FOLDER, &key).unwrap().clients.remove(0)
        };
        let (found, plain) = (client(lines), client(""));
        assert_eq!(serde_json::Value::from(found.input), expected, "{lines}");
        assert_eq!(found.config_fingerprint != plain.config_fingerprint, is_in_fingerprint, "{lines}");
    };
    check("", serde_json::json!({"tenant": "a"}), false);
    check("tenant = \"acme\"", serde_json::json!({"tenant": "acme"}), true);
    check("input = { n = 1 }", serde_json::json!({"n": 1, "tenant": "a"}), true);
    check("tenant = \"acme\"\ninput = { tenant = 3 }", serde_json::json!({"tenant": 3}), true);
}
