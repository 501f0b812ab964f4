//! Defines the roles of arguments: what the value of an argument is for, such as a recipient, an amount, or the words
//! of a mail.
//!
//! A policy declares the role of an argument with `role`; otherwise the argument's name suggests it. The role
//! determines how statements about the argument are checked. For every role except amount and content, `endorse` needs
//! the allowed values, such as `in [...]`: a test of the form is not enough, since an attacker's address has the form
//! of an address as well. For every role except content, `payload` is reported as a warning, since it lifts the
//! integrity requirement whatever the value is. The text of an approval request also depends on the role.

use std::fmt;

/// What the value of an argument is for.
///
/// It is exhaustive on purpose: a program that gives advice about an argument must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArgumentRole {
    /// Who receives something.
    Recipient,
    /// The account that is used or paid to.
    Account,
    /// How much is paid, ordered or changed.
    Amount,
    /// An address that is opened or fetched.
    Url,
    /// A file or folder that is read or written.
    Path,
    /// What is executed: a program, a command, a query.
    Code,
    /// A password or a key.
    Credential,
    /// Which existing object is changed, sent or deleted, such as the id of a file.
    Selector,
    /// What is said, such as the body of a mail.
    Content,
}

impl ArgumentRole {
    /// All roles.
    pub const ALL: [Self; 9] = [
        Self::Recipient,
        Self::Account,
        Self::Amount,
        Self::Url,
        Self::Path,
        Self::Code,
        Self::Credential,
        Self::Selector,
        Self::Content,
    ];

    /// Returns the name of the role in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recipient => "recipient",
            Self::Account => "account",
            Self::Amount => "amount",
            Self::Url => "url",
            Self::Path => "path",
            Self::Code => "code",
            Self::Credential => "credential",
            Self::Selector => "selector",
            Self::Content => "content",
        }
    }

    /// Returns the role that a policy names, such as `recipient`; `None` if there is no role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Returns what an attacker gains by writing the value, for warnings and approval requests. The text completes the
    /// sentence "the author of the value chooses ...". `None` for content, which decides nothing.
    pub fn gain(self) -> Option<&'static str> {
        match self {
            Self::Recipient => Some("the recipient, and can name an address of its own"),
            Self::Account => Some("the account that is used, and can name its own"),
            Self::Amount => Some("how much is paid, ordered or changed"),
            Self::Url | Self::Path => Some(
                "what is fetched, read or overwritten, and can name an address of its own with your data in it",
            ),
            Self::Code => Some("what is executed"),
            Self::Credential => Some("a credential, and then knows it"),
            Self::Selector => Some("which object is changed, sent or deleted"),
            Self::Content => None,
        }
    }

    /// Returns whether a value of the right form can still be harmful if a party that is not trusted chose it.
    /// `endorse` then needs a list of values.
    pub fn needs_listed_values(self) -> bool {
        !matches!(self, Self::Amount | Self::Content)
    }
}

impl fmt::Display for ArgumentRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

/// Returns the role that an argument's name suggests, and the word of the name that suggests it, in lower case; `None`
/// if the name suggests no role.
pub(crate) fn role_in_name(name: &str) -> Option<(ArgumentRole, String)> {
    let words = name_words(name);
    // The last word of an English compound says what the value is: an `email_body` is a body, not an address.
    if let Some(last) = words.last().filter(|last| CONTENT.contains(&last.as_str())) {
        return Some((ArgumentRole::Content, last.clone()));
    }
    decisive_word(name)
}

/// Returns the role that a word of an argument's name suggests, with the first such word; `None` if no word suggests
/// one. The role is never content: unlike [`role_in_name`], this ignores a last word such as `body`, so that
/// `recipient_text` is still a recipient.
pub(crate) fn decisive_word(name: &str) -> Option<(ArgumentRole, String)> {
    name_words(name).into_iter().find_map(|word| {
        let singular = word.trim_end_matches('s');
        // `userid` and `filename` are two words without a separator. Shorter known words, such as `to`, are the
        // beginning of many unrelated words.
        let is_joined = |known: &str| known.len() > 3 && (word.starts_with(known) || word.ends_with(known));
        let is_known = |known: &str| known == word || known == singular || is_joined(known);
        let role = WORDS.iter().find(|(known, _)| is_known(known)).map(|(_, role)| *role);
        role.map(|role| (role, word))
    })
}

/// Returns the role that an argument's name suggests: `recipient`, `file_path`, `email_body`.
pub fn suggested_role(name: &str) -> Option<ArgumentRole> {
    role_in_name(name).map(|(role, _)| role)
}

/// Returns the words of a name in snake, kebab or camel case, in lower case: `file_path`, `file-path` and `filePath`
/// give `file` and `path`. Each capital letter begins a word, so `userID` gives `user`, `i` and `d`.
pub fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suggest_roles() {
        use ArgumentRole::{Account, Content, Path, Recipient, Url};
        for (name, word, role) in [
            ("to", Some("to"), Some(Recipient)),
            ("recipients", Some("recipients"), Some(Recipient)),
            ("accountNumber", Some("account"), Some(Account)),
            ("user-id", Some("user"), Some(Recipient)),
            ("filename", Some("filename"), Some(Path)),
            ("source_url", Some("url"), Some(Url)),
            ("mail.cc", Some("cc"), Some(Recipient)),
            ("email_body", Some("email"), Some(Content)),
            ("userMessage", Some("user"), Some(Content)),
            ("body", None, Some(Content)),
            ("amount", None, None),
            ("day", None, None),
        ] {
            assert_eq!(decisive_word(name).map(|(_, word)| word).as_deref(), word, "{name}");
            assert_eq!(suggested_role(name), role, "{name}");
        }
    }

    #[test]
    fn roles_have_names() {
        for role in ArgumentRole::ALL {
            assert_eq!(ArgumentRole::from_name(role.name()), Some(role));
            assert_eq!(role.gain().is_none(), role == ArgumentRole::Content, "{role}");
        }
        assert_eq!(ArgumentRole::from_name("receiver"), None);
    }
}
