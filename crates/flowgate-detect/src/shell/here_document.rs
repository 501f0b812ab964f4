//! Reads the contents of here-documents, which follow the line of their redirection. The parser calls
//! [`ScriptReader::newline`] at each end of a line.
//!
//! A content ends at the line that equals the delimiter. After `<<-`, the leading tabs of the line do not count; spaces
//! and carriage returns always do. If the delimiter is not quoted, lines that end with a backslash are joined with the
//! next line before the comparison, as in bash.

use super::lexer::{PendingDocument, ScriptLocation, ScriptReader, WordBuilder};
use super::limits::ShellReadError;
use super::syntax::Word;

impl ScriptReader<'_, '_> {
    /// Reads a line break and the contents of the here-documents that begin after it. Fails if an expansion in a
    /// content cannot be read, if shells disagree where a content ends, or if a limit is exceeded.
    pub(super) fn newline(&mut self) -> Result<(), ShellReadError> {
        self.at += 1;
        for document in std::mem::take(&mut self.pending) {
            let content = self.document(&document)?;
            if let Some(slot) = self.facts.documents.get_mut(document.number) {
                *slot = content;
            }
        }
        Ok(())
    }

    /// Reads the content of a here-document, up to the line that is its delimiter or to the end of the text. Removes
    /// leading tabs (after `<<-`) and joins lines that end with a backslash, then reads the variables and substitutions
    /// in it, unless the delimiter is quoted.
    fn document(&mut self, document: &PendingDocument) -> Result<Word, ShellReadError> {
        let start = self.at;
        // The content with tabs removed and lines joined, and whether it differs from the text.
        let mut content = String::new();
        let mut changed = false;
        let mut end = self.text.len();
        while self.at < self.text.len() {
            let line_start = self.at;
            let (line, is_joined) = self.document_line(document.literal);
            changed |= is_joined;
            let kept = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
            changed |= kept.len() != line.len();
            let compared = kept.strip_suffix('\n').unwrap_or(kept);
            if compared == document.delimiter {
                end = line_start;
                break;
            }
            // Inside `$(…)`, some versions of bash end the content at a line such as `EOF)`.
            if self.substitutions > 0
                && compared.strip_prefix(&document.delimiter).is_some_and(|rest| rest.contains(')'))
            {
                return Err(ShellReadError::Syntax);
            }
            content.push_str(kept);
        }
        self.limits.spend(self.at - start + 1)?;
        let span = self.location.locate(&(start..end));
        // If the content is unchanged, the offset determines the position of each part in the text; otherwise, the
        // position of each part is the whole span.
        let location = match &self.location {
            ScriptLocation::From(offset) if !changed => ScriptLocation::From(offset + start),
            _ => ScriptLocation::Within(span.clone()),
        };
        let mut word = WordBuilder::default();
        if document.literal {
            // `true`: quoted, so nothing in it is expanded.
            word.push_text(&content, true);
        } else {
            self.limits.enter()?;
            let mut reader = ScriptReader {
                text: &content,
                at: 0,
                location,
                limits: &mut *self.limits,
                facts: &mut *self.facts,
                pending: Vec::new(),
                substitutions: 0,
                reads_patterns: false,
            };
            // `false`: no quote ends the content.
            reader.double_quoted(&mut word, false)?;
            self.limits.leave();
        }
        Ok(Word { parts: word.parts, span })
    }

    /// Reads one line of the content of a here-document, with its line break. Unless the content is `literal`, a line
    /// of the text that ends with a backslash is joined with the next one. Returns also whether lines were joined.
    fn document_line(&mut self, literal: bool) -> (String, bool) {
        let mut line = String::new();
        let mut is_joined = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            // `physical` is a line of the text; several of them can be one `line` of the content.
            let physical = rest.split_inclusive('\n').next().unwrap_or_default();
            self.at += physical.len();
            // An odd number of backslashes at the end joins the line with the next one; each pair is a literal
            // backslash.
            let backslashes = |text: &str| text.len() - text.trim_end_matches('\\').len();
            match physical.strip_suffix('\n') {
                Some(before) if !literal && backslashes(before) % 2 == 1 => {
                    line.push_str(before.strip_suffix('\\').unwrap_or(before));
                    is_joined = true;
                }
                _ => {
                    line.push_str(physical);
                    return (line, is_joined);
                }
            }
        }
    }
}
