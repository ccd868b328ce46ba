-- oldest: 1
-- Attempts whose work a service or executor outside of Belfry does. ask_at is 0 once they have ended.
create table handovers (
  number   bigint primary key,
  job      bytea not null,
  run      bytea not null,
  attempt  integer not null,
  token    bytea not null,
  kind     text not null,
  receiver text not null,
  about    text not null,
  timeout  bigint not null,
  sent_at  bigint not null,
  seen_at  bigint not null,
  ask_at   bigint not null,
  ended_at bigint not null
);

create index handovers_run on handovers (run, number);
create index handovers_ask on handovers (kind, ask_at, number) where ask_at <> 0;
create index handovers_ended on handovers (ended_at) where ended_at <> 0;

-- The last number that was reserved.
insert into counters (name, value) values ('handovers', 0);
