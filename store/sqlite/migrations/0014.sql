-- oldest: 1
-- Attempts whose work a service or executor outside of Belfry does. ask_at is 0 once they have ended.
create table handovers (
  number   integer primary key,
  job      blob not null,
  run      blob not null,
  attempt  integer not null,
  token    blob not null,
  kind     text not null,
  receiver text not null,
  about    text not null,
  timeout  integer not null,
  sent_at  integer not null,
  seen_at  integer not null,
  ask_at   integer not null,
  ended_at integer not null
);

create index handovers_run on handovers (run, number);
create index handovers_ask on handovers (kind, ask_at, number) where ask_at <> 0;
create index handovers_ended on handovers (ended_at) where ended_at <> 0;

-- The last number that was reserved.
insert or ignore into counters (name, value) values ('handovers', 0);
