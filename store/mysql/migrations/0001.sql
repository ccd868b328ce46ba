-- Moments are nanoseconds since 1970, 0 for none. Ids are 16 bytes, or none.
-- Enumerations are small numbers on the rows that each run writes. docs/store.md
-- describes the tables.
--
-- All columns have a default, because rows are changed in batches by "insert ... on
-- duplicate key update" of some of their columns. Texts whose letters count to the
-- last space are binary: the collations of characters that both servers have do not
-- tell "a" from "a ".

-- What there is one of: the numbers of the feed of changes and of the audit, and
-- locks.
create table if not exists counters (
  name  varchar(64) primary key,
  value bigint not null default 0
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

insert into counters (name) values
  ('audit'), ('calendars'), ('change'), ('defaults'), ('expiry'), ('graph'), ('tidy'), ('tokens')
  on duplicate key update name = counters.name;

create table if not exists settings (
  name  varchar(64) primary key,
  value mediumtext not null default ('')
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- The names of jobs, kept as long as history speaks of them.
create table if not exists names (
  uid       varbinary(16) primary key,
  namespace varchar(255) not null default '',
  name      varchar(255) not null default ''
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- Jobs that are gone and had history left.
create table if not exists orphans (
  uid varbinary(16) primary key
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- What rarely changes about a job. seq is its place in the feed of changes, live
-- the full name of a job that is not deleted.
create table if not exists jobs (
  uid          varbinary(16) primary key,
  seq          bigint not null default 0,
  version      bigint not null default 0,
  part         smallint not null default 0,
  live         varchar(512) unique,
  boot         smallint not null default 0,
  definition   longtext not null default (''),
  timing       longtext not null default (''),
  created      bigint not null default 0,
  changed      bigint not null default 0,
  deleted_at   bigint not null default 0,
  paused_at    bigint not null default 0,
  paused_until bigint not null default 0,
  paused_by    text not null default (''),
  pause_reason mediumtext not null default (''),
  remove_at    bigint not null default 0,
  keep_runs    bigint not null default 0,
  keep_for     bigint not null default 0,
  keep_output  bigint not null default 0,
  key jobs_seq (seq),
  key jobs_part (deleted_at, part, version),
  key jobs_boot (boot, live),
  key jobs_until (paused_until),
  key jobs_remove (remove_at),
  key jobs_keep (keep_runs, keep_for, keep_output)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- What is written while jobs run. No column but the key is in an index.
create table if not exists job_state (
  uid         varbinary(16) primary key,
  seq         bigint not null default 0,
  version     bigint not null default 0,
  epoch       bigint not null default 0,
  state       smallint not null default 0,
  deleted     smallint not null default 0,
  cursor_at   bigint not null default 0,
  floor_at    bigint not null default 0,
  planner     varbinary(16) not null default '',
  planned     bigint not null default 0,
  failures    bigint not null default 0,
  previous    bigint not null default 0,
  previous_ok smallint not null default 0,
  completed   bigint not null default 0
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- Which jobs follow which, and which calendars they name, by full names.
create table if not exists followers (
  upstream varchar(512) not null,
  job      varbinary(16) not null,
  primary key (upstream, job),
  key followers_job (job)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

create table if not exists calendar_users (
  calendar varchar(512) not null,
  job      varbinary(16) not null,
  primary key (calendar, job),
  key calendar_users_job (job)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- One row for each pool that was ever named, for its lock.
create table if not exists pools (
  name varchar(512) primary key
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

create table if not exists revisions (
  job        varbinary(16) not null,
  version    bigint not null,
  changed    bigint not null default 0,
  actor      text not null default (''),
  definition longtext not null default (''),
  primary key (job, version)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- Calendars and pools are few and read as a whole.
create table if not exists documents (
  kind       varchar(64) not null,
  full_name  varchar(512) not null,
  uid        varbinary(16) not null default '',
  version    bigint not null default 0,
  definition longtext not null default (''),
  primary key (kind, full_name)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

create table if not exists audit (
  seq     bigint primary key,
  written bigint not null default 0,
  actor   text not null default (''),
  action  text not null default (''),
  object  text not null default (''),
  version bigint not null default 0,
  detail  mediumtext not null default (''),
  changes longtext not null default ('')
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- Who may call. They are few and read as a whole.
create table if not exists tokens (
  name      varbinary(512) primary key,
  hash      varbinary(32) not null default '',
  role      varchar(64) not null default '',
  namespace varchar(255) not null default '',
  created   bigint not null default 0,
  made_by   text not null default (''),
  expires   bigint not null default 0
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- Runs that are planned or going on. slot is '' for that of the job itself.
create table if not exists active (
  id            varbinary(16) primary key,
  job           varbinary(16) not null default '',
  kind          smallint not null default 0,
  run_key       text not null default (''),
  shard         int not null default 0,
  shards        int not null default 0,
  scheduled     bigint not null default 0,
  params        mediumtext not null default (''),
  parent        varbinary(16) not null default '',
  broadcast     smallint not null default 0,
  state         smallint not null default 0,
  session       varbinary(16) not null default '',
  due           bigint not null default 0,
  slot          varbinary(1024) not null default '',
  holds         smallint not null default 0,
  attempt       int not null default 0,
  epoch         bigint not null default 0,
  version       bigint not null default 0,
  node          text not null default (''),
  token         varbinary(16) not null default '',
  overlap       smallint not null default 0,
  awaits        smallint not null default 0,
  priority      bigint not null default 0,
  late_after    bigint not null default 0,
  first_claimed bigint not null default 0,
  claimed       bigint not null default 0,
  last_outcome  smallint not null default 0,
  reason        mediumtext not null default (''),
  cancel_by     text not null default (''),
  cancel_reason mediumtext not null default (''),
  first_due     bigint not null default 0,
  alert_at      bigint not null default 0,
  others        smallint not null default 0,
  key active_session (session, due),
  key active_job (job, due),
  key active_slot (slot(255), due),
  key active_alert (alert_at)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

create table if not exists request_keys (
  job     varbinary(16) not null,
  kind    smallint not null,
  request varbinary(1536) not null,
  shard   int not null,
  run     varbinary(16) not null default '',
  expires bigint not null default 0,
  primary key (job, kind, request, shard),
  key request_keys_expires (expires)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

create table if not exists sessions (
  id      varbinary(16) primary key,
  node    text not null default (''),
  machine blob not null default (''),
  datadir blob not null default (''),
  joined  bigint not null default 0,
  renewed bigint not null default 0,
  leaving smallint not null default 0,
  reaped  smallint not null default 0,
  running bigint not null default 0,
  ready   bigint not null default 0,
  about   mediumtext not null default ('')
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- Finished attempts in the order of their end, which is that in which they are
-- written, read and removed. attempt is 0 for a run that ended before the attempt
-- that is next_attempt.
create table if not exists history (
  ended          bigint not null,
  run            varbinary(16) not null,
  attempt        int not null,
  job            varbinary(16) not null default '',
  is_final       smallint not null default 0,
  outcome        smallint not null default 0,
  kind           smallint not null default 0,
  run_key        text not null default (''),
  shard          int not null default 0,
  shards         int not null default 0,
  epoch          bigint not null default 0,
  version        bigint not null default 0,
  scheduled      bigint not null default 0,
  due            bigint not null default 0,
  next_attempt   int not null default 0,
  held_slot      smallint not null default 0,
  started        bigint not null default 0,
  node           text not null default (''),
  token          varbinary(16) not null default '',
  reason         mediumtext not null default (''),
  exited         smallint not null default 0,
  exit_code      bigint not null default 0,
  signal_name    text not null default (''),
  http_status    int not null default 0,
  params         mediumtext not null default (''),
  parent         varbinary(16) not null default '',
  occurrences    bigint not null default 0,
  last_scheduled bigint not null default 0,
  replaces       smallint not null default 0,
  output_bytes   bigint not null default 0,
  unmet          text not null default (''),
  primary key (ended, run, attempt),
  key history_job (job, ended, run, attempt),
  key history_run (run, attempt)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

create table if not exists output (
  run      varbinary(16) not null,
  attempt  int not null,
  seq      bigint not null,
  position bigint not null default 0,
  bytes    bigint not null default 0,
  written  bigint not null default 0,
  data     longblob not null default (''),
  primary key (run, attempt, seq)
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- The nodes that take no runs because somebody has said so, by their names: it holds
-- whatever session they have.
create table if not exists drains (
  node    varbinary(1024) primary key,
  since   bigint not null default 0,
  made_by text not null default (''),
  reason  mediumtext not null default ('')
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;

-- What nodes have told the others, and how often: they look for what has changed.
create table if not exists notices (
  payload varbinary(64) primary key,
  told    bigint not null default 0,
  at_time datetime(6) not null
) engine = innodb default character set utf8mb4 collate utf8mb4_bin;
