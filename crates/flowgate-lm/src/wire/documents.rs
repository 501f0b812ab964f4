//! Contains what the formats share about documents: the text of a document with its title, its provenance, and PDFs.
//! The decoders of requests call this module, and so do the encoders that send a PDF.
//!
//! A document in text becomes a text part, which is labelled and judged like any other. A PDF is passed on unchanged:
//! no rule can read its content, so its label alone decides which steps are shown it. A document of which a request has
//! only the address, or which is stored at the provider, is refused: its content would reach the model without a label.

use super::WireError;
use super::fields::ObjectFields;
use crate::chat::{Part, Source};

/// The media type of the documents that are passed on unchanged.
const PDF: &str = "application/pdf";

/// The name that is sent for every PDF in OpenAI's formats, which require a name. The client's own name is dropped.
const NAME: &str = "document.pdf";

/// The problem of an image or a document for which the request has only the address.
pub(super) const FETCHED: &str =
    "would be fetched by the provider, and what it returns has no label; send the content in base64";

/// The problem of a file that is not a PDF.
pub(super) const ONLY_PDF: &str = "is not the content of a PDF; send other documents as text";

/// Returns the provenance of a document in a user's message: the one that the document itself declares, otherwise the
/// one that the message declares (`message_source`), otherwise `File`. `Typed` in the message does not apply to the
/// document, since a person does not type a document. The result is never `None`; it is an `Option` because the callers
/// list it with the provenance of other parts. Fails if the declaration of the document is malformed.
pub(super) fn source_of(
    document: &ObjectFields<'_>,
    message_source: Option<Source>,
) -> Result<Option<Source>, WireError> {
    let of_message = message_source.filter(|source| *source != Source::Typed);
    Ok(document.source()?.or(of_message).or(Some(Source::File)))
}

/// Returns one text with the title, the context and the content (`text`) of a document, so that rules judge all that
/// the model reads. An absent or empty title, context or content is left out.
pub(super) fn titled_text(title: Option<&str>, context: Option<&str>, text: &str) -> String {
    let line = |name: &str, value: Option<&str>| {
        value.filter(|value| !value.is_empty()).map_or_else(String::new, |value| format!("{name}: {value}\n"))
    };
    let head = line("Title", title) + &line("Context", context);
    match (head.is_empty(), text.is_empty()) {
        (true, _) => text.to_owned(),
        (false, true) => head.trim_end().to_owned(),
        (false, false) => format!("{head}\n{text}"),
    }
}

/// Returns a part with the PDF whose content, in base64, is `data`; `None` if `media_type` is not that of a PDF.
pub(super) fn pdf(media_type: &str, data: &str) -> Option<Part> {
    let (media_type, data) = (media_type.to_owned(), data.to_owned());
    (media_type == PDF).then_some(Part::ImageData { media_type, data })
}

/// Parses a PDF from a data URL, as in OpenAI's formats; `None` if the URL is anything else.
pub(super) fn parse_pdf(url: &str) -> Option<Part> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    pdf(media_type, data)
}

/// Returns whether a part is a PDF. [`Part`] has no variant for PDFs: a PDF is image data with the media type of a PDF.
pub(super) fn is_pdf(part: &Part) -> bool {
    matches!(part, Part::ImageData { media_type, .. } if media_type == PDF)
}

/// Returns the two values by which OpenAI's formats describe a PDF: its name, which is always [`NAME`], and its content
/// as a data URL. `None` for any other part.
pub(super) fn named_pdf(part: &Part) -> Option<(&'static str, String)> {
    super::image_url(part).filter(|_| is_pdf(part)).map(|url| (NAME, url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_part_of_the_text() {
        for (title, context, text, expected) in [
            (None, None, "a", "a"),
            (Some("T"), None, "a", "Title: T\n\na"),
            (Some(""), Some("C"), "a", "Context: C\n\na"),
            (Some("T"), Some("C"), "", "Title: T\nContext: C"),
            (None, None, "", ""),
        ] {
            assert_eq!(titled_text(title, context, text), expected);
        }
    }

    #[test]
    fn only_a_pdf_is_a_pdf() {
        let part =
            |media_type: &str| Part::ImageData { media_type: media_type.to_owned(), data: "AA".to_owned() };
        assert_eq!(parse_pdf("data:application/pdf;base64,AA"), Some(part(PDF)));
        assert_eq!(named_pdf(&part(PDF)), Some((NAME, "data:application/pdf;base64,AA".to_owned())));
        for other in ["data:text/plain;base64,AA", "data:application/pdf,AA", "https://example.org/a.pdf", ""]
        {
            assert_eq!(parse_pdf(other), None, "{other}");
        }
        assert_eq!(named_pdf(&part("image/png")), None);
        assert_eq!(named_pdf(&Part::from("application/pdf")), None);
    }
}
