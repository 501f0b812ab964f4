-- The requests that the gateways of the database have admitted for each client: the time, in microseconds, at which its quota is full again.
CREATE TABLE request_quotas (client TEXT NOT NULL PRIMARY KEY, full_at BIGINT NOT NULL);
