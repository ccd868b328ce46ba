-- oldest: 1
-- For people who look into the database. The program reads none of it.

-- belfry_id writes an id as people see it: 26 characters of Crockford's base 32.
create function belfry_id(id bytea) returns text language plpgsql immutable strict as $$
declare
  written text := '';
  value integer;
begin
  if length(id) <> 16 then
    return null;
  end if;
  for i in 0..25 loop
    value := 0;
    for place in i * 5 - 2 .. i * 5 + 2 loop
      value := value * 2;
      if place >= 0 then
        value := value + get_bit(id, place / 8 * 8 + 7 - place % 8);
      end if;
    end loop;
    written := written || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', value + 1, 1);
  end loop;
  return written;
end $$;

create function belfry_time(nanoseconds bigint) returns timestamptz language sql immutable strict as $$
  select case when nanoseconds <> 0 then timestamptz '1970-01-01 00:00:00+00' + nanoseconds / 1000 * interval '1 microsecond' end
$$;

create function belfry_outcome(n smallint) returns text language sql immutable strict as $$
  select nullif((array['', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'skipped', 'missed', 'withdrawn'])[n + 1], '')
$$;

create function belfry_kind(n smallint) returns text language sql immutable strict as $$
  select (array['schedule', 'backfill', 'hand', 'on', 'after_end', 'boot'])[n + 1]
$$;

create view belfry_jobs as
select n.namespace, n.name, belfry_id(j.uid) as uid, s.version, s.epoch,
  case when s.deleted = 1 then 'deleted' else (array['active', 'paused', 'completed'])[s.state + 1] end as state,
  belfry_time(s.cursor_at) as planned_until, s.planned as occurrences_planned, s.failures as failures_in_a_row,
  belfry_time(j.created) as created, belfry_time(j.changed) as changed, belfry_time(j.paused_at) as paused_at,
  belfry_time(j.paused_until) as paused_until, j.paused_by, j.pause_reason, j.definition::json as definition
from jobs j join job_state s on s.uid = j.uid join names n on n.uid = j.uid;

create view belfry_runs as
select n.namespace, n.name, belfry_id(a.id) as run, (array['ready', 'waiting', 'running', 'done'])[a.state + 1] as state,
  belfry_kind(a.kind) as kind, a.attempt, belfry_time(a.scheduled) as scheduled, belfry_time(a.due) as due,
  belfry_time(a.claimed) as claimed, nullif(a.node, '') as node, belfry_id(a.session) as session, a.holds = 1 as holds_slot,
  nullif(a.shards, 0) as shards, case when a.shards > 0 then a.shard end as shard, nullif(a.reason, '') as reason, a.epoch, a.version
from active a join names n on n.uid = a.job;

create view belfry_attempts as
select n.namespace, n.name, belfry_id(h.run) as run, h.attempt, belfry_outcome(h.outcome) as outcome, h.is_final = 1 as is_final, h.reason,
  belfry_kind(h.kind) as kind, belfry_time(h.scheduled) as scheduled, belfry_time(h.due) as due, belfry_time(h.started) as started,
  belfry_time(h.ended) as ended, nullif(h.node, '') as node, case when h.exited = 1 then h.exit_code end as exit_code,
  nullif(h.signal_name, '') as signal, nullif(h.http_status, 0) as http_status, h.occurrences, nullif(h.unmet, '') as unmet,
  h.output_bytes, h.version, belfry_id(h.parent) as parent
from history h join names n on n.uid = h.job;

create view belfry_nodes as
select node, belfry_id(id) as session, belfry_time(joined) as joined, belfry_time(renewed) as renewed, leaving = 1 as leaving,
  reaped = 1 as reaped, running, ready, belfry_time(d.since) as drained, d.made_by as drained_by, d.reason as drain_reason, about::json as about
from sessions s left join drains d using (node);
