-- oldest: 1
-- What an attempt used of its machine, as job.Usage writes it.
alter table history add column used text not null default '';

create or replace view belfry_attempts as
select n.namespace, n.name, belfry_id(h.run) as run, h.attempt, belfry_outcome(h.outcome) as outcome, h.is_final = 1 as is_final, split_part(h.reason, chr(31), 1) as reason,
  belfry_kind(h.kind) as kind, belfry_time(h.scheduled) as scheduled, belfry_time(h.due) as due, belfry_time(h.started) as started,
  belfry_time(h.ended) as ended, nullif(h.node, '') as node, case when h.exited = 1 then h.exit_code end as exit_code,
  nullif(h.signal_name, '') as signal, nullif(h.http_status, 0) as http_status, h.occurrences, nullif(split_part(h.unmet, chr(31), 1), '') as unmet,
  h.output_bytes, h.version, belfry_id(h.parent) as parent, nullif(h.cause, '') as cause, nullif(lpad(to_hex(h.fingerprint), 16, '0'), '0000000000000000') as cause_fingerprint,
  nullif(split_part(h.used, ',', 1), '')::numeric / 1000000 as cpu_seconds, nullif(ltrim(split_part(h.used, ',', 2), '<'), '')::bigint as memory_bytes,
  nullif(split_part(h.used, ',', 3), '')::bigint as read_bytes, nullif(split_part(h.used, ',', 4), '')::bigint as written_bytes
from history h join names n on n.uid = h.job;
