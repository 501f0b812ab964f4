//! Holds the tools on offer in a conversation ([`OfferedTool`]), and formats their descriptions for the model. A
//! conversation owns one catalogue, and updates it when its caller offers other tools. [`crate::view`] offers the model
//! the tools whose descriptions may be shown.
//!
//! The author of a tool's description is either the operator or the server that offers the tool
//! ([`DescriptionAuthor`]). A server's description is text like any other: it is an event of the trace, the policy
//! labels it, and a tool whose description may not be shown is not on offer.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Monitor, PushError};
use flowgate::trace::{EventId, Tool, ToolDescription, TraceEntry};
use flowgate_lm::chat::ToolSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::slot;

/// The maximum length of a tool name that providers accept, in bytes.
const MAX_NAME: usize = 64;

/// A tool that an agent may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// The identity of the tool.
    #[serde(with = "crate::journal::tool")]
    pub tool: Tool,
    /// The description.
    pub description: String,
    /// The JSON schema of its arguments, which the requests of many conversations share.
    pub parameters: Arc<Value>,
    /// The JSON schema of its answers, if it has one.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The author of the description and the schemas.
    pub words: DescriptionAuthor,
}

/// The author of a tool description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DescriptionAuthor {
    /// The operator, who is trusted.
    Operator,
    /// The server that offers the tool; the policy labels its descriptions.
    Server,
}

/// The tools of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    entries: Vec<CatalogueEntry>,
}

/// A tool on offer, with the arguments that the policy lets be slots.
#[derive(Debug)]
pub(crate) struct CatalogueEntry {
    pub(crate) offered: Arc<OfferedTool>,
    /// The name by which the model calls the tool.
    name: String,
    /// The event of the description; `None` if the operator wrote the description.
    event: Option<EventId>,
    /// The arguments that may be slots: those that are payload whatever the other arguments are, those that a standing
    /// consent names, and those that an endorsement limits.
    pub(crate) slots: Vec<String>,
    /// Of `slots`, those that only an endorsement permits, each with the greatest number of bits that the author of a
    /// hidden text can choose in an endorsed value.
    pub(crate) endorsed: BTreeMap<String, u32>,
    /// The arguments that endorsements are about, also those that may be slots without one, each with a bound in bits;
    /// `None` for one without a bound.
    endorsement_bounds: BTreeMap<String, Option<u32>>,
}

impl Catalogue {
    /// Declares the tools to the monitor and has their descriptions labelled.
    ///
    /// # Errors
    /// If the session has no room for the descriptions.
    pub(crate) fn new(monitor: &mut Monitor, tools: Vec<Arc<OfferedTool>>) -> Result<Self, PushError> {
        let mut catalogue = Self::default();
        catalogue.update(monitor, tools)?;
        Ok(catalogue)
    }

    /// Offers these tools and no others. A new or changed description that a server wrote becomes an event. A tool
    /// under the server name of Flowgate is left out.
    ///
    /// # Errors
    /// If the session has no room for the descriptions.
    pub(crate) fn update(
        &mut self,
        monitor: &mut Monitor,
        tools: Vec<Arc<OfferedTool>>,
    ) -> Result<(), PushError> {
        monitor.declare_tools(tools.iter().map(|offered| &offered.tool));
        let mut previous = std::mem::take(&mut self.entries);
        // The names that are in use already: `look`, the name of Flowgate's tool, and the names of the tools offered so
        // far.
        let mut taken: HashSet<String> = [slot::LOOK.to_owned()].into();
        // A tool under Flowgate's own server name is an impostor.
        let is_own = |offered: &OfferedTool| offered.tool.server.as_deref() == Some(Tool::FLOWGATE_SERVER);
        for offered in tools.into_iter().filter(|offered| !is_own(offered)) {
            // An unchanged tool keeps its entry, and with it the event of its description.
            if let Some(index) = previous.iter().position(|entry| entry.offered == offered) {
                let unchanged = previous.swap_remove(index);
                taken.insert(unchanged.name.clone());
                self.entries.push(unchanged);
                continue;
            }
            let event = match offered.words {
                DescriptionAuthor::Operator => None,
                DescriptionAuthor::Server => {
                    let (tool, description) = (offered.tool.clone(), offered.description.clone());
                    let (input_schema, output_schema) = (offered.parameters.clone(), offered.output.clone());
                    let other = Map::new();
                    let description =
                        ToolDescription { tool, description, input_schema, output_schema, other };
                    Some(monitor.push(TraceEntry::from(description))?.0)
                }
            };
            let (slots, endorsed) = Self::slot_arguments(monitor, &offered.tool);
            let name = unique_name(&offered.tool, &taken);
            taken.insert(name.clone());
            let endorsement_bounds = monitor.endorsement_bounds(&offered.tool);
            self.entries.push(CatalogueEntry { offered, name, event, slots, endorsed, endorsement_bounds });
        }
        Ok(())
    }

