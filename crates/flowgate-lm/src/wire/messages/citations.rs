//! Encodes and decodes the citations of Anthropic's Messages API: the passages of a client's documents that support an
//! answer. Also decides which documents an answer may cite. The decoder of requests, `RemoteModel` and the encoders and
//! decoders of answers call this module.
//!
//! The decoder of requests turns a document that consists of text into a text part, so that the guard can hide regions
//! of the document; [`RequestDocuments`] collects the documents that may be cited. Before `RemoteModel` sends a request,
//! [`mark_citable`] finds the texts of whole documents in the body, and turns them into documents again, which the
//! server may cite. A document with a hidden region is sent as a text, which the server cannot cite.
//! [`SentDocuments::verified`] then keeps only those citations of the answer that the client's own copies of the
//! documents confirm.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::super::documents::titled_text;
use super::super::fields::{self, ObjectFields};
use super::super::{WireError, put};
use super::CITATIONS;
use crate::chat::{CitableDocument, Citation, CitedPiece, DocumentKind, Part, ReportedCitation};

/// The most citations of one answer; further ones are dropped.
const MAX_CITATIONS: usize = 512;
/// The most bytes of the passages that a server cites in one answer. The same limit applies to all texts of the
/// citations that the client receives: the passages with the titles and sources of their documents. Further citations
/// are dropped.
const MAX_PASSAGES: usize = 4 << 20;
/// The most bytes of documents that are searched for the passages of one answer; further citations are dropped.
const MAX_SEARCHED: usize = 256 << 20;

/// The problem of a document that enables citations although an earlier one does not, or the other way round.
const MIXED: &str = "must be enabled for all documents of a request or for none, and for all of its search results or for none";

/// The documents and the search results that the decoder of a request has found so far.
#[derive(Debug, Default)]
pub(super) struct RequestDocuments {
    documents: DocumentCount,
    search_results: DocumentCount,
    /// The documents that the answer may cite.
    citable: Vec<CitableDocument>,
}

/// The number of the documents, or of the search results, so far.
#[derive(Debug, Default)]
struct DocumentCount {
    count: usize,
    /// Whether citations are enabled for them: for all of them, or for none.
    are_cited: bool,
}

impl RequestDocuments {
    /// Counts `block`, a document or a search result. If the client enables citations for it, returns its index among
    /// the documents (or among the search results) of the request; otherwise `None`.
    ///
    /// # Errors
    /// If citations are enabled for only some of the documents, or for only some of the search results: the provider
    /// refuses this.
    pub(super) fn count(&mut self, block: &ObjectFields<'_>) -> Result<Option<usize>, WireError> {
        let is_cited = enables_citations(block)?;
        let is_result = block.text("type")? == "search_result";
        let seen = if is_result { &mut self.search_results } else { &mut self.documents };
        if seen.count > 0 && seen.are_cited != is_cited {
            return block.field_error("citations", MIXED);
        }
        let index = seen.count;
        *seen = DocumentCount { count: index + 1, are_cited: is_cited };
        Ok(is_cited.then_some(index))
    }

    /// Returns the text part by which the model is shown a document that consists of `texts`. `context` is the context
    /// of a document, or the source of a search result. `index` is the result of [`count`](Self::count). If it is not
    /// `None`, the document is also recorded as citable, unless the format cannot express it: no text may be empty, and
    /// a search result needs a title and a source.
    pub(super) fn text_part(
        &mut self,
        kind: DocumentKind,
        index: Option<usize>,
        (title, context): (Option<&str>, Option<&str>),
        texts: Vec<String>,
    ) -> Part {
        let [title, context] = [title, context].map(|text| text.map(str::to_owned));
        // The index is read only of citable documents, which have one.
        let document = CitableDocument { kind, index: index.unwrap_or_default(), title, context, texts };
        let part = Part::Text(text_of(&document));
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let has_required_head =
            kind != DocumentKind::SearchResult || is_set(&document.title) && is_set(&document.context);
        let has_texts = !document.texts.is_empty() && document.texts.iter().all(|text| !text.is_empty());
        if index.is_some() && has_required_head && has_texts {
            self.citable.push(document);
        }
        part
    }

