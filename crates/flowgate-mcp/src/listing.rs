//! Decides which tools of a server are on offer, that is, are listed to the client and can be called: the tools that
//! are approved, with the description that was approved. `client` and `server` call this module for `tools/list` and
//! its answer.
//!
//! A person approves descriptions by *pins*, which are their digests. Without pins, the first list counts as approved:
//! all pages that the server sends before another list is requested or a tool is called. A tool that is added or
//! changed later is hidden and cannot be called. A tool is also hidden if the label of its description would make a
//! tool uncallable.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use flowgate::monitor::Monitor;
use flowgate::trace::{ToolDescription, TraceEntry};
use flowgate_audit::watch::WatchedSubject;
use serde_json::{Map, Value};

use super::answer::{first_objection, has_objection, is_cleared};
use super::failed_requests::NO_ANSWER;
use super::initialize::{required_metadata, unlabelled_fields};
use super::message::{RequestId, error, request, result};
use super::pins::digest;
use super::revision;
use super::{PendingClientRequest, Pins, Proxy, ProxyAction, REFUSED};

/// The maximum number of tools that are remembered, and of pages that may be requested.
const MAX_TOOLS: usize = 1_000;
/// The maximum length of a tool's name, in bytes.
const MAX_NAME: usize = 256;

/// Why a tool is hidden that a person can still approve.
const UNAPPROVED: &str = "the name or the description of the tool is not approved: it is new, or the server has changed it; \
    review it, and approve it if you trust the server";

/// The tools that the server has listed, and which of them are on offer.
#[derive(Debug, Default)]
pub(super) struct ToolListing {
    /// The listed tools by name.
    tools: BTreeMap<String, ListedTool>,
    /// The approved tools; without pins, the tools of the first list count as approved.
    pins: Option<Pins>,
    /// The number of lists that the client has requested so far, which is also the number of the last one.
    list_count: u64,
    /// The number of the last list that was requested before any tool was known. Its pages and those of the lists
    /// before it form the first list.
    last_initial_list: u64,
    /// Whether the first list has ended: tools that appear now count as new.
    is_initial_list_closed: bool,
    /// The server's cursors by the generated ones, with the list that each continues.
    cursors: BTreeMap<String, (String, u64)>,
    /// The digests of the descriptions that are in the trace.
    described: BTreeSet<String>,
}

/// A tool that the server has listed.
#[derive(Debug)]
struct ListedTool {
    /// The digest of the description at the tool's first appearance, with which later descriptions are compared.
    digest: String,
    /// The argument schema of the last description that was accepted; if none was, that of the first description.
    schema: Value,
    /// Whether the tool is on offer.
    is_shown: bool,
}

impl ToolListing {
    /// Creates the listing of a server that has listed nothing yet. Without pins, the first list counts as approved.
    pub(super) fn new(pins: Option<Pins>) -> Self {
        Self { pins, ..Self::default() }
    }

    /// Returns the argument schema of a tool that is on offer; `None` if no such tool is.
    pub(super) fn schema_of(&self, name: &str) -> Option<&Value> {
        self.tools.get(name).filter(|tool| tool.is_shown).map(|tool| &tool.schema)
    }

