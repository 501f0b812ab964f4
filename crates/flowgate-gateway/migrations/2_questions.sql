-- A call that a person decides on. `digest` stands for the tool and exactly these arguments, `content` is what the person is shown.
-- Open questions become allowed, denied, expired or void; what is allowed is used once, or expires, or becomes void.
CREATE TABLE questions (
    id TEXT NOT NULL PRIMARY KEY,
    client TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    content TEXT NOT NULL,
    state TEXT NOT NULL,
    asked BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    -- How many turns of the conversation were kept before it was asked.
    turn BIGINT NOT NULL,
    decided_by TEXT NOT NULL,
    decided BIGINT NOT NULL,
    -- Grows with everything that happens to any question.
    change BIGINT NOT NULL
);
CREATE INDEX questions_conversation ON questions (client, name, state);
CREATE INDEX questions_state ON questions (state, expires);
CREATE INDEX questions_change ON questions (change);
CREATE TABLE changes (
    one BIGINT NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO changes (one, last) VALUES (1, 0);

-- What somebody has stopped.
CREATE TABLE freezes (
    kind TEXT NOT NULL,
    what TEXT NOT NULL,
    who TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (kind, what)
);
