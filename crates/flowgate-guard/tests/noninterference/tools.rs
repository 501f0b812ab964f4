//! Generates the tools of a case: with or without a server, described by the operator or by the server.

use flowgate::trace::Tool;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use serde_json::{Value, json};

use crate::random::Random;

/// The number of tools.
const TOOLS: usize = 5;

const _: () = assert!(TOOLS > 2, "the third is an agent");

#[derive(Debug, Clone)]
pub(crate) struct CaseTools(Vec<(Tool, DescriptionAuthor)>);

impl CaseTools {
    pub(crate) fn new(random: &mut Random) -> Self {
        let (on_servers, described) = (random.chance(50), random.chance(35));
        let mut tools: Vec<(Tool, DescriptionAuthor)> = Vec::new();
        for index in 0..TOOLS {
            let words = if described && random.chance(40) {
                DescriptionAuthor::Server
            } else {
                DescriptionAuthor::Operator
            };
            let name = format!("t{index}");
            let tool = match random.below(if on_servers { 3 } else { 1 }) {
                0 => Tool::local(&name),
                1 => Tool::of("s1", &name),
                _ => Tool::of("s2", &name),
            };
            tools.push((tool, words));
        }
        if on_servers && random.chance(60) {
            // A second server offers a tool of the same name as the first.
            let other = if tools[0].0.server.as_deref() == Some("s1") { "s2" } else { "s1" };
            tools[TOOLS - 1].0 = Tool::of(other, "t0");
        }
        Self(tools)
    }

    /// Returns a pattern that matches one of the tools; it may be ambiguous.
    pub(crate) fn pattern(&self, random: &mut Random, index: usize) -> String {
        let (tool, _) = &self.0[index];
        match (&tool.server, random.below(10)) {
            (Some(server), 0..=4) => format!("{server}/{}", tool.name),
            (Some(server), 5) => format!("{server}/*"),
            (_, 6 | 7) => format!("*/{}", tool.name),
            _ => tool.name.to_string(),
        }
    }

    pub(crate) fn any(&self, random: &mut Random) -> String {
        let index = random.below(TOOLS);
        self.pattern(random, index)
    }

    pub(crate) fn indices(&self) -> std::ops::Range<usize> {
        0..TOOLS
    }

    /// Returns all tools.
    pub(crate) fn all(&self) -> Vec<Tool> {
        self.0.iter().map(|(tool, _)| tool.clone()).collect()
    }

    /// Whether the answers of a tool contain the arguments of its calls and the content of its stores.
    pub(crate) fn echoes(&self, tool: &Tool) -> bool {
        self.0.iter().position(|(known, _)| known == tool).is_some_and(|index| index % 3 != 2)
    }

    /// Whether a tool is itself an agent.
    pub(crate) fn is_agent(&self, tool: &Tool) -> bool {
        self.0.iter().position(|(known, _)| known == tool) == Some(2)
    }

    /// Whether two servers offer a tool of the same name.
    pub(crate) fn hold_a_name_twice(&self) -> bool {
        self.0.iter().enumerate().any(|(n, (tool, _))| self.0[..n].iter().any(|(o, _)| o.name == tool.name))
    }

    /// Returns the tools that a server describes.
    pub(crate) fn described(&self) -> impl Iterator<Item = usize> + '_ {
        self.indices().filter(|index| self.0[*index].1 == DescriptionAuthor::Server)
    }

    pub(crate) fn offered(&self) -> Vec<OfferedTool> {
        let offered = |(index, (tool, words)): (usize, &(Tool, DescriptionAuthor))| OfferedTool {
            tool: tool.clone(),
            description: format!("the tool number {index}"),
            parameters: parameters().into(),
            output: index
                .is_multiple_of(2)
                .then(|| json!({"type": "object", "properties": {"s": {"type": "string"}}})),
            words: *words,
        };
        self.0.iter().enumerate().map(offered).collect()
    }
}

fn parameters() -> Value {
    json!({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}})
}

/// Generates a schema of arguments.
pub(crate) fn other_parameters(random: &mut Random) -> Value {
    let kind = random.of_list(&["string", "integer"]);
    json!({"type": "object", "properties": {"a": {"type": kind}, "c": {}}})
}
