//! OpenAI's responses.
//!
//! The whole chat is sent with each request, and nothing is to be kept: `store` is false, and what a server has kept
//! (`previous_response_id`, `conversation`, references to items) cannot be asked for. Text and calls are items of their
//! own here; calls belong to what the model said before them. There are no texts that end a message, and no seed; a tool's
//! answer cannot say that it is an error: its content goes as it is.

mod request;
mod response;
mod stream;

pub use request::{decode_request, encode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
