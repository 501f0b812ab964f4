//! Decodes the tools of a client's request in OpenAI's Responses API (the field `tools`, and the items
//! `additional_tools` of the input), and the choice of the tools that the model may or must call (the field
//! `tool_choice`). Records the forms of tools that are not plain functions ([`ToolForms`]). The decoder of requests
//! ([`super::request_decoder`]) calls this module.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::fields::{ALLOWED_TOOLS, ObjectFields, UNKNOWN_TOOL, is_tool_type};
use super::super::provider_tools::{accepted, provider_tool_problem};
use super::super::tool_forms::{ToolForm, custom_schema, qualified_name};
use super::super::{ToolForms, WireError};
use super::mcp_servers::read_mcp_server;
use super::provider_tools::PROVIDER_TOOLS as TOOL_FORMS;
use super::{ADDITIONAL_TOOLS, CHOICE, CUSTOM, FILTERS, FORMAT, FUNCTION, NAMESPACE, OF_PROVIDER};
use crate::chat::{McpAddress, ProviderTool, ProviderToolUse, ToolChoice, ToolSpec};
use crate::json::Json;

/// Returns the qualified name of the tool that `item`, a call or the field `tool_choice`, names: the name of the
/// namespace, if there is one, and the name of the tool within it.
pub(super) fn called_name(item: &ObjectFields<'_>) -> Result<String, WireError> {
    let name = item.text("name")?;
    let namespace = item.optional_text("namespace")?.filter(|namespace| !namespace.is_empty());
    Ok(namespace.map_or_else(|| name.to_owned(), |namespace| qualified_name(namespace, name)))
}

/// The types of tools that the provider runs. The gateway supports only the tools in [`TOOL_FORMS`], and MCP servers.
const PROVIDER_TOOLS: [&str; 8] = [
    "web_search",
    "file_search",
    "code_interpreter",
    "mcp",
    "image_generation",
    "programmatic_tool_calling",
    "computer_use_preview",
    "tool_search",
];
/// The types of tools that the client runs, but whose arguments the provider describes.
const PROVIDER_SCHEMAS: [&str; 4] = ["computer", "local_shell", "shell", "apply_patch"];

/// The problem of a `tool_choice` that names an MCP server or one of its tools.
const MCP_CHOICE: &str =
    "is `mcp`, but the gateway cannot force a model to call an MCP server; leave `tool_choice` out";

/// The tools of a request that the decoder has read so far, with their forms.
///
/// A request declares tools in lists: first in its field `tools`, then in each item `additional_tools`. The model may
/// call the tools of all lists, wherever the items are in the input. A tool in a later list replaces the tools of the
/// same name in earlier lists, since the client Codex declares a tool again if its description has changed.
#[derive(Default)]
pub(super) struct ReceivedTools {
    /// The tools as functions, in order; `None` in place of a tool that a later list replaces.
    specs: Vec<Option<ToolSpec>>,
    /// The forms of the tools that the client did not declare as plain functions.
    pub(super) forms: ToolForms,
    /// The tools of the provider, each with the number of the list that declares it. They are not among `specs`.
    provider_tools: Vec<(usize, ProviderToolUse)>,
    /// For each qualified name, the number of the last list that declares it, and the indices of its tools in `specs`.
    names: HashMap<String, (usize, Vec<usize>)>,
    /// The number of lists before the one that is being decoded.
    list: usize,
}

impl ReceivedTools {
    /// Decodes an item `additional_tools`, and adds its tools as one further list.
    pub(super) fn read_item(&mut self, item: &ObjectFields<'_>) -> Result<(), WireError> {
        item.reject_unsupported(&ADDITIONAL_TOOLS)?;
        self.list += 1;
        item.objects("tools")?.try_for_each(|tool| self.read(&tool?, None))
    }

    /// Takes out the tools as functions, in order.
    pub(super) fn take_specs(&mut self) -> Vec<ToolSpec> {
        std::mem::take(&mut self.specs).into_iter().flatten().collect()
    }

    /// Takes out the tools of the provider.
    pub(super) fn take_provider_tools(&mut self) -> Vec<ProviderToolUse> {
        std::mem::take(&mut self.provider_tools).into_iter().map(|(_, tool)| tool).collect()
    }

