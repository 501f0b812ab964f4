"""Lists the fields of requests that the official clients of OpenAI, Anthropic and Google define.

The list is `crates/flowgate-lm/tests/client-fields.txt`: a test of `flowgate-lm` demands that the decoders know each of them, and
`test_clients.py` that the list is that of the installed clients. So a field that a new version of a client adds is a visible change.
`compat/clients/fields` writes the list, and that of the clients for JavaScript (`known_fields.mjs`). `kinds.py` finds the classes that `FORMS` does not name.
"""

import json
import sys
from importlib.metadata import version
from typing import get_args

import anthropic.types as messages
import anthropic.types.beta as beta
import anthropic.types.beta.message_create_params as beta_request
import anthropic.types.message_create_params as message_request
import openai.types.chat as chat
import openai.types.responses as responses
import openai.types.shared_params as shared
from google.genai import types as gemini
from openai.types import embedding_create_params
from openai.types.chat import completion_create_params as chat_request
from openai.types.responses import namespace_tool_param as namespace_tool
from openai.types.responses import response_create_params as response_request
from openai.types.responses import response_input_param as response_input
from openai.types.responses import response_output_message_param as response_output
from openai.types.shared_params import custom_tool_input_format as shared_input


def both(*names):
    """Returns the classes with these names of Anthropic's API, and those of its beta."""
    return [kind for name in names for kind in (getattr(messages, name), getattr(beta, f"Beta{name}"))]


# For each form, the objects as `docs/wire-forms.md` names them, each with the classes of the clients that define it.
FORMS = {
    "chat-completions": {
        "request": [chat_request.CompletionCreateParamsStreaming],
        "request.web_search_options": [chat_request.WebSearchOptions],
        "request.stream_options": [chat.ChatCompletionStreamOptionsParam],
        "request.response_format, any text": [shared.ResponseFormatText],
        "request.response_format, any JSON": [shared.ResponseFormatJSONObject],
        "request.response_format, by a schema": [shared.ResponseFormatJSONSchema],
        "request.response_format.json_schema": [shared.response_format_json_schema.JSONSchema],
        "message of the system": [chat.ChatCompletionSystemMessageParam, chat.ChatCompletionDeveloperMessageParam],
        "message of the user": [chat.ChatCompletionUserMessageParam],
        "message of the model": [chat.ChatCompletionAssistantMessageParam],
        "output of a tool": [chat.ChatCompletionToolMessageParam],
        "tool call": [chat.ChatCompletionMessageFunctionToolCallParam],
        "text part": [chat.ChatCompletionContentPartTextParam],
        "refusal part": [chat.ChatCompletionContentPartRefusalParam],
        "image part": [chat.ChatCompletionContentPartImageParam],
        "file part": [chat.chat_completion_content_part_param.File],
        "file of a file part": [chat.chat_completion_content_part_param.FileFile],
        "tool": [chat.ChatCompletionFunctionToolParam],
        "function of a tool": [shared.FunctionDefinition],
        "address of an image": [chat.chat_completion_content_part_image_param.ImageURL],
        "function of a tool call": [chat.chat_completion_message_function_tool_call_param.Function],
        "request.tool_choice": [chat.ChatCompletionNamedToolChoiceParam],
        "function of request.tool_choice": [chat.chat_completion_named_tool_choice_param.Function],
    },
    "responses": {
        "request": [response_request.ResponseCreateParamsStreaming],
        "request.stream_options": [response_request.StreamOptions],
        "request.reasoning": [shared.Reasoning],
        "request.text": [responses.ResponseTextConfigParam],
        "request.text.format, any text": [shared.ResponseFormatText],
        "request.text.format, any JSON": [shared.ResponseFormatJSONObject],
        "request.text.format, by a schema": [responses.ResponseFormatTextJSONSchemaConfigParam],
        "request.tool_choice": [responses.ToolChoiceFunctionParam, responses.ToolChoiceCustomParam],
        "function tool": [responses.FunctionToolParam, namespace_tool.ToolFunction],
        "custom tool": [responses.CustomToolParam],
        "format of a custom tool": [shared_input.Text, shared_input.Grammar],
        "namespace of tools": [responses.NamespaceToolParam],
        "item with additional tools": [response_input.AdditionalTools],
        "message of the user": [responses.EasyInputMessageParam, response_input.Message],
        "message of the model or the system": [responses.ResponseOutputMessageParam],
        "output of a call": [response_input.FunctionCallOutput, responses.ResponseCustomToolCallOutputParam],
        "text part": [responses.ResponseInputTextParam, responses.ResponseInputTextContentParam, response_output.ResponseOutputTextParam],
        "refusal part": [response_output.ResponseOutputRefusalParam],
        "function call item": [responses.ResponseFunctionToolCallParam],
        "custom tool call item": [responses.ResponseCustomToolCallParam],
        "reference to an item": [response_input.ItemReference],
        "reasoning item": [responses.ResponseReasoningItemParam],
        "image part": [responses.ResponseInputImageParam, responses.ResponseInputImageContentParam],
        "file part": [responses.ResponseInputFileParam, responses.ResponseInputFileContentParam],
    },
    "messages": {
        "request": [message_request.MessageCreateParamsStreaming, beta_request.MessageCreateParamsStreaming, messages.MessageCountTokensParams, beta.MessageCountTokensParams],
        "request.thinking": both("ThinkingConfigEnabledParam", "ThinkingConfigAdaptiveParam", "ThinkingConfigDisabledParam"),
        "request.tool_choice": both("ToolChoiceAutoParam", "ToolChoiceAnyParam", "ToolChoiceToolParam", "ToolChoiceNoneParam"),
        "request.output_config": [messages.OutputConfigParam, beta.BetaOutputConfigParam],
        "request.output_config.format": both("JSONOutputFormatParam"),
        "tool": [messages.ToolParam, beta.BetaToolParam],
        "message of the user": [messages.MessageParam, beta.BetaUserMessageParam],
        "message of the model or the system": [beta.BetaAssistantMessageParam, beta.BetaSystemMessageParam],
        "text block": both("TextBlockParam", "TextBlock"),
        "image block": both("ImageBlockParam"),
        "document block": [messages.DocumentBlockParam, beta.BetaRequestDocumentBlockParam],
        "search result block": both("SearchResultBlockParam"),
        "thinking block": both("ThinkingBlockParam", "ThinkingBlock"),
        "redacted thinking block": both("RedactedThinkingBlockParam", "RedactedThinkingBlock"),
        "tool use block": both("ToolUseBlockParam", "ToolUseBlock"),
        "tool result block": both("ToolResultBlockParam"),
        "tool reference block": both("ToolReferenceBlockParam"),
        "source of an image or a document, by content": [*both("Base64ImageSourceParam"), messages.Base64PDFSourceParam, beta.BetaBase64PDFSourceParam],
        "source of an image or a document, by URL": [*both("URLImageSourceParam"), messages.URLPDFSourceParam, beta.BetaURLPDFSourceParam],
        "source of an image or a document, by a file": [*both("FileImageSourceParam"), *both("FileDocumentSourceParam")],
        "source of a document, by text": both("PlainTextSourceParam"),
        "source of a document, by blocks": both("ContentBlockSourceParam"),
        "citations of a document or a search result": [messages.CitationsConfigParam, beta.BetaCitationsConfigParamParam],
    },
    "generate-content": {
        "request": [gemini.GenerateContentConfig],
        "request.generationConfig": [gemini.GenerationConfig],
        "request.generationConfig.thinkingConfig": [gemini.ThinkingConfig],
        "request.toolConfig": [gemini.ToolConfig],
        "request.toolConfig.functionCallingConfig": [gemini.FunctionCallingConfig],
        "tool": [gemini.Tool],
        "function declaration": [gemini.FunctionDeclaration],
        "content of the user": [gemini.Content],
        "part of the user": [gemini.Part],
        "inline data": [gemini.Blob, gemini.FunctionResponseBlob],
        "function call": [gemini.FunctionCall],
        "function response": [gemini.FunctionResponse],
        "part of a function response": [gemini.FunctionResponsePart],
    },
    "embeddings": {"request": [embedding_create_params.EmbeddingCreateParams]},
}

