-- Moments are nanoseconds since 1970, 0 for none. Ids are 16 bytes, or an empty
-- blob for none. Enumerations are texts where people may look, small numbers on
-- the rows that each run writes.

-- What there is one of: the counter of changes, places of background work.
create table counters (
  name  text primary key,
  value integer not null
) without rowid;

insert into counters (name, value) values ('change', 0);

create table settings (
  name  text primary key,
  value text not null
) without rowid;

-- The names of jobs, kept as long as history speaks of them. The number stands
-- for the job in history, where it makes the index by job a quarter of the size.
create table names (
  n         integer primary key,
  uid       blob not null unique,
  namespace text not null,
  name      text not null
);

-- The numbers of jobs that are gone and had history left.
create table orphans (
  n integer primary key
);

-- What jobs say. live is the full name of a job that is not deleted.
create table jobs (
  uid        blob primary key,
  live       text unique,
  boot       integer not null,
  definition text not null
) without rowid;

create index jobs_boot on jobs (live) where boot = 1;

-- What is written while jobs run, apart from the wide rows.
create table job_state (
  uid          blob primary key,
  n            integer not null,
  part         integer not null,
  seq          integer not null,
  timing       integer not null,
  created      integer not null,
  changed      integer not null,
  version      integer not null,
  epoch        integer not null,
  state        integer not null,
  deleted      integer not null,
  cursor       integer not null,
  floor        integer not null,
  planner      blob not null,
  planned      integer not null,
  failures     integer not null,
  previous     integer not null,
  previous_ok  integer not null,
  paused_at    integer not null,
  paused_until integer not null,
  paused_by    text not null,
  pause_reason text not null,
  completed    integer not null,
  remove_at    integer not null,
  keep_runs    integer not null,
  keep_for     integer not null,
  keep_output  integer not null
) without rowid;

create unique index job_state_seq on job_state (seq);
create index job_state_until on job_state (paused_until) where paused_until <> 0;
create index job_state_remove on job_state (remove_at) where remove_at <> 0;
create index job_state_keep on job_state (n) where keep_runs <> 0 or keep_for <> 0 or keep_output <> 0;
create index job_state_deleted on job_state (deleted) where deleted <> 0;

-- The texts of engine.TimingText, which many jobs share.
create table timings (
  id   integer primary key autoincrement,
  text text not null unique,
  jobs integer not null
);

-- Which jobs follow which, and which calendars they name, by full names.
create table followers (
  upstream text not null,
  job      blob not null,
  primary key (upstream, job)
) without rowid;

create index followers_job on followers (job);

create table calendar_users (
  calendar text not null,
  job      blob not null,
  primary key (calendar, job)
) without rowid;

create index calendar_users_job on calendar_users (job);

create table revisions (
  job        blob not null,
  version    integer not null,
  changed    integer not null,
  actor      text not null,
  definition text not null,
  primary key (job, version)
) without rowid;

-- Calendars and pools are few and read as a whole.
create table documents (
  kind       text not null,
  full       text not null,
  uid        blob not null,
  version    integer not null,
  definition text not null,
  primary key (kind, full)
) without rowid;

create table audit (
  seq     integer primary key,
  time    integer not null,
  actor   text not null,
  action  text not null,
  object  text not null,
  version integer not null,
  detail  text not null,
  changes text not null
);

-- Who may call. They are few and read as a whole.
create table tokens (
  name      text primary key,
  hash      blob not null unique,
  role      text not null,
  namespace text not null,
  created   integer not null,
  by        text not null,
  expires   integer not null
) without rowid;

-- Runs that are planned or going on. slot is null for the slot of the job
-- itself, so that most runs need no index but that of the job.
create table active (
  id            blob primary key,
  job           blob not null,
  state         integer not null,
  session       blob not null,
  due           integer not null,
  slot          text,
  holds         integer not null,
  attempt       integer not null,
  kind          integer not null,
  key           text not null,
  shard         integer not null,
  shards        integer not null,
  epoch         integer not null,
  version       integer not null,
  scheduled     integer not null,
  node          text not null,
  token         blob not null,
  overlap       integer not null,
  awaits        integer not null,
  priority      integer not null,
  late_after    integer not null,
  first         integer not null,
  claimed       integer not null,
  params        text not null,
  parent        blob not null,
  broadcast     integer not null,
  last          integer not null,
  reason        text not null,
  cancel_by     text not null,
  cancel_reason text not null
) without rowid;

-- It has all that a node reads of its ready runs, before their rows are read to
-- claim them.
create index active_session on active (state, session, due, id, job, attempt, priority);
create index active_job on active (job, due);
create index active_slot on active (slot, due) where slot is not null;

create table keys (
  job     blob not null,
  kind    integer not null,
  key     text not null,
  shard   integer not null,
  run     blob not null,
  expires integer not null,
  primary key (job, kind, key, shard)
) without rowid;

create index keys_expires on keys (expires);

create table sessions (
  id      blob primary key,
  machine text not null,
  datadir text not null,
  joined  integer not null,
  renewed integer not null,
  leaving integer not null,
  reaped  integer not null,
  running integer not null,
  ready   integer not null,
  about   text not null
) without rowid;

-- Finished attempts in the order of their end, which is the order in which they
-- are written, read and removed. attempt is 0 for a run that ended before the
-- attempt that is next_attempt.
create table history (
  ended        integer not null,
  run          blob not null,
  attempt      integer not null,
  job          integer not null,
  final        integer not null,
  outcome      integer not null,
  kind         integer not null,
  key          text not null,
  shard        integer not null,
  shards       integer not null,
  epoch        integer not null,
  version      integer not null,
  scheduled    integer not null,
  due          integer not null,
  next_attempt integer not null,
  held_slot    integer not null,
  started      integer not null,
  node         text not null,
  token        blob not null,
  reason       text not null,
  exit_code    integer,
  signal       text not null,
  http_status  integer not null,
  params       text not null,
  parent       blob not null,
  count        integer not null,
  until        integer not null,
  replaces     integer not null,
  output       integer not null,
  primary key (ended, run, attempt)
) without rowid;

create index history_job on history (job, ended, run, attempt, final);
create unique index history_run on history (run, attempt);

create table output (
  run     blob not null,
  attempt integer not null,
  seq     integer not null,
  start   integer not null,
  bytes   integer not null,
  time    integer not null,
  data    blob not null,
  primary key (run, attempt, seq)
) without rowid;
