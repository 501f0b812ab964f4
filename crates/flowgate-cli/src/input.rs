//! Reads the input files of commands with bounded memory: policies, traces, corpora, configurations and other short
//! texts. Decompresses files that are compressed with gzip. Defines [`InputError`], with which a command fails.
//!
//! A corpus is one or more files with recorded runs; [`for_each_run`] reads them one run at a time. `folder` lists the
//! files of a corpus that is given as a folder.

mod folder;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use flowgate::trace::read::{self, JsonLine, RecordedRun};

use crate::progress::Progress;

pub(crate) use folder::files_of;

/// The longest line of a corpus, in bytes; a longer one is rejected with its number.
pub(crate) const MAX_LINE: u64 = 64 << 20;
/// The largest JSON document over several lines, in bytes after its first line; such a document is read as a whole.
const MAX_FILE: u64 = 64 << 20;

/// The reason why a command ends with the exit code 2, such as a file that cannot be used: one line, with the name of
/// the file and the position in it.
#[derive(Debug)]
pub(crate) struct InputError(pub String);

impl std::fmt::Display for InputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Opens a file for reading; `-` is the standard input. Decompresses it if it begins like a gzip file.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, InputError> {
    decompress(path, open_source(path)?)
}

/// Opens a file like [`open`], and counts its bytes (before decompression) for `progress`. After Ctrl-C, the reader
/// returns no further bytes, as at the end of the file.
pub(crate) fn open_counted(path: &Path, progress: &Progress) -> Result<Box<dyn BufRead>, InputError> {
    decompress(path, Box::new(progress.counting_reader(open_source(path)?)))
}

/// Opens a file or, for `-`, the standard input, without decompression. Fails if the file cannot be opened.
fn open_source(path: &Path) -> Result<Box<dyn Read>, InputError> {
    if path == Path::new("-") {
        return Ok(Box::new(stdin()));
    }
    let file = File::open(path);
    Ok(Box::new(
        file.map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?,
    ))
}

/// Returns a reader of the content of `from`, decompressed if it is gzip. A gzip file may consist of several members.
/// `path` is the name of the file in error messages.
fn decompress(path: &Path, from: Box<dyn Read>) -> Result<Box<dyn BufRead>, InputError> {
    let mut reader = BufReader::with_capacity(1 << 16, from);
    let magic = reader
        .fill_buf()
        .map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?;
    // The first two bytes of every gzip file.
    if magic.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(reader))));
    }
    Ok(Box::new(reader))
}

/// Returns why a file cannot be read or written, for a message, without the name of the file. The most common errors
/// have a message of Flowgate; the others have the text of the operating system.
pub(crate) fn describe_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; check the path".to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "there is no permission to read or write the file; change its permissions, or run as its owner"
                .to_owned()
        }
        std::io::ErrorKind::IsADirectory => "the path names a directory; give a file".to_owned(),
        _ => error.to_string(),
    }
}

/// Splits an argument `NAME=FILE` or `FILE` into the name, if it has one, and the path. An argument with a `/` before
/// the `=` is a path.
pub(crate) fn split_name(argument: &str) -> (Option<&str>, &str) {
    match argument.split_once('=').filter(|(name, _)| !name.contains('/')) {
        Some((name, path)) => (Some(name), path),
        None => (None, argument),
    }
}

/// Reads a policy. A text that is longer than [`MAX_SOURCE`](flowgate::policy::MAX_SOURCE) is cut to one byte more than
/// this length. So memory stays bounded, and the compiler reports that the text is too long.
///
/// # Errors
/// If the file cannot be read or is not UTF-8.
pub(crate) fn read_policy_text(path: &Path) -> Result<String, InputError> {
    let limit = u64::try_from(flowgate::policy::MAX_SOURCE).unwrap_or(u64::MAX) + 1;
    let mut bytes = Vec::new();
    open(path)?
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?;
    utf8_text(bytes, &path.display().to_string(), 1).map_err(InputError)
}

/// Reads a configuration, a key or another short text, of at most 1 MiB.
///
/// # Errors
/// If the file cannot be read, is longer, or is not UTF-8.
pub(crate) fn read_short_text(path: &Path) -> Result<String, InputError> {
    bounded_text(path, 1 << 20)
}

