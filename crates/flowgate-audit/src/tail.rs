//! Finds the end of a log, at which its writer continues: reads the last lines backwards. The writer calls [`find`]
//! when it opens a log; `anchor` and `content` call the functions that read backwards.
//!
//! A partial line of a killed process does not count. The complete lines must form a chain back to the last head, or
//! for `MAX_BACK` lines if no head is among them, and the first line of the log must name the writer's key. Only
//! [`verify`](super::verify()) checks the lines in between.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use super::chain::is_signed;
use super::error::AuditErrorKind;
use super::key::AuditPublicKey;
use super::line_hash::LineHash;
use super::record::{AuditRecord, MAX_LINE};
use super::record_kind::RecordKind;

/// The size of a read, in bytes.
const BLOCK: usize = 8 << 10;
/// The maximum number of lines that are read back. A log without crashes has a head among its last few hundred lines.
const MAX_BACK: u64 = 4096;

/// The end of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogTail {
    /// The number of the next line.
    pub(super) next: u64,
    /// The hash of the last line.
    pub(super) previous: LineHash,
    /// The number of lines after the last head.
    pub(super) unsigned: u64,
    /// The size of the complete lines, in bytes; the rest is partial.
    pub(super) whole: u64,
}

/// Finds the end of a log: the number of its next line, the hash of its last line, the number of lines since the last
/// head (`unsigned`), and the size of the complete lines (`whole`). Checks the chain backwards, up to the line before
/// that head. If the last [`MAX_BACK`] lines contain no head, checks only these lines, and `unsigned` is `MAX_BACK`.
/// In a log without a complete line, the next line has the number 0.
///
/// # Errors
/// If the log cannot be read, was created with another key, or has an end that is not a chain.
pub(super) fn find(file: &mut File, key: &AuditPublicKey) -> Result<LogTail, AuditErrorKind> {
    let length = file.seek(SeekFrom::End(0)).map_err(AuditErrorKind::Read)?;
    let whole = after_last_line_feed(file, length).map_err(AuditErrorKind::Read)?;
    let mut end = LogTail { next: 0, previous: LineHash::NONE, unsigned: 0, whole };
    if whole == 0 {
        return Ok(end);
    }
    check_key(file, key)?;
    // The offset after the line that the loop reads next.
    let mut at = whole;
    // The record after the one that the loop reads next: the loop goes backwards.
    let mut later: Option<AuditRecord> = None;
    let mut has_passed_head = false;
    for distance in 1..=MAX_BACK {
        let line = line_before(file, &mut at)?;
        let record = AuditRecord::read(&line)
            .map_err(|flaw| AuditErrorKind::End(format!("{} is {flaw}", position_from_end(distance))))?;
        let hash = LineHash::of_line(&line);
        match &later {
            None => (end.next, end.previous) = (record.seq.saturating_add(1), hash),
            Some(later) if later.previous == hash && later.seq == record.seq.saturating_add(1) => {}
            Some(_) => {
                return Err(AuditErrorKind::End(format!(
                    "{} does not contain the hash of the previous line: one of the two was changed, or lines \
                    were removed",
                    position_from_end(distance - 1)
                )));
            }
        }
        // The line before the last head is read as well, to check that the head continues it.
        if has_passed_head {
            break;
        }
        if record.kind == RecordKind::Head {
            if !is_signed(&line, key) {
                return Err(AuditErrorKind::End(format!(
                    "the signature of {} does not match the key",
                    position_from_end(distance)
                )));
            }
            has_passed_head = true;
        } else {
            end.unsigned += 1;
        }
        if at == 0 {
            if record.seq != 0 || record.previous != LineHash::NONE {
                return Err(AuditErrorKind::End(
                    "the lines at the beginning of the log are missing".to_owned(),
                ));
            }
            break;
        }
        later = Some(record);
    }
    Ok(end)
}

/// Checks that the first line of a log is the record of its opening, and that it names the public key `key`.
///
/// # Errors
/// If the line is another record or names another key, or the file cannot be read.
fn check_key(file: &mut File, key: &AuditPublicKey) -> Result<(), AuditErrorKind> {
    file.rewind().map_err(AuditErrorKind::Read)?;
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    BufReader::new(file).take(limit).read_until(b'\n', &mut line).map_err(AuditErrorKind::Read)?;
    // Removes the line feed. A line beyond the limit loses its last byte instead, and is then not a valid record.
    line.pop();
    match AuditRecord::read(&line) {
        Ok(first) if first.kind == RecordKind::Opened => {
            match first.text("key").and_then(AuditPublicKey::parse) {
                Some(first) if first == *key => Ok(()),
                Some(_) => Err(AuditErrorKind::OtherKey),
                None => Err(AuditErrorKind::End("the first line names no valid public key".to_owned())),
            }
        }
        _ => Err(AuditErrorKind::End("the first line is not the record that opens a log".to_owned())),
    }
}

/// Returns the phrase that names a line in an error, such as "line 3 from the end". The last line has `back` 1.
fn position_from_end(back: u64) -> String {
    if back == 1 { "the last line".to_owned() } else { format!("line {back} from the end") }
}

/// Returns the line whose line feed ends at the offset `at`, without the line feed; sets `at` to its beginning.
///
/// # Errors
/// If the line is too long, or the file cannot be read.
pub(super) fn line_before(file: &mut File, at: &mut u64) -> Result<Vec<u8>, AuditErrorKind> {
    let end = at.saturating_sub(1);
    let start = after_last_line_feed(file, end).map_err(AuditErrorKind::Read)?;
    let length = usize::try_from(end - start).unwrap_or(usize::MAX);
    if length > MAX_LINE {
        let position = format!("the line that begins at byte {start}");
        return Err(AuditErrorKind::End(format!("{position} is longer than {MAX_LINE} bytes")));
    }
    let mut line = vec![0; length];
    file.seek(SeekFrom::Start(start)).map_err(AuditErrorKind::Read)?;
    file.read_exact(&mut line).map_err(AuditErrorKind::Read)?;
    *at = start;
    Ok(line)
}

/// Returns the offset after the last line feed in the first `end` bytes of a file; 0 if they contain none. Reads the
/// file backwards in blocks.
pub(super) fn after_last_line_feed(file: &mut File, end: u64) -> io::Result<u64> {
    let mut buffer = [0; BLOCK];
    let mut end = end;
    while end > 0 {
        let size = usize::try_from(end).unwrap_or(BLOCK).min(BLOCK);
        let start = end - u64::try_from(size).unwrap_or(end);
        let block = buffer.get_mut(..size).unwrap_or_default();
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(block)?;
        if let Some(feed) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + u64::try_from(feed).unwrap_or(0) + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::TestFolder;

    #[test]
    fn lines_are_found_from_the_end() {
        let folder = TestFolder::new("feeds");
        let check = |name: &str, text: &str, expected: u64| {
            let path = folder.file(name);
            std::fs::write(&path, text).unwrap();
            let mut file = File::open(&path).unwrap();
            let length = u64::try_from(text.len()).unwrap();
            assert_eq!(after_last_line_feed(&mut file, length).unwrap(), expected, "{name}");
        };
        check("empty", "", 0);
        check("none", "abc", 0);
        check("last", "abc\n", 4);
        check("torn", "abc\nde", 4);
        check("far", &format!("a\n{}", "b".repeat(BLOCK * 2 + 7)), 2);
        check("border", &format!("a\n{}", "b".repeat(BLOCK - 1)), 2);
        check("behind", &format!("a\n{}", "b".repeat(BLOCK)), 2);
    }
}
