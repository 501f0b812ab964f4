//! Converts messages of models and requests to models between Python objects and the types of `flowgate_lm::chat`, and
//! gives Python the class `Completion` (what a model wrote). Requests and answers are bodies in the wire formats of
//! providers: a program passes them to the clients of these providers, and receives them from these clients.
//! `conversation` and `need` call this module.

use std::collections::HashSet;

use flowgate_lm::chat::{Completion, Request, Sampling, Stop, ToolCall};
use flowgate_lm::json::Json;
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ReceivedRequest, ResponseHead};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use serde_json::{Value, json};

use crate::errors::FlowgateError;
use crate::values;

/// Returns the wire format that a program names: `openai` (chat completions), `responses`, `anthropic` or `gemini`.
/// Raises `ValueError`, with all names, for any other text.
pub(crate) fn api(name: &str) -> PyResult<Api> {
    Api::ALL.into_iter().find(|api| api.form().python_name == name).ok_or_else(|| {
        let names: Vec<String> =
            Api::ALL.iter().map(|api| format!("\"{}\"", api.form().python_name)).collect();
        let (last, others) =
            names.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
        PyValueError::new_err(format!("`api` must be {} or {last}", others.join(", ")))
    })
}

/// What a model wrote: its text and its calls.
#[pyclass(frozen, get_all, module = "flowgate", name = "Completion")]
#[derive(Debug, Clone)]
pub(crate) struct PyCompletion {
    text: String,
    /// The id, the name of the tool, and the arguments as JSON text, of each call.
    calls: Vec<(String, String, String)>,
}

#[pymethods]
impl PyCompletion {
    /// Creates a completion. A call is `(name, arguments)` or `(name, arguments, id)`; the arguments are a dict, or
    /// JSON text. A call without an id gets one that no other call of the completion has.
    #[new]
    #[pyo3(signature = (text="", calls=None))]
    fn new(text: &str, calls: Option<Vec<Bound<'_, PyAny>>>) -> PyResult<Self> {
        let mut converted = Vec::new();
        for (index, call) in calls.unwrap_or_default().iter().enumerate() {
            // A tuple of three items has an id, one of two has none.
            let (name, arguments, id) = match call.extract::<(String, Bound<'_, PyAny>, String)>() {
                Ok((name, arguments, id)) => (name, arguments, Some(id)),
                Err(_) => {
                    let (name, arguments) = call.extract().map_err(|_| {
                        PyTypeError::new_err(format!(
                            "`calls[{index}]` must be a tuple (name, arguments) or (name, arguments, id)"
                        ))
                    })?;
                    (name, arguments, None)
                }
            };
            // A text is taken for the JSON that a model wrote, and stays unchanged.
            let arguments = match arguments.extract::<String>() {
                Ok(text) => text,
                Err(_) => Value::Object(values::to_object(&arguments, "arguments")?).to_string(),
            };
            converted.push((id, name, arguments));
        }
        let ids = with_new_ids(converted.iter().map(|(id, ..)| id.clone()).collect());
        let calls = ids.into_iter().zip(converted).map(|(id, (_, name, arguments))| (id, name, arguments));
        Ok(Self { text: text.to_owned(), calls: calls.collect() })
    }

    fn __repr__(&self) -> String {
        let calls: Vec<&str> = self.calls.iter().map(|(_, name, _)| name.as_str()).collect();
        format!("Completion({:?}, calls: [{}])", self.text, calls.join(", "))
    }
}

impl PyCompletion {
    /// Converts the completion. The reason why the model stopped (`stop`) follows from the calls: if there are any, the
    /// model stopped so that they run; otherwise, its message has ended.
    fn to_rust(&self) -> Completion {
        let call = |(id, name, arguments): &(String, String, String)| ToolCall {
            id: id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
        };
        let stop = if self.calls.is_empty() { Stop::End } else { Stop::Calls };
        Completion {
            text: self.text.clone(),
            calls: self.calls.iter().map(call).collect(),
            stop,
            ..Completion::default()
        }
    }
}

/// Returns the ids of the calls of a message. A call without an id gets `call_N`, where N is the position of the call
/// from 1, or a greater number if another call has that id. Ids only have to differ within one message.
fn with_new_ids(given: Vec<Option<String>>) -> Vec<String> {
    let mut taken: HashSet<String> = given.iter().flatten().cloned().collect();
    let mut unused = |position: usize| {
        let mut ids = (position..).map(|number| format!("call_{number}"));
        let id = ids.find(|id| !taken.contains(id)).unwrap_or_default();
        taken.insert(id.clone());
        id
    };
    given.into_iter().enumerate().map(|(index, id)| id.unwrap_or_else(|| unused(index + 1))).collect()
}

/// Reads what a model wrote: a text, a `Completion`, an answer of a provider (as an object of its client or as a dict),
/// or a message of the model in OpenAI's format. A provider's answer is recognised by the fields that only its format
/// has. Raises `TypeError` if the form is unknown, and `FlowgateError` if the answer is malformed.
pub(crate) fn read(given: &Bound<'_, PyAny>) -> PyResult<Completion> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Completion { text: text.to_str()?.to_owned(), ..Completion::default() });
    }
    if let Ok(completion) = given.cast::<PyCompletion>() {
        return Ok(completion.get().to_rust());
    }
    let value = values::to_json(given, "completion")?;
    let (api, value) = if let Some(api) = Api::of_response(&value) {
        (api, value)
    } else if value.get("role").is_some_and(|role| role == "assistant") {
        // A message alone lacks the fields around it, so it is wrapped as an answer that stopped for its calls, or at
        // its end.
        let has_calls =
            value.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
        let finish = if has_calls { "tool_calls" } else { "stop" };
        (Api::ChatCompletions, json!({"choices": [{"message": value, "finish_reason": finish}]}))
    } else {
        return Err(PyTypeError::new_err(
            "a completion must be a string, a `Completion`, an answer of OpenAI's, Anthropic's or Gemini's API, or an assistant message",
        ));
    };
    api.decode_response(&value).map_err(|error| FlowgateError::new_err(error.to_string()))
}

