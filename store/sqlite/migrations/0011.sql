-- The feed of what has ended: for each consumer the records that it has not taken.
create table consumers (
  name    text primary key,
  wants   text not null,
  dropped integer not null default 0
) without rowid;
create table feed (
  consumer text not null,
  added    integer not null,
  run      blob not null,
  attempt  integer not null,
  replaces integer not null,
  record   text not null,
  primary key (consumer, added, run, attempt, replaces)
) without rowid;