    /// Decodes a tool and adds it as a function with JSON arguments. If the client declared the tool in another form
    /// (as a custom tool, or in a namespace), also records this form, in which its calls are sent back to the client.
    /// If `tool` is itself a namespace, adds the tools that it contains; a namespace within a namespace is an error.
    /// `namespace` is the name and the description of the namespace that contains the tool; `None` if none does.
    pub(super) fn read(
        &mut self,
        tool: &ObjectFields<'_>,
        namespace: Option<(&str, &str)>,
    ) -> Result<(), WireError> {
        let kind = tool.text("type")?;
        let (description, parameters) = match kind {
            "function" => {
                tool.reject_unsupported(&FUNCTION)?;
                let description = tool.optional_text("description")?.unwrap_or_default().to_owned();
                (description, tool.schema("parameters")?)
            }
            "custom" => (read_custom(tool)?, custom_schema()),
            "namespace" if namespace.is_none() => {
                tool.reject_unsupported(&NAMESPACE)?;
                let (name, description) = (tool.text("name")?, tool.optional_text("description")?);
                let namespace = Some((name, description.unwrap_or_default()));
                return tool.objects("tools")?.try_for_each(|inner| self.read(&inner?, namespace));
            }
            _ => return self.read_tool_of_provider(tool, kind),
        };
        let name = tool.text("name")?;
        let form = ToolForm {
            namespace: namespace.map(|(namespace, _)| (namespace.to_owned(), name.to_owned())),
            is_custom: kind == "custom",
        };
        let name =
            namespace.map_or_else(|| name.to_owned(), |(namespace, _)| qualified_name(namespace, name));
        self.declare_name(tool, &name, &form)?;
        self.forms.insert(&name, form);
        // The description of the namespace precedes the description of the tool.
        let about = namespace.map(|(_, about)| about).filter(|about| !about.is_empty());
        let description = about.map_or(description.clone(), |about| format!("{about}\n\n{description}"));
        self.specs.push(Some(ToolSpec { name, description, parameters: parameters.into() }));
        Ok(())
    }

    /// Decodes a tool of the type `kind`, which the provider defines, and adds it unless it is dropped. The tool
    /// replaces the same tool of an earlier list; declared twice in one list, it is an error.
    fn read_tool_of_provider(&mut self, tool: &ObjectFields<'_>, kind: &str) -> Result<(), WireError> {
        let Some(used) = read_provider_tool(tool, kind)? else { return Ok(()) };
        if let Some((list, known)) = self.provider_tools.iter_mut().find(|(_, known)| known.tool == used.tool)
        {
            // An MCP server with the same label but another address is another tool of the same name.
            if *list == self.list || address_of(known) != address_of(&used) {
                return tool.field_error("type", DECLARED_TWICE);
            }
            (*list, *known) = (self.list, used);
        } else {
            self.provider_tools.push((self.list, used));
        }
        Ok(())
    }

