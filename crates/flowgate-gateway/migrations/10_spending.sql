-- What the models of each client have used, by day (the days since 1970, UTC): tokens, and their cost in millionths of the currency of [prices].
CREATE TABLE spending (client TEXT NOT NULL, day BIGINT NOT NULL, tokens BIGINT NOT NULL, cost BIGINT NOT NULL, PRIMARY KEY (client, day));
