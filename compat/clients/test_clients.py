"""Decodes Flowgate's answers with the clients of OpenAI, Anthropic and Google."""

import json
import os
from itertools import groupby
from pathlib import Path

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google import genai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

import known_fields

BASE = os.environ["FLOWGATE_DOUBLE"]
GOLDEN = Path(os.environ["FLOWGATE_GOLDEN"])
APIS = ["chat_completions", "responses", "messages", "generate_content"]

READ = ("call_1", "read_mail", {"folder": "inbox"})
SEND = ("call_2", "send_mail", {"to": "ann@example.org", "body": 'Grüße 😀\n"bye"'})
# Text, calls, stop reason.
SCENARIOS = {
    "text": ("There is one mail in your inbox, and it is from Ann: “Grüße 😀”\n", [], "end"),
    "one_call": ("", [READ], "calls"),
    "parallel_calls": ("", [READ, SEND], "calls"),
    "text_and_call": ("I shall look into your inbox for you.", [READ], "calls"),
    "tool_error": ("There is no such folder.", [], "end"),
    "image": ("A cat, and nothing.", [], "end"),
    "forced_tool": ("", [READ], "calls"),
    "structured": ('{"mails":1}', [], "end"),
    "refusal": ("I cannot help with that.", [], "refused"),
    "length": ("There is one mail in your", [], "length"),
}
USAGE = (21, 13)
ERRORS = {
    "chat_completions": openai.BadRequestError,
    "responses": openai.BadRequestError,
    "messages": anthropic.BadRequestError,
    "generate_content": genai.errors.ClientError,
}
FINISH = {
    "chat_completions": {"end": "stop", "calls": "tool_calls", "refused": "stop", "length": "length"},
    "messages": {"end": "end_turn", "calls": "tool_use", "refused": "refusal", "length": "max_tokens"},
    "generate_content": {"end": "STOP", "calls": "STOP", "refused": "SAFETY", "length": "MAX_TOKENS"},
}


def request(api, scenario):
    body = json.loads((GOLDEN / api / f"{scenario}.request.json").read_text())
    if api == "generate_content":
        # This client has the settings of a request and of its generation in one object.
        config = {**body.pop("generationConfig", {}), **{key: value for key, value in body.items() if key != "contents"}}
        contents = [genai.types.Content.model_validate_json(json.dumps(content)) for content in body["contents"]]
        config = genai.types.GenerateContentConfig.model_validate_json(json.dumps(config))
        return {"model": scenario, "contents": contents, "config": config}
    if api == "messages":
        # This client no longer has these parameters, but servers accept them.
        body["extra_body"] = {key: body.pop(key) for key in ("temperature", "top_p") if key in body}
    return body


def typed(kind, value):
    """Validates an object, which clients construct without validation."""
    TypeAdapter(kind).validate_python(value.to_dict(warnings=False))
    return value


def once(names):
    """Returns the names, with consecutive equal names merged."""
    return [name for name, _ in groupby(names)]


def of_chat(answer, expected):
    text, calls, stop = expected
    typed(ChatCompletion, answer)
    assert (answer.id, answer.object, answer.created) == ("r1", "chat.completion", 1700000000)
    assert len(answer.choices) == 1
    choice = answer.choices[0]
    message = choice.message
    assert message.role == "assistant"
    said, other = (message.refusal, message.content) if stop == "refused" else (message.content, message.refusal)
    assert (said or "", other) == (text, None)
    found = message.tool_calls or []
    assert all(call.type == "function" for call in found)
    assert [(c.id, c.function.name, json.loads(c.function.arguments)) for c in found] == calls
    assert choice.finish_reason == FINISH["chat_completions"][stop]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == USAGE
    assert answer.usage.total_tokens == sum(USAGE)


