-- The keys that admins have made for clients of the configuration. A key itself is not stored: `digest` is its SHA-256, in hexadecimal.
CREATE TABLE virtual_keys (
    id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    -- The tenant of the client when the key was made.
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    who TEXT NOT NULL,
    made BIGINT NOT NULL,
    -- 0 if it is valid until it is revoked.
    expires BIGINT NOT NULL,
    -- The day of the last use (the days since 1970, UTC), or -1.
    last_day BIGINT NOT NULL,
    -- The limits of the key, or -1; the cost is in millionths of the currency of [prices].
    requests_per_minute BIGINT NOT NULL,
    tokens_per_day BIGINT NOT NULL,
    cost_per_day BIGINT NOT NULL,
    -- The models that may be asked for, as a list in JSON; an empty list for all that the client may ask for.
    models TEXT NOT NULL,
    UNIQUE (client, name)
);
CREATE INDEX virtual_keys_tenant ON virtual_keys (tenant, made);
