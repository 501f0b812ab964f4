//! Sets fields of the configuration file from environment variables such as `FLOWGATE_CONFIG__STORE__RETENTION_DAYS=7`.
//! `flowgate serve` collects the variables, and `config` calls [`Overrides::apply_to`] with the text of the file.
//!
//! The name of a variable is the path of the field in capitals; `__` separates the parts of the path, and `_` replaces
//! every character that is not a letter or a digit. The types of values are those of `schema`. A variable cannot add a
//! client, a person or another entry with a name: it sets fields of entries that the file has. No message contains a
//! value, because an address may contain a password; of a table, a message names at most the field that is unknown or
//! has a wrong value.

use std::ffi::OsString;

use flowgate::policy::diagnostic::nearest;
use serde::Deserialize as _;
use serde_json::Value;
use toml::Table;

use super::file::ConfigFile;
use super::{ConfigError, schema};

/// The prefix of the names of the variables.
const PREFIX: &str = "FLOWGATE_CONFIG__";
/// No variable for another purpose begins with this. So a name that begins with it, but not with [`PREFIX`], is an
/// error and not ignored: it is probably misspelt.
const RESERVED: &str = "FLOWGATE_CONFIG";

/// The environment variables that set fields of the configuration file.
#[derive(Clone, Default)]
pub struct Overrides {
    /// The names and the values, sorted by name.
    variables: Vec<(String, String)>,
}

/// The parsed configuration file, with the fields that variables set.
pub(super) struct EffectiveFile {
    /// The file.
    pub(super) file: ConfigFile,
    /// The same as a table.
    pub(super) table: Table,
    /// The paths of the fields that variables set, as `store.retention-days`.
    pub(super) overridden: Vec<String>,
}

impl std::fmt::Debug for Overrides {
    /// Writes the names of the variables, without their values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.variables.iter().map(|(name, _)| name)).finish()
    }
}

impl Overrides {
    /// Takes the variables that set fields from all variables of the environment, for example from
    /// `std::env::vars_os()`.
    ///
    /// # Errors
    /// If the value of one of them is empty or not Unicode, or its name begins with `FLOWGATE_CONFIG` and not with
    /// `FLOWGATE_CONFIG__`.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut found = Vec::new();
        for (name, value) in variables {
            let name = name.to_string_lossy().into_owned();
            if !name.starts_with(RESERVED) {
                continue;
            }
            let wrong = |why: &str| Err(ConfigError(format!("{name}: {why}")));
            if !name.starts_with(PREFIX) {
                return wrong(
                    "a variable that sets a field of the configuration is FLOWGATE_CONFIG__SECTION__FIELD, \
                    with two underscores before each part: rename it, or unset it",
                );
            }
            match value.into_string() {
                Ok(value) if !value.is_empty() => found.push((name, value)),
                Ok(_) => return wrong("the value is empty: write one, or unset the variable"),
                Err(_) => return wrong("the value is not UTF-8: write it in UTF-8, or unset the variable"),
            }
        }
        found.sort();
        Ok(Self { variables: found })
    }

    /// Parses `text`, the text of a configuration file, and sets the fields that the variables name.
    ///
    /// # Errors
    /// The first error in the file, with its line; or in a variable, with its name.
    pub(super) fn apply_to(&self, text: &str) -> Result<EffectiveFile, ConfigError> {
        // Not checked at first: an error of the TOML is also one of `ConfigFile`, and is returned below.
        let table = toml::from_str::<Table>(text);
        // Without variables, the settings are read from the text, not from the table, so that an error has its line.
        if self.variables.is_empty() {
            let file = toml::from_str(text).map_err(|error| at_line(text, &error))?;
            return Ok(EffectiveFile { file, table: table.unwrap_or_default(), overridden: Vec::new() });
        }
        let mut table = table.map_err(|error| at_line(text, &error))?;
        let SetFields { overridden, new_sections } = self.set_fields(&mut table)?;
        let file = ConfigFile::deserialize(toml::Value::Table(table.clone()))
            .map_err(|error| explain_error(text, &table, &new_sections, &error))?;
        Ok(EffectiveFile { file, table, overridden })
    }

    /// Returns the content of a configuration file, with the fields that the variables set. Checks only that the text
    /// is TOML, not that the gateway can use it: `flowgate doctor` also examines files that the gateway refuses.
    ///
    /// # Errors
    /// If the text is not TOML, or a variable names no field or has a wrong value.
    pub fn file_content(&self, text: &str) -> Result<Value, ConfigError> {
        let mut table = toml::from_str::<Table>(text).map_err(|error| at_line(text, &error))?;
        self.set_fields(&mut table)?;
        Ok(serde_json::to_value(table).unwrap_or_default())
    }

    /// Sets the fields of a file that the variables name.
    ///
    /// # Errors
    /// If a variable names no field or has a wrong value.
    fn set_fields(&self, table: &mut Table) -> Result<SetFields, ConfigError> {
        let mut fields = SetFields::default();
        for (name, value) in &self.variables {
            let path = set(table, name, value, &mut fields.new_sections)
                .map_err(|why| ConfigError(format!("{name}: {why}")))?;
            fields.overridden.push(path);
        }
        Ok(fields)
    }
}

