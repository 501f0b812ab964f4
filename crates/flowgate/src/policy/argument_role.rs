//! Defines the roles of arguments: what the value of an argument is for, such as a recipient, an amount, or the words
//! of a mail.
//!
//! A policy declares the role of an argument with `role`; otherwise the argument's name suggests it
//! ([`suggested_role`](super::suggested_role)). The role determines how statements about the argument are checked. For
//! every role except amount and content, `endorse` needs the allowed values, such as `in [...]`, or for a path its
//! folder and for a URL its host. A test of the form is not enough, since an attacker's address has the form of an
//! address as well. For every role except content, `payload` is reported as a warning, since it lifts the integrity
//! requirement whatever the value is. The text of an approval request also depends on the role.

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
    /// `endorse` then needs a list of values, or for a path its folder and for a URL its host.
    pub fn needs_listed_values(self) -> bool {
        !matches!(self, Self::Amount | Self::Content)
    }
}

impl fmt::Display for ArgumentRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_names() {
        for role in ArgumentRole::ALL {
            assert_eq!(ArgumentRole::from_name(role.name()), Some(role));
            assert_eq!(role.gain().is_none(), role == ArgumentRole::Content, "{role}");
        }
        assert_eq!(ArgumentRole::from_name("receiver"), None);
    }
}
