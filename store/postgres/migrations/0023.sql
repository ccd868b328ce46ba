-- oldest: 1
-- Which process has the unfinished runs of a job in its memory, 0 for none: see sqldb/hot.go. It is written
-- with the runs, under the lock of the row. What does not know that, an earlier version or a person, ends it
-- by the trigger.
alter table job_state add column cached_by bigint not null default 0;

create function belfry_uncache() returns trigger language plpgsql set search_path from current as $$
begin
  if tg_op = 'DELETE' then
    update job_state set cached_by = 0 where uid = old.job and cached_by <> 0;
  else
    update job_state set cached_by = 0 where uid = new.job and cached_by <> 0;
  end if;
  return null;
end $$;

create trigger active_uncached after insert or update or delete on active for each row
  when (current_setting('belfry.caches', true) is distinct from '1') execute function belfry_uncache();