/// Reads a text of at most `limit` bytes after decompression; `-` is the standard input.
///
/// # Errors
/// If the file cannot be read, is longer, or is not UTF-8.
pub(crate) fn bounded_text(path: &Path, limit: u64) -> Result<String, InputError> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = open(path)?.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| InputError(format!("{name}: {}", describe_io_error(&error))))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        let (size, unit) = if limit < 1 << 20 { (limit >> 10, "KiB") } else { (limit >> 20, "MiB") };
        return Err(InputError(format!("{name}: the file is longer than {size} {unit}; give a shorter one")));
    }
    utf8_text(bytes, &name.to_string(), 1).map_err(InputError)
}

/// Converts bytes of the file `file` to text. If they are not valid UTF-8, the message names the line and the byte
/// within the line, counted from 0. `first_line` is the number that the first line of `bytes` has in the file.
fn utf8_text(bytes: Vec<u8>, file: &str, first_line: usize) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = valid.clone().filter(|byte| **byte == b'\n').count();
        let byte = valid.rev().take_while(|byte| **byte != b'\n').count();
        format!(
            "{file}: line {} is not valid UTF-8 from byte {byte} on; give a file in UTF-8",
            first_line + line
        )
    })
}

/// One run of a corpus with the number of its first line, or the reason why it cannot be read.
pub(crate) type CorpusItem = Result<(usize, RecordedRun), InputError>;

