//! Names the columns whose values are encrypted or keyed, and computes the bytes that bind an encrypted value to its
//! column and its row. Every file of `database` that stores content uses [`ContentPlace`].

/// A column with content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentColumn {
    /// The inputs of a turn: messages, arguments and results of tools.
    TurnInputs,
    /// The key with which a conversation computes digests. Without it, nobody can guess the input of a digest by trial.
    ConversationKey,
    /// The labels of a tenant's stores.
    TenantRecord,
    /// A text that a client was shown.
    ShownText,
    /// The label of such a text.
    ShownLabel,
    /// What a person is asked.
    QuestionContent,
    /// What a person has approved for all conversations of a client.
    GrantContent,
    /// The lookup key, by which digests are keyed, and by which the keys of the configuration are checked.
    LookupKey,
}

impl ContentColumn {
    /// All columns with content.
    #[cfg(test)]
    pub(super) const ALL: [Self; 8] = [
        Self::TurnInputs,
        Self::ConversationKey,
        Self::TenantRecord,
        Self::ShownText,
        Self::ShownLabel,
        Self::QuestionContent,
        Self::GrantContent,
        Self::LookupKey,
    ];

    /// Returns the name of the table and of the column.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TurnInputs => "turns.inputs",
            Self::ConversationKey => "conversations.key",
            Self::TenantRecord => "tenants.record",
            Self::ShownText => "seen.letters",
            Self::ShownLabel => "seen.label",
            Self::QuestionContent => "questions.content",
            Self::GrantContent => "lasting_grants.content",
            Self::LookupKey => "encryption.sealed",
        }
    }
}

/// A column with digests by which rows are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestColumn {
    /// The digests of the beginnings of chats. The column `turns.prefixes` has copies of them.
    ChatPrefix,
    /// The digests by which a lasting grant finds the questions that it covers.
    GrantMatching,
}

impl DigestColumn {
    /// All columns with such digests.
    #[cfg(test)]
    pub(super) const ALL: [Self; 2] = [Self::ChatPrefix, Self::GrantMatching];

    /// Returns the name of the table and of the column.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ChatPrefix => "prefixes.prefix",
            Self::GrantMatching => "lasting_grants.matching",
        }
    }
}

/// The place of a value: its column, and what identifies its row.
#[derive(Debug, Clone)]
pub(in crate::database) struct ContentPlace {
    pub(super) column: ContentColumn,
    /// The bytes with which the value is authenticated.
    pub(super) bound: Vec<u8>,
}

impl ContentPlace {
    /// Returns the place in this column of the row that is identified by the values `row`. A sealed value is bound to
    /// the bytes of its place: it cannot be opened at another one. Each value is preceded by its length, so that two
    /// different rows never have the same bytes.
    fn new(column: ContentColumn, row: &[&[u8]]) -> Self {
        // The bytes begin with a constant, whose last word is the version of their form.
        let mut bound = b"flowgate content 1".to_vec();
        for part in std::iter::once(column.name().as_bytes()).chain(row.iter().copied()) {
            bound.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            bound.extend_from_slice(part);
        }
        Self { column, bound }
    }

    /// Returns the place of the inputs of turn `number` of the conversation with the number `id`.
    pub(in crate::database) fn turn((client, name): (&str, &str), id: i64, number: i64) -> Self {
        let row = [client.as_bytes(), name.as_bytes(), &id.to_le_bytes(), &number.to_le_bytes()];
        Self::new(ContentColumn::TurnInputs, &row)
    }

    /// Returns the place of the key of a conversation: the column, and the client and name that identify the row.
    pub(in crate::database) fn conversation_key(client: &str, name: &str) -> Self {
        Self::new(ContentColumn::ConversationKey, &[client.as_bytes(), name.as_bytes()])
    }

    /// Returns the place of the record with the labels of a tenant's stores: the column, and the tenant of the row.
    pub(in crate::database) fn tenant(tenant: &str) -> Self {
        Self::new(ContentColumn::TenantRecord, &[tenant.as_bytes()])
    }

    /// Returns the places of a text that a client was shown, and of its label: two columns of the row that the client,
    /// the number and the source of the text identify.
    pub(in crate::database) fn shown(client: &str, number: i64, source: &str) -> (Self, Self) {
        let row = [client.as_bytes(), &number.to_le_bytes(), source.as_bytes()];
        (Self::new(ContentColumn::ShownText, &row), Self::new(ContentColumn::ShownLabel, &row))
    }

    /// Returns the place of the content of the question with this id, which a conversation asks about the call with
    /// this digest.
    pub(in crate::database) fn question(
        id: &str,
        (client, name, tenant): (&str, &str, &str),
        digest: &str,
    ) -> Self {
        let row = [id, client, name, tenant, digest].map(str::as_bytes);
        Self::new(ContentColumn::QuestionContent, &row)
    }

    /// Returns the place of the content of the lasting grant with this id.
    pub(in crate::database) fn grant(id: &str, client: &str, tenant: &str) -> Self {
        Self::new(ContentColumn::GrantContent, &[id, client, tenant].map(str::as_bytes))
    }

    /// Returns the place of the lookup key of the database with this identity.
    pub(super) fn lookup_key(database: &str) -> Self {
        Self::new(ContentColumn::LookupKey, &[database.as_bytes()])
    }
}
