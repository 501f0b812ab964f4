-- The digest of the policy and the settings of the client under which a question was asked; empty if it was asked before there was this
-- column. `granted` is 2 while an approval for the rest of a conversation is withdrawn and the conversation has not continued since, and 3 after that.
ALTER TABLE questions ADD COLUMN basis TEXT NOT NULL DEFAULT '';
