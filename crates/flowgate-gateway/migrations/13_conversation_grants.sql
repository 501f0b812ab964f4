-- The digest of the policy and the settings of the client under which a question was asked; empty if it was asked before there was this
-- column. `granted` is 2 while an approval for the rest of a conversation is withdrawn and the conversation has not continued since, and 3 after that.
ALTER TABLE questions ADD COLUMN basis TEXT NOT NULL DEFAULT '';
-- The limits on questions are counted before each question. Every column that the counts of a client read is in an index, so
-- that they do not read the contents of questions.
CREATE INDEX questions_open ON questions (client, state, turn, expires);
CREATE INDEX questions_asked ON questions (client, asked, turn, lasting_grant);
CREATE INDEX questions_decided ON questions (client, decided, state, turn, lasting_grant);