    /// Returns the names of the tools on offer.
    pub(super) fn offered_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().filter(|(_, tool)| tool.is_shown).map(|(name, _)| name.as_str())
    }

    /// Ends the first list, since a tool is called: later tools count as new.
    pub(super) fn freeze_initial_list(&mut self) {
        self.is_initial_list_closed = true;
    }

    /// Returns the number of the list that a requested page belongs to, and the server's cursor for the page; `cursor`
    /// is the client's. A request without a cursor begins another list, whose first page needs no cursor. All lists
    /// that are requested before the server has listed any tool count together as the first list. The request for a
    /// later list closes the first list: tools that the server lists afterwards count as new. Returns `None` if the
    /// client's cursor was not generated here.
    fn requested_page(&mut self, cursor: Option<&Value>) -> Option<(u64, Option<String>)> {
        match cursor {
            None | Some(Value::Null) => {
                self.list_count = self.list_count.saturating_add(1);
                match self.tools.is_empty() {
                    // The server has listed no tool yet, so this list counts as a part of the first one.
                    true => self.last_initial_list = self.list_count,
                    false => self.is_initial_list_closed = true,
                }
                Some((self.list_count, None))
            }
            Some(cursor) => {
                let (cursor, list) = self.cursors.get(cursor.as_str()?)?.clone();
                Some((list, Some(cursor)))
            }
        }
    }

    /// Returns the cursor that the client receives in place of the server's `cursor`, for the next page of the list
    /// with the number `list`. A server's own cursor could contain text. `None` if too many cursors were generated
    /// already.
    fn client_cursor(&mut self, cursor: &str, list: u64) -> Option<String> {
        // The first page has no cursor, so the first generated one is `page-2`. The number of cursors has the same
        // bound as the number of tools; beyond it, the list ends for the client.
        let name = format!("page-{}", self.cursors.len().saturating_add(2));
        (self.cursors.len() < MAX_TOOLS).then(|| {
            self.cursors.insert(name.clone(), (cursor.to_owned(), list));
            name
        })
    }

    /// Decides whether a tool may be on offer with the description that a page of the list with the number `list`
    /// gives, and records the decision. `digest` is the digest of the whole description, and `schema` is the argument
    /// schema that the description contains. With `accept_new`, a new tool of the first list is pinned.
    ///
    /// # Errors
    /// With the reason, if the tool must be hidden.
    fn accept(
        &mut self,
        name: &str,
        digest: &str,
        schema: &Value,
        list: u64,
        accept_new: bool,
    ) -> Result<(), &'static str> {
        // Whether the page belongs to the first list, and this list has not ended.
        let is_first = list <= self.last_initial_list && !self.is_initial_list_closed;
        // Whether the description equals the known one; `None` for an unknown tool.
        let is_unchanged = self.tools.get(name).map(|tool| tool.digest == digest);
        let verdict = match (&mut self.pins, is_unchanged) {
            (_, None) if self.tools.len() >= MAX_TOOLS => {
                return Err("the server lists more than 1000 tools; configure the server to list fewer");
            }
            (Some(pins), _) if pins.is_approved(name, digest) => Ok(()),
            // A pinned name with another digest is a changed tool and not a new one, so it is not pinned here.
            (Some(pins), None) if accept_new && is_first && !pins.contains_name(name) => {
                pins.insert(name, digest);
                Ok(())
            }
            (Some(_), _) => Err(UNAPPROVED),
            (None, None) if is_first => Ok(()),
            (None, None) => Err(
                "the server added this tool after the first list of tools; review it, then restart the server, \
                whose first list counts as approved",
            ),
            (None, Some(true)) => Ok(()),
            (None, Some(false)) => Err(
                "the server changed the description of this tool after the first list of tools; review it, then restart the server, whose first list counts as approved",
            ),
        };
        match self.tools.get_mut(name) {
            // The first digest remains the reference for later comparisons.
            Some(tool) => {
                tool.is_shown = verdict.is_ok();
                if tool.is_shown {
                    tool.schema.clone_from(schema);
                }
            }
            None => {
                let (digest, is_shown) = (digest.to_owned(), verdict.is_ok());
                // Without pins, a tool that was hidden at its first appearance stays hidden: it is not stored, so it
                // counts as new each time. With pins, it can be approved later.
                if is_shown || self.pins.is_some() {
                    let schema = schema.clone();
                    self.tools.insert(name.to_owned(), ListedTool { digest, schema, is_shown });
                }
            }
        }
        verdict
    }

    /// Withdraws a tool from the offer: it is hidden from the client, and calls of it are refused.
    fn hide(&mut self, name: &str) {
        if let Some(tool) = self.tools.get_mut(name) {
            tool.is_shown = false;
        }
    }
}

impl Proxy {
    /// Sets the approved tools. A tool on offer whose description is not among them is hidden. With `accept_new`, the
    /// first list that is requested counts as approved as well.
    pub fn pin(&mut self, pins: &Pins, accept_new: bool) {
        self.settings.accept_new = accept_new;
        for (name, tool) in &mut self.listing.tools {
            tool.is_shown &= pins.is_approved(name, &tool.digest);
        }
        self.listing.pins = Some(pins.clone());
    }

    /// Returns the approved tools that this proxy received last, and those that it has pinned since; `None` if it has
    /// received none.
    pub fn pins(&self) -> Option<&Pins> {
        self.listing.pins.as_ref()
    }

