-- oldest: 1
-- Which shards of the occurrence before have not succeeded, for needs_previous: "0,3".
alter table job_state add column previous_failed text not null default '';
