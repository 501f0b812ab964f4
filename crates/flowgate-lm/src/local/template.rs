//! Defines [`ChatTemplate`], the template of a model that renders a chat as the text that the model was trained to
//! continue. `generate.rs` and `blocking.rs` render the prompts of chats with it.
//!
//! Templates are programs in the template language Jinja, as its implementation in Python runs them. `python.rs` adds
//! the functions of Python that they use.

mod python;

use std::path::Path;

use minijinja::{AutoEscape, Environment, context};
use serde_json::{Map, Value, json};

use super::file;
use super::load_error::LoadError;
use crate::Error;
use crate::chat::{Message, Part, ToolSpec};

/// The most instructions that a template may execute. A chat with thousands of messages and tools needs fewer.
const FUEL: u64 = 2_000_000;

/// The chat template of a model.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    /// The source of the template, in Jinja.
    source: String,
    /// The token that begins a text, if the model has one.
    first: Option<String>,
    /// The token that ends a message, if the model has one.
    end: Option<String>,
}

impl ChatTemplate {
    /// Reads the template of a folder: the file `chat_template.jinja` if there is one, as newer models have it, and
    /// otherwise the field `chat_template` of `tokenizer_config.json`. `None` if there is neither. Fails if a file
    /// cannot be read, or the template is malformed.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, LoadError> {
        let settings_file = folder.join("tokenizer_config.json");
        let settings: Map<String, Value> = file::read_optional_json(&settings_file)?.unwrap_or_default();
        let template_file = folder.join("chat_template.jinja");
        // `try_exists` fails if the folder cannot be searched. The attempt to read the file then returns this error.
        let (source, file) = if template_file.try_exists().unwrap_or(true) {
            let source = String::from_utf8(file::read(&template_file, file::TEXT_LIMIT)?).map_err(|_| {
                LoadError::new(&template_file, "the file is not valid UTF-8; save it in UTF-8")
            })?;
            (source, &template_file)
        } else if let Some(source) = settings.get("chat_template").and_then(default_template) {
            (source.to_owned(), &settings_file)
        } else {
            return Ok(None);
        };
        let token = |key: &str| settings.get(key).and_then(token_text).map(str::to_owned);
        Self::new(file, &source, token("bos_token"), token("eos_token")).map(Some)
    }

    /// Reads the template from `metadata`, the metadata of the GGUF file `path`; `None` if the metadata have no
    /// template. Fails if the template is malformed.
    pub(super) fn of_gguf(path: &Path, metadata: &Map<String, Value>) -> Result<Option<Self>, LoadError> {
        let Some(source) = metadata.get("tokenizer.chat_template").and_then(Value::as_str) else {
            return Ok(None);
        };
        // Returns the text of the token whose id is in the field `key`.
        let token = |key: &str| {
            let id = usize::try_from(metadata.get(key)?.as_u64()?).ok()?;
            metadata.get("tokenizer.ggml.tokens")?.get(id)?.as_str().map(str::to_owned)
        };
        let (first, end) = (token("tokenizer.ggml.bos_token_id"), token("tokenizer.ggml.eos_token_id"));
        Self::new(path, source, first, end).map(Some)
    }

    /// Creates a template from its source. `first` and `end` are the tokens that begin a text and end a message, if the
    /// model has them. Fails if the source is malformed; `file` is the file that the error names.
    pub(super) fn new(
        file: &Path,
        source: &str,
        first: Option<String>,
        end: Option<String>,
    ) -> Result<Self, LoadError> {
        // The tags `generation` mark the model's messages for training. Only Hugging Face's own renderer knows them.
        let source = python::without_tag(&python::without_tag(source, "generation"), "endgeneration");
        let template = Self { source, first, end };
        if let Err(error) = environment().template_from_str(&template.source) {
            let advice = "use the template of the original model";
            return Err(LoadError::new(file, format!("the chat template is malformed: {error}; {advice}")));
        }
        Ok(template)
    }

    /// Returns the token that ends a message; `None` if the model has none.
    pub(super) fn end_token(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// Renders a chat, up to the beginning of the model's next message.
    ///
    /// # Errors
    /// If the template refuses the chat or takes too many instructions, or a message has an image.
    pub(super) fn render(&self, messages: &[Message], tools: &[ToolSpec]) -> Result<String, Error> {
        let messages: Vec<Value> = messages.iter().map(message).collect::<Result<_, _>>()?;
        let tools: Vec<Value> = tools.iter().map(tool).collect();
        let environment = environment();
        let template = environment.template_from_str(&self.source).map_err(|error| failed(&error))?;
        template
            .render(context! {
                messages => messages,
                tools => if tools.is_empty() { Value::Null } else { Value::Array(tools) },
                add_generation_prompt => true,
                // A request cannot ask a local model to reason.
                enable_thinking => false,
                bos_token => self.first.as_deref().unwrap_or_default(),
                eos_token => self.end.as_deref().unwrap_or_default(),
            })
            .map_err(|error| failed(&error))
    }
}

/// Returns an environment that renders one template. It has the functions of Python that templates use, treats white
/// space as transformers does, and limits the number of instructions to [`FUEL`].
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    // A prompt is not HTML.
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    python::add_to(&mut environment);
    environment
}

/// Converts an error of a template. The message has the line of the template, if the line is known. The message
/// contains content of the chat only if the template itself puts this content into the error.
fn failed(error: &minijinja::Error) -> Error {
    let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    Error::Failed(format!(
        "the chat template failed{line}: {}{detail}; change the messages or tools that it rejects, or use another template",
        error.kind()
    ))
}

