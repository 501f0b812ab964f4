//! What flows through pipes and variables, and the texts that can be run as scripts.

use std::ops::Range;

use super::effective_command::InnerScript;
use super::expansion::Word;

/// Texts that are printed and may be run as a script; and files whose content is known.
pub(super) const MAX_TEXTS: usize = 64;

/// The location of a script in the whole text.
#[derive(Debug, Clone)]
pub(super) enum ScriptLocation {
    /// At the same places.
    Whole,
    /// From this byte on.
    From(usize),
    /// Somewhere within these bytes: the quotes around it were removed, so positions in it do not correspond to the
    /// text.
    Within(Range<usize>),
}

impl ScriptLocation {
    /// Returns the bytes of the whole text that correspond to a range of the script, or that contain the whole script
    /// if positions in it correspond to none.
    pub(super) fn locate(&self, range: Range<usize>) -> Range<usize> {
        match self {
            Self::Whole => range,
            Self::From(offset) => range.start + offset..range.end + offset,
            Self::Within(whole) => whole.clone(),
        }
    }
}

/// A text that can be run as a script.
#[derive(Debug, Clone)]
pub(super) struct PlacedScript {
    pub(super) text: String,
    pub(super) location: ScriptLocation,
    /// Whether nothing is left out of the text, so that an error of syntax is one of the script.
    pub(super) is_exact: bool,
}

impl PlacedScript {
    pub(super) fn new(script: InnerScript, location: &ScriptLocation) -> Self {
        let location = ScriptLocation::Within(location.locate(script.span));
        Self { text: script.text, location, is_exact: script.is_exact }
    }
}

/// What commands print, or what a variable contains: each with the bytes of the pipeline that it comes from.
#[derive(Debug, Default, Clone)]
pub(super) struct Flow {
    /// Downloaded data.
    pub(super) fetched: Option<Range<usize>>,
    /// Decoded data.
    pub(super) decoded: Option<Range<usize>>,
    /// The output of an interactive shell.
    pub(super) interactive: Option<Range<usize>>,
    /// Files with keys, archives, or the environment.
    pub(super) private: Option<Range<usize>>,
    /// Any file, or the environment.
    pub(super) read: Option<Range<usize>>,
    /// Texts that are a part of the script.
    pub(super) texts: Vec<PlacedScript>,
}

impl Flow {
    pub(super) fn fields(&mut self) -> [&mut Option<Range<usize>>; 5] {
        [&mut self.fetched, &mut self.decoded, &mut self.interactive, &mut self.private, &mut self.read]
    }

    /// Adds what another flow contains, but for its texts.
    pub(super) fn add(&mut self, mut other: Self) {
        for (field, other) in self.fields().into_iter().zip(other.fields()) {
            if field.is_none() {
                field.clone_from(other);
            }
        }
    }

    pub(super) fn union<'f>(flows: impl Iterator<Item = &'f Self>) -> Self {
        let mut all = Self::default();
        flows.for_each(|flow| all.add(flow.clone()));
        all
    }

    /// Returns the flow as if it came from these bytes.
    pub(super) fn at(mut self, span: &Range<usize>) -> Self {
        for field in self.fields() {
            *field = field.as_ref().map(|_| span.clone());
        }
        self
    }

    /// Returns what is kept in a variable: a name that is read from a file is too common to count.
    pub(super) fn into_value(mut self) -> Self {
        self.read = None;
        self.texts.clear();
        self
    }

    pub(super) fn without_texts(&self) -> Self {
        Self { texts: Vec::new(), ..self.clone() }
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.fields().iter().all(|field| field.is_none())
    }

    pub(super) fn add_with_texts(&mut self, mut other: Self) {
        let texts = std::mem::take(&mut other.texts);
        self.texts.extend(texts);
        self.texts.truncate(MAX_TEXTS);
        self.add(other);
    }
}

/// Returns the text of a here-document or a here-string, with its place.
pub(super) fn document_text(operator: &str, word: &Word, location: &ScriptLocation) -> PlacedScript {
    let bytes = location.locate(word.span.clone());
    // The text is as it is spelled: nothing was expanded, and no escape was removed.
    let is_verbatim = operator != "<<<" && !word.dynamic && word.span.len() == word.text.len();
    let location = match location {
        ScriptLocation::Whole | ScriptLocation::From(_) if is_verbatim => ScriptLocation::From(bytes.start),
        _ => ScriptLocation::Within(bytes),
    };
    PlacedScript { text: word.code.clone(), location, is_exact: !word.dynamic }
}
