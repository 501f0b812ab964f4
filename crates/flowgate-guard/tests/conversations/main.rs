//! Conversations with a scripted model: what it is shown, what runs, what is asked; and attacks on all of that.

#![expect(clippy::unwrap_used, reason = "tests")]

mod ambiguous;
mod attacks;
mod concealed;
mod endpoints;
mod handed;
mod histories;
mod links;
mod memory;
mod placeholders;
mod quotations;
mod quotations_disguised;
mod screeners;
mod script;
mod streamed;
mod turns;
