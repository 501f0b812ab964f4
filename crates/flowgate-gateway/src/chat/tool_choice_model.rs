//! Applies the `tool_choice` of a client's request to the first message that the model writes in a turn. The choice
//! says whether the model must call a tool, and which one. It does not apply to later messages of the turn: they follow
//! a denied call, and may have to explain the denial in text. `turn` wraps its model in a [`ToolChoiceModel`].

use std::sync::atomic::{AtomicBool, Ordering};

use flowgate_lm::chat::{Completion, Request, ToolChoice};
use flowgate_lm::{BoxFuture, ChatModel, Error, Listener};

/// A model to whose first request of a turn the client's `tool_choice` applies.
pub(super) struct ToolChoiceModel<'a> {
    model: &'a dyn ChatModel,
    choice: &'a ToolChoice,
    /// Whether no request was sent to the model yet.
    is_first: AtomicBool,
}

impl<'a> ToolChoiceModel<'a> {
    /// Applies `choice` to the first request to `model`.
    pub(super) fn new(model: &'a dyn ChatModel, choice: &'a ToolChoice) -> Self {
        Self { model, choice, is_first: AtomicBool::new(true) }
    }
}

impl ChatModel for ToolChoiceModel<'_> {
    /// Returns the name of the wrapped model.
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Queries the model. The request for the first message of the turn gets the client's tool choice, if the tool of
    /// the choice is on offer. All other requests stay unchanged.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        // A provider may refuse a choice of a tool that the request does not offer.
        let is_choice_possible = match self.choice {
            ToolChoice::Tool(name) => request.tools.iter().any(|tool| tool.name == *name),
            ToolChoice::Any => !request.tools.is_empty(),
            ToolChoice::Auto | ToolChoice::None => true,
        };
        // The choice applies to the first message only: a later message follows a denied call, and may have to explain
        // the denial in text. A request that has the choice already need not be copied.
        if !self.is_first.swap(false, Ordering::Relaxed)
            || !is_choice_possible
            || request.choice == *self.choice
        {
            return self.model.complete(request, listener);
        }
        let request = Request { choice: self.choice.clone(), ..request.clone() };
        Box::pin(async move { self.model.complete(&request, listener).await })
    }
}