    /// Returns the arguments of a tool that may be left to a slot, [`CatalogueEntry::slots`], and those of them that
    /// only an endorsement permits, [`CatalogueEntry::endorsed`].
    fn slot_arguments(monitor: &Monitor, tool: &Tool) -> (Vec<String>, BTreeMap<String, u32>) {
        // An argument may be left to a slot if it is payload, or if a consent or an endorsement names it. An
        // endorsement checks the form of the value, so arguments that only an endorsement names are kept separately.
        let mut slots = monitor.payload_arguments(tool);
        slots.extend(monitor.consent_arguments(tool));
        let mut endorsed = monitor.endorsed_arguments(tool);
        endorsed.retain(|argument, _| !slots.contains(argument));
        slots.extend(endorsed.keys().cloned());
        slots.sort();
        slots.dedup();
        (slots, endorsed)
    }

    /// Returns the tools that may be offered in a view at `label`.
    pub(crate) fn visible_at<'c>(
        &'c self,
        monitor: &'c Monitor,
        label: &'c Label,
    ) -> impl Iterator<Item = &'c CatalogueEntry> + 'c {
        self.entries.iter().filter(move |entry| entry.is_visible_at(monitor, label))
    }

    /// Returns the label that a view at `bound` carries because of the tool descriptions in it: the join of the labels
    /// of those parts of the descriptions that the view shows.
    pub(crate) fn view_label(&self, monitor: &Monitor, bound: &Label) -> Label {
        let descriptions = self.entries.iter().filter_map(|entry| entry.event);
        descriptions.fold(Label::BOTTOM, |joined, event| joined.join(&monitor.view_label(event, bound)))
    }

    /// Returns the tools that servers describe, with the labels of their descriptions. Tools that the operator
    /// describes have no label, and are left out.
    pub(crate) fn description_labels<'c>(
        &'c self,
        monitor: &'c Monitor,
    ) -> impl Iterator<Item = (&'c Tool, Label)> {
        let label = |entry: &'c CatalogueEntry| {
            let description = monitor.trace().event(entry.event?)?;
            Some((&entry.offered.tool, description.label))
        };
        self.entries.iter().filter_map(label)
    }

    /// Returns all tools.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.entries.iter().map(|entry| &entry.offered.tool)
    }

    /// Returns the tool that the model calls by this name, if a view at `label` offers it.
    pub(crate) fn find(&self, monitor: &Monitor, label: &Label, name: &str) -> Option<&CatalogueEntry> {
        self.entries.iter().find(|entry| entry.name == name && entry.is_visible_at(monitor, label))
    }

    /// Returns the slots of a tool that only an endorsement permits, each with the greatest number of bits that the
    /// author of a hidden text can choose in an endorsed value.
    pub(crate) fn endorsed_slots(&self, tool: &Tool) -> BTreeMap<String, u32> {
        self.entry(tool).map(|entry| entry.endorsed.clone()).unwrap_or_default()
    }

    /// Returns the arguments of a tool that endorsements are about, each with the greatest number of bits that the
    /// author of a hidden text can choose in an endorsed value; `None` if there is no such bound.
    pub(crate) fn endorsement_bounds(&self, tool: &Tool) -> BTreeMap<String, Option<u32>> {
        self.entry(tool).map(|entry| entry.endorsement_bounds.clone()).unwrap_or_default()
    }

    /// Returns the name by which the model calls a tool.
    pub(crate) fn name_of(&self, tool: &Tool) -> Option<&str> {
        self.entry(tool).map(|entry| entry.name.as_str())
    }

    /// Returns the schema of the arguments of a tool.
    pub(crate) fn schema_of(&self, tool: &Tool) -> Option<&Value> {
        self.entry(tool).map(|entry| &*entry.offered.parameters)
    }

    /// Returns the schema of the answers of a tool, if a view at `label` may show it.
    pub(crate) fn output_schema(&self, monitor: &Monitor, label: &Label, tool: &Tool) -> Option<&Value> {
        self.entry(tool).filter(|entry| entry.is_visible_at(monitor, label))?.offered.output.as_ref()
    }

    /// Returns the entry of a tool; `None` if the tool is not on offer.
    fn entry(&self, tool: &Tool) -> Option<&CatalogueEntry> {
        self.entries.iter().find(|entry| entry.offered.tool == *tool)
    }
}