    /// Requests a page of tools from the server for the client. The client's cursor, which this proxy has generated, is
    /// replaced by the server's own.
    pub(super) fn list_tools(&mut self, id: RequestId, params: &Map<String, Value>) -> Vec<ProxyAction> {
        let Some((list, cursor)) = self.listing.requested_page(params.get("cursor")) else {
            return vec![ProxyAction::Client(error(
                Some(&id),
                // Invalid parameters, in JSON-RPC.
                -32602,
                "the `cursor` of the request is unknown; list the tools again, without `cursor`",
                None,
            ))];
        };
        let mut sent = Map::new();
        if let Some(cursor) = cursor {
            sent.insert("cursor".to_owned(), Value::String(cursor));
        }
        // The metadata of the request is not judged, so only the part that the protocol requires is sent.
        let envelope = params.get("_meta").map(required_metadata).filter(|envelope| !envelope.is_empty());
        sent.extend(envelope.map(|envelope| ("_meta".to_owned(), Value::Object(envelope))));
        let sent = request(&id, "tools/list", &sent);
        self.client_requests.insert(id, PendingClientRequest::Tools { list });
        vec![ProxyAction::Server(sent)]
    }

    /// Handles the server's list of tools. The client is shown a tool if its name is valid, its description is
    /// approved, the label of the description lets every tool on offer still be called, and no rule forbids the
    /// description. The operator receives a note about each other tool. In watch mode, the client is shown all tools,
    /// and the reasons against a tool are only reported. `list` is the number of the list that the page belongs to.
    pub(super) fn handle_tool_list(
        &mut self,
        monitor: &mut Monitor,
        id: &RequestId,
        list: u64,
        answer: Result<Value, Value>,
    ) -> Vec<ProxyAction> {
        let failed = |why: &str| vec![ProxyAction::Client(error(Some(id), REFUSED, why, None))];
        let Ok(Value::Object(full)) = answer else { return failed(NO_ANSWER) };
        let Some(tools) = full.get("tools").and_then(Value::as_array) else {
            return failed(NO_ANSWER);
        };
        let mut out = Vec::new();
        let candidates = self.approved_tools(tools, list, &mut out);
        let is_watching = self.is_watching();
        let names: Vec<String> = candidates.iter().map(|(name, ..)| name.clone()).collect();
        let max_label = self.greatest_showable_label(monitor, &names);
        let entries = candidates.iter().map(|(name, tool, _)| self.description_entry(name, tool));
        // The label that each description would have in the trace.
        let labels = monitor.labels_if_pushed(entries.collect::<Vec<_>>());
        let mut shown = Vec::new();
        for ((name, tool, digest), label) in candidates.into_iter().zip(labels) {
            // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
            let verdict = if self.tape.rule(label.flows_to(&max_label)) {
                self.record_description(monitor, &name, tool, digest)
            } else {
                Err(Cow::from(
                    "the label of the tool's description does not flow to the requirements of the listed tools; if \
                    you trust the server, label its descriptions: `label tool as ... if: (tool: Tool) is tool:SERVER/*`",
                ))
            };
            match verdict {
                Ok(()) => shown.push(tool.clone()),
                Err(why) => {
                    self.listing.hide(&name);
                    match is_watching {
                        true => self.watch_text(WatchedSubject::Description, &self.tool(&name), Some(&why)),
                        false => out.push(self.hidden_tool_note(&name, &why)),
                    }
                }
            }
        }
        let mut listing = if is_watching { full.clone() } else { unlabelled_fields(&full) };
        listing.shift_remove("nextCursor");
        if !is_watching {
            listing.insert("tools".to_owned(), Value::Array(shown));
        }
        if let Some(cursor) = full.get("nextCursor").and_then(Value::as_str)
            && let Some(cursor) = self.listing.client_cursor(cursor, list)
        {
            listing.insert("nextCursor".to_owned(), Value::String(cursor));
        }
        out.push(ProxyAction::Client(result(id, &Value::Object(listing))));
        out
    }

