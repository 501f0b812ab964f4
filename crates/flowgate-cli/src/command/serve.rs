//! Runs `flowgate serve`: starts the gateway, which serves the policy API, the model routes and the MCP routes over
//! HTTP until a signal ends it. The policy API judges traces by policies; the other routes guard the requests of
//! clients to models and to MCP servers. With `--check`, only checks the configuration.

use std::io::{IsTerminal as _, stderr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use flowgate::policy::Dialect;
use flowgate_gateway::config;
use flowgate_gateway::http::access::{AccessControl, BearerToken};
use flowgate_gateway::http::server::{ServeConfig, ShutdownOutcome, serve};
use flowgate_gateway::limits::ServerLimits;
use flowgate_gateway::log::OperatorLog;
use flowgate_gateway::{visibility, watching};
use flowgate_guard::method::MethodRegistry;

use crate::args::ServeArgs;
use crate::input::{InputError, read_short_text};
use crate::output::{Console, plural, policy_file_name};

/// The environment variable with the token of the policy API.
const TOKEN_VARIABLE: &str = "FLOWGATE_TOKEN";

/// Runs `flowgate serve`: reads the configuration, prints warnings about it, and serves until a signal ends the
/// gateway. With `--check`, only checks the configuration. Returns 1 if there is a warning and `--deny-warnings` is
/// given, otherwise 0.
pub(crate) fn run(options: &ServeArgs, output: &mut Console) -> Result<u8, InputError> {
    // The files and services that the options name are read first, so that `--check` also reports their errors.
    let token = token(options.token_file.as_deref())?;
    let access = AccessControl::for_address(options.listen, token, options.allow_anonymous)
        .map_err(|error| InputError(format!("{}: {error}", options.listen)))?;
    let dialect = if options.compat { Dialect::Compat } else { Dialect::Flowgate };
    let predicate_sources = options.answering.predicate_sources()?;
    // The whole configuration; `None` for a gateway without models.
    let models = options.config.as_deref().map(gateway_config).transpose()?;
    let format_of_file = models.as_ref().and_then(|models| models.log_format);
    let log = OperatorLog::new(
        options.log_format.map(Into::into).or(format_of_file).unwrap_or_default(),
        std::io::stderr(),
    );
    if let (Some(models), Some(path)) = (&models, options.config.as_deref()) {
        if let Some(code) = check_configuration(models, path, options, output) {
            return Ok(code);
        }
        output.note(&format!("conversations are kept in {}", models.store.address.name()));
        if let Some(person) = &options.login_link {
            check_login_link(models, path, person)?;
        }
    }
    let scheme = if models.as_ref().is_some_and(|models| models.tls.is_some()) { "https" } else { "http" };
    // Reads the configuration again, for a reload while the gateway runs.
    let loader = options.config.clone().map(|path| {
        config::ConfigLoader::new(move || gateway_config(&path).map_err(|error| error.to_string()))
    });
    let config = ServeConfig {
        listen: options.listen,
        dialect,
        access,
        predicate_sources,
        models,
        loader,
        limits: limits(options),
        log,
    };
    let ended = serve(config, |server| {
        let address = server.address();
        output.note(&format!("listening on {scheme}://{address}; Ctrl-C stops"));
        if let Some(person) = &options.login_link {
            match server.login_link(person) {
                Some(link) => output.note(&format!(
                    "login link of {person}, for one login within five minutes: {scheme}://{address}{link}"
                )),
                None => output.error("there is no login link, since the system returned no random bytes; use `flowgate login-link`"),
            }
        }
    });
    let ended = ended.map_err(|error| InputError(error.to_string()))?;
    if ended == ShutdownOutcome::Cut {
        output.note("some connections or turns were still open when the gateway stopped, and were ended");
    }
    Ok(0)
}

/// Prints warnings about `settings`, the configuration in the file at `path`, and, with `--check`, a summary. Returns
/// the exit code if the gateway does not start: with `--check`, or because `--deny-warnings` forbids a warning.
fn check_configuration(
    settings: &config::GatewayConfig,
    path: &Path,
    options: &ServeArgs,
    output: &mut Console,
) -> Option<u8> {
    let count = print_warnings(settings, options.check || options.deny_warnings, output);
    if options.check {
        for field in &settings.overridden_fields {
            output.note(&format!("`{field}` is set by an environment variable"));
        }
        let clients = count_of(settings.clients.len(), "client");
        output.line(&format!("{}: {clients}, {}", path.display(), count_of(count, "warning")));
    }
    if count > 0 && options.deny_warnings {
        return Some(1);
    }
    options.check.then_some(0)
}

/// Checks that a login link of a person can be printed: there is such a person, and the standard error is a terminal.
/// `settings` is the configuration in the file at `path`.
///
/// # Errors
/// If there is no such person, or the standard error is not a terminal.
fn check_login_link(settings: &config::GatewayConfig, path: &Path, person: &str) -> Result<(), InputError> {
    if !settings.people.iter().any(|known| known.name == person) {
        return Err(InputError(format!(
            "{}: --login-link: there is no `[people.{person}]` in the configuration; add the person, or name another one",
            path.display()
        )));
    }
    if !stderr().is_terminal() {
        return Err(InputError(
            "--login-link: the standard error is not a terminal, so the link would be kept in a log; run `flowgate login-link` \
             with the key of the person instead"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Prints warnings about the configuration, and returns their number. Warnings about policies and about clients in
/// watch mode are always printed. Two kinds are counted, but printed only with `prints` (for `--check` and
/// `--deny-warnings`), since a gateway that starts writes them to its log: warnings about the TLS certificate and key,
/// and warnings about what is hidden from models for lack of a statement. A note about a policy without a lattice is
/// printed, but not counted.
fn print_warnings(settings: &config::GatewayConfig, prints: bool, output: &mut Console) -> usize {
    let mut count = 0;
    let tls = settings.tls.iter();
    for warning in tls.flat_map(|tls| [tls.warning(), tls.validity_warning(SystemTime::now())]).flatten() {
        if prints {
            output.warning(&format!("tls.{warning}"));
        }
        count += 1;
    }
    for client in &settings.clients {
        let policy = client.own_policy();
        if client.watch.is_some() {
            output.warning(&format!("clients.{}: {}", client.name, watching::WARNING));
            count += 1;
        }
        for warning in policy.warnings() {
            let found = policy.locate(&warning.span);
            let file = policy_file_name(&client.policy_file, found.file);
            let position = format!("{file}:{}:{}", found.line, found.column);
            output.warning(&format!("clients.{}: {position}: {}", client.name, warning.message));
            count += 1;
        }
        if policy.is_rules_only() {
            let what = "declares no lattice, so nothing is hidden from the model, and only its rules stop calls; `flowgate init` drafts a policy with labels";
            output.note(&format!("clients.{}: {} {what}", client.name, client.policy_file));
        }
        for advice in visibility::client_advice(client).into_iter().filter(|advice| !advice.is_intended) {
            if prints {
                output.warning(&format!("clients.{}: {}", client.name, advice.text));
            }
            count += 1;
        }
    }
    count
}

/// Formats a number of things like [`plural`], but 0 as `no`, as in `no warnings`.
fn count_of(number: usize, what: &str) -> String {
    plural(if number == 0 { "no".to_owned() } else { number.to_string() }, what)
}

/// Reads the configuration of a gateway in the file at `path`, with the environment variables that the configuration
/// names. Other commands about a gateway call this as well, such as `audit verify --config`.
pub(super) fn gateway_config(path: &Path) -> Result<config::GatewayConfig, InputError> {
    let text = read_short_text(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let read = read_config(&text, folder, &|name| std::env::var(name).ok());
    read.map_err(|error| InputError(format!("{}: {error}", path.display())))
}

/// Reads the text of a configuration of the gateway, with the fields that `FLOWGATE_CONFIG__*` variables of this
/// process set. Relative paths in it begin at `folder`, and `environment` returns the variables that it names.
pub(super) fn read_config(
    text: &str,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<config::GatewayConfig, config::ConfigError> {
    let overrides = config::Overrides::from_environment(std::env::vars_os())?;
    config::read_with_overrides(text, folder, environment, &MethodRegistry::builtin(), &overrides)
}

/// Returns the content of a configuration of the gateway with the fields that `FLOWGATE_CONFIG__*` variables of this
/// process set.
///
/// # Errors
/// If the text is not TOML, or a variable cannot be used.
pub(super) fn config_content(text: &str) -> Result<serde_json::Value, config::ConfigError> {
    config::Overrides::from_environment(std::env::vars_os())?.file_content(text)
}

/// Reads the bearer token of the policy API, from the file or from the environment variable [`TOKEN_VARIABLE`]; `None`
/// if neither is given. If both are given, returns an error.
fn token(file: Option<&Path>) -> Result<Option<BearerToken>, InputError> {
    let (text, source) = match (file, std::env::var(TOKEN_VARIABLE)) {
        (Some(_), Ok(_)) => {
            return Err(InputError(format!(
                "the token is given twice: leave out `--token-file`, or unset the environment variable \
                {TOKEN_VARIABLE}"
            )));
        }
        (Some(file), Err(_)) => (read_short_text(file)?, file.display().to_string()),
        (None, Ok(text)) => (text, TOKEN_VARIABLE.to_owned()),
        (None, Err(std::env::VarError::NotPresent)) => return Ok(None),
        // The text of this error would contain the token.
        (None, Err(_)) => {
            return Err(InputError(format!("{TOKEN_VARIABLE}: the token is not valid UTF-8; set it again")));
        }
    };
    BearerToken::new(&text).map(Some).map_err(|error| InputError(format!("{source}: {error}")))
}

/// Converts the options to the limits of the server: MiB to bytes, and seconds to durations.
fn limits(options: &ServeArgs) -> ServerLimits {
    let number = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    let mib = |value: u32| number(value).saturating_mul(1 << 20);
    let seconds = |value: u32| Duration::from_secs(u64::from(value));
    ServerLimits {
        body: mib(options.max_body),
        // All bodies together have room for at least one.
        bodies: mib(options.max_bodies.max(options.max_body)),
        values: mib(options.max_values),
        connections: number(options.max_connections),
        connections_of_address: number(options.max_connections_of_address),
        workers: options.workers.map_or_else(|| ServerLimits::default().workers, number),
        queue: number(options.queue),
        batch: number(options.max_batch),
        fuel: options.fuel,
        cached_policies: number(options.cached_policies),
        cached_bytes: mib(options.cached_size),
        turns: number(options.max_turns),
        // These two limits have no option.
        exchanges: ServerLimits::default().exchanges,
        streams: ServerLimits::default().streams,
        turn_time: seconds(options.turn_time),
        head_time: seconds(options.head_time),
        body_time: seconds(options.body_time),
        answer_time: seconds(options.answer_time),
        write_time: seconds(options.write_time),
        drain_time: seconds(options.drain_time),
    }
}