impl CatalogueEntry {
    /// Returns whether a view at `label` may show the description of the tool. The operator's descriptions are always
    /// shown.
    fn is_visible_at(&self, monitor: &Monitor, label: &Label) -> bool {
        let description = self.event.and_then(|event| monitor.trace().event(event));
        description.is_none_or(|event| event.label.flows_to(label))
    }

    /// Returns the specification of the tool for the model. With `slots`, the schema of each argument that may be a
    /// slot accepts a slot as well. Parameters that are no JSON object are replaced by the schema of a tool without
    /// arguments.
    pub(crate) fn spec(&self, slots: bool) -> ToolSpec {
        let mut parameters = Arc::clone(&self.offered.parameters);
        if !parameters.is_object() {
            parameters = json!({"type": "object", "properties": {}}).into();
        }
        let properties = parameters.get("properties").and_then(Value::as_object);
        let has = |argument: &String| properties.is_some_and(|properties| properties.contains_key(argument));
        if slots && self.slots.iter().any(has) {
            let properties = Arc::make_mut(&mut parameters).get_mut("properties");
            if let Some(properties) = properties.and_then(Value::as_object_mut) {
                self.add_slot_schemas(properties);
            }
        }
        ToolSpec { name: self.name.clone(), description: self.offered.description.clone(), parameters }
    }

    /// Lets each argument that may be a slot also accept a slot. `properties` are the schemas of the arguments by name.
    fn add_slot_schemas(&self, properties: &mut Map<String, Value>) {
        for argument in &self.slots {
            if let Some(schema) = properties.get_mut(argument) {
                *schema = json!({"anyOf": [schema.take(), slot::slot_schema()]});
            }
        }
    }
}

/// Returns a name by which the model can call a tool: one that providers accept and that is not in `taken`. The name is
/// `server__tool`, or `tool` for a tool without a server. It ends in a digest of server and tool in three cases: if
/// server and tool could not be read from the name without the digest, if the name would be `look`, or if it is too
/// long.
///
/// The name depends on the tool alone, since a tool that is hidden at some label must not influence the names of
/// others. Only if two tools nevertheless have the same name, the later one receives a number.
fn unique_name(tool: &Tool, taken: &HashSet<String>) -> String {
    // Replaces the characters that a provider may not accept.
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
    };
    // A server and a tool are joined by `__`, so neither may contain it, nor have an underscore next to it.
    let is_plain = |text: &str| *text == plain(text) && !text.contains("__") && !text.starts_with('_');
    // `is_unchanged` is whether server and tool can be read from the name.
    let (mut name, is_unchanged) = match &tool.server {
        Some(server) => {
            let is_unchanged = is_plain(server) && is_plain(&tool.name) && !server.ends_with('_');
            (format!("{}__{}", plain(server), plain(&tool.name)), is_unchanged)
        }
        // `look` is the name of Flowgate's own tool.
        None => (plain(&tool.name), is_plain(&tool.name) && *tool.name != *slot::LOOK),
    };
    if !is_unchanged || name.len() > MAX_NAME {
        let identity = format!("{:?}", (&tool.server, &tool.name));
        let digest = Sha256::digest(identity.as_bytes());
        let mark: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        name.truncate(MAX_NAME - mark.len() - 1);
        name = format!("{name}_{mark}");
    }
    // The first name that is not taken: the name itself, or the name, cut to fit, with the number 2, 3 and so on.
    let mut free = name.clone();
    for number in 2_usize.. {
        if !taken.contains(&free) {
            break;
        }
        let suffix = format!("_{number}");
        name.truncate(MAX_NAME - suffix.len());
        free = format!("{name}{suffix}");
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: the server, the tool, and the name for the model. A digest follows an expected name that ends in `_`.
    #[test]
    fn names_are_what_providers_accept_and_follow_from_the_tool_alone() {
        for (server, name, expected) in [
            (Some("bank"), "send_money", "bank__send_money"),
            (Some("bank"), "send.money", "bank__send_money_"),
            (Some("a"), "b__c", "a__b__c_"),
            (Some("a__b"), "c", "a__b__c_"),
            (None, "a__b", "a__b_"),
            (None, "bänk send", "b_nk_send_"),
            (None, "look", "look_"),
            (None, "find", "find"),
        ] {
            let tool = server.map_or(Tool::local(name), |server| Tool::of(server, name));
            let free = unique_name(&tool, &HashSet::new());
            let mark = free.strip_prefix(expected).unwrap_or_else(|| panic!("{free}"));
            assert_eq!(mark.len(), if expected.ends_with('_') { 8 } else { 0 }, "{free}");
        }
        let long =
            |last: &str| unique_name(&Tool::local(&format!("{}{last}", "x".repeat(100))), &HashSet::new());
        assert_eq!(long("a").len(), MAX_NAME);
        assert_ne!(long("a"), long("b"));
    }
}
