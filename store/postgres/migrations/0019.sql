-- oldest: 1
-- A reason has its code and arguments behind the sentence, which is what people read here.
create or replace view belfry_jobs as
select n.namespace, n.name, belfry_id(j.uid) as uid, s.version, s.epoch,
  case when s.deleted = 1 then 'deleted' else (array['active', 'paused', 'completed'])[s.state + 1] end as state,
  belfry_time(s.cursor_at) as planned_until, s.planned as occurrences_planned, s.failures as failures_in_a_row,
  belfry_time(j.created) as created, belfry_time(j.changed) as changed, belfry_time(j.paused_at) as paused_at,
  belfry_time(j.paused_until) as paused_until, j.paused_by, split_part(j.pause_reason, chr(31), 1) as pause_reason, j.definition::json as definition
from jobs j join job_state s on s.uid = j.uid join names n on n.uid = j.uid;

create or replace view belfry_runs as
select n.namespace, n.name, belfry_id(a.id) as run, (array['ready', 'waiting', 'running', 'done'])[a.state + 1] as state,
  belfry_kind(a.kind) as kind, a.attempt, belfry_time(a.scheduled) as scheduled, belfry_time(a.due) as due,
  belfry_time(a.claimed) as claimed, nullif(a.node, '') as node, belfry_id(a.session) as session, a.holds = 1 as holds_slot,
  nullif(a.shards, 0) as shards, case when a.shards > 0 then a.shard end as shard, nullif(split_part(a.reason, chr(31), 1), '') as reason, a.epoch, a.version
from active a join names n on n.uid = a.job;

create or replace view belfry_attempts as
select n.namespace, n.name, belfry_id(h.run) as run, h.attempt, belfry_outcome(h.outcome) as outcome, h.is_final = 1 as is_final, split_part(h.reason, chr(31), 1) as reason,
  belfry_kind(h.kind) as kind, belfry_time(h.scheduled) as scheduled, belfry_time(h.due) as due, belfry_time(h.started) as started,
  belfry_time(h.ended) as ended, nullif(h.node, '') as node, case when h.exited = 1 then h.exit_code end as exit_code,
  nullif(h.signal_name, '') as signal, nullif(h.http_status, 0) as http_status, h.occurrences, nullif(split_part(h.unmet, chr(31), 1), '') as unmet,
  h.output_bytes, h.version, belfry_id(h.parent) as parent
from history h join names n on n.uid = h.job;
