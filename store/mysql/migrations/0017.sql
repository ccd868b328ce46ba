-- oldest: 1
-- Lists of jobs that fail read failures alone, however many runs succeed in between. An index has
-- all rows, so it begins with a column that is computed from the others.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'history' and column_name = 'failed');
set @change = if(@missing, 'alter table history add column failed smallint generated always as (if(is_final = 1 and outcome in (2, 3, 5, 7), 1, 0)) virtual', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;
set @missing = (select count(*) = 0 from information_schema.statistics
  where table_schema = database() and table_name = 'history' and index_name = 'history_failed');
set @change = if(@missing, 'alter table history add key history_failed (failed, ended, run, attempt)', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;
-- The same for jobs that are paused.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'jobs' and column_name = 'paused');
set @change = if(@missing, 'alter table jobs add column paused smallint generated always as (if(paused_at <> 0, 1, 0)) virtual', 'do 0');
prepare change_jobs from @change;
execute change_jobs;
deallocate prepare change_jobs;
set @missing = (select count(*) = 0 from information_schema.statistics
  where table_schema = database() and table_name = 'jobs' and index_name = 'jobs_paused');
set @change = if(@missing, 'alter table jobs add key jobs_paused (paused, live)', 'do 0');
prepare change_jobs from @change;
execute change_jobs;
deallocate prepare change_jobs;
