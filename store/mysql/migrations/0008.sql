-- oldest: 1
-- When the occurrence after that of a run is due, and the floor of the job before the claim.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'active' and column_name = 'next_due');
set @change = if(@missing, 'alter table active add column next_due bigint not null default 0', 'do 0');
prepare change_active from @change;
execute change_active;
deallocate prepare change_active;
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'active' and column_name = 'floor_before');
set @change = if(@missing, 'alter table active add column floor_before bigint not null default 0', 'do 0');
prepare change_active from @change;
execute change_active;
deallocate prepare change_active;
-- Why the present epoch of a job began, in words.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'job_state' and column_name = 'epoch_why');
set @change = if(@missing, 'alter table job_state add column epoch_why varbinary(4000) not null default ''''', 'do 0');
prepare change_job_state from @change;
execute change_job_state;
deallocate prepare change_job_state;
-- When the first attempt of a run started, in the records of further ones.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'history' and column_name = 'begun');
set @change = if(@missing, 'alter table history add column begun bigint not null default 0', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;