/// Returns the body of a request to a model, which the program sends with a client of the provider. The body has no
/// `stream`, and no `model` if none is given, since the program chooses these itself. Raises `ValueError` if the format
/// cannot express the request.
pub(crate) fn request_body<'py>(
    py: Python<'py>,
    request: &Request,
    api: Api,
    model: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(feature) = api.unsupported_feature(request) {
        return Err(PyValueError::new_err(format!(
            "the request does not fit the format of the chosen `api`: {feature}, or choose another `api`"
        )));
    }
    // The encoder writes both fields; those that the program sets itself are removed.
    let mut body = api.encode_request(request, model.unwrap_or_default(), false);
    if let Some(body) = body.as_object_mut() {
        body.shift_remove("stream");
        if model.is_none() {
            body.shift_remove("model");
        }
    }
    values::from_json(py, &body)
}

/// Reads the body of a request that a client sends to a provider: a dict, an object of the client, or JSON text. Raises
/// `ValueError` for a request that cannot be guarded, because it has something that the guard does not know or cannot
/// answer.
pub(crate) fn read_request(body: &Bound<'_, PyAny>, api: Api) -> PyResult<ReceivedRequest> {
    let text = match body.extract::<String>() {
        Ok(text) => text,
        Err(_) => values::to_json(body, "request")?.to_string(),
    };
    let json = Json::parse(&text).map_err(|error| {
        PyValueError::new_err(format!(
            "the request is not valid JSON: {error}; pass the whole body of a request"
        ))
    })?;
    let request = api
        .decode_request(&json)
        .map_err(|error| PyValueError::new_err(format!("the request cannot be guarded: {error}")))?;
    if request.previous_response.is_some() {
        let message = "the request cannot be guarded: `previous_response_id` names a chat that only a gateway keeps; send the whole chat";
        return Err(PyValueError::new_err(message));
    }
    if !request.item_references.is_empty() {
        let message = "the request cannot be guarded: `input` refers to items that only a gateway keeps; send the items themselves";
        return Err(PyValueError::new_err(message));
    }
    // The answer expresses all calls as calls of functions, which would be wrong for other forms of tools.
    if !request.tool_forms.is_empty() {
        let message = "the request cannot be guarded: `tools` has custom tools or namespaces; declare functions instead";
        return Err(PyValueError::new_err(message));
    }
    Ok(request)
}

/// Returns the body of an answer, as the provider would send it. `id`, `model` and `created` (seconds since 1970) are
/// the fields of the same names in the body. All calls are calls of functions, since [`read_request`] refuses other
/// forms of tools. The answer counts as not stored: no later request can continue from it by its id.
pub(crate) fn response_body<'py>(
    py: Python<'py>,
    completion: &Completion,
    api: Api,
    id: &str,
    model: &str,
    created: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let head = ResponseHead { id, model, created, tools: &ONLY_FUNCTIONS, storage: AnswerStorage::NotStored };
    values::from_json(py, &api.encode_response(completion, head))
}

/// Returns an answer as the server-sent events of a stream, as the provider would send them: the name and the data of
/// each. `id`, `model` and `created` are as for [`response_body`]. `usage` says whether the events include the number
/// of tokens, which chat completions send only on request and the other formats always.
pub(crate) fn response_events(
    completion: &Completion,
    api: Api,
    id: &str,
    model: &str,
    created: u64,
    usage: bool,
) -> Vec<(String, String)> {
    let head = ResponseHead { id, model, created, tools: &ONLY_FUNCTIONS, storage: AnswerStorage::NotStored };
    let events = api.encode_stream(completion, head, usage);
    events.into_iter().map(|event| (event.name, event.data)).collect()
}

/// Reads the parameters of sampling from a dict: `max_tokens`, `temperature`, `top_p`, `seed` and `stop`; without a
/// dict, the model's defaults apply. Any other name is an error, so that a misspelt parameter does not pass unnoticed.
pub(crate) fn sampling(given: Option<&Bound<'_, PyDict>>) -> PyResult<Sampling> {
    let mut sampling = Sampling::default();
    let Some(given) = given else { return Ok(sampling) };
    for (name, value) in given {
        match name.extract::<String>()?.as_str() {
            "max_tokens" => sampling.max_tokens = value.extract()?,
            "temperature" => sampling.temperature = value.extract()?,
            "top_p" => sampling.top_p = value.extract()?,
            "seed" => sampling.seed = value.extract()?,
            "stop" => sampling.stop = value.extract()?,
            other => {
                return Err(PyValueError::new_err(format!(
                    "`sampling` has no parameter `{}`; use one of max_tokens, temperature, top_p, seed, stop",
                    other.escape_debug()
                )));
            }
        }
    }
    Ok(sampling)
}
