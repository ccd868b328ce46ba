-- oldest: 1
-- Small texts that nodes share and change by comparison, such as what is to be notified.
create table if not exists notes (
  name    varbinary(200) primary key,
  version bigint not null,
  note    mediumblob not null
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;
insert into counters (name) values ('notes') on duplicate key update name = counters.name;
