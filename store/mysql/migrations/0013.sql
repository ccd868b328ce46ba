-- oldest: 13
-- How far a flow has come. A program that knows no flows would claim their runs, and fail them.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'active' and column_name = 'flow');
set @change = if(@missing, 'alter table active add column flow longtext not null default ('''')', 'do 0');
prepare change_active from @change;
execute change_active;
deallocate prepare change_active;
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'history' and column_name = 'flow');
set @change = if(@missing, 'alter table history add column flow longtext not null default ('''')', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;
