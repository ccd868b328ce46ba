-- oldest: 1
-- What says that work can be given to it, such as executors of XXL-JOB.
create table registrations (
  kind       text not null,
  team       text not null,
  address    text not null,
  generation text not null,
  seen       bigint not null,
  primary key (kind, team, address)
);
