-- oldest: 1
-- What an attempt used of its machine, as job.Usage writes it.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'history' and column_name = 'used');
set @change = if(@missing, 'alter table history add column used varchar(100) not null default ''''', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;

create or replace view belfry_attempts as
select n.namespace, n.name, belfry_id(h.run) as run, h.attempt,
  elt(h.outcome, 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'skipped', 'missed', 'withdrawn') as outcome,
  h.is_final = 1 as is_final, substring_index(h.reason, char(31 using utf8mb4), 1) as reason,
  elt(h.kind + 1, 'schedule', 'backfill', 'hand', 'on', 'after_end', 'boot') as kind,
  belfry_time(h.scheduled) as scheduled, belfry_time(h.due) as due, belfry_time(h.started) as started,
  belfry_time(h.ended) as ended, nullif(h.node, '') as node, case when h.exited = 1 then h.exit_code end as exit_code,
  nullif(h.signal_name, '') as `signal`, nullif(h.http_status, 0) as http_status, h.occurrences, nullif(substring_index(h.unmet, char(31 using utf8mb4), 1), '') as unmet,
  h.output_bytes, h.version, belfry_id(h.parent) as parent, nullif(h.cause, '') as cause, nullif(lower(lpad(hex(h.fingerprint), 16, '0')), '0000000000000000') as cause_fingerprint,
  nullif(substring_index(h.used, ',', 1), '') / 1000000 as cpu_seconds,
  cast(nullif(trim(leading '<' from substring_index(substring_index(h.used, ',', 2), ',', -1)), '') as signed) as memory_bytes,
  cast(nullif(substring_index(substring_index(h.used, ',', 3), ',', -1), '') as signed) as read_bytes,
  cast(nullif(substring_index(h.used, ',', -1), '') as signed) as written_bytes
from history h join names n on n.uid = h.job;
