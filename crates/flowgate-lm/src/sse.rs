//! Splits a stream of bytes into server-sent events ([`EventSplitter`]), and encodes such events
//! ([`SseEvent::encode`]). All streamed answers of models and of MCP servers have this form.
//!
//! This module follows the HTML standard, with one exception: text that is not valid UTF-8 is an error, and is not
//! repaired.

use crate::Error;

/// The longest event, in bytes. The limit is high because in some formats the last event repeats the whole answer.
pub const MAX_EVENT: usize = 16 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The type of the event; empty if the stream states none.
    pub name: String,
    /// The data of the event.
    pub data: String,
}

impl SseEvent {
    /// Creates an event.
    #[must_use]
    pub fn new(name: &str, data: impl Into<String>) -> Self {
        Self { name: name.to_owned(), data: data.into() }
    }

    /// Encodes the event for sending. The receiver gets each line break in `data` as a line feed. Only the first line
    /// of the name is sent, so that a name cannot add fields to the event.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        if let Some(name) = self.name.lines().next() {
            text.push_str("event: ");
            text.push_str(name);
            text.push('\n');
        }
        let mut push_line = |line: &str| {
            text.push_str("data: ");
            text.push_str(line);
            text.push('\n');
        };
        match memchr::memchr2(b'\r', b'\n', self.data.as_bytes()) {
            None => push_line(&self.data),
            Some(_) => self.data.replace("\r\n", "\n").split(['\r', '\n']).for_each(push_line),
        }
        text.push('\n');
        text
    }
}

/// Splits a stream of bytes into events.
#[derive(Debug, Default)]
pub struct EventSplitter {
    /// The bytes of the current line so far.
    line: Vec<u8>,
    /// The name of the current event; empty if no line states one yet.
    name: String,
    /// The data of the current event, if a line states any yet.
    data: Option<String>,
    /// The id of the current event, if a line states one yet.
    id: Option<String>,
    /// The id of the last complete event that has one.
    last_id: String,
    /// The reconnection time that the stream states, in milliseconds, if it states one.
    retry: Option<u64>,
    /// Whether the last byte was a carriage return: a line feed after it belongs to the same line break.
    after_return: bool,
    /// Whether the first line of the stream has ended. Only the first line can begin with a byte order mark.
    has_first_line: bool,
}

