-- oldest: 1
-- Attempts whose work a service or executor outside of Belfry does. ask_at is 0 once they have ended.
create table if not exists handovers (
  number   bigint primary key,
  job      varbinary(16) not null default '',
  run      varbinary(16) not null default '',
  attempt  int not null default 0,
  token    varbinary(16) not null default '',
  kind     varchar(64) not null default '',
  receiver text not null default (''),
  about    mediumtext not null default (''),
  timeout  bigint not null default 0,
  sent_at  bigint not null default 0,
  seen_at  bigint not null default 0,
  ask_at   bigint not null default 0,
  ended_at bigint not null default 0,
  key handovers_run (run, number),
  key handovers_ask (kind, ask_at, number),
  key handovers_ended (ended_at)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- The last number that was reserved.
insert into counters (name) values ('handovers') on duplicate key update name = counters.name;