/// Returns the source of the template from `value`, the field `chat_template`: either the source itself, or a list of
/// named templates, of which the template `default` is used. `None` if the list has no such template, or if the value
/// has another form.
fn default_template(value: &Value) -> Option<&str> {
    let is_default = |template: &&Value| template.get("name").and_then(Value::as_str) == Some("default");
    match value {
        Value::Array(list) => list.iter().find(is_default)?.get("template")?.as_str(),
        other => other.as_str(),
    }
}

/// Returns the text of a token in `tokenizer_config.json`, which is a string, or an object with the field `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// Returns a message in the form that templates expect. As in transformers, the arguments of a call are a JSON value if
/// they can be parsed, and a text otherwise. The reasoning of a message is left out. Fails if the message has an image.
fn message(message: &Message) -> Result<Value, Error> {
    Ok(match message {
        Message::System(parts) => json!({"role": "system", "content": text(parts)?}),
        Message::User(parts) => json!({"role": "user", "content": text(parts)?}),
        Message::Assistant { text, calls, .. } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        Message::Assistant { text, calls, .. } => {
            let call = |call: &crate::chat::ToolCall| {
                let arguments: Value = serde_json::from_str(&call.arguments)
                    .unwrap_or_else(|_| Value::from(call.arguments.as_str()));
                json!({"type": "function", "id": call.id, "function": {"name": call.name, "arguments": arguments}})
            };
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({"role": "assistant", "content": text, "tool_calls": calls})
        }
        Message::Tool { call_id, content, .. } => {
            json!({"role": "tool", "tool_call_id": call_id, "content": text(content)?})
        }
    })
}

/// The error of a message with an image.
const NO_IMAGES: Error = Error::Unsupported("a local model cannot read images; send only texts");

/// Returns the texts of a message's parts, joined without a separator. Fails if a part is an image.
fn text(parts: &[Part]) -> Result<String, Error> {
    let text = |part: &Part| match part {
        Part::Text(text) => Ok(text.clone()),
        Part::ImageUrl(_) | Part::ImageData { .. } => Err(NO_IMAGES),
    };
    parts.iter().map(text).collect()
}

/// Returns the description of a tool in the form that templates expect.
fn tool(tool: &ToolSpec) -> Value {
    json!({"type": "function", "function": {
        "name": tool.name, "description": tool.description, "parameters": *tool.parameters,
    }})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::chat::ToolCall;

    /// A chat with a message of every role, and with a call of a tool.
    fn chat() -> Vec<Message> {
        let call =
            ToolCall { id: "c1".into(), name: "pay".into(), arguments: r#"{"b": 1, "a": "<x>"}"#.into() };
        vec![
            Message::System(vec!["Be brief.".into()]),
            Message::User(vec!["a".into(), "b".into()]),
            Message::Assistant { text: String::new(), calls: vec![call], thoughts: Vec::new() },
            Message::Tool { call_id: "c1".into(), content: vec!["done".into()], is_error: None },
        ]
    }

    /// Renders [`chat`], with one tool on offer, by the template `source`. An error of the template or of the rendering
    /// is returned as its text.
    fn render(source: &str) -> Result<String, String> {
        let template = ChatTemplate::new(Path::new("t"), source, Some("<s>".into()), None);
        let tools = [ToolSpec {
            name: "pay".into(),
            description: "Pays.".into(),
            parameters: Arc::new(json!({"type": "object", "properties": {}})),
        }];
        template
            .map_err(|error| error.to_string())?
            .render(&chat(), &tools)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn templates_are_rendered_as_in_python() {
        for (source, expected) in [
            (
                "{{ bos_token }}{% for m in messages %}[{{ m.role }}|{{ m['content'] }}]{% endfor %}",
                "<s>[system|Be brief.][user|ab][assistant|][tool|done]",
            ),
            ("{{ messages[2].tool_calls[0].function.arguments | tojson }}", r#"{"b": 1, "a": "<x>"}"#),
            (
                "{{ tools[0].function | tojson(indent=1) }}",
                "{\n \"name\": \"pay\",\n \"description\": \"Pays.\",\n \"parameters\": {\n  \"type\": \"object\",\n  \"properties\": {}\n }\n}",
            ),
            (
                "{% for m in messages[::-1] %}{{ loop.index0 }}{% if loop.first %}!{% endif %}{% endfor %}",
                "0!123",
            ),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.n = loop.index %}{% endif %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            (
                "{% for m in messages %}\n    {% if m.role != 'user' %}\n        {% continue %}\n    {% endif %}\n{{ m.content }}\n{% endfor %}",
                "ab\n",
            ),
            (
                "{{ ' x '.strip() }}{{ 'a,b'.split(',')[-1] }}{{ messages[0].content.startswith('Be') }}",
                "xbTrue",
            ),
            (
                "{% generation %}x{% endgeneration %}{%- if tools is defined and tools is not none -%} y {%- endif -%}",
                "xy",
            ),
            ("{{ strftime_now is defined }}{{ enable_thinking is false }}", "FalseTrue"),
        ] {
            assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn templates_that_fail_are_errors() {
        let check =
            |source: &str, expected: &str| assert_eq!(render(source), Err(expected.to_owned()), "{source}");
        check(
            "{{ raise_exception('no tools here') }}",
            "the chat template failed in line 1: invalid operation: no tools here; change the messages or tools that it rejects, or use another template",
        );
        check(
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "the chat template failed in line 1: engine ran out of fuel; change the messages or tools that it rejects, or use another template",
        );
        check(
            "{% if %}",
            "cannot load the model from `t`: the chat template is malformed: syntax error: unexpected end of block (in <string>:1); use the template of the original model",
        );
    }
}
