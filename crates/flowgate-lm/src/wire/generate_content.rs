//! Encodes and decodes Gemini's API: `generateContent`, and `streamGenerateContent` for streams.
//!
//! Differences from the other formats:
//!
//! * The address names the model, and whether the answer is streamed ([`Target`]). The body states neither.
//! * System messages at the beginning are sent in the field `systemInstruction`, one part per part. A later one, or one
//!   with an image, is sent at its position as a user's content.
//! * Consecutive tool outputs form one content. An image or a PDF that follows an output in its content belongs to it.
//! * A client may leave out the ids of calls. A call without an id gets one from its position in the chat, and an
//!   output without an id answers the first call of its name that has no answer, so equal chats have equal ids.
//! * The arguments of a call and the output of a tool are objects. Other arguments are sent in the field `unparsed`
//!   of an object; a text is sent in the field `output` or `error` of one. Decoded arguments are serialised again,
//!   which loses their white space, also in streams.
//! * Consecutive contents of the model are one message: some clients store each event of a stream as a content.
//! * A stream has no event that ends it: it ends with the event that states the finish reason.
//! * The model's reasoning consists of parts with the field `thought`. The server's signatures belong to calls or
//!   texts. They are sent back at the same call. The reasoning in a client's request is dropped: the server has its
//!   own copy.

mod content;
mod fields;
mod request;
mod request_decoder;
mod response;
mod schema;
mod stream;
mod target;
mod tools;

pub use content::CALL_ID;
pub(super) use fields::OBJECTS;
pub use request::encode_request;
pub use request_decoder::{decode_count_request, decode_request};
pub use response::{decode_response, encode_response};
pub use stream::{StreamDecoder, encode_stream};
pub(super) use target::path;
pub use target::{Method, Target};
