-- What a person has approved for equal calls of all conversations of a client. `matching` stands for everything that has to be equal,
-- `basis` for the policy and settings of the client, `content` is what the person was shown.
CREATE TABLE lasting_grants (
    id TEXT NOT NULL PRIMARY KEY,
    client TEXT NOT NULL,
    tenant TEXT NOT NULL,
    basis TEXT NOT NULL,
    matching TEXT NOT NULL,
    content TEXT NOT NULL,
    who TEXT NOT NULL,
    granted BIGINT NOT NULL,
    -- 0 if it holds until it is withdrawn.
    expires BIGINT NOT NULL,
    -- The most calls in a day, or -1.
    calls_a_day BIGINT NOT NULL,
    -- The argument whose sum is limited, or nothing, and the largest sum in a day, in millionths.
    amount TEXT NOT NULL,
    sum_a_day BIGINT NOT NULL,
    -- The day of the last use (UTC), and the calls and the sum of that day.
    day BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    sum BIGINT NOT NULL
);
CREATE INDEX lasting_grants_matching ON lasting_grants (client, matching);
CREATE INDEX lasting_grants_tenant ON lasting_grants (tenant, granted);
-- The lasting grant that answered the question, or nothing.
ALTER TABLE questions ADD COLUMN lasting_grant TEXT NOT NULL DEFAULT '';
