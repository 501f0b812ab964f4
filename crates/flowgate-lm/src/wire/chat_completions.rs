//! OpenAI's chat completions, which nearly every server of local models has too.
//!
//! A tool's answer cannot say that it is an error: its content goes as it is. The most tokens are asked for as
//! `max_completion_tokens`; servers that know only the older `max_tokens` are the business of whoever sends.

mod request;
mod response;
mod stream;

pub(crate) use request::{LIMIT, OLD_LIMIT, Sent};
pub use request::{decode_messages, decode_request, encode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
