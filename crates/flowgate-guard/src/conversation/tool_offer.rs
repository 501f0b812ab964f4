//! Owns the tools on offer in a conversation, as a [catalogue](crate::catalogue). Agents send the same tools with every
//! message, so this module also recognises an offer that equals the last one and changes nothing. A
//! [conversation](super::Conversation) creates the offer, and replaces it when its caller offers other tools.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Monitor, PushError};
use flowgate::trace::Tool;
use serde_json::Value;

use crate::catalogue::{Catalogue, DescriptionAuthor, OfferedTool};

/// The tools on offer.
#[derive(Debug)]
pub(super) struct ToolOffer {
    catalogue: Catalogue,
    /// The tools that were passed to [`replace`](Self::replace) last, by which the same offer is recognised; `None`
    /// before the first call, or if the session had no room for their descriptions.
    accepted: Option<Vec<Arc<OfferedTool>>>,
}

impl ToolOffer {
    /// Creates the offer that a conversation begins with.
    ///
    /// # Errors
    /// If the session has no room for the descriptions.
    pub(super) fn new(monitor: &mut Monitor, tools: Vec<OfferedTool>) -> Result<Self, PushError> {
        let catalogue = Catalogue::new(monitor, tools.into_iter().map(Arc::new).collect())?;
        // Without accepted tools, the first offer of the caller never counts as a repetition.
        Ok(Self { catalogue, accepted: None })
    }

    /// Returns the catalogue of the tools, with the names by which the model calls them and the events of their
    /// descriptions.
    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Returns the strictest requirement of the tools on offer.
    pub(super) fn strictest_requirement(&self, monitor: &Monitor) -> Label {
        monitor.strictest_requirement(self.catalogue.tools())
    }

    /// Returns whether exactly these tools were offered last, so that the offer changes nothing.
    pub(super) fn is_same(&self, tools: &[OfferedTool]) -> bool {
        self.accepted.as_ref().is_some_and(|offered| offered.iter().map(Arc::as_ref).eq(tools))
    }

    /// Returns whether exactly these tools were offered last, each with this description and schema of its arguments,
    /// with a server as the author and without a schema of its answers. Saves the caller from building the offer to
    /// compare it.
    pub(super) fn is_described<'a>(
        &self,
        tools: impl ExactSizeIterator<Item = (Tool, &'a str, &'a Value)>,
    ) -> bool {
        let Some(offered) = &self.accepted else { return false };
        offered.len() == tools.len()
            && offered.iter().zip(tools).all(|(last, (tool, description, parameters))| {
                (&last.tool, last.description.as_str(), &*last.parameters) == (&tool, description, parameters)
                    && last.output.is_none()
                    && last.words == DescriptionAuthor::Server
            })
    }

    /// Returns the tool with this identity as it was offered last; `None` if it was not.
    pub(super) fn offered(&self, tool: &Tool) -> Option<&OfferedTool> {
        self.accepted.as_ref()?.iter().map(|offered| &**offered).find(|offered| offered.tool == *tool)
    }

    /// Replaces the offer.
    ///
    /// # Errors
    /// If the session has no room for the descriptions. The offer is then not recognised when it is repeated.
    pub(super) fn replace(
        &mut self,
        monitor: &mut Monitor,
        tools: Vec<OfferedTool>,
    ) -> Result<(), PushError> {
        self.accepted = None;
        let tools: Vec<Arc<OfferedTool>> = tools.into_iter().map(Arc::new).collect();
        self.catalogue.update(monitor, tools.clone())?;
        self.accepted = Some(tools);
        Ok(())
    }
}
