//! Decodes the content of messages and of tool outputs in requests of Anthropic's Messages API: texts, images, documents
//! and search results. Documents and search results become text parts, except for PDFs. The decoder of requests
//! ([`super::request_decoder`]) calls this module for every message.

use super::super::documents;
use super::super::fields::{ObjectFields, PROVIDER_RECORD, UNKNOWN_PART};
use super::super::known_fields::KnownFields;
use super::super::{NO_IMAGE, WireError, is_image, is_plain};
use super::citations::RequestDocuments;
use super::{BASE64, DOCUMENT, FILE, IMAGE, PLAIN_TEXT, REFERENCE, SEARCH_RESULT, TEXT, TEXT_BLOCKS, URL};
use crate::chat::{DocumentKind, Part};
use crate::json::Json;

/// Returns the blocks of a content: the objects in the list under `key`. Returns none if the field is absent, and fails
/// if an item is not an object.
pub(super) fn blocks<'a>(object: &ObjectFields<'a>, key: &str) -> Result<Vec<ObjectFields<'a>>, WireError> {
    object.objects(key)?.collect()
}

/// Decodes a content that can only have texts, such as that of a system message: the field `key` is a text, or a list
/// of text blocks.
pub(super) fn read_texts(object: &ObjectFields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    if let Some(Json::Text(text)) = object.get(key) {
        return Ok(vec![Part::Text(text.clone().into_owned())]);
    }
    let text = |block: &ObjectFields<'_>| {
        if block.text("type")? == "text" {
            read_part(block)
        } else {
            block.field_error("type", "is not `text`, the only type of block that is permitted here")
        }
    };
    blocks(object, key)?.iter().map(text).collect()
}

/// Decodes the output of a tool in the field `key`: a text, or a list of texts, images, documents, search results and
/// references to tools. A reference to a tool, which is the result of a search for tools, becomes a text with the
/// tool's name. The documents and search results are counted in `documents`.
pub(super) fn read_parts(
    object: &ObjectFields<'_>,
    key: &str,
    documents: &mut RequestDocuments,
) -> Result<Vec<Part>, WireError> {
    if let Some(Json::Text(text)) = object.get(key) {
        return Ok(vec![Part::Text(text.clone().into_owned())]);
    }
    let mut parts = Vec::new();
    for block in blocks(object, key)? {
        match block.text("type")? {
            "tool_reference" => {
                block.reject_unsupported(&REFERENCE)?;
                parts.push(Part::Text(format!("[tool {}]", block.text("tool_name")?)));
            }
            "document" => parts.extend(read_document(&block, &DOCUMENT, documents)?),
            "search_result" => parts.push(read_search_result(&block, &SEARCH_RESULT, documents)?),
            _ => parts.push(read_part(&block)?),
        }
    }
    Ok(parts)
}

/// Decodes a document and counts it in `documents`. `known` declares the fields of the document, which depend on the
/// message: only a document in a message of the user may declare its provenance. Returns one text part for a document
/// that consists of text. For a PDF, returns the PDF, preceded by a text part with its title and context if it has any.
pub(super) fn read_document(
    block: &ObjectFields<'_>,
    known: &KnownFields,
    documents: &mut RequestDocuments,
) -> Result<Vec<Part>, WireError> {
    block.reject_unsupported(known)?;
    let head = (block.optional_text("title")?, block.optional_text("context")?);
    let index = documents.count(block)?;
    let source = block.object("source")?;
    match source.text("type")? {
        "text" => {
            source.reject_unsupported(&PLAIN_TEXT)?;
            let texts = vec![source.text("data")?.to_owned()];
            Ok(vec![documents.text_part(DocumentKind::Text, index, head, texts)])
        }
        "content" => {
            source.reject_unsupported(&TEXT_BLOCKS)?;
            Ok(vec![documents.text_part(DocumentKind::Blocks, index, head, content_texts(&source)?)])
        }
        "base64" => {
            source.reject_unsupported(&BASE64)?;
            let Some(pdf) = documents::pdf(source.text("media_type")?, source.text("data")?) else {
                return source.field_error("media_type", documents::ONLY_PDF);
            };
            let (title, context) = head;
            // A PDF without a title and a context has no text part.
            let head = Some(documents::titled_text(title, context, "")).filter(|head| !head.is_empty());
            Ok(head.map(Part::Text).into_iter().chain([pdf]).collect())
        }
        _ => refuse_source(&source),
    }
}

