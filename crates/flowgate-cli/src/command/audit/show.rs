//! Runs `flowgate audit show`: prints an audit log as a table or as lines of JSON. It reads one record at a time, so
//! that memory stays bounded, and checks that each line follows from the previous one by the hash chain.

use std::io::BufRead;
use std::path::Path;

use flowgate_audit::{
    AuditRecord, ContentCipher, ContentReader, LineContent, RecordKind, VerifiedRecords, VerifyErrorKind,
};
use serde_json::Value;

use super::contents;
use crate::escaping;
use crate::input::{self, InputError};
use crate::output::Console;

/// The columns and their widths, in characters.
const COLUMNS: [(&str, usize); 6] =
    [("time", 24), ("kind", 20), ("conversation", 32), ("tool", 24), ("verdict", 7), ("who", 24)];

/// The maximum number of characters of a content in the table.
const MAX_SHOWN_CHARS: usize = 2000;

/// Runs `flowgate audit show`: prints the records of the log `file`, as a table or, with `json`, as lines of JSON. With
/// `conversation`, prints only the records of this conversation. With `content`, also prints the contents of the
/// records; `cipher` decrypts the encrypted ones. Returns 1 at the first line that does not follow from the previous
/// one or whose content cannot be used, otherwise 0.
pub(crate) fn run(
    file: &Path,
    conversation: Option<&str>,
    (json, content): (bool, bool),
    cipher: Option<&dyn ContentCipher>,
    output: &mut Console,
) -> Result<u8, InputError> {
    if !json {
        let head = row(&COLUMNS.map(|(title, _)| title.to_owned()));
        let head = output.paint("1", &head);
        output.line(&head);
    }
    let contents: Box<dyn BufRead> = if content { contents::open(file)? } else { Box::new(std::io::empty()) };
    let mut content_reader = ContentReader::with_cipher(contents, cipher);
    // `None`: no key is expected, so the log names its key itself.
    for record in VerifiedRecords::new(input::open(file)?, None) {
        let entry = record.and_then(|record| {
            // A file of contents that cannot be used is reported here, at the first record.
            let content_of_line =
                content_reader.as_mut().map_err(|problem| problem.clone())?.content_of(&record)?;
            Ok((record, content_of_line))
        });
        let (record, content_of_line) = match entry {
            Ok(entry) => entry,
            Err(problem) => {
                let message = format!("{}: {problem}", file.display());
                // A log that cannot be read is an error of the command, not a finding about the log.
                if matches!(problem.what, VerifyErrorKind::Read(_)) {
                    return Err(InputError(message));
                }
                output.error(&message);
                return Ok(1);
            }
        };
        if conversation.is_some_and(|id| record.text("conversation") != Some(id)) {
            continue;
        }
        // Without `--content`, no contents were read, so all of them would seem deleted.
        let content_of_line = if content { content_of_line } else { LineContent::Nothing };
        print_record(record, content_of_line, json, output);
    }
    Ok(0)
}

/// Prints a record with its content: as a line of JSON, or as a row of the table with the content below it.
fn print_record(mut record: AuditRecord, content_of_line: LineContent, json: bool, output: &mut Console) {
    if json {
        let content_of_line = match content_of_line {
            LineContent::Nothing => None,
            LineContent::Gone => Some(Value::Null),
            LineContent::Kept(text) => Some(Value::String(text)),
        };
        // A deleted content is null, and a record that never had one has no field `said`.
        record.object.extend(content_of_line.map(|content_of_line| ("said".to_owned(), content_of_line)));
        output.line(&escaping::json_line(&Value::Object(record.object)));
    } else if record.kind != RecordKind::Head {
        // The table omits heads, which sign the log and report no event.
        output.line(&row(&cells(&record)));
        match content_of_line {
            LineContent::Nothing => {}
            LineContent::Gone => output.line("    (deleted)"),
            LineContent::Kept(text) => {
                output.line(&format!("    {}", escaping::excerpt(&text, MAX_SHOWN_CHARS)))
            }
        }
    }
}

/// Returns the cells of a record in the order of [`COLUMNS`]. Records of different kinds have different names for the
/// field of one column, so each cell has the first of several fields that is present.
fn cells(record: &AuditRecord) -> [String; 6] {
    let first =
        |names: &[&str]| names.iter().find_map(|name| record.text(name)).unwrap_or_default().to_owned();
    [
        record.time.to_string(),
        record.kind.to_string(),
        first(&["conversation"]),
        first(&["tool", "what"]),
        first(&["verdict", "answer", "state"]),
        first(&["who", "client"]),
    ]
}

/// Returns a row of the table, in which each cell is cut or padded to the width of its column.
fn row(cells: &[String; 6]) -> String {
    let shown = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| {
        let cell = escaping::excerpt(cell, width);
        format!("{cell:<width$}")
    });
    shown.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_readable_and_escaped() {
        let check = |fields: &str, expected: &str| {
            let none = "0".repeat(64);
            let line = format!(r#"{{"seq":0,"time":0,"previous":"{none}",{fields}}}"#);
            assert_eq!(row(&cells(&AuditRecord::read(line.as_bytes()).unwrap())), expected);
        };
        check(
            r#""kind":"judged","conversation":"c1","tool":"mail/send","verdict":"deny","client":"agent""#,
            "1970-01-01T00:00:00.000Z  judged                c1                                mail/send                 deny     agent",
        );
        check(
            r#""kind":"kill-switch","what":"everything","who":"ann","state":"set""#,
            "1970-01-01T00:00:00.000Z  kill-switch                                             everything                set      ann",
        );
        check(r#""kind":"opened","torn":"audit.jsonl.torn-1""#, "1970-01-01T00:00:00.000Z  opened");
        check(
            r#""kind":"a\u001b[2J","tool":"a very long name that goes on""#,
            "1970-01-01T00:00:00.000Z  a\\u{1b}[2J                                              a very long name that go …",
        );
    }
}
