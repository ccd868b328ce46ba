-- oldest: 1
-- The feed of what has ended: for each consumer the records that it has not taken.
create table consumers (
  name    text primary key,
  wants   text not null,
  dropped bigint not null default 0
);
create table feed (
  consumer text not null,
  added    bigint not null,
  run      bytea not null,
  attempt  integer not null,
  replaces smallint not null,
  record   text not null,
  primary key (consumer, added, run, attempt, replaces)
);
