//! Reads the configuration of MCP servers for `flowgate run`, `flowgate init`, `flowgate scan` and `flowgate mcp login`,
//! in the JSON form that MCP clients use (`mcpServers`). The result, one [`McpServerSpec`] for each server, says how to
//! start or reach the server.

use std::path::{Path, PathBuf};

use flowgate::json::{self, Numbers};
use flowgate_oauth::{ClientCredentials, ClientSecret, RegisteredClient, SecureUrl};
use serde_json::{Map, Value};

use super::oauth::{OAuthSpec, describe, has_authorization};

/// The name of a server, and how to start or reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpServerSpec {
    /// Its name in policies.
    pub(crate) name: String,
    /// How to start or reach it.
    pub(super) transport: ServerTransport,
}

/// The transport of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerTransport {
    /// A program, which communicates over its standard input and output.
    Command { command: String, args: Vec<String>, env: Vec<(String, String)>, cwd: Option<PathBuf> },
    /// The URL of a server that communicates over HTTP.
    Url { url: String, headers: Vec<(String, String)>, oauth: Option<OAuthSpec> },
}

impl McpServerSpec {
    /// Returns advice to the user if the server cannot be started or reached.
    pub(crate) fn advice(&self) -> String {
        match &self.transport {
            ServerTransport::Command { command, .. } => {
                format!("try to run `{}` by hand", crate::escaping::line(command))
            }
            ServerTransport::Url { oauth: None, .. } => "check its `url` and `headers`".to_owned(),
            ServerTransport::Url { oauth: Some(_), .. } => "check its `url` and `oauth`".to_owned(),
        }
    }

    /// Returns whether both servers are started or reached in the same way, whatever their names are.
    pub(crate) fn is_reached_like(&self, other: &Self) -> bool {
        self.transport == other.transport
    }

    /// Returns how the server is started or reached, on one line for a terminal: the command line as a shell reads it,
    /// with its working folder and its environment variables, or the URL with the names of its headers. The value of a
    /// variable is left out if its name is usual for secrets.
    pub(crate) fn launch(&self) -> String {
        let quoted = |text: &str| {
            // A text that a shell cannot read, since it has a NUL, is escaped like any other.
            let quoted =
                shlex::try_quote(text).map_or_else(|_| text.to_owned(), |quoted| quoted.into_owned());
            crate::escaping::line(&quoted)
        };
        match &self.transport {
            ServerTransport::Command { command, args, env, cwd } => {
                let words = std::iter::once(command).chain(args).map(|word| quoted(word));
                let mut line = words.collect::<Vec<_>>().join(" ");
                if let Some(cwd) = cwd {
                    line.push_str(&format!(" (in {})", quoted(&cwd.display().to_string())));
                }
                if !env.is_empty() {
                    let set = env.iter().map(|(name, value)| match is_secret_name(name) {
                        true => format!("{}=...", quoted(name)),
                        false => format!("{}={}", quoted(name), quoted(value)),
                    });
                    line.push_str(&format!(" (with {})", set.collect::<Vec<_>>().join(" ")));
                }
                line
            }
            ServerTransport::Url { url, headers, oauth } => {
                let names: Vec<String> = headers.iter().map(|(name, _)| quoted(name)).collect();
                let headers = match names.is_empty() {
                    true => String::new(),
                    false => format!(" (with the headers {})", names.join(", ")),
                };
                let oauth = oauth.as_ref().map(|oauth| format!(" ({})", describe(oauth)));
                format!("{}{headers}{}", crate::escaping::line(url), oauth.unwrap_or_default())
            }
        }
    }
}

/// Returns whether the value of an environment variable with this name is usually a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL", "COOKIE"].iter().any(|word| name.contains(word))
}

/// Advice about the form of the configuration, for error messages.
const FORM: &str = r#"write {"mcpServers": {"NAME": {"command": "...", "args": [...]}}}, or {"url": "..."} for a remote server"#;

/// Advice about the form of `oauth`, for error messages.
const OAUTH_FORM: &str = r#"write {"issuer": "https://...", "clientId": "...", "clientSecret": "${NAME}", "scopes": []}, or {} to log in with `flowgate mcp login`"#;

