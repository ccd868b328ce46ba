-- oldest: 1
-- Since when a session was renewed without a gap, and its last renewal before that gap: a
-- node is not judged by its silence for the time in which the database was away. An older
-- program beside it writes neither, and is no witness of the other nodes.
alter table sessions add column steady bigint not null default 0;
alter table sessions add column before_gap bigint not null default 0;
