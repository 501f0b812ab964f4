//! Guesses the role of an argument from its name ([`suggested_role`]). The compiler uses the guess where the policy
//! declares no role, and so do questions to a person, the draft of a policy, and the advice of `flowgate explain`.
//!
//! Some words suggest a role wherever they are in a name (`WORDS`), such as `recipient` and `url`. Ambiguous words do
//! so only as the last word of a name, which says what the value is ([`role_of_last_word`]): `file_id` is an id, but
//! `id_card` is not; a `token` is a credential, but `max_tokens` is a count. A last word such as `body` makes the
//! argument content, whatever words precede it.
//!
//! Words such as `value`, `rate` and `reference` suggest no role, since they mean something harmless as often. Only
//! [`cautious_role`] considers them. `location` suggests no role at all: it is the place of a meeting as often as that
//! of a file.

use super::argument_role::ArgumentRole;

/// Words in the names of arguments, each with the role that it suggests.
const WORDS: &[(&str, ArgumentRole)] = &[
    ("recipient", ArgumentRole::Recipient),
    ("to", ArgumentRole::Recipient),
    ("cc", ArgumentRole::Recipient),
    ("bcc", ArgumentRole::Recipient),
    ("account", ArgumentRole::Account),
    ("iban", ArgumentRole::Account),
    ("url", ArgumentRole::Url),
    ("uri", ArgumentRole::Url),
    ("host", ArgumentRole::Url),
    ("path", ArgumentRole::Path),
    ("code", ArgumentRole::Code),
    ("command", ArgumentRole::Code),
    ("email", ArgumentRole::Recipient),
    ("address", ArgumentRole::Recipient),
    ("user", ArgumentRole::Recipient),
    ("channel", ArgumentRole::Recipient),
    ("file", ArgumentRole::Path),
    ("password", ArgumentRole::Credential),
    ("payee", ArgumentRole::Account),
    ("destination", ArgumentRole::Recipient),
    ("dest", ArgumentRole::Recipient),
    ("beneficiary", ArgumentRole::Account),
    ("receiver", ArgumentRole::Recipient),
    ("target", ArgumentRole::Recipient),
    ("phone", ArgumentRole::Recipient),
    ("wallet", ArgumentRole::Account),
    ("webhook", ArgumentRole::Url),
    ("endpoint", ArgumentRole::Url),
    ("link", ArgumentRole::Url),
    ("href", ArgumentRole::Url),
    ("domain", ArgumentRole::Url),
    ("server", ArgumentRole::Url),
    ("attendee", ArgumentRole::Recipient),
    ("participant", ArgumentRole::Recipient),
    ("member", ArgumentRole::Recipient),
    ("sql", ArgumentRole::Code),
    ("script", ArgumentRole::Code),
    ("query", ArgumentRole::Code),
    ("passphrase", ArgumentRole::Credential),
    ("credential", ArgumentRole::Credential),
    ("secret", ArgumentRole::Credential),
];

/// Last words of the names of arguments that contain what is said, such as `email_body` and `user_message`.
const CONTENT: &[&str] =
    &["body", "comment", "content", "description", "message", "note", "subject", "summary", "text", "title"];

/// Last words of names that contain what is said, if no other word suggests a role.
const FORMATTED_CONTENT: &[&str] = &["caption", "html", "markdown"];

/// Words before `key` in the name of a key that opens something. Any other key selects an object, such as the key of a
/// row.
const SECRET_KEYS: &[&str] =
    &["access", "api", "auth", "encryption", "master", "private", "security", "signing", "ssh"];

/// Words before `token` in the name of a token that only says where to continue a list, and opens nothing.
const LIST_TOKENS: &[&str] = &["continuation", "next", "page", "pagination", "sync"];

/// Words that make a name a count if they are its first word and a plural is its last, such as `num_guests`.
const COUNTS: &[&str] = &["max", "min", "n", "num", "number"];

/// Words, anywhere in a name, that often mean a sum of money, but not often enough for [`suggested_role`]. Only
/// [`cautious_role`] considers them.
const POSSIBLE_AMOUNTS: &[&str] =
    &["amount", "balance", "cost", "fee", "money", "payment", "price", "rate", "sum", "total", "value"];

/// Last words of names that often select an object, but not often enough for [`suggested_role`]. Only [`cautious_role`]
/// considers them.
const POSSIBLE_SELECTORS: &[&str] = &["index", "no", "ref", "reference"];

/// Returns the role that an argument's name suggests: `recipient`, `file_path`, `email_body`. `None` if it suggests
/// none.
pub fn suggested_role(name: &str) -> Option<ArgumentRole> {
    let words = name_words(name);
    let is_last = |known: &[&str]| words.last().is_some_and(|last| known.contains(&last.as_str()));
    // The last word of an English compound says what the value is: an `email_body` is a body, not an address.
    if is_last(CONTENT) {
        return Some(ArgumentRole::Content);
    }
    let decisive = decisive_word(name).map(|(role, _)| role);
    decisive.or_else(|| is_last(FORMATTED_CONTENT).then_some(ArgumentRole::Content))
}

