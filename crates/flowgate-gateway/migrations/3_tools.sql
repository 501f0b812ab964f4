-- Tools of servers that were approved of, as they were described then.
CREATE TABLE tools (
    tenant TEXT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    -- Stands for all that the server says of it.
    digest TEXT NOT NULL,
    -- Who approved; empty if it was on the first list that the tenant was shown.
    who TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (tenant, server, tool)
);