/// Decodes a search result as one text part, and counts it in `documents`. `known` declares its fields, as for
/// [`read_document`].
pub(super) fn read_search_result(
    block: &ObjectFields<'_>,
    known: &KnownFields,
    documents: &mut RequestDocuments,
) -> Result<Part, WireError> {
    block.reject_unsupported(known)?;
    let head = (block.optional_text("title")?, block.optional_text("source")?);
    let index = documents.count(block)?;
    Ok(documents.text_part(DocumentKind::SearchResult, index, head, content_texts(block)?))
}

/// Returns the texts of the field `content`, which is a text or a list of text blocks.
fn content_texts(object: &ObjectFields<'_>) -> Result<Vec<String>, WireError> {
    let text = |part| if let Part::Text(text) = part { Some(text) } else { None };
    Ok(read_texts(object, "content")?.into_iter().filter_map(text).collect())
}

/// Fails for `source`, the source of an image or a document, because it refers to content outside the request (by an
/// address or a stored file), or because its type is unknown. Never returns a `T`: the parameter only lets callers
/// return the result.
fn refuse_source<T>(source: &ObjectFields<'_>) -> Result<T, WireError> {
    // If the source has the address or the id of a file, the error names this field and says why it is refused.
    match source.text("type")? {
        "url" => source.reject_unsupported(&URL)?,
        "file" => source.reject_unsupported(&FILE)?,
        _ => {}
    }
    source.field_error("type", "is not a source that contains the content itself; send the content in base64")
}

/// Returns why a block of the type `kind` is refused at a place where this type is not permitted.
pub(super) fn block_problem(kind: &str) -> &'static str {
    let is_record = matches!(kind, "server_tool_use" | "mcp_tool_use" | "mcp_tool_listing")
        || kind.ends_with("_tool_result");
    match kind {
        _ if is_record => PROVIDER_RECORD,
        "thinking" | "redacted_thinking" | "tool_use" => "belongs to a message of the model; send it in one",
        "tool_result" => "belongs to a message of the user; send it in one",
        _ => UNKNOWN_PART,
    }
}

/// Decodes a block with a text or an image that is not in a message of the user (but in a tool output, for example),
/// and so may not declare its provenance.
pub(super) fn read_part(block: &ObjectFields<'_>) -> Result<Part, WireError> {
    read_part_with(block, &TEXT, &IMAGE)
}

