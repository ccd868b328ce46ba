-- Since when a session was renewed without a gap, and its last renewal before that gap: a
-- node is not judged by its silence for the time in which the store was away.
alter table sessions add column steady integer not null default 0;
alter table sessions add column before_gap integer not null default 0;
