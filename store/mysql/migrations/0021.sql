-- oldest: 1
-- Whether a node has results that the store has not accepted: then no reason says that its attempts run.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'sessions' and column_name = 'unreported');
set @change = if(@missing, 'alter table sessions add column unreported bigint not null default 0', 'do 0');
prepare change_sessions from @change;
execute change_sessions;
deallocate prepare change_sessions;
