-- oldest: 1
-- Which shards of the occurrence before have not succeeded, for needs_previous: "0,3".
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'job_state' and column_name = 'previous_failed');
set @change = if(@missing, 'alter table job_state add column previous_failed varbinary(4000) not null default ''''', 'do 0');
prepare change_job_state from @change;
execute change_job_state;
deallocate prepare change_job_state;
