//! Reads e-mails from a folder as background text for the games, as AgentSecBench's section 6.3 does with the Enron
//! collection (email-style text). A file is one message: lines of headers, an empty line, and the body; a file without
//! headers is a body. Folders may be nested, as in a mailbox. `flowgate bench games` calls [`load_mails`].
//!
//! The background is permitted content: the [games](crate::games) add it to both sides of a pair. The data is not part
//! of Flowgate.

use super::files::CorpusFolder;
use super::reading::CorpusError;

/// The maximum number of bodies that are returned, in the order of the names of folders and files.
const MAX_MAILS: usize = 2000;
/// The maximum depth of nested folders.
const MAX_DEPTH: usize = 8;
/// The maximum length of the text that is kept of a message, in characters.
const MAX_TEXT: usize = 400;
/// The minimum length of a text; shorter ones say nothing.
const MIN_TEXT: usize = 20;

/// Reads the bodies of the messages in a folder and in the folders below it, each shortened and in one line. Returns at
/// most `MAX_MAILS` bodies, and reads no folder that is nested more deeply than `MAX_DEPTH`.
///
/// # Errors
/// If a file or a folder cannot be read, or no message has a body.
pub fn load_mails(folder: &dyn CorpusFolder) -> Result<Vec<String>, CorpusError> {
    let mut texts = Vec::new();
    // The folders that were not read so far, each with its depth below the given folder, whose path is empty.
    let mut open = vec![(String::new(), 0)];
    while let Some((path, depth)) = open.pop() {
        let below = |name: &String| if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        for name in folder.list(&path)? {
            if texts.len() >= MAX_MAILS {
                return Ok(texts);
            }
            texts.extend(folder.read(&below(&name))?.and_then(|mail| body(&mail)));
        }
        if depth < MAX_DEPTH {
            // `open` is a stack: the folder that is pushed last is read first. So the names are pushed in reverse.
            open.extend(folder.folders(&path)?.iter().rev().map(|name| (below(name), depth + 1)));
        }
    }
    if texts.is_empty() {
        let problem = format!(
            "no file has the text of an e-mail, of at least {MIN_TEXT} characters without headers and quotations; give a folder with one message in each file"
        );
        return Err(CorpusError::new("", problem));
    }
    Ok(texts)
}

/// Returns the body of a message in one line, without headers and quoted messages, cut after [`MAX_TEXT`] characters.
/// The result is `None` if the body has fewer than [`MIN_TEXT`] characters.
fn body(mail: &str) -> Option<String> {
    let is_header = |line: &str| {
        line.split_once(':').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
    };
    let normal = mail.replace("\r\n", "\n");
    // A mail with headers has an empty line after them.
    let has_headers = normal.lines().next().is_some_and(is_header);
    let body =
        if has_headers { normal.split_once("\n\n").map_or("", |(_, body)| body) } else { normal.as_str() };
    // A quoted message follows a line of this form, or has `>` at the beginning of each line.
    let own = body.lines().take_while(|line| !line.trim_start().starts_with("-----Original Message"));
    let words: Vec<&str> =
        own.filter(|line| !line.trim_start().starts_with('>')).flat_map(str::split_whitespace).collect();
    let text: String = words.join(" ").chars().take(MAX_TEXT).collect();
    (text.chars().count() >= MIN_TEXT).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A folder in memory: the texts of files by their paths.
    struct Mailbox(BTreeMap<&'static str, &'static str>);

    impl Mailbox {
        /// Returns the names directly below a folder: of files, or of folders.
        fn names(&self, folder: &str, files: bool) -> Vec<String> {
            let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            let below = self.0.keys().filter_map(|path| path.strip_prefix(prefix.as_str()));
            let mut names: Vec<String> = below
                .filter(|rest| rest.contains('/') != files)
                .filter_map(|rest| rest.split('/').next().map(str::to_owned))
                .collect();
            names.dedup();
            names
        }
    }

    impl CorpusFolder for Mailbox {
        fn read(&self, path: &str) -> Result<Option<String>, CorpusError> {
            Ok(self.0.get(path).map(|text| (*text).to_owned()))
        }

        fn list(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
            Ok(self.names(folder, true))
        }

        fn folders(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
            Ok(self.names(folder, false))
        }
    }

    #[test]
    fn bodies_of_messages_are_read() {
        let mail = "Message-ID: <1>\r\nSubject: lunch\r\n\r\nShall we meet at noon\r\nin the lobby?\r\n> quoted\r\n-----Original Message-----\r\nold";
        let box_of = |mails: &[(&'static str, &'static str)]| Mailbox(mails.iter().copied().collect());
        let read = load_mails(&box_of(&[
            ("inbox/1", mail),
            ("inbox/2", "Subject: x\n\nshort"),
            ("a", "No headers here, but a body of text."),
            ("empty", ""),
        ]));
        assert_eq!(
            read.unwrap(),
            ["No headers here, but a body of text.", "Shall we meet at noon in the lobby?"]
        );
        let error = load_mails(&box_of(&[("x", "short")])).unwrap_err().to_string();
        assert!(error.contains("no file has the text of an e-mail"), "{error}");
        assert_eq!(body(&"word ".repeat(1000)).map(|text| text.chars().count()), Some(MAX_TEXT));
    }
}
