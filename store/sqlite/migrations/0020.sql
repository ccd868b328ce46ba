-- The final records of each job by slices of five minutes and outcomes, for pages about days: see
-- sqldb/slices.go. The counter is the moment up to which slices are counted.
create table slices (
  slice       integer not null,
  job         integer not null,
  outcome     integer not null,
  occurrences integer not null,
  took        integer not null,
  longest     integer not null,
  primary key (slice, job, outcome)
) without rowid;
create index slices_job on slices (job, slice);
insert into counters (name, value) values ('slices', 0);
