-- Conversations have numbers, of which none is used twice: what belongs to one says so in few bytes, so that a turn changes few pages.
ALTER TABLE prefixes RENAME TO old_prefixes;
ALTER TABLE turns RENAME TO old_turns;
ALTER TABLE conversations RENAME TO old_conversations;
DROP INDEX conversations_used;

CREATE TABLE conversations (
    id {number},
    client TEXT NOT NULL,
    name TEXT NOT NULL,
    basis TEXT NOT NULL,
    key TEXT NOT NULL,
    -- To the minute.
    used BIGINT NOT NULL,
    holder TEXT NOT NULL,
    held_until BIGINT NOT NULL,
    UNIQUE (client, name)
);
CREATE INDEX conversations_used ON conversations (client, used);
INSERT INTO conversations (client, name, basis, key, used, holder, held_until)
SELECT client, name, basis, key, used, holder, held_until FROM old_conversations;

-- `bytes` are those of all turns up to this one. `prefixes` are those that came with it, with spaces between them: they are deleted
-- with their conversation.
CREATE TABLE turns (
    conversation BIGINT NOT NULL,
    number BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    prefixes TEXT NOT NULL,
    inputs TEXT NOT NULL,
    PRIMARY KEY (conversation, number),
    FOREIGN KEY (conversation) REFERENCES conversations (id) ON DELETE CASCADE
);
INSERT INTO turns (conversation, number, bytes, prefixes, inputs)
SELECT id, number, SUM(octet_length(inputs)) OVER (PARTITION BY id ORDER BY number), CASE WHEN number > 0 THEN '' ELSE COALESCE((
    SELECT string_agg(prefix, ' ') FROM old_prefixes
    WHERE old_prefixes.client = old_turns.client AND old_prefixes.name = old_turns.name
), '') END, inputs
FROM old_turns JOIN conversations ON conversations.client = old_turns.client AND conversations.name = old_turns.name;

CREATE TABLE prefixes (
    client TEXT NOT NULL,
    prefix TEXT NOT NULL,
    conversation BIGINT NOT NULL,
    PRIMARY KEY (client, prefix, conversation)
) {in_one_place};
INSERT INTO prefixes (client, prefix, conversation)
SELECT old_prefixes.client, prefix, id
FROM old_prefixes JOIN conversations ON conversations.client = old_prefixes.client AND conversations.name = old_prefixes.name;

DROP TABLE old_prefixes;
DROP TABLE old_turns;
DROP TABLE old_conversations;
