"""Lists the fields of requests that the official clients of OpenAI, Anthropic and Google define.

The list is `crates/flowgate-lm/tests/client-fields.txt`: a test of `flowgate-lm` demands that the decoders know each of them, and
`test_clients.py` that the list is that of the installed clients. So a field that a new version of a client adds is a visible change.
`compat/clients/fields` writes the list.
"""

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
from openai.types.chat import completion_create_params as chat_request
from openai.types.responses import response_create_params as response_request
from openai.types.responses.response_input_param import Message as InputMessage

# For each form, the objects as `docs/wire-forms.md` names them, each with the classes of the clients that define it.
FORMS = {
    "chat-completions": {
        "request": [chat_request.CompletionCreateParamsStreaming],
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
    },
    "responses": {
        "request": [response_request.ResponseCreateParamsStreaming],
        "request.stream_options": [response_request.StreamOptions],
        "request.reasoning": [shared.Reasoning],
        "request.text": [responses.ResponseTextConfigParam],
        "request.text.format, by a schema": [responses.ResponseFormatTextJSONSchemaConfigParam],
        "function tool": [responses.FunctionToolParam],
        "custom tool": [responses.CustomToolParam],
        "namespace of tools": [responses.NamespaceToolParam],
        "message of the user": [responses.EasyInputMessageParam, InputMessage],
        "function call item": [responses.ResponseFunctionToolCallParam],
        "custom tool call item": [responses.ResponseCustomToolCallParam],
        "reasoning item": [responses.ResponseReasoningItemParam],
        "image part": [responses.ResponseInputImageParam],
        "file part": [responses.ResponseInputFileParam],
    },
    "messages": {
        "request": [message_request.MessageCreateParamsStreaming, beta_request.MessageCreateParamsStreaming],
        "request.thinking": [messages.ThinkingConfigEnabledParam, messages.ThinkingConfigAdaptiveParam],
        "request.output_config": [messages.OutputConfigParam, beta.BetaOutputConfigParam],
        "request.output_config.format": [messages.JSONOutputFormatParam],
        "tool": [messages.ToolParam, beta.BetaToolParam],
        "message of the user": [messages.MessageParam],
        "text block": [messages.TextBlockParam],
        "image block": [messages.ImageBlockParam],
        "document block": [messages.DocumentBlockParam],
        "search result block": [messages.SearchResultBlockParam],
        "thinking block": [messages.ThinkingBlockParam],
        "redacted thinking block": [messages.RedactedThinkingBlockParam],
        "tool use block": [messages.ToolUseBlockParam],
        "tool result block": [messages.ToolResultBlockParam],
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
        "inline data": [gemini.Blob],
        "function call": [gemini.FunctionCall],
        "function response": [gemini.FunctionResponse],
        "part of a function response": [gemini.FunctionResponsePart],
    },
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


if __name__ == "__main__":
    sys.stdout.write(listed())
