//! Tests of conversations with a scripted model: its views, the calls that run, the questions, and attacks on each of
//! them.

#![expect(clippy::unwrap_used, reason = "tests")]

mod ambiguous;
mod attacks;
mod beside;
mod concealed;
mod consents;
mod contributions;
mod edited;
mod endorsed_slots;
mod endpoints;
mod external_agent;
mod floating;
mod grants;
mod handed;
mod histories;
mod independent;
mod links;
mod memory;
mod methods;
mod output_formats;
mod placeholders;
mod policy_changes;
mod quotations;
mod quotations_disguised;
mod screeners;
mod script;
mod streamed;
mod turns;
