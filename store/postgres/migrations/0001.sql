-- Moments are nanoseconds since 1970, 0 for none; the views have them as
-- timestamps. Ids are 16 bytes, or none; belfry_id writes them as people see them.
-- Enumerations are small numbers on the rows that each run writes. docs/store.md
-- describes the tables.

-- What there is one of: the numbers of the feed of changes and of the audit, and
-- locks.
create table counters (
  name  text primary key,
  value bigint not null
);

insert into counters (name, value) values
  ('audit', 0), ('calendars', 0), ('change', 0), ('defaults', 0), ('expiry', 0), ('graph', 0), ('tidy', 0), ('tokens', 0);

create table settings (
  name  text primary key,
  value text not null
);

-- The names of jobs, kept as long as history speaks of them.
create table names (
  uid       bytea primary key,
  namespace text not null,
  name      text not null
);

-- Jobs that are gone and had history left.
create table orphans (
  uid bytea primary key
);

-- What rarely changes about a job. seq is its place in the feed of changes, live
-- the full name of a job that is not deleted.
create table jobs (
  uid          bytea primary key,
  seq          bigint not null,
  version      bigint not null,
  part         smallint not null,
  live         text collate "C" unique,
  boot         smallint not null,
  definition   text not null,
  timing       text not null,
  created      bigint not null,
  changed      bigint not null,
  deleted_at   bigint not null,
  paused_at    bigint not null,
  paused_until bigint not null,
  paused_by    text not null,
  pause_reason text not null,
  remove_at    bigint not null,
  keep_runs    bigint not null,
  keep_for     bigint not null,
  keep_output  bigint not null
);

create unique index jobs_seq on jobs (seq);
create index jobs_part on jobs (part, version) where deleted_at = 0;
create index jobs_boot on jobs (live) where boot = 1;
create index jobs_until on jobs (paused_until) where paused_until <> 0;
create index jobs_remove on jobs (remove_at) where remove_at <> 0;
create index jobs_keep on jobs (uid) where keep_runs <> 0 or keep_for <> 0 or keep_output <> 0;
create index jobs_deleted on jobs (deleted_at) where deleted_at <> 0;

-- What is written while jobs run. No column but the key is in an index, and pages
-- have room, so that an update stays on its page and touches no index.
create table job_state (
  seq         bigint not null,
  version     bigint not null,
  epoch       bigint not null,
  cursor_at   bigint not null,
  floor_at    bigint not null,
  planned     bigint not null,
  failures    bigint not null,
  previous    bigint not null,
  completed   bigint not null,
  state       smallint not null,
  deleted     smallint not null,
  previous_ok smallint not null,
  uid         bytea primary key,
  planner     bytea not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Which jobs follow which, and which calendars they name, by full names.
create table followers (
  upstream text not null,
  job      bytea not null,
  primary key (upstream, job)
);

create index followers_job on followers (job);

create table calendar_users (
  calendar text not null,
  job      bytea not null,
  primary key (calendar, job)
);

create index calendar_users_job on calendar_users (job);

-- One row for each pool that was ever named, for its lock.
create table pools (
  name text collate "C" primary key
);

create table revisions (
  job        bytea not null,
  version    bigint not null,
  changed    bigint not null,
  actor      text not null,
  definition text not null,
  primary key (job, version)
);

-- Calendars and pools are few and read as a whole.
create table documents (
  kind       text not null,
  full_name  text collate "C" not null,
  uid        bytea not null,
  version    bigint not null,
  definition text not null,
  primary key (kind, full_name)
);

create table audit (
  seq     bigint primary key,
  written bigint not null,
  actor   text not null,
  action  text not null,
  object  text not null,
  version bigint not null,
  detail  text not null,
  changes text not null
);

-- Who may call. They are few and read as a whole.
create table tokens (
  name      text collate "C" primary key,
  hash      bytea not null unique,
  role      text not null,
  namespace text not null,
  created   bigint not null,
  made_by   text not null,
  expires   bigint not null
);

-- Runs that are planned or going on. slot is '' for that of the job itself. A
-- claim changes no column that is in an index: neither does one have the state.
create table active (
  scheduled     bigint not null,
  due           bigint not null,
  epoch         bigint not null,
  version       bigint not null,
  priority      bigint not null,
  late_after    bigint not null,
  first_claimed bigint not null,
  claimed       bigint not null,
  first_due     bigint not null,
  alert_at      bigint not null,
  shard         integer not null,
  shards        integer not null,
  attempt       integer not null,
  kind          smallint not null,
  broadcast     smallint not null,
  state         smallint not null,
  holds         smallint not null,
  overlap       smallint not null,
  awaits        smallint not null,
  last_outcome  smallint not null,
  others        smallint not null,
  id            bytea primary key,
  job           bytea not null,
  parent        bytea not null,
  session       bytea not null,
  token         bytea not null,
  run_key       text not null,
  params        text not null,
  slot          text not null,
  node          text not null,
  reason        text not null,
  cancel_by     text not null,
  cancel_reason text not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index active_session on active (session, due);
create index active_job on active (job, due);
create index active_slot on active (slot, due) where slot <> '';
create index active_alert on active (alert_at) where alert_at <> 0;

create table request_keys (
  job     bytea not null,
  kind    smallint not null,
  request text not null,
  shard   integer not null,
  run     bytea not null,
  expires bigint not null,
  primary key (job, kind, request, shard)
);

create index request_keys_expires on request_keys (expires);

create table sessions (
  id      bytea primary key,
  node    text not null,
  machine text not null,
  datadir text not null,
  joined  bigint not null,
  renewed bigint not null,
  leaving smallint not null,
  reaped  smallint not null,
  running bigint not null,
  ready   bigint not null,
  about   text not null
) with (fillfactor = 50);

-- Finished attempts, in a part for each day of their end. attempt is 0 for a run
-- that ended before the attempt that is next_attempt.
create table history (
  ended          bigint not null,
  epoch          bigint not null,
  version        bigint not null,
  scheduled      bigint not null,
  due            bigint not null,
  started        bigint not null,
  exit_code      bigint not null,
  occurrences    bigint not null,
  last_scheduled bigint not null,
  output_bytes   bigint not null,
  attempt        integer not null,
  shard          integer not null,
  shards         integer not null,
  next_attempt   integer not null,
  http_status    integer not null,
  is_final       smallint not null,
  outcome        smallint not null,
  kind           smallint not null,
  held_slot      smallint not null,
  exited         smallint not null,
  replaces       smallint not null,
  run            bytea not null,
  job            bytea not null,
  token          bytea not null,
  parent         bytea not null,
  run_key        text not null,
  node           text not null,
  reason         text not null,
  signal_name    text not null,
  params         text not null,
  unmet          text not null,
  primary key (ended, run, attempt)
) partition by range (ended);

create index history_job on history (job, ended);
create index history_run on history (run);

-- What ended on days for which there is no part: nodes say themselves when.
create table history_other partition of history default;

create table output (
  run      bytea not null,
  attempt  integer not null,
  seq      bigint not null,
  position bigint not null,
  bytes    bigint not null,
  written  bigint not null,
  data     bytea not null,
  primary key (run, attempt, seq)
);

-- It is compressed already.
alter table output alter column data set storage external;
