//! Anthropic's messages.
//!
//! What stands elsewhere in this form:
//!
//! * System messages at the beginning go to `system`, one block for each part. A later one goes as the user's text, in its
//!   place: only some models take system messages there, and after some turns only, and text must not gain authority on its
//!   way. So does one that has an image. Later system messages are read as what they are.
//! * Answers of tools that follow each other are one message of the user's.
//! * The arguments of a call are an object. What a model wrote that is none goes under `unparsed`; what is read is
//!   printed again, so that spaces are lost, but for streams, where the text is the model's.
//! * The most tokens must be said: [`MAX_TOKENS`], if nobody does.
//! * There is no seed.

mod asked;
mod request;
mod response;
mod stream;

pub use asked::decode_request;
pub use request::{MAX_TOKENS, encode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
