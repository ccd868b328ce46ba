-- oldest: 1
-- Small texts that nodes share and change by comparison, such as what is to be notified.
create table notes (
  name    text collate "C" primary key,
  version bigint not null,
  note    text not null
);
insert into counters (name, value) values ('notes', 0);