/// Decodes a block with a text or an image; any other block is an error. `text` and `image` declare the fields of text
/// blocks and of image blocks, which depend on the message: only the blocks of a user's message may declare their
/// provenance.
pub(super) fn read_part_with(
    block: &ObjectFields<'_>,
    text: &KnownFields,
    image: &KnownFields,
) -> Result<Part, WireError> {
    match block.text("type")? {
        "text" => {
            block.reject_unsupported(text)?;
            Ok(Part::Text(block.text("text")?.to_owned()))
        }
        "image" => {
            block.reject_unsupported(image)?;
            let source = block.object("source")?;
            match source.text("type")? {
                "base64" => {
                    source.reject_unsupported(&BASE64)?;
                    if !is_plain(source.text("media_type")?) {
                        return source.field_error(
                            "media_type",
                            "is a media type that is empty or has parameters; write one such as `image/png`",
                        );
                    }
                    if !is_image(source.text("media_type")?) {
                        return source.field_error("media_type", NO_IMAGE);
                    }
                    Ok(Part::ImageData {
                        media_type: source.text("media_type")?.to_owned(),
                        data: source.text("data")?.to_owned(),
                    })
                }
                _ => refuse_source(&source),
            }
        }
        kind => block.field_error("type", block_problem(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::DecodeOptions;
    use super::super::{decode_request, encode_request};
    use super::*;
    use crate::chat::{Message, Source};

    /// Documents become texts with their titles, or PDFs. They count as files unless they declare another source:
    /// nobody types them, even in a message that a person typed.
    #[test]
    fn documents_are_files() {
        let check = |source: &str, block: &str, expected: &[(&str, Option<Source>)]| {
            let text = format!(
                r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user"{source},"content":[{block}]}}]}}"#
            );
            let body = serde_json::from_str(&text).unwrap();
            let read = decode_request(&Json::from(&body), &DecodeOptions::default()).unwrap();
            let Some(Message::User(parts)) = read.request.messages.first() else { panic!("{block}") };
            let parts = parts.iter().enumerate().map(|(index, part)| match part {
                Part::Text(text) => (text.as_str(), read.sources.of(0, index)),
                Part::ImageUrl(data) | Part::ImageData { data, .. } => {
                    (data.as_str(), read.sources.of(0, index))
                }
            });
            assert_eq!(parts.collect::<Vec<_>>(), expected, "{source} {block}");
        };
        let (file, typed) = (Some(Source::File), Some(Source::Typed));
        let text = r#"{"type":"document","title":"T","source":{"type":"text","data":"a"}}"#;
        check("", text, &[("Title: T\n\na", file)]);
        check(r#","flowgate":{"source":"typed"}"#, text, &[("Title: T\n\na", file)]);
        check(r#","flowgate":{"source":"retrieved"}"#, text, &[("Title: T\n\na", Some(Source::Retrieved))]);
        let marked = text.replace("\"title\"", r#""flowgate":{"source":"typed"},"title""#);
        check("", &marked, &[("Title: T\n\na", typed)]);
        let pdf = r#"{"type":"document","context":"C","source":{"type":"base64","media_type":"application/pdf","data":"AA"}}"#;
        check("", pdf, &[("Context: C", file), ("AA", file)]);
        let found = r#"{"type":"search_result","title":"T","source":"S","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
        check("", found, &[("Title: T\nContext: S\n\na\n\nb", file)]);
        let image = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}"#;
        check("", image, &[("AA", None)]);
        check(r#","flowgate":{"source":"typed"}"#, image, &[("AA", typed)]);
    }

    /// An empty text is a text: the provider decides whether it accepts the message, and receives it as it was sent.
    #[test]
    fn an_empty_content_is_passed_on() {
        for messages in [
            r#"[{"role":"user","content":""}]"#,
            r#"[{"role":"user","content":"a"},{"role":"assistant","content":""}]"#,
            r#"[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":""}]}]"#,
            r#"[{"role":"user","content":[]}]"#,
        ] {
            let text = format!(r#"{{"model":"m","max_tokens":1,"system":"","messages":{messages}}}"#);
            let body = serde_json::from_str(&text).unwrap();
            let read = decode_request(&Json::from(&body), &DecodeOptions::default()).unwrap();
            let sent = encode_request(&read.request, "m", false);
            assert_eq!((&sent["system"], sent["messages"].to_string()), (&"".into(), messages.to_owned()));
        }
    }

    #[test]
    fn what_cannot_be_passed_on_is_refused_by_name() {
        let block = |role: &str, block: &str, expected: &str| {
            let text = format!(
                r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"{role}","content":[{block}]}}]}}"#
            );
            let body = serde_json::from_str(&text).unwrap();
            let read = decode_request(&Json::from(&body), &DecodeOptions::default());
            let shown = read.map_or_else(|error| error.to_string(), |_| "fine".to_owned());
            assert_eq!(shown, expected, "{block}");
        };
        for (document, expected) in [
            (r#"{"type":"text","media_type":"text/plain","data":"a"}"#, "fine"),
            (
                r#"{"type":"content","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
                "fine",
            ),
            (r#"{"type":"base64","media_type":"application/pdf","data":"AA"}"#, "fine"),
            (
                r#"{"type":"base64","media_type":"text/html","data":"AA"}"#,
                "`messages[0].content[0].source.media_type` is not the content of a PDF; send other documents as text",
            ),
            (
                r#"{"type":"content","content":[{"type":"image","source":{}}]}"#,
                "`messages[0].content[0].source.content[0].type` is not `text`, the only type of block that is permitted here",
            ),
            (
                r#"{"type":"url","url":"https://example.org/a.pdf"}"#,
                "`messages[0].content[0].source.url` would be fetched by the provider, and what it returns has no \
                label; send the content in base64",
            ),
            (
                r#"{"type":"file","file_id":"f"}"#,
                "`messages[0].content[0].source.file_id` refers to state at the provider, which has no label; send the \
                content itself",
            ),
            (
                r#"{"type":"other"}"#,
                "`messages[0].content[0].source.type` is not a source that contains the content itself; send the content in base64",
            ),
        ] {
            block("user", &format!(r#"{{"type":"document","title":"t","source":{document}}}"#), expected);
        }
        block("user", r#"{"type":"search_result","source":"s","title":"t","content":[]}"#, "fine");
    }
}