/// What variables have set in a file.
#[derive(Debug, Default)]
struct SetFields {
    /// The paths of the fields.
    overridden: Vec<String>,
    /// The paths of the sections that the file does not have.
    new_sections: Vec<String>,
}

/// Returns the message for `error`, which says why the file `text` with the fields of the variables is invalid. The
/// values of the variables have the right types, so the mistake is a field of the file, or a field that is missing.
///
/// If the file is invalid without the variables as well, the message names the line. Otherwise a section that only
/// variables write may lack a required field, and the message names this section. `table` is the file with the fields
/// of the variables, and `new_sections` are the paths of the sections that only variables write.
fn explain_error(text: &str, table: &Table, new_sections: &[String], error: &toml::de::Error) -> ConfigError {
    match toml::from_str::<ConfigFile>(text) {
        Err(error) => at_line(text, &error),
        Ok(_) => {
            let message = first_line(error);
            // The error is about a section if, without the section, the error is gone or a different one.
            let is_about = |path: &&String| {
                let rest = without_section(table, path);
                ConfigFile::deserialize(toml::Value::Table(rest))
                    .map_or_else(|other| first_line(&other) != message, |_| true)
            };
            let section =
                new_sections.iter().find(is_about).map(|path| format!("[{path}]: ")).unwrap_or_default();
            ConfigError(format!("with the fields that {PREFIX}* variables set: {section}{message}"))
        }
    }
}