# Google's client has the settings of a request and of its generation in one class. These concern the client itself, or another API.
NOT_SENT = {"automaticContinuation", "automaticFunctionCalling", "generationOutputConfig", "httpOptions", "modelArmorConfig", "shouldReturnHttpResponse"}
IN_GENERATION = {"imageConfig"}


def fields(kinds):
    """Returns the names of the fields of classes of dictionaries or models, sorted. A header is no field of the body."""
    names = set()
    for kind in kinds:
        if hasattr(kind, "model_fields"):
            names |= {field.alias or name for name, field in kind.model_fields.items()}
            continue
        # Some names are unions of classes.
        for member in get_args(kind) or (kind,):
            names |= member.__required_keys__ | member.__optional_keys__
    if gemini.GenerateContentConfig in kinds:
        names -= NOT_SENT | IN_GENERATION | set(fields([gemini.GenerationConfig]))
    return sorted(names - {"betas"})


def listed():
    """Returns the list as text."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("openai", "anthropic", "google-genai"))
    lines = [f"# {versions}; written by compat/clients/fields"]
    for form, objects in FORMS.items():
        lines += [f"{form} | {title} | {field}" for title, kinds in objects.items() for field in fields(kinds)]
    return "\n".join(lines) + "\n"


def classes():
    """Returns the names of the classes of each object, for known_fields.mjs."""
    named = lambda kinds: [member.__name__ for kind in kinds for member in get_args(kind) or (kind,)]
    return {form: {title: named(kinds) for title, kinds in objects.items()} for form, objects in FORMS.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(classes()) if sys.argv[1:] == ["--classes"] else listed())
