-- Small texts that nodes share and change by comparison, such as what is to be notified.
create table notes (
  name    text primary key,
  version integer not null,
  note    text not null
) without rowid;