/// Returns the role that an argument may have, for advice that must not overlook an argument that decides something:
/// the role that its name suggests or, if there is none, the role that an ambiguous word such as `value` in the name
/// may mean. The role is never content, which decides nothing. `None` if the name has no such word.
pub fn cautious_role(name: &str) -> Option<ArgumentRole> {
    let words = name_words(name);
    let suggested = suggested_role(name).filter(|role| role.gain().is_some());
    let is_amount = || words.iter().any(|word| POSSIBLE_AMOUNTS.contains(&word.as_str()));
    let is_selector = || words.last().is_some_and(|last| POSSIBLE_SELECTORS.contains(&last.as_str()));
    suggested
        .or_else(|| is_amount().then_some(ArgumentRole::Amount))
        .or_else(|| is_selector().then_some(ArgumentRole::Selector))
}

/// Returns the role that a word of an argument's name suggests, and this word in lower case; `None` if no word suggests
/// a role. The role is never content: unlike [`suggested_role`], this function ignores a last word such as `body`. So
/// `recipient_text` counts as a recipient in the checks of `endorse`, which must not miss a destination.
pub(super) fn decisive_word(name: &str) -> Option<(ArgumentRole, String)> {
    let words = name_words(name);
    let anywhere = words.iter().find_map(|word| {
        let singular = word.trim_end_matches('s');
        // `userid` and `filename` are two words without a separator, so a word that begins or ends with a known one
        // counts, too. Known words of up to three letters, such as `to`, begin too many unrelated words for this.
        let is_joined = |known: &str| known.len() > 3 && (word.starts_with(known) || word.ends_with(known));
        let is_known = |known: &str| known == word || known == singular || is_joined(known);
        let role = WORDS.iter().find(|(known, _)| is_known(known)).map(|(_, role)| *role);
        role.map(|role| (role, word.clone()))
    });
    anywhere.or_else(|| Some((role_of_last_word(&words)?, words.last()?.clone())))
}

/// Returns the role that the last word of a name suggests, for the words that suggest a role only in this position.
/// `words` are all words of the name. The role is never content.
fn role_of_last_word(words: &[String]) -> Option<ArgumentRole> {
    let (last, before) = words.split_last()?;
    // Whether the last word follows one of these words.
    let follows = |known: &[&str]| before.last().is_some_and(|word| known.contains(&word.as_str()));
    // A plural after a word such as `num` is a number of things.
    let is_count = last.ends_with('s') && before.first().is_some_and(|word| COUNTS.contains(&word.as_str()));
    if is_count {
        return None;
    }
    Some(match last.as_str() {
        "guest" | "guests" | "invitee" | "invitees" => ArgumentRole::Recipient,
        "amount" | "amounts" | "balance" | "cost" | "costs" | "fee" | "fees" | "money" | "price"
        | "prices" | "qty" | "quantities" | "quantity" | "sum" | "total" => ArgumentRole::Amount,
        "attachment" | "attachments" | "dir" | "directories" | "directory" | "dirs" | "folder"
        | "folders" => ArgumentRole::Path,
        "cmd" | "cmds" | "expression" | "expressions" => ArgumentRole::Code,
        "key" | "keys" if follows(SECRET_KEYS) => ArgumentRole::Credential,
        "token" if follows(LIST_TOKENS) => return None,
        // The plural `tokens` is not in the list: it is a count, such as that of the tokens of a model.
        "apikey" | "otp" | "passwd" | "pin" | "pwd" | "token" => ArgumentRole::Credential,
        "guid" | "guids" | "id" | "ids" | "key" | "keys" | "number" | "numbers" | "uuid" | "uuids" => {
            ArgumentRole::Selector
        }
        _ => return None,
    })
}

