//! Generates texts in which passages are repeated: [`copying_example`]. A small model is trained to copy values from a
//! text that it has read. Repeated passages are the simplest form of this task, so most of the first examples have
//! them. [`Corpus`](super::Corpus) calls this module.

use super::draw::Draw;
use super::{CONTENT, Example, ExampleKind, VALUE};

/// Generates a text of random words and values, followed by four copies of passages of it. Nothing tells the model
/// which passage is copied, so the first word of a copy has almost no weight in the loss; the rest of the copy has the
/// weight of a value.
pub(super) fn copying_example(draw: &mut Draw) -> Example {
    let items: Vec<String> = (0..20 + draw.below(30))
        .map(|_| match draw.below(2) {
            0 => draw.word(),
            _ => {
                let form = draw.form();
                draw.value(form)
            }
        })
        .collect();
    let mut parts = vec![(format!("Text:\n{}\n", items.join(" ")), CONTENT)];
    for _ in 0..4 {
        let length = 3 + draw.below(5);
        let passage = items.iter().skip(draw.below(items.len() - length)).take(length);
        parts.push((draw.pick(&["Copy: ", "> ", "\"", "Again: "]).to_owned(), CONTENT));
        for (index, item) in passage.enumerate() {
            let separator = if index == 0 { "" } else { " " };
            parts.push((format!("{separator}{item}"), if index == 0 { CONTENT } else { VALUE }));
        }
        parts.push(("\n".to_owned(), CONTENT));
    }
    Example { kind: ExampleKind::Copying, parts }
}
