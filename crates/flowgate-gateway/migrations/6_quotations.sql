-- What a client was shown comes from a source and grows old. The user's own words are of the source `user`. `kept` is 0 where the time is not
-- known.
ALTER TABLE seen ADD COLUMN source TEXT NOT NULL DEFAULT 'others';
ALTER TABLE seen ADD COLUMN kept BIGINT NOT NULL DEFAULT 0;
-- How often something of it was forgotten, and how often somebody cleared it, which every gateway does then.
ALTER TABLE clients ADD COLUMN forgotten BIGINT NOT NULL DEFAULT 0;
ALTER TABLE clients ADD COLUMN cleared BIGINT NOT NULL DEFAULT 0;
-- Nothing new carries a label any more because something was forgotten.
UPDATE clients SET forgotten = 1 WHERE EXISTS (SELECT 1 FROM seen WHERE seen.client = clients.client AND seen.letters = '');
DELETE FROM seen WHERE letters = '';