/// Passes the runs of a file to `each`, one at a time, each with the number of its first line, until `each` returns
/// false or Ctrl-C is pressed. A line that cannot be read as a run or a message is passed as an error, and reading
/// continues.
///
/// A file of JSON lines is read line by line. Each line is a run, a message, or the parameters of a policy. All
/// messages of the file form one run, which is passed last, with line 1. A JSON document over several lines is one
/// run.
///
/// # Errors
/// If the file cannot be read, or has a line longer than [`MAX_LINE`].
pub(crate) fn for_each_run(
    path: &Path,
    progress: &Progress,
    each: &mut dyn FnMut(CorpusItem) -> bool,
) -> Result<(), InputError> {
    let name = path.display().to_string();
    let mut reader = open_counted(path, progress)?;
    // All lines that are single messages, which together are one run.
    let mut message_run = RecordedRun::default();
    let mut nothing_read = true;
    let mut number = 0;
    loop {
        number += 1;
        let next = next_line(&mut reader, &name, number);
        if progress.is_interrupted() {
            return Ok(());
        }
        let Some(bytes) = next? else { break };
        let line = match utf8_text(bytes, &name, number) {
            Ok(line) => line,
            Err(error) => {
                if !each(Err(InputError(error))) {
                    return Ok(());
                }
                continue;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        let is_first = std::mem::replace(&mut nothing_read, false);
        match read::line(&line, number) {
            Ok(JsonLine::Run(run)) => {
                if !each(Ok((number, run))) {
                    return Ok(());
                }
            }
            Ok(JsonLine::Part(entries)) => message_run.append(entries),
            Ok(JsonLine::Parameters(parameters)) => message_run.set_parameters(&parameters),
            // The first line of a document that is printed over several lines is not valid JSON by itself.
            Err(error) if is_first && error.problem.contains("EOF while parsing") => {
                // The document is the rest of the file, so no further run follows.
                let run = read_document(&name, line, &mut reader, number);
                if progress.is_interrupted() {
                    return Ok(());
                }
                each(run.map(|run| (number, run)));
                return Ok(());
            }
            Err(error) => {
                if !each(Err(InputError(format!("{name}: {error}")))) {
                    return Ok(());
                }
            }
        }
    }
    if !message_run.entries.is_empty() {
        each(Ok((1, message_run)));
    }
    Ok(())
}

/// Reads the next line of the file `name`, its line with the number `number`; `None` at the end of the file. Fails if the
/// file cannot be read, or the line is longer than [`MAX_LINE`].
fn next_line(reader: &mut dyn BufRead, name: &str, number: usize) -> Result<Option<Vec<u8>>, InputError> {
    let mut bytes = Vec::new();
    let read = reader.take(MAX_LINE + 1).read_until(b'\n', &mut bytes);
    let read =
        read.map_err(|error| InputError(format!("{name}: line {number}: {}", describe_io_error(&error))))?;
    if read == 0 {
        return Ok(None);
    }
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_LINE {
        return Err(InputError(format!(
            "{name}: line {number} is longer than {} MiB; write this run to a separate file, with each message on its own line, or leave the run out",
            MAX_LINE >> 20
        )));
    }
    Ok(Some(bytes))
}

/// Reads the rest of a JSON document over several lines, and returns the document as one run. `first` is its first
/// line, `number` is the number of that line, and `name` is the file in messages. A document with more than
/// [`MAX_FILE`] further bytes is an error.
fn read_document(
    name: &str,
    first: String,
    reader: &mut dyn BufRead,
    number: usize,
) -> Result<RecordedRun, InputError> {
    let mut bytes = first.into_bytes();
    let read = reader.take(MAX_FILE + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| InputError(format!("{name}: {}", describe_io_error(&error))))?;
    if read as u64 > MAX_FILE {
        return Err(InputError(format!(
            "{name}: the document from line {number} on is longer than {} MiB; write each message of the run on a line \
             of its own",
            MAX_FILE >> 20
        )));
    }
    let text = utf8_text(bytes, name, number).map_err(InputError)?;
    match read::line(&text, number) {
        Ok(JsonLine::Run(run)) => Ok(run),
        // The document is the rest of the file, so these entries are the whole run.
        Ok(JsonLine::Part(entries)) => Ok(RecordedRun { entries, ..RecordedRun::default() }),
        // Only parameters of a policy: a run without events.
        Ok(JsonLine::Parameters(_)) => Ok(RecordedRun::default()),
        Err(error) => Err(InputError(format!("{name}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_wrong_bytes_is_a_line_and_a_byte_in_it() {
        let check = |bytes: &[u8], first_line: usize, expected: &str| {
            let expected = format!("f: {expected} on; give a file in UTF-8");
            assert_eq!(utf8_text(bytes.to_vec(), "f", first_line).unwrap_err(), expected);
        };
        check(b"\xff", 1, "line 1 is not valid UTF-8 from byte 0");
        check(b"ab\xff", 1, "line 1 is not valid UTF-8 from byte 2");
        check(b"a\nbcd\xff\n", 1, "line 2 is not valid UTF-8 from byte 3");
        check(b"a\nb\xff", 7, "line 8 is not valid UTF-8 from byte 1");
    }

    #[test]
    fn a_long_configuration_is_an_error_and_not_cut() {
        let path = std::env::temp_dir().join(format!("flowgate-short-text-{}", std::process::id()));
        type Reader = fn(&Path) -> Result<String, InputError>;
        let check = |read: Reader, bytes: usize, expected: Result<usize, &str>| {
            std::fs::write(&path, "#".repeat(bytes)).unwrap();
            let read = read(&path).map(|text| text.len()).map_err(|error| error.0);
            let expected = expected.map_err(|why| format!("{}: {why}", path.display()));
            assert_eq!(read, expected, "{bytes}");
        };
        check(read_short_text, 1 << 20, Ok(1 << 20));
        check(read_short_text, (1 << 20) + 1, Err("the file is longer than 1 MiB; give a shorter one"));
        let of_64_kib: Reader = |path| bounded_text(path, 64 << 10);
        check(of_64_kib, 64 << 10, Ok(64 << 10));
        check(of_64_kib, (64 << 10) + 1, Err("the file is longer than 64 KiB; give a shorter one"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_equals_sign_after_a_slash_belongs_to_the_path() {
        let check = |argument: &str, expected: (Option<&str>, &str)| {
            assert_eq!(split_name(argument), expected, "{argument}");
        };
        check("bank.flow", (None, "bank.flow"));
        check("bank=rules/a=b.flow", (Some("bank"), "rules/a=b.flow"));
        check("rules/a=b.flow", (None, "rules/a=b.flow"));
        check("=bank.flow", (Some(""), "bank.flow"));
    }
}
