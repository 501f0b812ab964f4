//! Tests of the folder `deploy`: the gateway accepts the command lines and configurations in it, and exports the metrics
//! and log fields that its alerts and its dashboard use.
//!
//! * `gateway`: runs a gateway with the configuration of the systemd unit.
//! * `queries`: checks the queries of alerts and panels.
//! * `release`: runs the release script.
//! * `yaml`: reads YAML.

#![expect(clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod gateway;
mod queries;
mod release;
mod secret_rules;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flowgate_gateway::limits::ServerLimits;
use flowgate_gateway::openapi;
use serde_json::Value;

use crate::text;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The folder of the configuration, in the files of `deploy`.
const CONFIGURATION: &str = "/etc/flowgate";
/// The folder of the keys of the service.
const CREDENTIALS: &str = "/run/credentials/flowgate.service";
/// The folder of the service's state.
const STATE: &str = "/var/lib/flowgate";

/// Returns the text of a file of the repository.
fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// Creates the folder of a test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The outcome of a check of the examples: they trust what their agent marks, and the gateway reminds of the marks.
const ACCEPTED: [&str; 2] = ["1 client, 1 warning", "have the client mark what was typed"];

/// Runs the program with these arguments and `--check`, and only these environment variables. Returns its exit code and
/// output.
fn serve_check(words: &[String], environment: &BTreeMap<String, String>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(words).arg("--check").env_clear().envs(environment);
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), text(&output))
}

/// Returns the value after an option of a command line.
fn option<'w>(words: &'w [String], name: &str) -> Option<&'w str> {
    words.iter().skip_while(|word| *word != name).nth(1).map(String::as_str)
}

/// Returns the port of `--listen`.
fn port(words: &[String]) -> &str {
    option(words, "--listen").unwrap().rsplit(':').next().unwrap()
}

/// Returns the paths of the gateway that answer a `GET` without a key.
fn public_paths() -> BTreeSet<String> {
    let document: Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    // Routes with an own key say so, and `/metrics` and the policy API have the token.
    paths
        .filter(|(_, methods)| methods["get"]["security"].as_array().is_some_and(Vec::is_empty))
        .map(|(path, _)| path.clone())
        .collect()
}

/// The settings of a systemd unit: the values of each, in order.
fn unit_settings() -> BTreeMap<String, Vec<String>> {
    let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let unit = read("deploy/flowgate.service");
    let is_setting = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
    for line in unit.lines().filter(is_setting) {
        let (name, value) = line.split_once('=').unwrap();
        settings.entry(name.to_owned()).or_default().push(value.to_owned());
    }
    settings
}

/// The systemd unit in a folder of a test: its configuration, and a file for each of its credentials.
struct InstalledUnit {
    folder: PathBuf,
    settings: BTreeMap<String, Vec<String>>,
}

impl InstalledUnit {
    /// Writes the files of the unit. Paths of the machine become paths of the folder.
    fn new(test: &str) -> Self {
        let unit = Self { folder: folder(test), settings: unit_settings() };
        for name in ["credentials", "state"] {
            std::fs::create_dir_all(unit.folder.join(name)).unwrap();
        }
        for name in unit.credentials() {
            std::fs::write(unit.credential(&name), format!("key-of-{name}-0123456789\n")).unwrap();
        }
        std::fs::copy(Path::new(ROOT).join("examples/gateway/policy.flow"), unit.folder.join("policy.flow"))
            .unwrap();
        unit.configure(&read("deploy/gateway.toml"));
        unit
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.folder.join("gateway.toml"), self.relocated(text)).unwrap();
    }

    fn relocated(&self, text: &str) -> String {
        let folder = self.folder.to_str().unwrap();
        text.replace(CONFIGURATION, folder)
            .replace(CREDENTIALS, &format!("{folder}/credentials"))
            .replace(STATE, &format!("{folder}/state"))
    }

    fn setting(&self, name: &str) -> &str {
        let values = self.settings.get(name).unwrap_or_else(|| panic!("the unit has no {name}"));
        assert_eq!(values.len(), 1, "{name}");
        values[0].as_str()
    }

    /// Returns the names of the credentials that the unit loads.
    fn credentials(&self) -> Vec<String> {
        let loaded = self.settings["LoadCredential"].iter();
        loaded.map(|value| value.split_once(':').unwrap().0.to_owned()).collect()
    }

    fn credential(&self, name: &str) -> PathBuf {
        self.folder.join("credentials").join(name)
    }

    /// Returns the arguments of the program.
    fn arguments(&self) -> Vec<String> {
        let words: Vec<String> =
            self.relocated(self.setting("ExecStart")).split_whitespace().map(str::to_owned).collect();
        let (program, arguments) = words.split_first().unwrap();
        assert_eq!(program, "/usr/local/bin/flowgate");
        arguments.to_vec()
    }
}