    /// Records that the next tool in `specs` has this qualified name and this form, and removes the tools with this
    /// name that earlier lists declare. Fails if the same list declares another tool with this name, unless both are
    /// plain functions.
    fn declare_name(
        &mut self,
        tool: &ObjectFields<'_>,
        name: &str,
        form: &ToolForm,
    ) -> Result<(), WireError> {
        let index = self.specs.len();
        match self.names.entry(name.to_owned()) {
            Entry::Vacant(place) => {
                place.insert((self.list, vec![index]));
            }
            // Two plain functions of a list may share a name, since their calls are sent back in the same form. If one
            // of them is not a plain function, it would be unknown in which form to send a call back.
            Entry::Occupied(mut place) if place.get().0 == self.list => {
                if *form != ToolForm::default() || self.forms.of(name).is_some() {
                    return tool.field_error("name", "is also the name of another tool; rename one of them");
                }
                place.get_mut().1.push(index);
            }
            // Only earlier lists declare tools with this name: the new tool replaces them.
            Entry::Occupied(mut place) => {
                let (_, replaced) = place.insert((self.list, vec![index]));
                for earlier in replaced {
                    if let Some(spec) = self.specs.get_mut(earlier) {
                        *spec = None;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The problem of a tool of the provider that one list declares twice, and of an MCP server that a later list declares
/// at another address.
const DECLARED_TWICE: &str =
    "is a tool of the provider, and another tool of the request has the same name; leave one of them out";

/// Returns the address of the MCP server that the provider calls; `None` for its other tools.
fn address_of(used: &ProviderToolUse) -> Option<&McpAddress> {
    used.server.as_ref().map(|server| &server.address)
}

/// Decodes the description of a custom tool. If the tool has a grammar for its input, appends the grammar to the
/// description, since the model is offered a function, which has no field for a grammar.
fn read_custom(tool: &ObjectFields<'_>) -> Result<String, WireError> {
    tool.reject_unsupported(&CUSTOM)?;
    let description = tool.optional_text("description")?.unwrap_or_default().to_owned();
    if tool.get("format").is_none() {
        return Ok(description);
    }
    let format = tool.object("format")?;
    format.reject_unsupported(&FORMAT)?;
    match format.text("type")? {
        "text" => Ok(description),
        "grammar" => {
            let (syntax, definition) = (format.text("syntax")?, format.text("definition")?);
            Ok(format!("{description}\n\nThe input must match this grammar ({syntax}):\n{definition}"))
        }
        _ => format.field_error("type", "is neither `text` nor `grammar`"),
    }
}

/// Decodes a tool of the type `kind`, which the provider defines: the client does not describe its arguments. `None`
/// for a tool that is dropped: one that the provider would run, and that the operator's configuration lists among the
/// tools to drop.
///
/// # Errors
/// If the tool is neither dropped nor an accepted tool of the provider.
fn read_provider_tool(tool: &ObjectFields<'_>, kind: &str) -> Result<Option<ProviderToolUse>, WireError> {
    match PROVIDER_TOOLS.into_iter().find(|known| is_tool_type(kind, known)) {
        Some(known) if tool.drops_tool(known) => Ok(None),
        // The next arm refuses a type such as `mcp_1`, which is not known.
        Some("mcp") if kind == "mcp" => read_mcp_server(tool).map(Some),
        Some(known) => match accepted(tool, TOOL_FORMS, kind) {
            Some(accepted) => read_restrictions(tool, accepted).map(Some),
            None => tool.field_error("type", provider_tool_problem(TOOL_FORMS, known)),
        },
        None if PROVIDER_SCHEMAS.contains(&kind) => tool.field_error(
            "type",
            "is a tool whose arguments only the provider describes; declare it as a function",
        ),
        None => tool.field_error("type", UNKNOWN_TOOL),
    }
}

/// Decodes the restrictions that the client gives for `accepted`, a tool of the provider that the gateway supports.
fn read_restrictions(tool: &ObjectFields<'_>, accepted: ProviderTool) -> Result<ProviderToolUse, WireError> {
    tool.reject_unsupported(&OF_PROVIDER)?;
    let mut wanted = ProviderToolUse::from(accepted);
    if tool.get("filters").is_some() {
        let filters = tool.object("filters")?;
        filters.reject_unsupported(&FILTERS)?;
        wanted.allowed_domains = filters.texts("allowed_domains")?;
    }
    wanted.is_offline = tool.get("external_web_access").is_some() && !tool.flag("external_web_access")?;
    Ok(wanted)
}

/// Decodes `tool_choice`: whether the model may, must or must not call a tool, or which tool it must call.
pub(super) fn read_choice(body: &ObjectFields<'_>) -> Result<ToolChoice, WireError> {
    match body.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Json::Text(word)) => match word.as_ref() {
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Any),
            "none" => Ok(ToolChoice::None),
            _ => body.field_error("tool_choice", "is not `auto`, `required` or `none`"),
        },
        Some(_) => {
            // An object names one tool: a function, a custom tool, or an accepted tool of the provider.
            let choice = body.object("tool_choice")?;
            let kind = choice.text("type")?;
            // Refuses the choices that the gateway does not support, and unknown fields.
            if kind == "allowed_tools" {
                return choice.field_error("type", ALLOWED_TOOLS);
            }
            if kind == "mcp" {
                return choice.field_error("type", MCP_CHOICE);
            }
            let accepted_tool = accepted(&choice, TOOL_FORMS, kind);
            let provider_type = PROVIDER_TOOLS.into_iter().find(|known| is_tool_type(kind, known));
            if let (None, Some(known)) = (&accepted_tool, provider_type) {
                return choice.field_error("type", provider_tool_problem(TOOL_FORMS, known));
            }
            choice.reject_unsupported(&CHOICE)?;
            // The model is offered a tool of the provider as a function with this name.
            if let Some(tool) = accepted_tool {
                return Ok(ToolChoice::Tool(tool.name().to_owned()));
            }
            if !matches!(kind, "function" | "custom") {
                return choice.field_error("type", "is neither `function` nor `custom`");
            }
            Ok(ToolChoice::Tool(called_name(&choice)?))
        }
    }
}
