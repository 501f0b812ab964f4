//! Separates the conversations of each virtual key, and of each caller with a token, from the other conversations of
//! the same client. `chat` and `mcp_proxy` use it to name conversations.
//!
//! Inside the gateway, the name of a conversation of a virtual key begins with the *scope* of the key, `«fgk:ID»`. A
//! client cannot send such a name, since the header with the name is ASCII, and it never sees the scope. The digests of
//! chat prefixes, by which a conversation without a name is found, depend on the scope as well.

use flowgate_guard::history::ChatPrefixDigest;
use sha2::{Digest as _, Sha256};

use crate::random;

/// The text before the id of the key in a scope.
const BEGIN: &str = "«fgk:";
/// The character after the id of the key in a scope.
const END: char = '»';

/// Returns the scope of the conversations of a virtual key, by its id; empty for the client's own key (`None`).
pub(crate) fn scope(key_id: Option<&str>) -> String {
    key_id.map_or_else(String::new, |id| format!("{BEGIN}{id}{END}"))
}

/// Splits the name of a conversation into its scope, which may be empty, and the name that its client knows.
fn split(name: &str) -> (&str, &str) {
    let end = name.strip_prefix(BEGIN).and_then(|rest| rest.find(END));
    name.split_at(end.map_or(0, |end| BEGIN.len() + end + END.len_utf8()))
}

/// Returns the name of a conversation as its client knows it.
pub(crate) fn name_for_client(name: &str) -> &str {
    split(name).1
}

/// Returns the id of the virtual key to which a conversation belongs; `None` if it belongs to the client's own key.
pub(crate) fn key_of(name: &str) -> Option<&str> {
    split(name).0.strip_prefix(BEGIN)?.strip_suffix(END)
}

/// Returns the digest of a chat prefix as the database has it, in hexadecimal. The scope of a virtual key is hashed
/// into it, so that equal chats of different keys have different digests. `name` is the name of the conversation, or
/// only its scope.
pub(crate) fn stored_prefix(name: &str, prefix: &ChatPrefixDigest) -> String {
    match split(name).0 {
        "" => random::hex(prefix),
        scope => random::hex(&Sha256::new().chain_update(scope).chain_update(prefix).finalize()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_scope_and_name() {
        let check = |name: &str, key: Option<&str>, for_client: &str| {
            assert_eq!((key_of(name), name_for_client(name)), (key, for_client), "{name}");
        };
        check("c1", None, "c1");
        check("", None, "");
        check(&(scope(Some("0a1b")) + "c1"), Some("0a1b"), "c1");
        check(&scope(Some("0a1b")), Some("0a1b"), "");
        check(&(scope(None) + "c1"), None, "c1");
        check("«embeddings»", None, "«embeddings»");
        check("«fgk:0a1b»«embeddings»", Some("0a1b"), "«embeddings»");
        check("«fgk:0a1b", None, "«fgk:0a1b");
        check("x«fgk:0a1b»c", None, "x«fgk:0a1b»c");
    }

    #[test]
    fn chats_of_two_scopes_have_different_prefixes() {
        let prefix = ChatPrefixDigest::default();
        let own = stored_prefix("c1", &prefix);
        let [one, other] = ["«fgk:1»c1", "«fgk:2»c1"].map(|name| stored_prefix(name, &prefix));
        assert_eq!(own, random::hex(&prefix));
        assert_eq!(one, stored_prefix("«fgk:1»another", &prefix));
        assert!(own != one && one != other && own != other);
    }
}
