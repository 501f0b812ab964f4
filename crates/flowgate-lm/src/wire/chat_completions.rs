//! Encodes and decodes OpenAI's Chat Completions, which nearly every server of local models also supports.
//!
//! Limits of the format, and of this module:
//!
//! * A tool output cannot be marked as an error: its content is sent as it is.
//! * The text of the model's reasoning is neither encoded nor decoded.
//! * The token limit is sent as `max_completion_tokens`, unless the client selects the older name `max_tokens`.

mod fields;
mod request;
mod request_decoder;
mod response;
mod stream;

pub(super) use fields::OBJECTS;
#[cfg(feature = "remote")]
pub(crate) use request::OLD_LIMIT;
pub use request::encode_request;
pub(crate) use request::{LIMIT, SentRequest};
pub use request_decoder::{decode_messages, decode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
