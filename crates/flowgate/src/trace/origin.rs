//! Records the position of an event in the list of messages that it was read from, and computes the addresses of its
//! parts, such as `messages.1.tool_calls.0.function.arguments.to`. The violations of an analysis contain the addresses.
//!
//! Clients of invariant-ai read such addresses. invariant-ai finds a part by object identity, and so reports a wrong
//! location where two parts are equal; here an address is computed from the location of the part.

use std::fmt::Write as _;
use std::ops::Range;

use super::path::{Path, PathStep};

/// The position of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The index of the message, from 0.
    pub message: usize,
    /// The part of the message.
    pub part: OriginPart,
}

/// A part of a message that is a separate event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginPart {
    /// The message itself, or a tool output.
    Whole,
    /// The n-th of `tool_calls`.
    Call(usize),
    /// A message that consists of a single call.
    Bare,
    /// `function_call`, the predecessor of `tool_calls` in OpenAI's format.
    Legacy,
    /// `params` of a JSON-RPC request.
    Request,
    /// `result` or `error` of a JSON-RPC response.
    Response,
    /// The n-th block of `content`: a call.
    Use(usize),
    /// The n-th block of `content`: an output.
    Result(usize),
    /// The blocks of `content` from the n-th on: the text between calls.
    Blocks(usize),
    /// The n-th of `tools`, in the format of MCP, Anthropic or OpenAI.
    Tool(usize, ToolDescriptionFormat),
}

/// The format of a tool description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolDescriptionFormat {
    /// `inputSchema`
    Mcp,
    /// `input_schema`
    Anthropic,
    /// `function.parameters`
    OpenAi,
}

impl Origin {
    /// Creates the origin of a whole message.
    pub fn whole(message: usize) -> Self {
        Self { message, part: OriginPart::Whole }
    }

    /// Returns the address of the event in the list of messages that the client sent, such as
    /// `messages.1.tool_calls.0`: the message, and the part of it that the event was read from.
    pub fn address(&self) -> String {
        let message = self.message;
        match self.part {
            OriginPart::Whole
            | OriginPart::Bare
            | OriginPart::Request
            | OriginPart::Response
            | OriginPart::Blocks(_) => {
                format!("messages.{message}")
            }
            OriginPart::Call(index) => format!("messages.{message}.tool_calls.{index}"),
            OriginPart::Legacy => format!("messages.{message}.function_call"),
            OriginPart::Use(index) | OriginPart::Result(index) => {
                format!("messages.{message}.content.{index}")
            }
            OriginPart::Tool(index, _) => format!("messages.{message}.tools.{index}"),
        }
    }

    /// Returns the address of the tool name of a call, such as `messages.1.tool_calls.0.function.name`. Formats name
    /// the field differently: OpenAI's calls nest it in `function`, a JSON-RPC request in `params`.
    pub fn name_address(&self) -> String {
        let event = self.address();
        match self.part {
            OriginPart::Call(_) | OriginPart::Bare => format!("{event}.function.name"),
            OriginPart::Request => format!("{event}.params.name"),
            _ => format!("{event}.name"),
        }
    }