/// Reads the servers from the text of the configuration, without those that it disables. Relative paths start at
/// `folder`; `environment` returns the values of environment variables.
///
/// # Errors
/// If the text has another form, a name that policies cannot use, or a variable that is not set. The message has
/// advice.
pub(crate) fn read(
    text: &str,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<McpServerSpec>, String> {
    let value =
        json::parse(text, Numbers::Any).map_err(|error| format!("the file is not valid JSON: {error}"))?;
    let servers =
        value.get("mcpServers").ok_or_else(|| format!("the configuration has no `mcpServers`; {FORM}"))?;
    let servers = servers.as_object().ok_or_else(|| format!("`mcpServers` is not an object; {FORM}"))?;
    let mut specs = Vec::new();
    for (name, entry) in servers {
        let shown = crate::escaping::excerpt(name, 40);
        let at = |problem: String| format!("the server `{shown}`: {problem}");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            let problem = "policies cannot use this name; use up to 64 letters, digits, `-`, `_` and `.`";
            return Err(at(problem.to_owned()));
        }
        if name == flowgate::trace::Tool::FLOWGATE_SERVER {
            return Err(at("this name is reserved for Flowgate itself; use another name".to_owned()));
        }
        if entry.get("disabled") == Some(&Value::Bool(true)) {
            continue;
        }
        specs.push(read_entry(name, entry, folder, environment).map_err(at)?);
    }
    Ok(specs)
}