/// Returns the first line of an error.
fn first_line(error: &toml::de::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Returns a file without the section at `path`, such as `login.oidc`.
fn without_section(file: &Table, path: &str) -> Table {
    let mut file = file.clone();
    // `login.oidc` is the entry `oidc` of the table `login`; a path without a dot is an entry of the file itself.
    let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut parts = above.split('.').filter(|part| !part.is_empty());
    let table = parts.try_fold(&mut file, |table, part| table.get_mut(part)?.as_table_mut());
    if let Some(table) = table {
        table.remove(name);
    }
    file
}

/// Returns an error of the TOML reader with its line.
fn at_line(text: &str, error: &toml::de::Error) -> ConfigError {
    let line = error
        .span()
        .map_or(0, |span| text.get(..span.start).map_or(0, |before| before.matches('\n').count()));
    let message = error.message().lines().next().unwrap_or_default();
    ConfigError(format!("line {}: {message}", line + 1))
}

/// Returns a name of the file in the form that it has in the names of variables: `RETENTION_DAYS` for `retention-days`.
fn in_variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Sets one field of the file `table` to the value in `text`: the field that the name of the environment variable
/// (`variable`) means. Returns the path of the field. A section of the path that the file does not have is created, and
/// its path is added to `new_sections`.
///
/// # Errors
/// If there is no such field or entry, or its value has another type. The message does not contain the value, and the
/// caller puts the name of the variable before it.
fn set(
    table: &mut Table,
    variable: &str,
    text: &str,
    new_sections: &mut Vec<String>,
) -> Result<String, String> {
    // What the words so far lead to: a part of the file, its schema, and its path.
    let (mut table, mut schema, mut path) = (table, schema::whole_file(), String::new());
    let mut words = variable.strip_prefix(PREFIX).unwrap_or_default().split("__").peekable();
    // The beginning of the variable's name up to this part, for messages.
    let mut prefix = PREFIX.to_owned();
    while let Some(word) = words.next() {
        let section = if path.is_empty() { "the file".to_owned() } else { format!("[{path}]") };
        // `None` only if the schema itself is damaged: the loop enters only sections, and every section has names.
        let Some(names) = names_in(table, schema) else {
            return Err(format!("{section} is set as a whole: write {}", prefix.trim_end_matches('_')));
        };
        let name = find_name(&names, word, &section, &prefix)?;
        prefix = format!("{prefix}{word}__");
        path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        schema = schema
            .get("properties")
            .and_then(|fields| fields.get(name))
            .or_else(|| schema::of_named_entries(schema))
            .unwrap_or(&Value::Null);
        let is_section = schema.get("properties").is_some() || schema::of_named_entries(schema).is_some();
        match (is_section, words.peek()) {
            (true, None) => {
                return Err(format!("[{path}] is a section: name a field in it, as {prefix}FIELD"));
            }
            (true, Some(_)) => {
                if !table.contains_key(name) {
                    new_sections.push(path.clone());
                }
                let section = table.entry(name.clone()).or_insert_with(|| toml::Value::Table(Table::new()));
                table = section.as_table_mut().ok_or_else(|| {
                    format!(
                        "`{path}` in the file is not a section: write it as [{path}], or unset the variable"
                    )
                })?;
            }
            (false, None) => {
                let value = read_value(text, schema).map_err(|expected| {
                    format!("the value is not {expected}: correct it, or unset the variable")
                })?;
                table.insert(name.clone(), value);
            }
            (false, Some(_)) => {
                return Err(format!(
                    "`{path}` is one value, without fields: set it with {}",
                    prefix.trim_end_matches('_')
                ));
            }
        }
    }
    Ok(path)
}

/// Returns the names that the next word of a variable may have in the part `table` of the file: its fields, or the
/// entries that the operator has named. `None` if this part has neither.
fn names_in(table: &Table, schema: &Value) -> Option<Vec<String>> {
    match schema.get("properties").and_then(Value::as_object) {
        Some(fields) => Some(fields.keys().cloned().collect()),
        None => schema::of_named_entries(schema).map(|_| table.keys().cloned().collect()),
    }
}

/// Returns the one of `names` that is written as `word` in variables. `section` names the part of the file that has the
/// names, and `prefix` is the beginning of the variable's name before the word.
///
/// # Errors
/// If none of the names or several of them are written so.
fn find_name<'n>(names: &'n [String], word: &str, section: &str, prefix: &str) -> Result<&'n String, String> {
    let mut matching = names.iter().filter(|name| in_variable(name) == word);
    let (name, other) = (matching.next(), matching.next());
    let Some(name) = name else {
        let known: Vec<String> = names.iter().map(|name| in_variable(name)).collect();
        let advice = match nearest(word, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {prefix}{near}?"),
            None if known.is_empty() => "add it to the file, or unset the variable".to_owned(),
            None => format!("there are: {}", known.join(", ")),
        };
        return Err(format!("{section} has no field or entry of this name; {advice}"));
    };
    if other.is_some() {
        return Err(format!(
            "several entries of {section} have the name {word} in variables: rename all but one of them"
        ));
    }
    Ok(name)
}

