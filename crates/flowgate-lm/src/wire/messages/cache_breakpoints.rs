//! Marks the places in a request of Anthropic's Messages API up to which the server is to cache the request, by the
//! field `cache_control`. `RemoteModel` calls this module if prompt caching is turned on for the model.
//!
//! The server caches a request up to each mark, in the order tools, system, messages. A later request with the same
//! beginning costs less. The marks are at the end of the tools, at the end of the system messages, and at the end of
//! the last two messages of the user. These are four, the most that the format allows.
//!
//! The last two messages have marks because a chat grows at its end. The mark at the last message caches what will be
//! the beginning of the next request; the mark at the message before finds what the previous request has cached.

use serde_json::{Value, json};

use super::super::put;

/// Marks the ends of the tools, of the system messages, and of the last two messages of the user in the body of a
/// request. The body has no marks of the client, since it is encoded from a [`Request`](crate::chat::Request).
pub(crate) fn mark_cache_breakpoints(body: &mut Value) {
    if let Some(tools) = body.get_mut("tools").and_then(Value::as_array_mut) {
        mark_last(tools);
    }
    if let Some(system) = body.get_mut("system") {
        mark_content(system);
    }
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    let of_user = |message: &&mut Value| message.get("role").and_then(Value::as_str) == Some("user");
    // The last two messages of the user; tool outputs are in such messages, too.
    for message in messages.into_iter().flatten().rev().filter(of_user).take(2) {
        if let Some(content) = message.get_mut("content") {
            mark_content(content);
        }
    }
}

/// Marks the last block of a content. A content that is a text is replaced by a list of one block, which can have a
/// mark. An empty text stays unchanged, since the server rejects a mark on it.
fn mark_content(content: &mut Value) {
    if let Value::String(text) = content
        && !text.is_empty()
    {
        *content = json!([{"type": "text", "text": text}]);
    }
    if let Some(blocks) = content.as_array_mut() {
        mark_last(blocks);
    }
}

/// Marks the last item of a list. The server rejects a mark on an empty text, so an item without text gets none.
fn mark_last(items: &mut [Value]) {
    let Some(item) = items.last_mut() else { return };
    if item.get("text").and_then(Value::as_str) != Some("") {
        put(item, "cache_control", json!({"type": "ephemeral"}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `body` becomes `expected` when it is marked.
    fn check(body: Value, expected: &Value) {
        let mut marked = body;
        mark_cache_breakpoints(&mut marked);
        assert_eq!(&marked, expected);
    }

    #[test]
    fn the_ends_of_what_later_requests_repeat_are_marked() {
        let mark = json!({"type": "ephemeral"});
        let user = |text: &str| json!({"role": "user", "content": text});
        let marked_text = |text: &str| json!({"type": "text", "text": text, "cache_control": mark});
        let marked_user = |text: &str| json!({"role": "user", "content": [marked_text(text)]});
        let assistant = json!({"role": "assistant", "content": "b"});
        check(
            json!({
                "tools": [{"name": "x"}, {"name": "y"}],
                "system": [{"type": "text", "text": "s"}, {"type": "text", "text": "t"}],
                "messages": [user("a"), assistant, user("c"), assistant, {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "d"},
                    {"type": "tool_result", "tool_use_id": "2", "content": "e"}]}],
            }),
            &json!({
                "tools": [{"name": "x"}, {"name": "y", "cache_control": mark}],
                "system": [{"type": "text", "text": "s"}, marked_text("t")],
                "messages": [user("a"), assistant, marked_user("c"), assistant, {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "d"},
                    {"type": "tool_result", "tool_use_id": "2", "content": "e", "cache_control": mark}]}],
            }),
        );
        // A text as a whole content, an empty text, and a body without any of the parts.
        check(
            json!({"system": "s", "messages": [user("")]}),
            &json!({"system": [marked_text("s")], "messages": [user("")]}),
        );
        check(json!({"messages": [], "tools": []}), &json!({"messages": [], "tools": []}));
    }
}
