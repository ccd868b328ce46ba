-- oldest: 1
-- When the next start of a line is due by its rate.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'pools' and column_name = 'turn');
set @change = if(@missing, 'alter table pools add column turn bigint not null default 0', 'do 0');
prepare change_pools from @change;
execute change_pools;
deallocate prepare change_pools;
