-- One language for SQLite and PostgreSQL: texts and 64-bit integers only. Times are milliseconds since 1970.

-- A guarded conversation. `basis` stands for the policy and the settings that it is held under; `key` is that of its digests.
CREATE TABLE conversations (
    client TEXT NOT NULL,
    name TEXT NOT NULL,
    basis TEXT NOT NULL,
    key TEXT NOT NULL,
    turns BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    used BIGINT NOT NULL,
    -- Who goes on with it, and for how long nobody else may.
    holder TEXT NOT NULL,
    held_until BIGINT NOT NULL,
    PRIMARY KEY (client, name)
);
CREATE INDEX conversations_used ON conversations (client, used);

-- What was put into a conversation in one turn.
CREATE TABLE turns (
    client TEXT NOT NULL,
    name TEXT NOT NULL,
    number BIGINT NOT NULL,
    inputs TEXT NOT NULL,
    PRIMARY KEY (client, name, number),
    FOREIGN KEY (client, name) REFERENCES conversations (client, name) ON DELETE CASCADE
);

-- What chats begin with that belong to a conversation.
CREATE TABLE prefixes (
    client TEXT NOT NULL,
    prefix TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (client, prefix, name),
    FOREIGN KEY (client, name) REFERENCES conversations (client, name) ON DELETE CASCADE
);
CREATE INDEX prefixes_name ON prefixes (client, name);

-- What the stores of a tenant carry. It outlives the conversations that wrote to them.
CREATE TABLE tenants (
    tenant TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    record TEXT NOT NULL
);

-- What a client was shown, with its label: it outlives the conversations as well. A row without letters stands for texts that
-- are not remembered any more.
CREATE TABLE clients (
    client TEXT NOT NULL PRIMARY KEY,
    seen BIGINT NOT NULL
);
CREATE TABLE seen (
    client TEXT NOT NULL,
    number BIGINT NOT NULL,
    label TEXT NOT NULL,
    letters TEXT NOT NULL,
    PRIMARY KEY (client, number)
);
