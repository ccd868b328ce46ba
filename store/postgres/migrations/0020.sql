-- oldest: 1
-- The final records of each job by slices of five minutes and outcomes, for pages about days: see
-- sqldb/slices.go. The counter is the moment up to which slices are counted.
create table slices (
  slice       bigint not null,
  occurrences bigint not null,
  took        bigint not null,
  longest     bigint not null,
  outcome     smallint not null,
  job         bytea not null,
  primary key (slice, job, outcome)
);
create index slices_job on slices (job, slice);
insert into counters (name, value) values ('slices', 0);
