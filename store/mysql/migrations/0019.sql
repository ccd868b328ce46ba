-- oldest: 1
-- The final records of each job by slices of five minutes and outcomes, for pages about days: see
-- sqldb/slices.go. The counter is the moment up to which slices are counted.
create table if not exists slices (
  slice       bigint not null,
  job         varbinary(16) not null,
  outcome     smallint not null,
  occurrences bigint not null default 0,
  took        bigint not null default 0,
  longest     bigint not null default 0,
  primary key (slice, job, outcome),
  key slices_job (job, slice)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;
insert into counters (name) values ('slices') on duplicate key update name = counters.name;
