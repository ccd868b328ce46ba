-- oldest: 1
-- What nodes tell those that follow what happens on all of them, for some seconds. An
-- older program that goes on beside it tells nothing.
create table if not exists told (
  number  bigint primary key,
  sender  varchar(64) not null default '',
  batch   bigint not null default 0,
  told_at bigint not null default 0,
  events  longblob not null default ('')
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

insert into counters (name) values ('told') on duplicate key update name = counters.name;
