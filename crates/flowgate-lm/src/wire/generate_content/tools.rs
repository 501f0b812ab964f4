//! Decodes the field `tools` of requests of Gemini's API, and the field `toolConfig`, which says which of the tools the
//! model may or must call. The decoder of requests ([`super::request_decoder`]) calls this module.

use super::super::WireError;
use super::super::fields::ObjectFields;
use super::super::provider_tools::{accepted, add_provider_tools};
use super::provider_tools::PROVIDER_TOOLS;
use super::schema::json_schema;
use super::{CHOICE, FUNCTION, OF_PROVIDER, TOOL, TOOL_CONFIG};
use crate::chat::{ProviderToolUse, ToolChoice, ToolSpec};

/// Decodes the field `tools`. The first part of the result has the functions that the model is offered, including one
/// for each accepted tool of the provider. The second part has these tools of the provider; the caller has the provider
/// run their calls in separate requests. Drops the tools that the operator's configuration lists among those to drop.
pub(super) fn read_tools(
    body: &ObjectFields<'_>,
) -> Result<(Vec<ToolSpec>, Vec<ProviderToolUse>), WireError> {
    let (mut tools, mut provider_tools) = (Vec::new(), Vec::new());
    for tool in body.objects("tools")? {
        let tool = tool?;
        // An item of `tools` has functions in one field, and each tool of the provider in a field of its own. `kind` is
        // the name of such a field.
        let is_dropped = |kind: &str| tool.drops_tool(kind);
        let is_accepted = |kind: &str| accepted(&tool, PROVIDER_TOOLS, kind).is_some();
        tool.reject_unsupported_except(&TOOL, |kind| is_dropped(kind) || is_accepted(kind))?;
        for form in PROVIDER_TOOLS.iter().filter(|form| !is_dropped(form.kind) && is_accepted(form.kind)) {
            if tool.get(form.kind).is_some() {
                // Every setting is refused: each would restrict or change a search, and cannot be passed on.
                tool.object(form.kind)?.reject_unsupported(&OF_PROVIDER)?;
                provider_tools.push(ProviderToolUse::from(form.tool.clone()));
            }
        }
        for function in tool.objects("functionDeclarations")? {
            tools.push(read_function(&function?)?);
        }
    }
    add_provider_tools(body, &mut tools, &provider_tools)?;
    Ok((tools, provider_tools))
}

/// Decodes the declaration of a function. The schema of its arguments is in one of two fields: in `parameters` in
/// Gemini's form of schemas, or in `parametersJsonSchema` as a JSON schema. Fails if the declaration has both.
fn read_function(function: &ObjectFields<'_>) -> Result<ToolSpec, WireError> {
    function.reject_unsupported(&FUNCTION)?;
    let parameters = match function.get("parameters") {
        Some(_) if function.get("parametersJsonSchema").is_some() => {
            return function
                .field_error("parameters", "is sent with `parametersJsonSchema`; send one of the two");
        }
        Some(schema) => {
            // Only checks that the field is an object.
            function.object("parameters")?;
            json_schema(schema)
        }
        None => function.schema("parametersJsonSchema")?,
    };
    Ok(ToolSpec {
        name: function.text("name")?.to_owned(),
        description: function.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: parameters.into(),
    })
}

/// Decodes the field `toolConfig`: whether the model may, must or must not call a tool, or which tool it must call.
/// `tools` are all tools of the request. Fails if the model may call only some of several tools, since a [`ToolChoice`]
/// cannot express that.
pub(super) fn read_choice(body: &ObjectFields<'_>, tools: &[ToolSpec]) -> Result<ToolChoice, WireError> {
    if body.get("toolConfig").is_none() {
        return Ok(ToolChoice::Auto);
    }
    let config = body.object("toolConfig")?;
    config.reject_unsupported(&TOOL_CONFIG)?;
    if config.get("functionCallingConfig").is_none() {
        return Ok(ToolChoice::Auto);
    }
    let choice = config.object("functionCallingConfig")?;
    choice.reject_unsupported(&CHOICE)?;
    // The names of the tools that the model may call. An empty list restricts nothing, and neither does a list of all
    // tools.
    let names = choice.texts("allowedFunctionNames")?;
    let is_all = tools.iter().all(|tool| names.contains(&tool.name));
    match (choice.optional_text("mode")?.unwrap_or("AUTO"), names.as_slice()) {
        ("ANY", []) => Ok(ToolChoice::Any),
        ("ANY", [name]) => Ok(ToolChoice::Tool(name.clone())),
        ("ANY", _) if is_all => Ok(ToolChoice::Any),
        // In all three modes, the model decides whether it calls a tool.
        ("AUTO" | "MODE_UNSPECIFIED" | "VALIDATED", names) if names.is_empty() || is_all => {
            Ok(ToolChoice::Auto)
        }
        ("NONE", []) => Ok(ToolChoice::None),
        ("AUTO" | "MODE_UNSPECIFIED" | "VALIDATED" | "ANY" | "NONE", _) => choice.field_error(
            "allowedFunctionNames",
            "is supported only with all tools, or with one tool and the mode `ANY`; declare in `tools` only those that \
            the model may call",
        ),
        _ => choice.field_error("mode", "is not `AUTO`, `ANY`, `NONE` or `VALIDATED`"),
    }
}
