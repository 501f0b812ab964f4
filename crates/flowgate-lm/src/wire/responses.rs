//! Encodes and decodes OpenAI's Responses API.
//!
//! The whole chat is sent with each request, and the server stores nothing: `store` is false, and stored state
//! (`previous_response_id`, `conversation`, references to items) cannot be requested. Text and calls are separate
//! items; a call belongs to the preceding message of the model. There are no stop sequences and no seed. A tool output
//! cannot be marked as an error: its content is sent as it is.
//!
//! The model's reasoning is a list of items with encrypted content. It is encoded with this content, and decoded from
//! answers. The reasoning in a client's request is dropped: the server has its own copy.

mod fields;
mod request;
mod request_decoder;
mod response;
mod stream;
mod tools;

pub(super) use fields::OBJECTS;
pub use request::encode_request;
pub use request_decoder::decode_request;
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
