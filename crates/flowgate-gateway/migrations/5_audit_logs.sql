-- Which database this is. `began_empty` is 0 if it had conversations before it knew of audit logs.
CREATE TABLE identity (
    one BIGINT NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    began_empty BIGINT NOT NULL
);
INSERT INTO identity (one, id, began_empty)
SELECT 1, '', CASE WHEN EXISTS (SELECT 1 FROM conversations) OR EXISTS (SELECT 1 FROM tenants) THEN 0 ELSE 1 END;

-- How far each audit log of its gateways has come: a log that is behind has lost lines. A log is named by the hash of its first line.
CREATE TABLE audit_logs (
    log TEXT NOT NULL PRIMARY KEY,
    -- The public key that signs it.
    key TEXT NOT NULL,
    -- The number and the hash of its last line.
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL,
    -- Conversations up to this number may have turns from before the log.
    after BIGINT NOT NULL
);

-- Written to find out whether the database can be.
CREATE TABLE probe (
    one BIGINT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL
);
INSERT INTO probe (one, content) VALUES (1, '');
