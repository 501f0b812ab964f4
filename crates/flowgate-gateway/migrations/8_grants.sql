-- Whether an approval holds for the rest of its conversation, for equal calls.
ALTER TABLE questions ADD COLUMN granted BIGINT NOT NULL DEFAULT 0;