def of_responses(answer, expected):
    text, calls, stop = expected
    typed(Response, answer)
    assert (answer.id, answer.object, answer.created_at) == ("r1", "response", 1700000000)
    messages = [item for item in answer.output if item.type == "message"]
    parts = [part for message in messages for part in message.content]
    if stop == "refused":
        assert [(part.type, part.refusal) for part in parts] == [("refusal", text)]
    else:
        assert answer.output_text == text
        assert [part.type for part in parts] == (["output_text"] if text else [])
    found = [item for item in answer.output if item.type == "function_call"]
    assert [(c.call_id, c.name, json.loads(c.arguments)) for c in found] == calls
    assert len(answer.output) == len(messages) + len(found)
    if stop == "length":
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    else:
        assert (answer.status, answer.incomplete_details) == ("completed", None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == USAGE


def of_messages(answer, expected):
    text, calls, stop = expected
    typed(Message, answer)
    assert (answer.id, answer.type, answer.role) == ("r1", "message", "assistant")
    said = [block.text for block in answer.content if block.type == "text"]
    assert said == ([text] if text else [])
    found = [block for block in answer.content if block.type == "tool_use"]
    assert [(block.id, block.name, block.input) for block in found] == calls
    assert len(answer.content) == len(said) + len(found)
    assert answer.stop_reason == FINISH["messages"][stop]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == USAGE


def of_gemini(answer, expected):
    text, calls, stop = expected
    assert (answer.response_id, len(answer.candidates)) == ("r1", 1)
    candidate = answer.candidates[0]
    assert candidate.content.role == "model"
    parts = candidate.content.parts
    assert "".join(part.text for part in parts if part.text) == text
    found = [part.function_call for part in parts if part.function_call]
    assert [(call.id, call.name, call.args) for call in found] == calls
    assert candidate.finish_reason == FINISH["generate_content"][stop]
    usage = answer.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count) == USAGE
    assert usage.total_token_count == sum(USAGE)


def stream_chat(client, body):
    state = ChatCompletionStreamState()
    events = []
    for chunk in client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        typed(ChatCompletionChunk, chunk)
        events += [event.type for event in state.handle_chunk(chunk)]
    return state.current_completion_snapshot, events


def chat_events(expected):
    text, calls, stop = expected
    said = [] if not text else ["refusal.delta"] if stop == "refused" else ["content.delta"]
    done = [] if not text else ["refusal.done"] if stop == "refused" else ["content.done"]
    one = ["tool_calls.function.arguments.delta"]
    called = ["tool_calls.function.arguments.done"]
    return said, done, one * bool(calls), called * len(calls)


def stream_responses(client, body):
    events, last = [], None
    with client.responses.stream(**body) as stream:
        for event in stream:
            assert event.sequence_number == len(events)
            typed(ResponseStreamEvent, event)
            events.append(event.type.removeprefix("response."))
            last = event
    return last.response, events


def response_events(expected):
    text, calls, stop = expected
    kind = "refusal" if stop == "refused" else "output_text"
    said = ["output_item.added", "content_part.added", f"{kind}.delta", f"{kind}.done", "content_part.done"]
    called = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"]
    items = (said + ["output_item.done"]) * bool(text) + (called + ["output_item.done"]) * len(calls)
    return ["created", "in_progress", *items, "incomplete" if stop == "length" else "completed"]


def stream_messages(client, body):
    names = [f"message_{name}" for name in ("start", "delta", "stop")]
    names += [f"content_block_{name}" for name in ("start", "delta", "stop")]
    events = []
    with client.messages.stream(**body) as stream:
        for event in stream:
            if event.type in names:
                events.append(event.type)
    for event in client.messages.create(**body, stream=True):
        typed(RawMessageStreamEvent, event)
    return stream.get_final_message(), events


def message_events(expected):
    text, calls, _ = expected
    block = [f"content_block_{name}" for name in ("start", "delta", "stop")]
    return ["message_start", *block * (bool(text) + len(calls)), "message_delta", "message_stop"]


def stream_gemini(client, body):
    """Returns the answer with the parts of all events, and the kind of each event."""
    events, parts, last = [], [], None
    for chunk in client.models.generate_content_stream(**body):
        content, last = chunk.candidates[0].content, chunk
        parts += content.parts
        events += ["call" if part.function_call else "text" for part in content.parts]
    last.candidates[0].content.parts = parts
    return last, events


def gemini_events(expected):
    text, calls, _ = expected
    # The last event has an empty text.
    return once(["text"] * bool(text) + ["call"] * len(calls) + ["text"])


def client_of(api, headers=None):
    if api == "generate_content":
        options = genai.types.HttpOptions(base_url=BASE, headers=headers, timeout=10_000)
        return genai.Client(api_key="none", http_options=options)
    kind = anthropic.Anthropic if api == "messages" else openai.OpenAI
    base = BASE if api == "messages" else f"{BASE}/v1"
    return kind(api_key="none", base_url=base, max_retries=0, timeout=10, default_headers=headers)