    /// Checks the tools of a page by their names and by the approvals of their descriptions. Returns those that pass:
    /// the name, the description and the digest of each. Only the first [`MAX_TOOLS`] tools are checked; the others are
    /// left out without a note.
    ///
    /// For each tool that fails, adds a note to `out`; with `asks_elsewhere`, also adds [`ProxyAction::Unapproved`] if
    /// a person can still approve the tool. In watch mode, adds neither, and reports the reason as a watched verdict.
    /// Adds the pins to `out` if they have changed. `list` is the number of the list that the page belongs to.
    fn approved_tools<'a>(
        &mut self,
        tools: &'a [Value],
        list: u64,
        out: &mut Vec<ProxyAction>,
    ) -> Vec<(String, &'a Value, String)> {
        let mut candidates = Vec::<(String, &'a Value, String)>::new();
        let pins = self.listing.pins.clone();
        for tool in tools.iter().take(MAX_TOOLS) {
            let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
            // Methods are judged as tools of the same name. A tool with the name of such a method would share its
            // statements, so the tool is hidden.
            let is_method_name = revision::is_judged_as_tool(name);
            let digest = digest(tool);
            let verdict = if name.is_empty() {
                Err("the name of the tool is empty; name the tool on the server")
            } else if name.len() > MAX_NAME {
                Err("the name of the tool is longer than 256 bytes; rename the tool on the server")
            } else if is_method_name {
                Err("the name of the tool is that of a method of MCP; rename the tool on the server")
            } else if candidates.iter().any(|(other, ..)| other == name) {
                Err("the list has two tools of this name; rename one of them on the server")
            } else {
                let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
                self.listing.accept(name, &digest, schema, list, self.settings.accept_new)
            };
            match verdict {
                Ok(()) => candidates.push((name.to_owned(), tool, digest)),
                Err(why) if self.is_watching() => {
                    self.watch_text(WatchedSubject::Description, &self.tool(name), Some(why));
                }
                Err(why) => {
                    if why == UNAPPROVED && self.settings.asks_elsewhere {
                        let name = name.to_owned();
                        out.push(ProxyAction::Unapproved { name, digest, description: tool.clone() });
                    }
                    out.push(self.hidden_tool_note(name, why));
                }
            }
        }
        if self.listing.pins != pins {
            out.extend(self.listing.pins.clone().map(ProxyAction::Pins));
        }
        candidates
    }

    /// Returns the note to the operator that a tool is hidden. Truncates the name, which the server has chosen.
    fn hidden_tool_note(&self, name: &str, why: &str) -> ProxyAction {
        let name: String = name.chars().take(MAX_NAME).collect();
        ProxyAction::Note(format!(
            "the tool `{}/{name}` is hidden from the client: {why}",
            self.settings.server
        ))
    }

    /// Returns the complete description of a tool as an event, with its unknown fields in `other`: rules and labels
    /// examine everything that the client's model could read.
    fn description_entry(&self, name: &str, tool: &Value) -> TraceEntry {
        let field = |key: &str| tool.get(key).cloned().unwrap_or_default();
        let known = ["name", "description", "inputSchema", "outputSchema"];
        let rest = tool.as_object().into_iter().flatten().filter(|(key, _)| !known.contains(&key.as_str()));
        let other: Map<String, Value> = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
        // A description that is not a text is examined as JSON.
        let description = match field("description") {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let (input_schema, output_schema) = (field("inputSchema").into(), tool.get("outputSchema").cloned());
        let tool = self.tool(name);
        TraceEntry::from(ToolDescription { tool, description, input_schema, output_schema, other })
    }

    /// Adds the description of a tool to the trace, once, before the client is shown it. `tool` is the description as
    /// the server has sent it, and `digest` is its digest.
    ///
    /// # Errors
    /// With the reason, if the client must not be shown the description, or the trace has no room.
    fn record_description(
        &mut self,
        monitor: &mut Monitor,
        name: &str,
        tool: &Value,
        digest: String,
    ) -> Result<(), Cow<'static, str>> {
        if self.listing.described.contains(&digest) {
            return Ok(());
        }
        // The tool is declared first: if another server offers the same name, the name must be ambiguous in the policy
        // already when the description is labelled.
        monitor.declare_tools([&self.tool(name)]);
        let verdict: Result<(), Cow<'static, str>> = match monitor.push(self.description_entry(name, tool)) {
            Ok((_, findings)) if has_objection(&findings) => {
                let why = first_objection(&findings).unwrap_or_default();
                Err(format!("a rule of the policy denies the description of this tool: {why}").into())
            }
            Ok((event, _)) if !is_cleared(monitor, event) => Err(
                "the label of the tool's description exceeds the clearance of `model`; if you trust the server, \
                label its descriptions: `label tool as ... if: (tool: Tool) is tool:SERVER/*`"
                    .into(),
            ),
            Ok(_) => Ok(()),
            Err(_) => {
                self.tape.note_divergence();
                Err("the session has reached its size limit; restart the MCP server to begin another session"
                    .into())
            }
        };
        // While inputs of an earlier conversation are processed, `rule` returns the decision of the earlier policy.
        match (self.tape.rule(verdict.is_ok()), verdict) {
            (true, _) => {
                self.listing.described.insert(digest);
                Ok(())
            }
            (false, Err(why)) => Err(why),
            (false, Ok(())) => Err(
                "the policy that was in force when the client requested this list hid the tool, and the present one \
                does not; let the client list the tools again"
                    .into(),
            ),
        }
    }
}
