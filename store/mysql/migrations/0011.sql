-- oldest: 1
-- What says that work can be given to it, such as executors of XXL-JOB.
create table if not exists registrations (
  kind       varbinary(16) not null,
  team       varbinary(255) not null,
  address    varbinary(255) not null,
  generation varbinary(16) not null,
  seen       bigint not null,
  primary key (kind, team, address)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;
