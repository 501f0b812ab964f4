//! Owns the step in progress of a [conversation](super::Conversation): the view that the model was shown and has not
//! answered yet. A step can rewrite a *draft*, a message that the model wrote with everything in view. This module then
//! also owns the draft, because the conversation may accept it instead of its rewrite.
//!
//! The conversation stores the view here when it shows it, and removes it when the model's message arrives. Invariant:
//! a step is in progress exactly while there is a view. Whatever ends a turn clears the view and the draft.

use flowgate_lm::chat::Completion;

use crate::view::View;

/// The step in progress.
#[derive(Debug, Default)]
pub(super) struct PendingStep {
    view: Option<View>,
    /// Whether the step is a draft that may be rewritten.
    is_draft: bool,
    /// The draft that the step rewrites from a view at a lower label: the view of the draft, and its message.
    rewritten: Option<(View, Completion)>,
}

impl PendingStep {
    /// Returns the view that the model was shown and has not answered; `None` if no step is in progress.
    pub(super) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Starts a step from this view.
    pub(super) fn show(&mut self, view: View) {
        self.view = Some(view);
    }

    /// Takes the view, to which the model has written its message.
    pub(super) fn take_view(&mut self) -> Option<View> {
        self.view.take()
    }

    /// Declares whether the next step is a draft.
    pub(super) fn set_draft(&mut self, is_draft: bool) {
        self.is_draft = is_draft;
    }

    /// Returns whether the step is a draft, and removes that mark.
    pub(super) fn take_is_draft(&mut self) -> bool {
        std::mem::take(&mut self.is_draft)
    }

    /// Stores the draft that the next step rewrites: its view, and the message of the model.
    pub(super) fn keep_draft(&mut self, view: View, completion: Completion) {
        self.rewritten = Some((view, completion));
    }

    /// Takes the draft that the step rewrites.
    pub(super) fn take_draft(&mut self) -> Option<(View, Completion)> {
        self.rewritten.take()
    }

    /// Returns whether the next message of the model certainly becomes the step: it is no draft, which may have to be
    /// rewritten, and it rewrites no draft, which may be accepted in its place.
    pub(super) fn is_final(&self) -> bool {
        !self.is_draft && self.rewritten.is_none()
    }

    /// Drops the step.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
