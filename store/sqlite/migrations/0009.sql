-- The tables have the columns that they have in PostgreSQL and MySQL, so that the same
-- statements serve all three. History and output, which may be large, are only renamed,
-- and history goes on to speak of jobs by their numbers.

insert or ignore into counters (name, value) values
  ('audit', (select coalesce(max(seq), 0) from audit)), ('calendars', 0), ('defaults', 0), ('expiry', 0), ('graph', 0),
  ('tidy', 0), ('told', 0), ('tokens', 0);

-- What rarely changes about a job. seq is its place in the feed of changes, live the
-- full name of a job that is not deleted. The wide columns stand at the end.
create table jobs_9 (
  uid          blob primary key,
  seq          integer not null,
  version      integer not null,
  part         integer not null,
  live         text unique,
  boot         integer not null,
  created      integer not null,
  changed      integer not null,
  deleted_at   integer not null,
  paused_at    integer not null,
  paused_until integer not null,
  paused_by    text not null,
  pause_reason text not null,
  remove_at    integer not null,
  keep_runs    integer not null,
  keep_for     integer not null,
  keep_output  integer not null,
  timing       text not null,
  definition   text not null
) without rowid;

insert into jobs_9
select j.uid, s.seq, s.version, s.part, j.live, j.boot, s.created, s.changed, s.deleted, s.paused_at, s.paused_until,
  s.paused_by, s.pause_reason, s.remove_at, s.keep_runs, s.keep_for, s.keep_output, coalesce(t.text, ''), j.definition
from jobs j cross join job_state s on s.uid = j.uid left join timings t on t.id = s.timing
order by j.uid;

-- What is written while jobs run. No column but the key is in an index.
create table job_state_9 (
  uid             blob primary key,
  seq             integer not null,
  version         integer not null,
  epoch           integer not null,
  state           integer not null,
  deleted         integer not null,
  cursor_at       integer not null,
  floor_at        integer not null,
  planner         blob not null,
  planned         integer not null,
  failures        integer not null,
  previous        integer not null,
  previous_ok     integer not null,
  completed       integer not null,
  previous_failed text not null default ''
) without rowid;

insert into job_state_9
select uid, seq, version, epoch, state, deleted <> 0, cursor, floor, planner, planned, failures, previous, previous_ok,
  completed, previous_failed
from job_state order by uid;

drop table jobs;
drop table job_state;
drop table timings;
alter table jobs_9 rename to jobs;
alter table job_state_9 rename to job_state;

create unique index jobs_seq on jobs (seq);
create index jobs_part on jobs (part);
create index jobs_boot on jobs (live) where boot = 1;
create index jobs_until on jobs (paused_until) where paused_until <> 0;
create index jobs_remove on jobs (remove_at) where remove_at <> 0;
create index jobs_keep on jobs (uid) where keep_runs <> 0 or keep_for <> 0 or keep_output <> 0;
create index jobs_deleted on jobs (deleted_at) where deleted_at <> 0;

-- Jobs that are gone and had history left.
create table orphans_9 (
  uid blob primary key
) without rowid;
insert into orphans_9 select n.uid from orphans o join names n on n.n = o.n;
drop table orphans;
alter table orphans_9 rename to orphans;

-- One row for each pool that was ever named, for its lock.
create table pools (
  name text primary key
) without rowid;

alter table documents rename column full to full_name;
alter table audit rename column time to written;
alter table tokens rename column by to made_by;
alter table drains rename column by to made_by;

alter table keys rename to request_keys;
alter table request_keys rename column key to request;

-- Runs that are planned or going on. slot is '' for that of the job itself.
create table active_9 (
  id            blob primary key,
  job           blob not null,
  state         integer not null,
  session       blob not null,
  due           integer not null,
  slot          text not null,
  holds         integer not null,
  attempt       integer not null,
  kind          integer not null,
  run_key       text not null,
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
  first_claimed integer not null,
  claimed       integer not null,
  params        text not null,
  parent        blob not null,
  broadcast     integer not null,
  last_outcome  integer not null,
  reason        text not null,
  cancel_by     text not null,
  cancel_reason text not null,
  first_due     integer not null default 0,
  alert_at      integer not null default 0,
  others        integer not null default 0
) without rowid;

insert into active_9
select id, job, state, session, due, coalesce(slot, ''), holds, attempt, kind, key, shard, shards, epoch, version, scheduled,
  node, token, overlap, awaits, priority, late_after, first, claimed, params, parent, broadcast, last, reason, cancel_by,
  cancel_reason, first_due, alert_at, others
from active order by id;
drop table active;
alter table active_9 rename to active;

create index active_session on active (session, due);
create index active_job on active (job, due);
create index active_slot on active (slot, due) where slot <> '';
create index active_alert on active (alert_at) where alert_at <> 0;

create table sessions_9 (
  id          blob primary key,
  node        text not null,
  machine     text not null,
  datadir     text not null,
  joined      integer not null,
  renewed     integer not null,
  steady      integer not null default 0,
  before_gap  integer not null default 0,
  leaving     integer not null,
  reaped      integer not null,
  running     integer not null,
  ready       integer not null,
  clock_ahead integer not null default 0,
  about       text not null
) without rowid;
insert into sessions_9
select id, json_extract(cast(about as text), '$.Node'), machine, datadir, joined, renewed, steady, before_gap, leaving, reaped, running, ready, clock_ahead, about
from sessions;
drop table sessions;
alter table sessions_9 rename to sessions;

alter table history rename column key to run_key;
alter table history rename column final to is_final;
alter table history rename column signal to signal_name;
alter table history rename column count to occurrences;
alter table history rename column until to last_scheduled;
alter table history rename column output to output_bytes;
-- 2: exit_code is null where the attempt has none, as in the rows from before.
alter table history add column exited integer not null default 2;

alter table output rename column start to position;
alter table output rename column time to written;