/// Reads one server from the text of the configuration; the other entries may have mistakes. The other arguments are
/// those of [`read`].
///
/// # Errors
/// If there is no such server, or its entry cannot be used. The message has advice.
pub(crate) fn read_named(
    text: &str,
    name: &str,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<McpServerSpec, String> {
    let value =
        json::parse(text, Numbers::Any).map_err(|error| format!("the file is not valid JSON: {error}"))?;
    let servers = value.get("mcpServers").and_then(Value::as_object);
    let servers = servers.ok_or_else(|| format!("the configuration has no `mcpServers`; {FORM}"))?;
    let shown = crate::escaping::excerpt(name, 40);
    let entry = servers.get(name).ok_or_else(|| {
        let known: Vec<String> = servers.keys().map(|name| crate::escaping::excerpt(name, 40)).collect();
        format!("there is no server `{shown}`; the servers are: {}", known.join(", "))
    })?;
    read_entry(name, entry, folder, environment).map_err(|problem| format!("the server `{shown}`: {problem}"))
}

/// Reads the entry of one server. `name` is what the returned server is called. The other arguments are those of
/// [`read`].
///
/// # Errors
/// If the entry has another form, or a variable is not set: a clause about the server, without its name.
pub(crate) fn read_entry(
    name: &str,
    entry: &Value,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<McpServerSpec, String> {
    let entry = entry.as_object().ok_or_else(|| format!("the entry is not an object; {FORM}"))?;
    let transport = ServerFields { entry, environment }.transport(folder)?;
    Ok(McpServerSpec { name: name.to_owned(), transport })
}

/// Reads the fields of one server, and replaces variables in their values.
struct ServerFields<'a> {
    entry: &'a Map<String, Value>,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl ServerFields<'_> {
    /// Returns how the server is started or reached: by a command, whose working folder is relative to `folder`, or at
    /// a URL. The error is a clause about the server, without the server's name.
    fn transport(&self, folder: &Path) -> Result<ServerTransport, String> {
        // Whether `type` says that the server is started by a command; `None` if there is no `type`.
        let is_local = match self.entry.get("type").and_then(Value::as_str) {
            None => None,
            Some("stdio") => Some(true),
            Some("http" | "streamable-http" | "streamableHttp") => Some(false),
            Some("sse") => {
                return Err(
                    "its `type` is `sse`, a transport that is no longer part of MCP; write `http` and the \
                    address for streamable HTTP"
                        .to_owned(),
                );
            }
            Some(unknown) => {
                let unknown = crate::escaping::excerpt(unknown, 40);
                return Err(format!("its `type` is `{unknown}`, which is unknown; write `stdio` or `http`"));
            }
        };
        match (self.text("command")?, self.text("url")?) {
            (Some(_), None) if is_local == Some(false) => Err(
                "its `type` is that of a server with a `url`, but it has a `command`; correct one of them"
                    .to_owned(),
            ),
            (None, Some(_)) if is_local == Some(true) => {
                Err("its `type` is `stdio`, but it has a `url`; write `http`, or a `command`".to_owned())
            }
            (Some(_), Some(_)) => Err("the entry has both `command` and `url`; leave one out".to_owned()),
            (None, None) => Err(format!("the entry has neither `command` nor `url`; {FORM}")),
            (Some(command), None) => self.command_transport(command, folder),
            (None, Some(url)) => self.url_transport(url),
        }
    }

    /// Returns the transport of a server that `command` starts. A relative working folder starts at `folder`.
    fn command_transport(&self, command: String, folder: &Path) -> Result<ServerTransport, String> {
        if command.is_empty() {
            return Err("its `command` is empty; write the program to run".to_owned());
        }
        let cwd = self.text("cwd")?.map(|cwd| folder.join(cwd));
        Ok(ServerTransport::Command { command, args: self.list("args")?, env: self.map("env")?, cwd })
    }

    /// Returns the transport of a server at `url`. Fails if this is not an address of HTTP, if it has a user or a
    /// password, or if the field `headers` or `oauth` cannot be used with it.
    fn url_transport(&self, url: String) -> Result<ServerTransport, String> {
        let uri: Option<::http::Uri> = url.parse().ok();
        // An address with a user and a password is refused, because keys belong in `headers`.
        let is_web = uri.as_ref().is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        });
        if !is_web {
            return Err(
                "its `url` is not an HTTP address, or has a user name before the host; write http://HOST or \
                        https://HOST, and put keys in `headers`"
                    .to_owned(),
            );
        }
        let (headers, oauth) = (self.map("headers")?, self.oauth()?);
        if oauth.is_some() && has_authorization(&headers) {
            return Err("the entry has both `oauth` and a header `Authorization`; leave one out".to_owned());
        }
        if oauth.is_some() && SecureUrl::parse(&url).is_none() {
            return Err(
                "others could read its tokens at its `url`; write one that begins with https://".to_owned()
            );
        }
        Ok(ServerTransport::Url { url, headers, oauth })
    }

    /// Reads the object `oauth`, which says how the tokens for a server are obtained; `None` if there is no such object.
    /// Its field `grant` is `client_credentials`, or `authorization_code` if a person logs in. Without this field, the
    /// tokens are obtained by client credentials if there is a secret, and otherwise by a login. Fails if a field is
    /// unknown, has another form, or is missing; or if a variable is not set.
    fn oauth(&self) -> Result<Option<OAuthSpec>, String> {
        let entry = match self.entry.get("oauth") {
            None | Some(Value::Null) => return Ok(None),
            Some(entry) => {
                entry.as_object().ok_or_else(|| format!("its `oauth` is not an object; {OAUTH_FORM}"))?
            }
        };
        let known = ["issuer", "clientId", "clientSecret", "scopes", "grant", "callbackPort"];
        if let Some(unknown) = entry.keys().find(|key| !known.contains(&key.as_str())) {
            let unknown = crate::escaping::excerpt(unknown, 40);
            return Err(format!("its `oauth` has the field `{unknown}`, which is unknown; {OAUTH_FORM}"));
        }
        let fields = ServerFields { entry, environment: self.environment };
        // An empty text counts as an absent one.
        let text = |key: &str| fields.text(key).map(|text| text.filter(|text| !text.is_empty()));
        let missing = |key: &str| format!("its `oauth` has no `{key}`; {OAUTH_FORM}");
        let issuer = text("issuer")?.map(|issuer| {
            SecureUrl::parse(&issuer).ok_or_else(|| {
                "the `issuer` in its `oauth` is not a URL of HTTPS; write https:// with a host".to_owned()
            })
        });
        let issuer = issuer.transpose()?;
        let (client_id, secret) = (text("clientId")?, text("clientSecret")?.map(ClientSecret::new));
        let scopes = fields.list("scopes")?;
        let has_login = match text("grant")?.as_deref() {
            None => secret.is_none(),
            Some("authorization_code") => true,
            Some("client_credentials") => false,
            Some(unknown) => {
                return Err(format!(
                    "the `grant` in its `oauth` is `{}`, which is unknown; write `authorization_code` or `client_credentials`",
                    crate::escaping::excerpt(unknown, 40)
                ));
            }
        };
        if has_login {
            let port = fields.port()?;
            // A secret belongs to a client that is registered at one issuer, so the configuration must name both.
            let client = match (client_id, secret) {
                (None, Some(_)) => return Err(missing("clientId")),
                (Some(_), Some(_)) if issuer.is_none() => return Err(missing("issuer")),
                (id, secret) => id.map(|id| RegisteredClient { id, secret }),
            };
            return Ok(Some(OAuthSpec::Login { issuer, client, scopes, port }));
        }
        if entry.contains_key("callbackPort") {
            return Err("its `oauth` has a `callbackPort`, which only logins use, but its grant is `client_credentials` (the \
                default with a `clientSecret`); leave the port out, or write `\"grant\": \"authorization_code\"` for a login"
                .to_owned());
        }
        Ok(Some(OAuthSpec::ClientCredentials(ClientCredentials {
            issuer: issuer.ok_or_else(|| missing("issuer"))?,
            client_id: client_id.ok_or_else(|| missing("clientId"))?,
            client_secret: secret.ok_or_else(|| missing("clientSecret"))?,
            scopes,
        })))
    }

    /// Reads `callbackPort`, the port of this machine at which the browser delivers the outcome of a login. Returns 0,
    /// which means any free port, if there is no such field. Any value that is not a port from 1 to 65535 is an error.
    fn port(&self) -> Result<u16, String> {
        let port = match self.entry.get("callbackPort") {
            None | Some(Value::Null) => return Ok(0),
            Some(port) => port.as_u64().and_then(|port| u16::try_from(port).ok()),
        };
        port.filter(|port| *port > 0).ok_or_else(|| {
            "the `callbackPort` in its `oauth` is not a port; write a number from 1 to 65535".to_owned()
        })
    }

    /// Returns the string at `key` with its variables replaced; `None` if there is no such field, or it is null.
    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => self.expand_variables(text, key).map(Some),
            Some(_) => Err(format!("its `{key}` is not a string; put it in quotation marks")),
        }
    }

    /// Reads the list of strings at `key` and replaces their variables. An absent list is empty. Fails if the value is
    /// not a list of strings, or a variable is not set.
    fn list(&self, key: &str) -> Result<Vec<String>, String> {
        let wrong = || format!("its `{key}` is not a list of strings; write [\"one\", \"two\"]");
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let items =
                    items.iter().map(|item| self.expand_variables(item.as_str().ok_or_else(wrong)?, key));
                items.collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Reads the object of strings at `key`, such as the environment variables of a server, and replaces variables in
    /// its values. An absent object is empty. Fails if the value is not an object of strings, or a variable is not set.
    fn map(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let wrong = || format!("its `{key}` is not an object of strings; write {{\"NAME\": \"value\"}}");
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(entries)) => {
                let entries = entries.iter().map(|(name, value)| {
                    let field = format!("{key}.{}", crate::escaping::excerpt(name, 40));
                    Ok((name.clone(), self.expand_variables(value.as_str().ok_or_else(wrong)?, &field)?))
                });
                entries.collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Replaces `${VAR}` and `${VAR:-default}` by the value of the variable or the default. `field` is the name of the
    /// field, for error messages. Fails if a `${` is not closed, or if a variable is not set and has no default.
    fn expand_variables(&self, text: &str, field: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let Some((inside, tail)) = after.split_once('}') else {
                return Err(format!("its `{field}` has a `${{` without `}}`; close it"));
            };
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (inside, None),
            };
            let value = (self.environment)(name).or(default).ok_or_else(|| {
                let name = crate::escaping::excerpt(name, 60);
                format!("its `{field}` needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}")
            })?;
            filled.push_str(&value);
            rest = tail;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a variable in an environment that has only `TOKEN`.
    fn environment(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "s3cret".to_owned())
    }

    /// Reads the servers of a configuration, and compares them in a short form, or the error, with `expected`.
    fn check(text: &str, expected: &str) {
        let shown = match read(text, Path::new("/etc/flowgate"), &environment) {
            Ok(specs) => specs
                .iter()
                .map(|spec| format!("{} {:?}", spec.name, spec.transport))
                .collect::<Vec<_>>()
                .join("; "),
            Err(error) => error,
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn servers_are_read() {
        check(
            r#"{"mcpServers": {"mail": {"command": "python3", "args": ["mail.py", "${TOKEN}"],
                "env": {"KEY": "${TOKEN}-${X:-none}"}, "cwd": "."}}}"#,
            r#"mail Command { command: "python3", args: ["mail.py", "s3cret"], env: [("KEY", "s3cret-none")], cwd: Some("/etc/flowgate/.") }"#,
        );
        check(
            r#"{"mcpServers": {"web": {"type": "http", "url": "https://x.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
                "off": {"disabled": true}}}"#,
            r#"web Url { url: "https://x.org/mcp", headers: [("Authorization", "Bearer s3cret")], oauth: None }"#,
        );
        check(
            r#"{"mcpServers": {"web": {"url": "https://x.org/mcp", "oauth": {"issuer": "https://id.example", "clientId": "c",
                "clientSecret": "${TOKEN}", "scopes": ["read"]}}}}"#,
            r#"web Url { url: "https://x.org/mcp", headers: [], oauth: Some(ClientCredentials(ClientCredentials { issuer: "https://id.example", client_id: "c", client_secret: ClientSecret(..), scopes: ["read"] })) }"#,
        );
        let login = |oauth: &str, shown: &str| {
            check(
                &format!(r#"{{"mcpServers": {{"web": {{"url": "https://x.org/mcp", "oauth": {oauth}}}}}}}"#),
                &format!(
                    r#"web Url {{ url: "https://x.org/mcp", headers: [], oauth: Some(Login {{ {shown} }}) }}"#
                ),
            );
        };
        login("{}", "issuer: None, client: None, scopes: [], port: 0");
        login(
            r#"{"clientId": "c", "scopes": ["read"], "callbackPort": 8080}"#,
            r#"issuer: None, client: Some(RegisteredClient { id: "c", secret: None }), scopes: ["read"], port: 8080"#,
        );
        login(
            r#"{"issuer": "https://id.example", "clientId": "c", "clientSecret": "${TOKEN}", "grant": "authorization_code"}"#,
            r#"issuer: Some("https://id.example"), client: Some(RegisteredClient { id: "c", secret: Some(ClientSecret(..)) }), scopes: [], port: 0"#,
        );
        check(r#"{"mcpServers": {}}"#, "");
    }

    #[test]
    fn a_launch_is_shown_on_one_line() {
        for (entry, expected) in [
            (
                r#"{"command": "python3", "args": ["a b.py", "--x\u001b[2J"]}"#,
                "python3 'a b.py' '--x\\u{1b}[2J'",
            ),
            (
                r#"{"command": "x", "env": {"API_KEY": "s3cret", "NODE_OPTIONS": "--require /tmp/a.js"}, "cwd": "."}"#,
                "x (in /etc/flowgate/.) (with API_KEY=... NODE_OPTIONS='--require /tmp/a.js')",
            ),
            (
                r#"{"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer s3cret"}}"#,
                "https://x.org/mcp (with the headers Authorization)",
            ),
            (
                r#"{"url": "https://x.org/mcp", "oauth": {"issuer": "https://id.example", "clientId": "c", "clientSecret": "s3cret"}}"#,
                "https://x.org/mcp (with tokens of https://id.example)",
            ),
        ] {
            let entry = serde_json::from_str(entry).unwrap();
            let spec = read_entry("a", &entry, Path::new("/etc/flowgate"), &environment).unwrap();
            assert_eq!(spec.launch(), expected, "{entry}");
        }
    }

    #[test]
    fn mistakes_name_the_server_and_what_to_do() {
        let one = |entry: &str| format!(r#"{{"mcpServers": {{"mail": {entry}}}}}"#);
        let form = FORM;
        check("{", "the file is not valid JSON: EOF while parsing an object at line 1 column 1");
        check(
            r#"{"mcpServers": {"a": {"command": "x"}, "a": {}}}"#,
            "the file is not valid JSON: duplicate key at line 1 column 42",
        );
        check("{}", &format!("the configuration has no `mcpServers`; {form}"));
        check(r#"{"mcpServers": []}"#, &format!("`mcpServers` is not an object; {form}"));
        check(
            r#"{"mcpServers": {"my mail": {}}}"#,
            "the server `my mail`: policies cannot use this name; use up to 64 letters, digits, `-`, `_` and \
            `.`",
        );
        for (entry, expected) in [
            ("3", format!("the entry is not an object; {form}")),
            ("{}", format!("the entry has neither `command` nor `url`; {form}")),
            (
                r#"{"command": "x", "url": "http://x"}"#,
                "the entry has both `command` and `url`; leave one out".to_owned(),
            ),
            (r#"{"command": 3}"#, "its `command` is not a string; put it in quotation marks".to_owned()),
            (r#"{"command": ""}"#, "its `command` is empty; write the program to run".to_owned()),
            (
                r#"{"command": "x", "args": "-y"}"#,
                "its `args` is not a list of strings; write [\"one\", \"two\"]".to_owned(),
            ),
            (
                r#"{"command": "x", "env": ["A=1"]}"#,
                "its `env` is not an object of strings; write {\"NAME\": \"value\"}".to_owned(),
            ),
            (
                r#"{"command": "x", "env": {"KEY": "${NOPE}"}}"#,
                "its `env.KEY` needs the variable NOPE, which is not set; set it, or write ${NOPE:-default}"
                    .to_owned(),
            ),
            (r#"{"command": "${X"}"#, "its `command` has a `${` without `}`; close it".to_owned()),
            (
                r#"{"url": "x.org"}"#,
                "its `url` is not an HTTP address, or has a user name before the host; write http://HOST or https://HOST, and \
                put keys in `headers`"
                    .to_owned(),
            ),
            (
                r#"{"url": "https://me:pw@x.org"}"#,
                "its `url` is not an HTTP address, or has a user name before the host; write http://HOST or https://HOST, and \
                put keys in `headers`"
                    .to_owned(),
            ),
            (
                r#"{"url": "http://x.org", "oauth": {}}"#,
                "others could read its tokens at its `url`; write one that begins with https://".to_owned(),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"clientSecret": "s", "grant": "authorization_code"}}"#,
                format!("its `oauth` has no `clientId`; {OAUTH_FORM}"),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"clientId": "c", "clientSecret": "s", "grant": "authorization_code"}}"#,
                format!("its `oauth` has no `issuer`; {OAUTH_FORM}"),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"clientId": "c", "grant": "client_credentials"}}"#,
                format!("its `oauth` has no `issuer`; {OAUTH_FORM}"),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"grant": "password"}}"#,
                "the `grant` in its `oauth` is `password`, which is unknown; write `authorization_code` or `client_credentials`"
                    .to_owned(),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"callbackPort": 65536}}"#,
                "the `callbackPort` in its `oauth` is not a port; write a number from 1 to 65535".to_owned(),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"issuer": "https://id.example", "clientId": "c", "clientSecret": "s", "callbackPort": 1}}"#,
                "its `oauth` has a `callbackPort`, which only logins use, but its grant is `client_credentials` (the default \
                with a `clientSecret`); leave the port out, or write `\"grant\": \"authorization_code\"` for a login"
                    .to_owned(),
            ),
            (
                r#"{"url": "https://x.org", "oauth": {"secret": 1}}"#,
                format!("its `oauth` has the field `secret`, which is unknown; {OAUTH_FORM}"),
            ),
            (
                r#"{"type": "sse", "url": "http://x"}"#,
                "its `type` is `sse`, a transport that is no longer part of MCP; write `http` and the \
                address for streamable HTTP"
                    .to_owned(),
            ),
            (
                r#"{"type": "ws", "url": "http://x"}"#,
                "its `type` is `ws`, which is unknown; write `stdio` or `http`".to_owned(),
            ),
        ] {
            check(&one(entry), &format!("the server `mail`: {expected}"));
        }
    }
}
