-- The people who have approved a question that several people must approve, as a JSON list of their names.
ALTER TABLE questions ADD COLUMN approved_by TEXT NOT NULL DEFAULT '[]';
