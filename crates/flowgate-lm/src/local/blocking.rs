//! Finds where the blocked texts of a chat (texts that the model must not attend to) are in its prompt:
//! [`render_blocking`]. `generate.rs` calls it and hides these pieces of the prompt from the model.
//!
//! A chat template is a program that may change what it prints. The chat is therefore rendered twice: unchanged, and
//! with a mark at both ends of each blocked text. Once the marks are removed, the second prompt must equal the first
//! one. If the template cuts off, trims or moves a part of a blocked text, rendering fails: otherwise the model could
//! attend to this part, and the caller would not notice.

use super::template::ChatTemplate;
use crate::chat::{Message, Part, ToolSpec};
use crate::{BlockedText, Error};

/// The error if a blocked text is not in the chat.
const NOT_IN_CHAT: Error = Error::Unsupported(
    "a text to be blocked is not in the chat; name a message, a part of it and a range of the part",
);
/// The error if two blocked texts share bytes.
const OVERLAP: Error = Error::Unsupported("two texts to be blocked overlap; block their union");
/// The error if the chat template changes a blocked text or its ends.
const MOVED: Error = Error::Unsupported(
    "the model's chat template trims, changes or moves a text to be blocked; block a text that does not begin or end with white space, or block the whole part of the message",
);

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromptPiece {
    pub(super) text: String,
    /// Whether the piece is a blocked text.
    pub(super) is_blocked: bool,
}

/// Renders a chat as [`ChatTemplate::render`] does, and divides the prompt into pieces: each blocked text is a piece,
/// and so is each text between blocked ones. If the template prints a message twice, its blocked text becomes two
/// pieces. Fails if the template cannot render the chat, if it changes or leaves out a blocked text, or if a blocked
/// text is not in the chat or overlaps another.
pub(super) fn render_blocking(
    template: &ChatTemplate,
    messages: &[Message],
    tools: &[ToolSpec],
    blocked: &[BlockedText],
) -> Result<Vec<PromptPiece>, Error> {
    let plain = template.render(messages, tools)?;
    // The two marks are characters that the prompt does not contain, from a range of Unicode for private use. The error
    // does not occur in practice: the prompt would have to contain nearly all 65,534 characters of this range.
    let mut unused = ('\u{f0000}'..='\u{ffffd}').filter(|mark| !plain.contains(*mark));
    let (Some(open), Some(close)) = (unused.next(), unused.next()) else { return Err(MOVED) };
    let marked = template.render(&with_marks(messages, blocked, (open, close))?, tools)?;
    // Divide the prompt at the marks.
    let mut pieces = vec![PromptPiece { text: String::new(), is_blocked: false }];
    let mut is_inside = false;
    for character in marked.chars() {
        let is_close = character == close;
        if character == open || is_close {
            // The marks must alternate, an opening one first: only a closing one may follow an opening one.
            if is_close != is_inside {
                return Err(MOVED);
            }
            is_inside = !is_inside;
            pieces.push(PromptPiece { text: String::new(), is_blocked: is_inside });
        } else if let Some(piece) = pieces.last_mut() {
            piece.text.push(character);
        }
    }
    // Without the marks, the prompt must be unchanged, and every blocked text must be in it.
    let unmarked: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
    let found = pieces.iter().filter(|piece| piece.is_blocked).count();
    if is_inside || unmarked != plain || found < blocked.len() {
        return Err(MOVED);
    }
    Ok(pieces)
}

