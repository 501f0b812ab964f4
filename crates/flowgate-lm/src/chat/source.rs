//! Defines the provenance of the parts of a user's messages, as the client declares it: [`Source`] for one part, and
//! [`Sources`] for all parts of a chat.
//!
//! A user's message often contains more than a person typed: files, pages, tool outputs. Only the client knows where
//! each part comes from. The client declares the provenance of each part in a field `flowgate` of its request, which is
//! never sent to a model. The configuration says for each client whether the gateway trusts this declaration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Message;

/// The provenance of a part.
///
/// The enumeration is exhaustive on purpose, so that every `match` handles every provenance: it decides the label of a
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A person typed it.
    Typed,
    /// It was read from a file.
    File,
    /// It is the output of a tool.
    Tool,
    /// It was retrieved by a search, on the web or in a store.
    Retrieved,
    /// A program wrote it.
    Program,
}

impl Source {
    /// All variants.
    pub const ALL: [Self; 5] = [Self::Typed, Self::File, Self::Tool, Self::Retrieved, Self::Program];

    /// Returns the name by which a client declares this provenance in a request.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Typed => "typed",
            Self::File => "file",
            Self::Tool => "tool",
            Self::Retrieved => "retrieved",
            Self::Program => "program",
        }
    }

    /// Returns the provenance with this name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

/// The provenance of each part of a chat's messages. The key is the index of a message, and the list has one entry for
/// each of its parts, `None` for a part without a declaration. Messages without any declaration have no entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sources(BTreeMap<usize, Vec<Option<Source>>>);

impl Sources {
    /// Returns whether no part has a declared provenance.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the declared provenance of the part with the index `part` of the message with the index `message`;
    /// `None` if the client has declared none.
    #[must_use]
    pub fn of(&self, message: usize, part: usize) -> Option<Source> {
        self.0.get(&message)?.get(part).copied().flatten()
    }

    /// Stores what the client declares about the message with the index `message`: `parts` has one entry for each part,
    /// `None` for a part without a declaration. Has no effect if all are `None`, since messages without any declaration
    /// have no entry.
    pub fn set(&mut self, message: usize, parts: Vec<Option<Source>>) {
        if parts.iter().any(Option::is_some) {
            self.0.insert(message, parts);
        }
    }

    /// Returns the declarations of the messages from the index `first` on. In the result, the message with the index
    /// `first` has the index 0.
    #[must_use]
    pub fn starting_at(&self, first: usize) -> Self {
        Self(self.0.range(first..).map(|(message, parts)| (message - first, parts.clone())).collect())
    }

    /// Gives the provenance `source` to every part of a user's message for which the client has declared none.
    /// `messages` is the chat that the declarations are about. Messages of other roles are skipped, since they have no
    /// provenance.
    pub fn fill_missing(&mut self, messages: &[Message], source: Source) {
        for (index, message) in messages.iter().enumerate() {
            let Message::User(parts) = message else { continue };
            let sources = self.0.entry(index).or_default();
            // The client may have declared fewer parts than the message has, or none: the others are `None`.
            sources.resize(parts.len(), None);
            sources.iter_mut().for_each(|declared| *declared = declared.or(Some(source)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;

    #[test]
    fn only_missing_sources_are_filled_in() {
        let two = || vec![Part::from("a"), Part::from("b")];
        let messages = [Message::System(two()), Message::User(two()), Message::User(two())];
        let mut sources = Sources::default();
        sources.set(0, vec![None]);
        assert!(sources.is_empty());
        sources.set(1, vec![Some(Source::File)]);
        sources.fill_missing(&messages, Source::Typed);
        let all = |sources: &Sources, message| [0, 1].map(|part| sources.of(message, part));
        let typed = Some(Source::Typed);
        assert_eq!(all(&sources, 0), [None; 2]);
        assert_eq!(all(&sources, 1), [Some(Source::File), typed]);
        assert_eq!(all(&sources, 2), [typed; 2]);
        assert_eq!(all(&sources.starting_at(2), 0), [typed; 2]);
        for source in Source::ALL {
            assert_eq!(Source::from_name(source.name()), Some(source));
        }
        assert_eq!(Source::from_name("nobody"), None);
    }
}
