-- oldest: 1
-- Since when a session was renewed without a gap, and its last renewal before that gap: a
-- node is not judged by its silence for the time in which the database was away. An older
-- program beside it writes neither, and is no witness of the other nodes.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'sessions' and column_name = 'steady');
set @change = if(@missing, 'alter table sessions add column steady bigint not null default 0, add column before_gap bigint not null default 0', 'do 0');
prepare change_sessions from @change;
execute change_sessions;
deallocate prepare change_sessions;