def check(api, scenario, stream, headers=None):
    expected, body = SCENARIOS[scenario], request(api, scenario)
    with client_of(api, headers) as client:
        if api == "chat_completions" and stream:
            answer, events = stream_chat(client, body)
            said, done, called, ended = chat_events(expected)
            # The helper emits an additional event for each chunk, and an empty piece for the first.
            events = [event for event in events if event != "chunk"]
            for some in (said, done, called, ended):
                for name in set(some):
                    assert events.count(name) >= len(some), events
            assert {name for name in events if name.endswith("done")} == {*done, *ended}
            of_chat(answer, expected)
        elif api == "chat_completions":
            of_chat(client.chat.completions.create(**body), expected)
        elif api == "responses" and stream:
            answer, events = stream_responses(client, body)
            assert once(events) == response_events(expected)
            of_responses(answer, expected)
        elif api == "responses":
            of_responses(client.responses.create(**body), expected)
        elif api == "generate_content" and stream:
            answer, events = stream_gemini(client, body)
            assert once(events) == gemini_events(expected)
            of_gemini(answer, expected)
        elif api == "generate_content":
            of_gemini(client.models.generate_content(**body), expected)
        elif stream:
            answer, events = stream_messages(client, body)
            assert once(events) == message_events(expected)
            of_messages(answer, expected)
        else:
            of_messages(client.messages.create(**body), expected)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("api", APIS)
def test_scenario(api, scenario, stream):
    check(api, scenario, stream)


def test_every_scenario_is_here():
    for api in APIS:
        # Reasoning differs in each form, and the double does not serve it.
        assert {path.name.split(".")[0] for path in (GOLDEN / api).iterdir()} - {"reasoning"} == set(SCENARIOS)


@pytest.mark.parametrize("scenario", ["text_and_call", "refusal", "parallel_calls"])
@pytest.mark.parametrize("api", APIS)
def test_a_lost_event_is_noticed(api, scenario):
    stream = (GOLDEN / api / f"{scenario}.stream.txt").read_text()
    for index, event in enumerate(stream.strip().split("\n\n")):
        if event == "data: [DONE]" or event.startswith("event: ping\n"):
            continue
        try:
            check(api, scenario, True, {"x-without": str(index)})
        except Exception:
            continue
        pytest.fail(f"nothing was noticed without {event}")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("api", APIS)
def test_an_answer_can_be_sent_back(api, scenario):
    """The client's representation of an answer is accepted as part of the next request."""
    body = request(api, scenario)
    with client_of(api) as client:
        if api == "chat_completions":
            create = client.chat.completions.create
            body["messages"].append(create(**body).choices[0].message.model_dump())
        elif api == "responses":
            create = client.responses.create
            body["input"] += [item.model_dump(by_alias=True) for item in create(**body).output]
        elif api == "generate_content":
            create = client.models.generate_content
            body["contents"].append(create(**body).candidates[0].content)
        else:
            create = client.messages.create
            content = [block.model_dump() for block in create(**body).content]
            body["messages"].append({"role": "assistant", "content": content})
        # The double answers only requests that equal the scenario, and rejects others after reading them.
        with pytest.raises(ERRORS[api], match="this is not what the scenario asks"):
            create(**body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_chat_of_google_continues(stream):
    """The client's chats store an answer, of which each event of a stream is a content, and send it back."""
    body = request("generate_content", "text")
    with client_of("generate_content") as client:
        chat = client.chats.create(model=body["model"], config=body["config"], history=body["contents"][:-1])
        question = body["contents"][-1].parts
        said = list(chat.send_message_stream(question)) if stream else [chat.send_message(question)]
        assert "".join(chunk.text or "" for chunk in said) == SCENARIOS["text"][0]
        with pytest.raises(ERRORS["generate_content"], match="this is not what the scenario asks"):
            chat.send_message("Go on.")


@pytest.mark.parametrize("api", APIS)
def test_errors_are_the_clients_own(api):
    with client_of(api) as client:
        create = {
            "chat_completions": lambda: client.chat.completions.create,
            "responses": lambda: client.responses.create,
            "messages": lambda: client.messages.create,
            "generate_content": lambda: client.models.generate_content,
        }[api]()
        body, extra = request(api, "text"), {"logit_bias": {"1": 2}}
        if api == "generate_content":
            body["config"].http_options = genai.types.HttpOptions(extra_body=extra)
        else:
            body["extra_body"] = extra
        with pytest.raises(ERRORS[api], match="`logit_bias` is (not known|supported only when empty)"):
            create(**body)


def test_the_tool_runner_of_anthropic_continues_without_a_thread():
    """It asks for a thread by default. The second request has none, and the double rejects it for another reason."""
    body = request("messages", "text")
    asked = {key: body[key] for key in ("model", "max_tokens")} | {"messages": [{"role": "user", "content": "x"}]}
    with client_of("messages") as client, pytest.raises(anthropic.BadRequestError, match="this is not what the scenario asks"):
        client.beta.messages.tool_runner(tools=[], **asked).until_done()


def test_the_list_of_fields_is_that_of_the_clients():
    kept = (GOLDEN.parent / "client-fields.txt").read_text()
    assert known_fields.listed() == kept, "compat/clients/fields writes it anew; then declare the new fields"