/// Reads the value of a variable for a field with this schema. If the field is a text, its value is `text` unchanged;
/// for any other field, `text` is parsed as a TOML value.
///
/// # Errors
/// What the value must be.
fn read_value(text: &str, schema: &Value) -> Result<toml::Value, String> {
    let value = if schema.get("type").and_then(Value::as_str) == Some("string") {
        toml::Value::String(text.to_owned())
    } else {
        // A value that is not TOML counts as an empty text, which `check` refuses. So does a value of several lines,
        // which would set further fields.
        let read = toml::from_str::<Table>(&format!("value = {}", text.trim()));
        let read = read.ok().filter(|table| table.len() == 1);
        read.and_then(|mut table| table.remove("value")).unwrap_or_else(|| toml::Value::String(String::new()))
    };
    schema::check(&value, schema).map(|()| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[upstreams.local]\nurl = \"http://localhost:8080/v1\"\n\
        [clients.mail-agent]\nkey-from = \"KEY\"\nupstream = \"local\"\npolicy = \"p.flow\"\n\
        [store]\nretention-days = 30\n\
        [predicates]\na-b = \"http://x\"\na_b = \"http://y\"\n";

    /// Reads [`FILE`] with variables, and returns the table, or the error.
    fn read(variables: &[(&str, &str)]) -> Result<Table, String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let effective = Overrides::from_environment(variables).and_then(|all| all.apply_to(FILE));
        effective.map(|effective| effective.table).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_set_fields() {
        let check = |variable: &str, value: &str, path: &[&str], expected: toml::Value| {
            let table = toml::Value::Table(read(&[(variable, value)]).unwrap());
            let found = path.iter().try_fold(&table, |table, name| table.get(name));
            assert_eq!(found, Some(&expected), "{variable}");
        };
        let text = |text: &str| toml::Value::String(text.to_owned());
        check("FLOWGATE_CONFIG__STORE__RETENTION_DAYS", "7", &["store", "retention-days"], 7.into());
        // A text needs no quotation marks, and keeps those that it has.
        check(
            "FLOWGATE_CONFIG__STORE__URL",
            "postgres://a:b@c/d",
            &["store", "url"],
            text("postgres://a:b@c/d"),
        );
        check("FLOWGATE_CONFIG__STORE__URL", "\"x\"", &["store", "url"], text("\"x\""));
        check("FLOWGATE_CONFIG__STORE__URL", "7", &["store", "url"], text("7"));
        check("FLOWGATE_CONFIG__LOG__FORMAT", "json", &["log", "format"], text("json"));
        check("FLOWGATE_CONFIG__AUDIT__FILE", "a.jsonl", &["audit", "file"], text("a.jsonl"));
        check(
            "FLOWGATE_CONFIG__UPSTREAMS__LOCAL__PASS_KEY",
            "true",
            &["upstreams", "local", "pass-key"],
            true.into(),
        );
        check(
            "FLOWGATE_CONFIG__CLIENTS__MAIL_AGENT__PINNED",
            "[\"You help.\"]",
            &["clients", "mail-agent", "pinned"],
            toml::Value::Array(vec![text("You help.")]),
        );
        check(
            "FLOWGATE_CONFIG__CLIENTS__MAIL_AGENT__INPUT",
            "{ n = 1 }",
            &["clients", "mail-agent", "input", "n"],
            1.into(),
        );
        // Variables of others are not read.
        check("FLOWGATE_SERVER", "x", &["store", "retention-days"], 30.into());
    }

    #[test]
    fn problems_are_named_without_the_value() {
        let check = |variable: &str, value: &str, expected: &str| {
            assert_eq!(read(&[(variable, value)]).unwrap_err(), format!("{variable}: {expected}"));
        };
        check(
            "FLOWGATE_CONFIG__STORE__RETENTION_DAY",
            "7",
            "[store] has no field or entry of this name; did you mean FLOWGATE_CONFIG__STORE__RETENTION_DAYS?",
        );
        check(
            "FLOWGATE_CONFIG__STORES__URL",
            "7",
            "the file has no field or entry of this name; did you mean FLOWGATE_CONFIG__STORE?",
        );
        check(
            "FLOWGATE_CONFIG__LOG__COLOUR",
            "hunter2",
            "[log] has no field or entry of this name; there are: FORMAT",
        );
        // No variable adds an entry.
        check(
            "FLOWGATE_CONFIG__CLIENTS__MAIL_AGENTS__MODE",
            "watch",
            "[clients] has no field or entry of this name; did you mean FLOWGATE_CONFIG__CLIENTS__MAIL_AGENT?",
        );
        check(
            "FLOWGATE_CONFIG__PEOPLE__EVE__ROLE",
            "admin",
            "[people] has no field or entry of this name; add it to the file, or unset the variable",
        );
        check(
            "FLOWGATE_CONFIG__PREDICATES__A_B",
            "http://z",
            "several entries of [predicates] have the name A_B in variables: rename all but one of them",
        );
        check(
            "FLOWGATE_CONFIG__STORE",
            "{}",
            "[store] is a section: name a field in it, as FLOWGATE_CONFIG__STORE__FIELD",
        );
        check(
            "FLOWGATE_CONFIG__CLIENTS__MAIL_AGENT__INPUT__N",
            "1",
            "`clients.mail-agent.input` is one value, without fields: set it with \
            FLOWGATE_CONFIG__CLIENTS__MAIL_AGENT__INPUT",
        );
        check(
            "FLOWGATE_CONFIG_STORE_URL",
            "hunter2",
            "a variable that sets a field of the configuration is FLOWGATE_CONFIG__SECTION__FIELD, with two \
            underscores before each part: rename it, or unset it",
        );
        check("FLOWGATE_CONFIG__STORE__URL", "", "the value is empty: write one, or unset the variable");
        let wrong = |variable: &str, value: &str, expected: &str| {
            check(
                variable,
                value,
                &format!("the value is not {expected}: correct it, or unset the variable"),
            );
        };
        let days = "FLOWGATE_CONFIG__STORE__RETENTION_DAYS";
        wrong(days, "hunter2", "a whole number from 0 to 4294967295");
        wrong(days, "-1", "a whole number from 0 to 4294967295");
        wrong(days, "1\nurl = \"x\"", "a whole number from 0 to 4294967295");
        wrong("FLOWGATE_CONFIG__APPROVALS__OPEN_QUESTIONS", "0", "a whole number from 1 to 4294967295");
        wrong("FLOWGATE_CONFIG__LOG__FORMAT", "hunter2", "one of `text`, `json`");
        wrong("FLOWGATE_CONFIG__UPSTREAMS__LOCAL__PASS_KEY", "yes", "`true` or `false`");
        wrong("FLOWGATE_CONFIG__TELEMETRY__SAMPLE", "hunter2", "a number");
        wrong(
            "FLOWGATE_CONFIG__UPSTREAMS__LOCAL__MODELS",
            "qwen3",
            "a list, as in TOML: [\"first\", \"second\"]",
        );
        wrong("FLOWGATE_CONFIG__UPSTREAMS__LOCAL__MODELS", "[1]", "a list whose items are each a text");
        wrong(
            "FLOWGATE_CONFIG__CLIENTS__MAIL_AGENT__FALLBACK",
            "[{ upstraem = \"hunter2\" }]",
            "a list whose items are each a table whose fields are all among `upstream`, `model` (`upstraem` is not one of them)",
        );
    }

    /// A section that a variable begins and no other completes, and mistakes in the file itself.
    #[test]
    fn problems_of_the_file_are_named() {
        let check = |text: &str, expected: &str| {
            let variable = ("FLOWGATE_CONFIG__AUDIT__KEY_FILE".into(), "a.key".into());
            let overrides = Overrides::from_environment([variable]).unwrap();
            let error = overrides.apply_to(text).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(expected), "{text}");
        };
        check(FILE, "with the fields that FLOWGATE_CONFIG__* variables set: [audit]: missing field `file`");
        check("", "with the fields that FLOWGATE_CONFIG__* variables set: [audit]: missing field `file`");
        check(
            "[audit]\nfile = \"x\"\n[store]\nurll = 1\n[log]\n",
            "line 4: unknown field `urll`, expected one of `url`, `url-from`, `encryption-key-from`, `encryption-key-file`, `retention-days`, `memory-mib`, `conversation-mib`, `quotation-mib`, `quotation-days`",
        );
        check(
            "audit = 3\n",
            "FLOWGATE_CONFIG__AUDIT__KEY_FILE: `audit` in the file is not a section: write it as [audit], or unset the variable",
        );
        check("[store\n", "line 1: unclosed table, expected `]`");
    }

    #[test]
    fn values_are_not_in_debug_output() {
        let variable = ("FLOWGATE_CONFIG__STORE__URL".into(), "postgres://a:hunter2@b/c".into());
        let shown = format!("{:?}", Overrides::from_environment([variable]).unwrap());
        assert_eq!(shown, "[\"FLOWGATE_CONFIG__STORE__URL\"]");
    }
}
