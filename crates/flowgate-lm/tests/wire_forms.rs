//! Tests that `docs/wire-forms.md` lists every field of every format as the decoders treat it, and no other
//! (`UPDATE_GOLDEN=1` rewrites its tables), that the decoders know every field that the providers' own clients define, and
//! that these clients understand how a field is refused.

use std::path::Path;

use flowgate_lm::json::Json;
use flowgate_lm::wire::{Api, ListedField, embeddings, listed};
use serde_json::json;

/// Returns the title of each table with its fields.
fn tables() -> Vec<(&'static str, Vec<ListedField>)> {
    let formats = Api::ALL.into_iter().map(|api| (api.form().name, listed(api)));
    formats.chain([("embeddings", embeddings::listed())]).collect()
}

/// Writes a table of fields.
fn table(fields: &[ListedField]) -> String {
    let mut rows = "| object | field | outcome | what it becomes, or why |\n|---|---|---|---|\n".to_owned();
    for row in fields {
        rows += &format!("| {} | `{}` | {} | {} |\n", row.object, row.field, row.outcome, row.reason);
    }
    rows
}

#[test]
fn the_documentation_lists_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire-forms.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (title, fields) in tables() {
        let (begin, end) = (format!("<!-- fields of {title} -->\n"), "<!-- end of the fields -->");
        let (before, rest) = text.split_once(&begin).unwrap();
        let (kept, after) = rest.split_once(end).unwrap();
        let expected = table(&fields);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            text = format!("{before}{begin}{expected}{end}{after}");
            continue;
        }
        for (kept, expected) in kept.lines().zip(expected.lines()) {
            assert_eq!(kept, expected, "{title} (UPDATE_GOLDEN=1 writes the tables anew)");
        }
        assert_eq!(kept, expected, "{title} (UPDATE_GOLDEN=1 writes the tables anew)");
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
}

/// `compat/clients/fields` lists what the official clients of OpenAI, Anthropic and Google can send.
#[test]
fn every_field_of_the_official_clients_is_known() {
    let known: Vec<(&str, &str, &str)> = tables()
        .into_iter()
        .flat_map(|(form, fields)| fields.into_iter().map(move |row| (form, row.object, row.field)))
        .collect();
    // The clients for Python, and those for JavaScript.
    let lists = [include_str!("client-fields.txt"), include_str!("client-fields-npm.txt")];
    let rows = |list: &'static str| list.lines().filter(|line| !line.starts_with('#'));
    for list in lists {
        assert!(rows(list).count() > 200, "{}", rows(list).count());
    }
    for row in lists.into_iter().flat_map(rows) {
        let is_row =
            |(form, object, field): &(&str, &str, &str)| format!("{form} | {object} | {field}") == row;
        assert!(
            known.iter().any(is_row),
            "{row} has no rule in the file of its form: decide what becomes of it"
        );
    }
}

/// The tool runners of Anthropic's clients ask for a thread by default. With this code, they repeat the request without it.
#[test]
fn a_refused_thread_has_the_code_that_clients_act_on() {
    let body = json!({"model": "m", "max_tokens": 1, "messages": [], "thread": {"type": "create"}});
    let error = Api::Messages.decode_request(&Json::from(&body)).unwrap_err().to_string();
    let encoded = Api::Messages.encode_error(400, &error);
    let details = encoded.pointer("/error/details").unwrap();
    assert_eq!(details, &json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]}));
    let other = Api::Messages.encode_error(400, "`threads` is not known");
    assert_eq!(other.pointer("/error/details"), None);
}