impl EventSplitter {
    /// Takes the next bytes of the stream, and returns the events that end within these bytes. The events are returned
    /// one by one, so that an error in a later event does not discard earlier ones. An event ends with an empty line;
    /// an event that has not ended yet is completed by a later call. Dropping the iterator early loses the remaining
    /// bytes.
    ///
    /// An event that is longer than [`MAX_EVENT`] or not UTF-8 is an error, and this error is the last item.
    pub fn feed<'s>(&'s mut self, bytes: &'s [u8]) -> impl Iterator<Item = Result<SseEvent, Error>> + 's {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let next = self.next(&mut rest);
            if next.is_err() {
                rest = &[];
            }
            next.transpose()
        })
    }

    /// Returns the last id that an event stated, even if the event has no data; empty if no event stated one. An
    /// interrupted stream can be resumed from this id.
    #[must_use]
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    /// Returns the reconnection time that the stream states, in milliseconds; `None` if it states none.
    #[must_use]
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Reads the bytes of `rest` up to the end of the next event, removes them from `rest`, and returns the event.
    /// `None` if the bytes end before the event does: later calls continue the event. A line ends with a carriage
    /// return, a line feed, or both.
    fn next(&mut self, rest: &mut &[u8]) -> Result<Option<SseEvent>, Error> {
        while let Some((&first, tail)) = rest.split_first() {
            // The last line has already ended with a carriage return. A line feed after it belongs to the same line
            // break.
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                *rest = tail;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
            let (piece, next) = rest.split_at(end);
            let stored_bytes = self.line.len() + self.data.as_ref().map_or(0, String::len);
            if stored_bytes + piece.len() > MAX_EVENT {
                return Err(Error::TooLong(MAX_EVENT));
            }
            self.line.extend_from_slice(piece);
            *rest = next;
            // If the bytes end without a line break, the line continues in later bytes.
            let Some((&line_break, tail)) = next.split_first() else { break };
            self.after_return = line_break == b'\r';
            *rest = tail;
            if let Some(event) = self.end_of_line()? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Interprets the complete line in `self.line`: a field of the current event or, if the line is empty, the end of
    /// the event. Returns the event that ends with this line; `None` within an event, and for an event without data,
    /// which the HTML standard discards. Also stores the id and the reconnection time that the stream states. Fails if
    /// the line is not valid UTF-8.
    fn end_of_line(&mut self) -> Result<Option<SseEvent>, Error> {
        let bytes = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&bytes)
            .map_err(|_| Error::Malformed("the event stream is not valid UTF-8"))?;
        // A byte order mark at the beginning of the stream is not part of the first line.
        let line = if self.has_first_line { line } else { line.strip_prefix('\u{feff}').unwrap_or(line) };
        self.has_first_line = true;
        if line.is_empty() {
            if let Some(id) = self.id.take() {
                self.last_id = id;
            }
            let name = std::mem::take(&mut self.name);
            return Ok(self.data.take().map(|data| SseEvent { name, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            // The standard ignores an id with a null character.
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            // An empty or too large number changes nothing.
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().or(self.retry);
            }
            // Unknown fields are ignored, and so are comments, whose field name is empty.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Passes the pieces of a stream to a splitter, one after the other. Returns all events, or the first error.
    fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<SseEvent>, Error> {
        let mut splitter = EventSplitter::default();
        let mut events = Vec::new();
        for piece in pieces {
            for event in splitter.feed(piece) {
                events.push(event?);
            }
        }
        Ok(events)
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Vec<SseEvent> =
            expected.iter().map(|(name, data)| SseEvent::new(name, *data)).collect();
        assert_eq!(split([stream.as_bytes()]).unwrap(), expected, "{stream:?}");
        assert_eq!(split(stream.as_bytes().chunks(1)).unwrap(), expected, "{stream:?}, byte by byte");
    }

    #[test]
    fn streams_are_split_into_events() {
        check("data: a\n\n", &[("", "a")]);
        check("event: e\ndata: a\n\ndata: b\n\n", &[("e", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", &[("", "a"), ("", "b"), ("", "c")]);
        check("data: a\ndata:  b\ndata\n\n", &[("", "a\n b\n")]);
        check(": hello\n\ndata:a\nid: 1\nretry: 2\nother: 3\n\n", &[("", "a")]);
        check("\u{feff}data: ü€😀\n\n", &[("", "ü€😀")]);
        check("event: e\n\ndata: a\n\n", &[("", "a")]);
        check("data: a\n\ndata: never ended\n", &[("", "a")]);
        check("data\n\n", &[("", "")]);
    }

    #[test]
    fn where_a_stream_can_be_asked_for_again() {
        let check = |stream: &str, id: &str, retry: Option<u64>| {
            let mut splitter = EventSplitter::default();
            assert!(splitter.feed(stream.as_bytes()).all(|event| event.is_ok()));
            assert_eq!((splitter.last_id(), splitter.retry()), (id, retry), "{stream:?}");
        };
        check("data: a\n\n", "", None);
        check("id: 1\ndata: a\n\n", "1", None);
        check("id: 1\nretry: 100\ndata:\n\n", "1", Some(100));
        check("id: 1\n\nid: 2\ndata: never ended\n", "1", None);
        check("id: 1\n\ndata: a\n\n", "1", None);
        check("id: 1\n\nid\n\n", "", None);
        check("id: 1\n\nid: \0\n\n", "1", None);
        check("retry: 1s\n\nretry: -1\n\nretry:\n\nretry: 99999999999999999999\n\n", "", None);
    }

    #[test]
    fn events_before_an_error_are_returned() {
        let mut splitter = EventSplitter::default();
        let events: Vec<_> = splitter.feed(b"data: a\n\ndata: \xff\n\ndata: b\n\n").collect();
        assert_eq!(
            events,
            [Ok(SseEvent::new("", "a")), Err(Error::Malformed("the event stream is not valid UTF-8"))]
        );
    }

    #[test]
    fn events_beyond_the_limits_are_errors() {
        let last = |splitter: &mut EventSplitter, bytes: &[u8]| splitter.feed(bytes).last().transpose();
        assert_eq!(
            split([&b"data: \xff\n"[..]]).unwrap_err(),
            Error::Malformed("the event stream is not valid UTF-8")
        );
        let piece = vec![b'x'; 1 << 20];
        let mut splitter = EventSplitter::default();
        let ended = std::iter::repeat_with(|| last(&mut splitter, &piece)).take(32).find_map(Result::err);
        assert_eq!(ended, Some(Error::TooLong(MAX_EVENT)), "a line");
        let mut line = b"data: ".to_vec();
        line.extend(&piece);
        line.push(b'\n');
        let mut splitter = EventSplitter::default();
        let ended = std::iter::repeat_with(|| last(&mut splitter, &line)).take(32).find_map(Result::err);
        assert_eq!(ended, Some(Error::TooLong(MAX_EVENT)), "many lines");
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            stream in prop::collection::vec(
                prop::sample::select(vec!["data", "event", ":", " ", "\r", "\n", "\r\n", "ü", "😀", "\u{feff}", "x", "\0"]),
                0..60,
            ),
            cuts in prop::collection::vec(1_usize..7, 1..8),
        ) {
            let stream = stream.concat().into_bytes();
            let mut pieces = Vec::new();
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(split(pieces), split([stream.as_slice()]));
        }

        #[test]
        fn what_is_encoded_is_read(
            events in prop::collection::vec(("[a-z_.]{0,6}", "[ -~ü\n]{0,12}"), 0..6),
        ) {
            let events: Vec<SseEvent> = events.iter().map(|(name, data)| SseEvent::new(name, data.as_str())).collect();
            let stream: String = events.iter().map(SseEvent::encode).collect();
            prop_assert_eq!(split([stream.as_bytes()]).unwrap(), events);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = split([bytes.as_slice()]);
        }
    }
}
