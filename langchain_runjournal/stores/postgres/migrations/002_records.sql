-- serves: 1
-- Records: small JSON objects beside the runs. An older release does not touch them.

CREATE TABLE records (
    number    bigint PRIMARY KEY, -- the version that the record had when it was made
    space     text NOT NULL,
    key       text NOT NULL,
    group_key text,
    version   bigint NOT NULL,
    text      text NOT NULL,
    UNIQUE (space, key)
);
CREATE INDEX records_of_space ON records (space, number);
CREATE INDEX records_of_group ON records (space, group_key, number) WHERE group_key IS NOT NULL;

-- The version of the newest record. A write of a record holds this row: so numbers become visible in their order.
INSERT INTO facts (name, value) VALUES ('records', '0');