/// Returns the messages with the mark `open` before and the mark `close` after each blocked text. Fails if a text is
/// not in the chat, or two overlap.
fn with_marks(
    messages: &[Message],
    blocked: &[BlockedText],
    (open, close): (char, char),
) -> Result<Vec<Message>, Error> {
    let mut marked = messages.to_vec();
    let mut order: Vec<&BlockedText> = blocked.iter().collect();
    // The marks are inserted from the end of each part to its beginning, so that the ranges of the texts that still
    // need marks stay valid.
    order.sort_by_key(|text| std::cmp::Reverse((text.message, text.part, text.span.start, text.span.end)));
    // In this order, each text is followed by the one before it in the chat.
    for pair in order.windows(2) {
        let [later, earlier] = pair else { continue };
        if (later.message, later.part) == (earlier.message, earlier.part)
            && earlier.span.end > later.span.start
        {
            return Err(OVERLAP);
        }
    }
    for blocked in order {
        let message = marked.get_mut(blocked.message).ok_or(NOT_IN_CHAT)?;
        let text = part_text(message, blocked.part).ok_or(NOT_IN_CHAT)?;
        if text.get(blocked.span.clone()).is_none() {
            return Err(NOT_IN_CHAT);
        }
        text.insert(blocked.span.end, close);
        text.insert(blocked.span.start, open);
    }
    Ok(marked)
}

/// Returns the text of a part of a message; `None` if there is no such part, or it is an image. The whole text of a
/// message of the model counts as its part 0.
fn part_text(message: &mut Message, index: usize) -> Option<&mut String> {
    match message {
        Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => {
            match parts.get_mut(index)? {
                Part::Text(text) => Some(text),
                Part::ImageUrl(_) | Part::ImageData { .. } => None,
            }
        }
        Message::Assistant { text, .. } => (index == 0).then_some(text),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEMPLATE: &str = "{%- for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";

    fn chat() -> Vec<Message> {
        vec![
            Message::System(vec!["Be brief.".into()]),
            Message::User(vec!["one ".into(), "two three".into()]),
        ]
    }

    fn blocked(message: usize, part: usize, span: std::ops::Range<usize>) -> BlockedText {
        BlockedText { message, part, span }
    }

    fn pieces(source: &str, blocked: &[BlockedText]) -> Result<Vec<(String, bool)>, Error> {
        let template = ChatTemplate::new(Path::new("template"), source, None, None).unwrap();
        let pieces = render_blocking(&template, &chat(), &[], blocked)?;
        Ok(pieces.into_iter().map(|piece| (piece.text, piece.is_blocked)).collect())
    }

    #[test]
    fn blocked_texts_are_located() {
        let check = |source: &str, blocked: &[BlockedText], expected: &[(&str, bool)]| {
            let expected: Vec<(String, bool)> =
                expected.iter().map(|(text, is_blocked)| ((*text).to_owned(), *is_blocked)).collect();
            assert_eq!(pieces(source, blocked).unwrap(), expected);
        };
        let whole = "<system>Be brief.<user>one two three<assistant>";
        check(TEMPLATE, &[], &[(whole, false)]);
        // In any order, and next to each other.
        check(
            TEMPLATE,
            &[blocked(1, 1, 3..9), blocked(0, 0, 0..2), blocked(1, 1, 0..3)],
            &[
                ("<system>", false),
                ("Be", true),
                (" brief.<user>one ", false),
                ("two", true),
                ("", false),
                (" three", true),
                ("<assistant>", false),
            ],
        );
        let twice = "{{ messages[0].content }}|{{ messages[0].content }}";
        check(
            twice,
            &[blocked(0, 0, 0..9)],
            &[("", false), ("Be brief.", true), ("|", false), ("Be brief.", true), ("", false)],
        );
    }

    #[test]
    fn what_cannot_be_located_is_an_error() {
        let check = |source: &str, blocked: &[BlockedText], expected: &str| {
            let error = pieces(source, blocked).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        for missing in [blocked(2, 0, 0..1), blocked(1, 2, 0..1), blocked(1, 0, 0..5)] {
            check(TEMPLATE, &[missing], "is not in the chat");
        }
        check(TEMPLATE, &[blocked(0, 0, 0..4), blocked(0, 0, 3..6)], "texts to be blocked overlap");
        // Templates that cut off, change or leave out what is blocked.
        check(
            "{{ messages[1].content[:6] }}",
            &[blocked(1, 1, 0..9)],
            "chat template trims, changes or moves",
        );
        let changed = "{{ messages[1].content | replace('two', '2') }}";
        check(changed, &[blocked(1, 1, 1..9)], "chat template trims, changes or moves");
        check("{{ messages[0].content }}", &[blocked(1, 1, 0..9)], "chat template trims, changes or moves");
    }
}