#[test]
fn the_systemd_unit_starts_the_gateway() {
    let unit = InstalledUnit::new("unit");
    let (words, nothing) = (unit.arguments(), BTreeMap::new());
    let (code, said) = serve_check(&words, &nothing);
    assert!(code == Some(0) && ACCEPTED.iter().all(|part| said.contains(part)), "{said}");
    // The configuration names no other credential, and needs each of these.
    for name in unit.credentials() {
        let hidden = unit.folder.join("hidden");
        std::fs::rename(unit.credential(&name), &hidden).unwrap();
        let (code, said) = serve_check(&words, &nothing);
        assert!(code == Some(2) && said.contains(&format!("credentials/{name}")), "{name}: {said}");
        std::fs::rename(hidden, unit.credential(&name)).unwrap();
    }
    // What the gateway writes is in the folder that the unit may write.
    assert_eq!(format!("/var/lib/{}", unit.setting("StateDirectory")), STATE);
    let configuration = read("deploy/gateway.toml");
    for section in ["[store]\nurl = \"sqlite:", "[audit]\nfile = \""] {
        assert!(configuration.contains(&format!("{section}{STATE}/")), "{section}");
    }
    let number = |text: &str| text.parse::<usize>().unwrap();
    assert!(number(unit.setting("LimitNOFILE")) >= 2 * ServerLimits::default().connections);
    assert!(
        number(unit.setting("TimeoutStopSec")) > number(option(&words, "--drain-time").unwrap()),
        "systemd ends the gateway before its turns have ended"
    );
    for (name, value) in [("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"), ("DynamicUser", "yes")] {
        assert_eq!(unit.setting(name), value, "{name}");
    }
}

/// The objects of the Kubernetes example, by kind.
fn kubernetes_objects() -> BTreeMap<String, Value> {
    let documents = yaml::documents(&read("deploy/kubernetes.yaml"));
    let objects: BTreeMap<String, Value> =
        documents.into_iter().map(|one| (one["kind"].as_str().unwrap().to_owned(), one)).collect();
    let kinds: Vec<&str> = objects.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Secret", "Service"]);
    objects
}

/// Returns the texts of an object by name.
fn texts(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().unwrap().iter();
    entries.map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned())).collect()
}

#[test]
fn the_kubernetes_example_starts_the_gateway() {
    let (objects, folder) = (kubernetes_objects(), folder("kubernetes"));
    let pod = &objects["Deployment"]["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    // The files of the configuration, at the place where the container has them.
    let (mount, volume) = (&container["volumeMounts"][0], &pod["spec"]["volumes"][0]);
    assert_eq!(
        (&mount["name"], &volume["configMap"]["name"]),
        (&volume["name"], &objects["ConfigMap"]["metadata"]["name"])
    );
    assert_eq!(mount["mountPath"], CONFIGURATION);
    for (name, content) in texts(&objects["ConfigMap"]["data"]) {
        std::fs::write(folder.join(name), content).unwrap();
    }
    let words: Vec<String> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap().replace(CONFIGURATION, folder.to_str().unwrap()))
        .collect();
    // The environment is that of the secret. Its values must be replaced.
    assert_eq!(container["envFrom"][0]["secretRef"]["name"], objects["Secret"]["metadata"]["name"]);
    let secret = texts(&objects["Secret"]["stringData"]);
    let (code, said) = serve_check(&words, &secret);
    assert!(code == Some(2) && said.contains("too short"), "{said}");
    let environment: BTreeMap<String, String> = secret
        .iter()
        .map(|(name, value)| (name.clone(), value.replace("replace-me", &format!("0123456789-{name}"))))
        .collect();
    let (code, said) = serve_check(&words, &environment);
    assert!(code == Some(0) && ACCEPTED.iter().all(|part| said.contains(part)), "{said}");
    for name in secret.keys() {
        let mut fewer = environment.clone();
        fewer.remove(name);
        let (code, said) = serve_check(&words, &fewer);
        assert!(code == Some(2) && said.contains(name), "without {name}: {said}");
    }
    // Requests reach the port on which the gateway listens.
    let (open, labels) = (&container["ports"][0], &pod["metadata"]["labels"]);
    assert_eq!(open["containerPort"].to_string(), port(&words));
    let service = &objects["Service"]["spec"];
    assert_eq!((&service["ports"][0]["targetPort"], &service["selector"]), (&open["name"], labels));
    assert_eq!(&objects["Deployment"]["spec"]["selector"]["matchLabels"], labels);
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"], open["name"], "{probe}");
        assert!(public_paths().contains(get["path"].as_str().unwrap()), "{probe}: {get}");
    }
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > option(&words, "--drain-time").unwrap().parse().unwrap());
    // The user is the one that owns the folder of the image.
    let user = pod["spec"]["securityContext"]["runAsUser"].to_string();
    assert!(read("deploy/Containerfile").lines().any(|line| line == format!("USER {user}:{user}")));
}

#[test]
fn the_image_starts_the_gateway() {
    let unit = InstalledUnit::new("image");
    let text = unit.relocated(&read("deploy/Containerfile"));
    let line = |instruction: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(instruction));
        found.unwrap_or_else(|| panic!("there is no {instruction}")).trim().to_owned()
    };
    let words = |instruction: &str| serde_json::from_str::<Vec<String>>(&line(instruction)).unwrap();
    let (entry, words) = (words("ENTRYPOINT"), words("CMD"));
    assert_eq!(entry, ["/usr/local/bin/flowgate"]);
    assert_eq!(line("EXPOSE"), port(&words));
    let (code, said) = serve_check(&words, &BTreeMap::new());
    assert!(code == Some(2) && said.contains("no token is set"), "{said}");
    let token = BTreeMap::from([("FLOWGATE_TOKEN".to_owned(), "0123456789abcdef".to_owned())]);
    let (code, said) = serve_check(&words, &token);
    assert!(code == Some(0) && ACCEPTED.iter().all(|part| said.contains(part)), "{said}");
    // The build copies every file that cargo needs.
    let copied: BTreeSet<&str> =
        text.lines().filter(|line| line.starts_with("COPY ")).flat_map(str::split_whitespace).collect();
    for name in [".cargo", "Cargo.toml", "Cargo.lock", "crates"] {
        assert!(copied.contains(name), "{name}");
        let ignored = read("deploy/Containerfile.dockerignore");
        assert!(ignored.lines().any(|line| line.strip_prefix('!') == Some(name)), "{name}");
    }
}