    /// Returns whether the client enables citations for any document or search result of the request.
    pub(super) fn are_cited(&self) -> bool {
        self.documents.are_cited || self.search_results.are_cited
    }

    /// Returns the documents that the answer may cite.
    pub(super) fn into_citable(self) -> Vec<CitableDocument> {
        self.citable
    }
}

/// Returns whether `block`, a document or a search result, enables citations. False if the field `citations` is absent,
/// or if the operator's configuration drops it.
fn enables_citations(block: &ObjectFields<'_>) -> Result<bool, WireError> {
    if block.get("citations").is_none() || block.is_dropped_by_operator("citations") {
        return Ok(false);
    }
    let citations = block.object("citations")?;
    citations.reject_unsupported(&CITATIONS)?;
    citations.flag("enabled")
}

/// Returns the text by which the model is shown a document: its title, its context or source, and its texts.
fn text_of(document: &CitableDocument) -> String {
    let CitableDocument { title, context, texts, .. } = document;
    titled_text(title.as_deref(), context.as_deref(), &texts.join("\n\n"))
}

/// The documents in a request that was sent, in the order in which the server counts them: its citations refer to a
/// document by its position. A document is represented by its index in the list of citable documents.
#[derive(Debug, Default)]
pub(crate) struct SentDocuments {
    /// All documents, in order; `None` for a PDF, whose content is not searched for passages.
    documents: Vec<Option<usize>>,
    /// All search results, in order.
    search_results: Vec<usize>,
}

/// Lets the server cite the client's documents: wherever the text of one of `citable` stands alone in a user message of
/// `body`, it is replaced by the document itself, with citations enabled. PDFs in the body get citations enabled as
/// well, if `citable` has a document and not only search results. Several documents with the same text are used in
/// order, and the last one for all further occurrences.
///
/// Returns all documents of the body, in the order in which the server counts them. `citable` are the documents of the
/// client's request that may be cited.
pub(crate) fn mark_citable(body: &mut Value, citable: &[CitableDocument]) -> SentDocuments {
    let mut by_text: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (index, document) in citable.iter().enumerate() {
        by_text.entry(text_of(document)).or_default().push_back(index);
    }
    let has_documents = citable.iter().any(|document| document.kind != DocumentKind::SearchResult);
    let mut marker = Marker { citable, by_text, has_documents, sent: SentDocuments::default() };
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        if fields::text(message, "role") == "user"
            && let Some(content) = message.get_mut("content")
        {
            marker.mark_content(content);
        }
    }
    marker.sent
}

/// The state of [`mark_citable`].
struct Marker<'d> {
    citable: &'d [CitableDocument],
    /// For each text, the indices of the citable documents with this text that were not used yet. The last index is
    /// never removed, so that it is used for all further occurrences of the text.
    by_text: HashMap<String, VecDeque<usize>>,
    /// Whether the client has enabled citations for its documents, and not only for its search results.
    has_documents: bool,
    sent: SentDocuments,
}

