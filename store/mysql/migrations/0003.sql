-- oldest: 1
-- By how much the clock of a node is ahead of the database's, as it says: in
-- nanoseconds. An older program that goes on beside it says nothing.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'sessions' and column_name = 'clock_ahead');
-- Only MariaDB adds what may be there already.
set @change = if(@missing, 'alter table sessions add column clock_ahead bigint not null default 0', 'do 0');
prepare change_sessions from @change;
execute change_sessions;
deallocate prepare change_sessions;

create or replace view belfry_nodes as
select s.node, belfry_id(s.id) as session, belfry_time(s.joined) as joined, belfry_time(s.renewed) as renewed, s.leaving = 1 as leaving,
  s.reaped = 1 as reaped, s.running, s.ready, belfry_time(d.since) as drained, d.made_by as drained_by, d.reason as drain_reason, s.about,
  s.clock_ahead / 1000000000 as clock_ahead_seconds
from sessions s left join drains d on d.node = cast(s.node as binary);
