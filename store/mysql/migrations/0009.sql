-- oldest: 1
-- The feed of what has ended: for each consumer the records that it has not taken.
create table if not exists consumers (
  name    varbinary(40) primary key,
  wants   blob not null,
  dropped bigint not null default 0
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;
create table if not exists feed (
  consumer varbinary(40) not null,
  added    bigint not null,
  run      varbinary(16) not null,
  attempt  int not null,
  replaces smallint not null,
  record   mediumblob not null,
  primary key (consumer, added, run, attempt, replaces)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;
