-- How those of the other shards of a run have ended that did not succeed, for the
-- jobs that follow when the last has ended.
alter table active add column others integer not null default 0;
