-- oldest: 1
-- What nodes tell those that follow what happens on all of them, for some seconds. An
-- older program that goes on beside it tells nothing.
create table told (
  number  bigint primary key,
  sender  text not null,
  batch   bigint not null,
  told_at bigint not null,
  events  bytea not null
);
-- After a crash of the server it is empty, which is told as a gap.
alter table told set unlogged;

insert into counters (name, value) values ('told', 0);