/// Returns the words of a name in snake, kebab or camel case, in lower case: `file_path`, `file-path` and `filePath`
/// give `file` and `path`. Capital letters in a row are one word, except that the last of them begins the next word if
/// small letters follow it: `userID` gives `user` and `id`, and `HTTPServer` gives `http` and `server`. The `s` of a
/// plural begins no word: `userIDs` gives `user` and `ids`.
pub fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_capital = false;
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        let mut following = rest.clone();
        let next_is_small = following.next().is_some_and(char::is_lowercase);
        // Whether the `s` of a plural follows, as after the `D` of `IDs`: the capital letter then begins no word.
        let is_plural = rest.clone().next() == Some('s') && !following.next().is_some_and(char::is_lowercase);
        let begins_word = c.is_uppercase() && (!was_capital || (next_is_small && !is_plural));
        if !c.is_alphanumeric() || begins_word {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_capital = c.is_uppercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suggest_roles() {
        use ArgumentRole::{Account, Amount, Code, Content, Credential, Path, Recipient, Selector, Url};
        for (name, word, role) in [
            ("to", Some("to"), Some(Recipient)),
            ("recipients", Some("recipients"), Some(Recipient)),
            ("accountNumber", Some("account"), Some(Account)),
            ("user-id", Some("user"), Some(Recipient)),
            ("filename", Some("filename"), Some(Path)),
            ("source_url", Some("url"), Some(Url)),
            ("mail.cc", Some("cc"), Some(Recipient)),
            // The last word says that the value is content; `decisive_word` ignores that.
            ("email_body", Some("email"), Some(Content)),
            ("userMessage", Some("user"), Some(Content)),
            ("body", None, Some(Content)),
            ("html", None, Some(Content)),
            ("page_markdown", None, Some(Content)),
            ("url_html", Some("url"), Some(Url)),
            // Amounts.
            ("amount", Some("amount"), Some(Amount)),
            ("max_price", Some("price"), Some(Amount)),
            ("quantity", Some("quantity"), Some(Amount)),
            ("payment.total", Some("total"), Some(Amount)),
            ("amount_to_pay", Some("to"), Some(Recipient)),
            ("total_pages", None, None),
            // Ids, keys and numbers.
            ("event_id", Some("id"), Some(Selector)),
            ("eventID", Some("id"), Some(Selector)),
            ("messageIds", Some("ids"), Some(Selector)),
            ("message_id", Some("id"), Some(Selector)),
            ("card_number", Some("number"), Some(Selector)),
            ("key", Some("key"), Some(Selector)),
            ("partition_key", Some("key"), Some(Selector)),
            ("id_card", None, None),
            ("key_word", None, None),
            ("number_of_rooms", None, None),
            // Credentials.
            ("api_key", Some("key"), Some(Credential)),
            ("sshKeys", Some("keys"), Some(Credential)),
            ("apikey", Some("apikey"), Some(Credential)),
            ("token", Some("token"), Some(Credential)),
            ("accessToken", Some("token"), Some(Credential)),
            ("tokens", None, None),
            ("max_tokens", None, None),
            ("pageToken", None, None),
            ("token_count", None, None),
            ("otp", Some("otp"), Some(Credential)),
            ("pin", Some("pin"), Some(Credential)),
            ("pinned", None, None),
            // Commands.
            ("cmd", Some("cmd"), Some(Code)),
            ("expression", Some("expression"), Some(Code)),
            // Files.
            ("attachments", Some("attachments"), Some(Path)),
            ("folder", Some("folder"), Some(Path)),
            ("parentFolder", Some("folder"), Some(Path)),
            ("working_directory", Some("directory"), Some(Path)),
            ("directory_tree", None, None),
            ("max_attachments", None, None),
            // Guests.
            ("guests", Some("guests"), Some(Recipient)),
            ("invitees", Some("invitees"), Some(Recipient)),
            ("num_guests", None, None),
            ("numberOfGuests", None, None),
            ("guest_count", None, None),
            // Words that are too ambiguous.
            ("value", None, None),
            ("rate", None, None),
            ("reference", None, None),
            ("location", None, None),
            ("count", None, None),
            ("day", None, None),
            ("", None, None),
        ] {
            let found = decisive_word(name);
            assert_eq!(found.as_ref().map(|(_, word)| word.as_str()), word, "{name}");
            assert_eq!(suggested_role(name), role, "{name}");
            // Unless the name is that of a content, the word is the reason for the role.
            if role != Some(Content) {
                assert_eq!(found.map(|(role, _)| role), role, "{name}");
            }
        }
    }

    #[test]
    fn advice_considers_ambiguous_words() {
        use ArgumentRole::{Amount, Credential, Recipient, Selector};
        for (name, expected) in [
            ("to", Some(Recipient)),
            ("token", Some(Credential)),
            ("value", Some(Amount)),
            ("hourly_rate", Some(Amount)),
            ("amount_usd", Some(Amount)),
            ("payment_note", Some(Amount)),
            ("id_", Some(Selector)),
            ("issue_no", Some(Selector)),
            ("reference", Some(Selector)),
            ("reference_text", None),
            ("email_body", None),
            ("day", None),
        ] {
            assert_eq!(cautious_role(name), expected, "{name}");
        }
    }

    #[test]
    fn names_have_words() {
        for (name, words) in [
            ("file_path", "file path"),
            ("file-path", "file path"),
            ("filePath", "file path"),
            ("FilePath", "file path"),
            ("userID", "user id"),
            ("userIDs", "user ids"),
            ("IDs_of_users", "ids of users"),
            ("HTTPServer", "http server"),
            ("getAMail", "get a mail"),
            ("isAString", "is a string"),
            ("API_KEY", "api key"),
            ("S3Bucket", "s3 bucket"),
            ("id_", "id"),
            ("ÜberID", "über id"),
            ("__", ""),
            ("", ""),
        ] {
            assert_eq!(name_words(name).join(" "), words, "{name}");
        }
    }
}