    /// Returns the address in the list of messages of the value at a path in the event.
    ///
    /// `is_sole_block` is set if the original content was a list of one text block, which the event holds as a plain
    /// text. A message of Anthropic's format can be split into several events; the index of a block in such an event
    /// counts from the event's first block.
    pub fn part_address(&self, path: &Path, is_sole_block: bool) -> String {
        let mut address = self.address();
        let mut steps = path.0.iter();
        if let Some(PathStep::Key(first)) = steps.next() {
            // Events have one name for each field; the formats name the fields differently.
            let (before, name) = match (&**first, self.part) {
                ("arguments", OriginPart::Call(_) | OriginPart::Bare) => (".function", "arguments"),
                ("arguments", OriginPart::Request) => (".params", "arguments"),
                ("arguments", OriginPart::Use(_)) => ("", "input"),
                ("content", OriginPart::Response) => (".result", "content"),
                ("inputSchema", OriginPart::Tool(_, ToolDescriptionFormat::Anthropic)) => {
                    ("", "input_schema")
                }
                ("inputSchema", OriginPart::Tool(_, ToolDescriptionFormat::OpenAi)) => {
                    (".function", "parameters")
                }
                ("name" | "description", OriginPart::Tool(_, ToolDescriptionFormat::OpenAi)) => {
                    (".function", &**first)
                }
                (first, _) => ("", first),
            };
            // Writing to a `String` never fails.
            let _ = write!(address, "{before}.{name}");
            if is_sole_block && &**first == "content" {
                let first_block =
                    if let OriginPart::Blocks(first_block) = self.part { first_block } else { 0 };
                let _ = write!(address, ".{first_block}.text");
            }
        }
        for (depth, step) in steps.enumerate() {
            let _ = match (step, self.part) {
                (PathStep::Index(index), OriginPart::Blocks(first_block)) if depth == 0 => {
                    write!(address, ".{}", first_block + index)
                }
                (PathStep::Index(index), _) => write!(address, ".{index}"),
                (PathStep::Key(key), _) => write!(address, ".{key}"),
                // A captured part has no address of its own: the address is that of its text.
                (PathStep::Capture(_), _) => Ok(()),
            };
        }
        address
    }
}

/// Returns the suffix of an address that selects a part of a text by the numbers of its characters: `:5-10`. `bytes` is
/// the range of the part in bytes.
pub(crate) fn characters(text: &str, bytes: &Range<usize>) -> String {
    let before = |at: usize| text.get(..at).map_or(0, |text| text.chars().count());
    format!(":{}-{}", before(bytes.start), before(bytes.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_into_the_list_of_messages() {
        let check = |part: OriginPart, path: &[&str], sole: bool, expected: &str| {
            let steps = path.iter().map(|step| match step.parse() {
                Ok(index) => PathStep::Index(index),
                Err(_) => PathStep::Key((*step).into()),
            });
            let path = Path(steps.collect());
            assert_eq!(Origin { message: 3, part }.part_address(&path, sole), expected, "{part:?} {path}");
        };
        check(OriginPart::Whole, &[], false, "messages.3");
        check(OriginPart::Whole, &["content"], false, "messages.3.content");
        check(OriginPart::Whole, &["content"], true, "messages.3.content.0.text");
        check(OriginPart::Whole, &["content", "1", "text"], false, "messages.3.content.1.text");
        check(OriginPart::Blocks(2), &["content"], true, "messages.3.content.2.text");
        check(OriginPart::Blocks(2), &["content", "1", "text"], false, "messages.3.content.3.text");
        check(OriginPart::Call(1), &[], false, "messages.3.tool_calls.1");
        check(
            OriginPart::Call(1),
            &["arguments", "to", "0"],
            false,
            "messages.3.tool_calls.1.function.arguments.to.0",
        );
        check(OriginPart::Bare, &["arguments", "to"], false, "messages.3.function.arguments.to");
        check(OriginPart::Legacy, &["arguments", "to"], false, "messages.3.function_call.arguments.to");
        check(OriginPart::Request, &["arguments", "to"], false, "messages.3.params.arguments.to");
        check(OriginPart::Response, &["content", "to"], false, "messages.3.result.content.to");
        check(OriginPart::Use(1), &["arguments", "to"], false, "messages.3.content.1.input.to");
        check(OriginPart::Result(1), &["content"], false, "messages.3.content.1.content");
        check(
            OriginPart::Tool(1, ToolDescriptionFormat::Mcp),
            &["inputSchema", "a"],
            false,
            "messages.3.tools.1.inputSchema.a",
        );
        check(
            OriginPart::Tool(1, ToolDescriptionFormat::OpenAi),
            &["inputSchema", "a"],
            false,
            "messages.3.tools.1.function.parameters.a",
        );
        check(
            OriginPart::Tool(1, ToolDescriptionFormat::OpenAi),
            &["description"],
            false,
            "messages.3.tools.1.function.description",
        );
        assert_eq!(
            Origin { message: 3, part: OriginPart::Call(1) }.name_address(),
            "messages.3.tool_calls.1.function.name"
        );
        assert_eq!(characters("äöü", &(2..4)), ":1-2");
    }
}
