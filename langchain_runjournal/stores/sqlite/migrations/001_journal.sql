-- The first schema. Never edit a released migration: add the next number, and keep the previous release able to work
-- with the result.

PRAGMA application_id = 1380601420; -- "RJNL": distinguishes our database from those of other programs

CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

INSERT INTO facts (name, value) VALUES ('store_id', randomblob(16));

-- Grows when another writer than the one that began a run has changed it (claim, recovery, prune): then every writer
-- forgets what it remembers of its runs and reads again.
INSERT INTO facts (name, value) VALUES ('turns', 0);

CREATE TABLE owners (
    owner_id TEXT PRIMARY KEY,
    place    TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    born     TEXT NOT NULL,
    lease    REAL NOT NULL,
    beats    INTEGER NOT NULL
) WITHOUT ROWID;

-- AUTOINCREMENT: SQLite never reuses a number, so a remembered number cannot mean another run after a prune.
CREATE TABLE runs (
    run       INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id    TEXT NOT NULL UNIQUE,
    thread_id TEXT,
    status    TEXT NOT NULL,
    owner_id  TEXT NOT NULL,
    epoch     INTEGER NOT NULL,
    stop      TEXT,
    settled   INTEGER NOT NULL,
    ended_at  INTEGER,
    rest      TEXT NOT NULL -- JSON: name, cause, error, started_at, lost, metadata, usage
);
CREATE INDEX runs_of_thread ON runs (thread_id, run);
CREATE INDEX runs_of_status ON runs (status, run);
CREATE INDEX runs_to_stop ON runs (owner_id) WHERE stop IS NOT NULL AND ended_at IS NULL;

-- New events, in the order of arrival, all runs mixed. There is no index on the run, because with it an append for a
-- hundred live runs would touch a hundred pages. tidy() keeps the table short.
CREATE TABLE live (
    id    INTEGER PRIMARY KEY,
    run   INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    t0    INTEGER NOT NULL,
    t1    INTEGER NOT NULL,
    ats   TEXT NOT NULL,
    calls TEXT NOT NULL,
    body  TEXT NOT NULL
);

-- Older events: long segments, each run together.
CREATE TABLE segments (
    id    INTEGER PRIMARY KEY,
    run   INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    t0    INTEGER NOT NULL,
    t1    INTEGER NOT NULL,
    ats   TEXT NOT NULL,
    calls TEXT NOT NULL,
    body  TEXT NOT NULL
);
CREATE UNIQUE INDEX segments_of_run ON segments (run, first);