impl Marker<'_> {
    /// Replaces each text that is the text of a whole document by this document, in the content of a message or of a
    /// tool output. Records all documents that the content has, PDFs included.
    fn mark_content(&mut self, content: &mut Value) {
        if let Some(document) = content.as_str().and_then(|text| self.document_with(text)) {
            *content = json!([document]);
            return;
        }
        for block in content.as_array_mut().into_iter().flatten() {
            match fields::text(block, "type") {
                "text" => {
                    if let Some(document) = self.document_with(fields::text(block, "text")) {
                        *block = document;
                    }
                }
                "tool_result" => {
                    if let Some(content) = block.get_mut("content") {
                        self.mark_content(content);
                    }
                }
                "document" => {
                    self.sent.documents.push(None);
                    // This is a PDF: the encoder of requests writes no other documents. The provider requires that all
                    // documents of a request enable citations, or none.
                    if self.has_documents {
                        put(block, "citations", json!({"enabled": true}));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the block of the next citable document with this text, and records that the document is sent. The last
    /// document with the text is returned for all further occurrences. `None` if no citable document has this text.
    fn document_with(&mut self, text: &str) -> Option<Value> {
        let indices = self.by_text.get_mut(text)?;
        let index = if indices.len() > 1 { indices.pop_front() } else { indices.front().copied() }?;
        let document = self.citable.get(index)?;
        match document.kind {
            DocumentKind::SearchResult => self.sent.search_results.push(index),
            DocumentKind::Text | DocumentKind::Blocks => self.sent.documents.push(Some(index)),
        }
        Some(encode_document(document))
    }
}

/// Encodes a document as a block with citations enabled, so that the server may cite it.
fn encode_document(document: &CitableDocument) -> Value {
    let CitableDocument { kind, title, context, texts, .. } = document;
    let blocks = || texts.iter().map(|text| json!({"type": "text", "text": text})).collect::<Vec<_>>();
    let mut block = match kind {
        DocumentKind::SearchResult => {
            json!({"type": "search_result", "source": context, "title": title, "content": blocks()})
        }
        DocumentKind::Text => {
            let data = texts.first().map(String::as_str).unwrap_or_default();
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": data}})
        }
        DocumentKind::Blocks => {
            json!({"type": "document", "source": {"type": "content", "content": blocks()}})
        }
    };
    // A search result has its title already, and its context as `source`.
    for (key, text) in [("title", title), ("context", context)] {
        if let Some(text) =
            text.as_ref().filter(|text| *kind != DocumentKind::SearchResult && !text.is_empty())
        {
            put(&mut block, key, text.as_str());
        }
    }
    put(&mut block, "citations", json!({"enabled": true}));
    block
}

impl SentDocuments {
    /// Returns the pieces of an answer's text that cite documents, with those citations that are found in the client's
    /// own copies of the documents. A piece without such a citation is left out. Citations beyond the limits
    /// `MAX_SEARCHED` and `MAX_PASSAGES` are dropped. `citable` is the list that [`mark_citable`] received, `text` is
    /// the text of the answer, and `reported` are the citations that the server reports.
    pub(crate) fn verified(
        &self,
        citable: &[CitableDocument],
        text: &str,
        reported: &[ReportedPiece],
    ) -> Vec<CitedPiece> {
        let mut pieces: Vec<CitedPiece> = Vec::new();
        // The number of bytes of documents that were searched, and that of the texts that the client receives with the
        // citations.
        let (mut searched, mut shown) = (0_usize, 0_usize);
        // The end of the last piece that was kept.
        let mut end = 0;
        for piece in reported {
            let has_text = text.get(piece.start..piece.end).is_some_and(|text| !text.is_empty());
            // A piece without text is dropped, and so is one that overlaps the last piece that was kept.
            if !has_text || piece.start < end {
                continue;
            }
            let mut citations: Vec<Citation> = Vec::new();
            for reported in &piece.citations {
                let Some(document) = self.document(citable, reported) else { continue };
                searched = searched.saturating_add(document.size());
                if searched > MAX_SEARCHED {
                    continue;
                }
                let Some(citation) = document.find(reported) else { continue };
                // Each citation repeats the title of its document, which can be long.
                shown = shown.saturating_add(citation.shown_texts().map(str::len).sum());
                if shown <= MAX_PASSAGES {
                    citations.push(citation);
                }
            }
            if !citations.is_empty() {
                end = piece.end;
                pieces.push(CitedPiece { start: piece.start, end, citations });
            }
        }
        pieces
    }

    /// Returns the citable document to which a server's citation refers; `None` for a PDF, or if there is no such
    /// document.
    fn document<'d>(
        &self,
        citable: &'d [CitableDocument],
        reported: &ReportedCitation,
    ) -> Option<&'d CitableDocument> {
        let index = match reported.kind {
            DocumentKind::SearchResult => self.search_results.get(reported.index).copied(),
            DocumentKind::Text | DocumentKind::Blocks => {
                self.documents.get(reported.index).copied().flatten()
            }
        };
        citable.get(index?)
    }
}

/// A piece of the text of an answer, with the citations that the server reports for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedPiece {
    /// The position of the piece in the text of the answer, in bytes.
    pub(crate) start: usize,
    /// The position after the piece.
    pub(crate) end: usize,
    pub(crate) citations: Vec<ReportedCitation>,
}

/// Reads the citations that a server reports in one answer. An unreadable citation, and those beyond a limit on their
/// number or size, are ignored, since an answer is complete without its citations.
#[derive(Debug, Default)]
pub(super) struct CitationReader {
    /// The number of citations so far.
    count: usize,
    /// The bytes of the passages so far.
    bytes: usize,
}

impl CitationReader {
    /// Reads a citation. `None` if it does not cite the text of a document or a search result (but a page of a PDF, for
    /// example), if its position is missing, or if the answer has reached `MAX_CITATIONS` or `MAX_PASSAGES`.
    pub(super) fn read(&mut self, citation: &Value) -> Option<ReportedCitation> {
        // The kind of the document, the field with its index, and the unit in the names of the fields with positions.
        let (kind, index, unit) = match fields::text(citation, "type") {
            "char_location" => (DocumentKind::Text, "document_index", "char"),
            "content_block_location" => (DocumentKind::Blocks, "document_index", "block"),
            "search_result_location" => (DocumentKind::SearchResult, "search_result_index", "block"),
            _ => return None,
        };
        let number = |key: &str| usize::try_from(fields::count(citation, key)?).ok();
        let text = fields::text(citation, "cited_text");
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(text.len());
        if self.count > MAX_CITATIONS || self.bytes > MAX_PASSAGES {
            return None;
        }
        Some(ReportedCitation {
            kind,
            index: number(index)?,
            text: text.to_owned(),
            start: number(&format!("start_{unit}_index"))?,
            end: number(&format!("end_{unit}_index"))?,
        })
    }

    /// Reads the citations of a text block.
    pub(super) fn read_block(&mut self, block: &Value) -> Vec<ReportedCitation> {
        let citations = fields::list(block, "citations").unwrap_or_default();
        citations.iter().filter_map(|citation| self.read(citation)).collect()
    }
}

/// Returns the citations that the body of an answer reports. The positions of the pieces are those in the text that
/// [`decode_response`](super::decode_response) returns: the texts of all text blocks together.
pub(crate) fn reported_citations(body: &Value) -> Vec<ReportedPiece> {
    let (mut reader, mut pieces, mut end) = (CitationReader::default(), Vec::new(), 0);
    let blocks = fields::list(body, "content").unwrap_or_default();
    for block in blocks.iter().filter(|block| fields::text(*block, "type") == "text") {
        let start = end;
        end += fields::text(block, "text").len();
        let citations = reader.read_block(block);
        if !citations.is_empty() {
            pieces.push(ReportedPiece { start, end, citations });
        }
    }
    pieces
}

/// Divides the text of an answer into pieces, each of which the encoders write as one text block: the cited pieces,
/// with their citations, and the texts between them, without citations. All pieces together are the text. Ignores a
/// cited piece that is not within the text, or that overlaps an earlier one.
pub(super) fn text_pieces<'t>(text: &'t str, cited: &'t [CitedPiece]) -> Vec<(&'t str, &'t [Citation])> {
    // `at` is the end of the last piece.
    let (mut pieces, mut at) = (Vec::new(), 0);
    let mut push = |piece: &'t str, citations: &'t [Citation]| {
        if !piece.is_empty() {
            pieces.push((piece, citations));
        }
    };
    for piece in cited {
        let (Some(before), Some(cited)) = (text.get(at..piece.start), text.get(piece.start..piece.end))
        else {
            continue;
        };
        push(before, &[]);
        push(cited, &piece.citations);
        at = piece.end;
    }
    push(text.get(at..).unwrap_or_default(), &[]);
    pieces
}

/// Encodes a citation for a client. `file_id` is null, since it names a document that the provider has stored, and
/// clients of the gateway cannot send one.
pub(super) fn encode_citation(citation: &Citation) -> Value {
    let Citation { kind, index, title, source, text, start, end } = citation;
    match kind {
        DocumentKind::Text => json!({
            "type": "char_location", "cited_text": text, "document_index": index, "document_title": title,
            "start_char_index": start, "end_char_index": end, "file_id": null,
        }),
        DocumentKind::Blocks => json!({
            "type": "content_block_location", "cited_text": text, "document_index": index, "document_title": title,
            "start_block_index": start, "end_block_index": end, "file_id": null,
        }),
        DocumentKind::SearchResult => json!({
            "type": "search_result_location", "cited_text": text, "search_result_index": index, "title": title,
            "source": source, "start_block_index": start, "end_block_index": end,
        }),
    }
}

#[cfg(test)]
mod tests;
