//! Arguments whose value decides where something goes, or what runs: the words in their names, and what a stranger gains
//! by choosing the value.
//!
//! `endorse` refuses such an argument, since any address has the form of an address, an attacker's too. `payload` warns of
//! it, since it lifts the requirement on integrity whatever the value is.

/// What a stranger gains by choosing the value of an argument.
const RECIPIENT: &str = "the recipient, and can name an address of its own";
const ACCOUNT: &str = "the account that is used, and can name its own";
const PLACE: &str =
    "what is fetched, read or overwritten, and can name an address of its own with your data in it";
const CODE: &str = "what is executed";
const CREDENTIAL: &str = "a credential that it then knows";

/// Words in the names of arguments, each with what a stranger gains.
const WORDS: &[(&str, &str)] = &[
    ("recipient", RECIPIENT),
    ("to", RECIPIENT),
    ("cc", RECIPIENT),
    ("bcc", RECIPIENT),
    ("account", ACCOUNT),
    ("iban", ACCOUNT),
    ("url", PLACE),
    ("uri", PLACE),
    ("host", PLACE),
    ("path", PLACE),
    ("code", CODE),
    ("command", CODE),
    ("email", RECIPIENT),
    ("address", RECIPIENT),
    ("user", RECIPIENT),
    ("channel", RECIPIENT),
    ("file", PLACE),
    ("password", CREDENTIAL),
    ("payee", ACCOUNT),
    ("destination", RECIPIENT),
    ("dest", RECIPIENT),
    ("beneficiary", ACCOUNT),
    ("receiver", RECIPIENT),
    ("target", RECIPIENT),
    ("phone", RECIPIENT),
    ("wallet", ACCOUNT),
    ("webhook", PLACE),
    ("endpoint", PLACE),
    ("link", PLACE),
    ("href", PLACE),
    ("domain", PLACE),
    ("server", PLACE),
    ("attendee", RECIPIENT),
    ("participant", RECIPIENT),
    ("member", RECIPIENT),
    ("sql", CODE),
    ("script", CODE),
    ("query", CODE),
    ("passphrase", CREDENTIAL),
    ("credential", CREDENTIAL),
    ("secret", CREDENTIAL),
];

/// Last words of the names of arguments that hold what is said, such as `email_body` and `user_message`.
const CONTENT: &[&str] =
    &["body", "comment", "content", "description", "message", "note", "subject", "summary", "text", "title"];

/// A word in the name of an argument, and what a stranger gains by choosing the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SensitiveWord {
    /// The word as the name spells it, in lower case.
    pub(crate) word: String,
    /// The completion of "the author of the value chooses ...".
    pub(crate) gain: &'static str,
}

/// Returns the first word of an argument's name that says that its value decides where something goes or what runs.
pub(crate) fn sensitive_word(name: &str) -> Option<SensitiveWord> {
    name_words(name).into_iter().find_map(|word| {
        let singular = word.trim_end_matches('s');
        // `userid` and `filename` are two words without a separator.
        let glued = |known: &str| known.len() > 3 && (word.starts_with(known) || word.ends_with(known));
        let is_it = |known: &str| known == word || known == singular || glued(known);
        let found = WORDS.iter().find(|(known, _)| is_it(known)).map(|(_, gain)| *gain);
        found.map(|gain| SensitiveWord { word, gain })
    })
}

/// What the value of an argument is for, judged by the argument's name.
///
/// It is exhaustive on purpose: a program that gives advice about an argument must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentUse {
    /// It decides where something goes or what runs. The text completes the sentence "the author of the value chooses ...".
    Decides(&'static str),
    /// It holds what is said, such as the body of a mail.
    Content,
    /// The name says neither.
    Other,
}

/// Returns what the value of an argument is for, judged by the argument's name: `recipient`, `file_path`, `email_body`.
pub fn argument_use(name: &str) -> ArgumentUse {
    let words = name_words(name);
    if words.iter().rfind(|word| !word.is_empty()).is_some_and(|last| CONTENT.contains(&last.as_str())) {
        return ArgumentUse::Content;
    }
    sensitive_word(name).map_or(ArgumentUse::Other, |found| ArgumentUse::Decides(found.gain))
}

/// Returns the words of a name in snake, kebab or camel case, in lower case.
fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_names() {
        for (name, word, is_content) in [
            ("to", Some("to"), false),
            ("recipients", Some("recipients"), false),
            ("accountNumber", Some("account"), false),
            ("user-id", Some("user"), false),
            ("filename", Some("filename"), false),
            ("mail.cc", Some("cc"), false),
            ("email_body", Some("email"), true),
            ("userMessage", Some("user"), true),
            ("body", None, true),
            ("amount", None, false),
            ("day", None, false),
        ] {
            let found = sensitive_word(name).map(|found| found.word);
            assert_eq!(found.as_deref(), word, "{name}");
            let expected = match word {
                _ if is_content => ArgumentUse::Content,
                None => ArgumentUse::Other,
                Some(_) => ArgumentUse::Decides(sensitive_word(name).unwrap().gain),
            };
            assert_eq!(argument_use(name), expected, "{name}");
        }
    }
}
