//! Encodes and decodes Anthropic's Messages API.
//!
//! Differences from the other formats:
//!
//! * System messages at the beginning are sent in the field `system`, one block per part. A later one, or one with an
//!   image, is sent at its position as a user's message: only some models accept system messages there, and only after
//!   some turns, and text must not gain authority in transit. When requests are decoded, later system messages stay
//!   system messages.
//! * Consecutive tool outputs form one message of the user.
//! * The arguments of a call are an object. Other arguments are sent in the field `unparsed` of an object.
//!   Decoded arguments are serialised again, which loses their white space, except in streams, which carry the model's
//!   text.
//! * The token limit is mandatory: [`MAX_TOKENS`] by default.
//! * There is no seed.
//! * The model's reasoning is a list of blocks with signatures. It is encoded with its signatures, and decoded from
//!   answers. The reasoning in a client's request is dropped: the server has its own copy.

mod content;
mod fields;
mod request;
mod request_decoder;
mod response;
mod stream;
mod tools;

pub(super) use fields::OBJECTS;
pub use request::{MAX_TOKENS, encode_request};
pub use request_decoder::{decode_count_request, decode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
