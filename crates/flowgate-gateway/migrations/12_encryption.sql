-- With which keys content is encrypted: the key of the digests that are looked up, sealed by the key of the configuration, and whether
-- all content is encrypted. No row without a key.
CREATE TABLE encryption (
    one BIGINT NOT NULL PRIMARY KEY,
    sealed TEXT NOT NULL
);
-- The number of characters of a text that a client was shown, which an encrypted text does not have any more.
ALTER TABLE seen ADD COLUMN characters BIGINT NOT NULL DEFAULT 0;
UPDATE seen SET characters = length(letters);
