-- oldest: 1
-- When an attempt was claimed, and the slot that its run needed: '.' is that of the job itself.
-- Where a change came from, and what the changes of one request have in common.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'history' and column_name = 'claimed');
set @change = if(@missing, 'alter table history add column claimed bigint not null default 0', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'history' and column_name = 'slot');
set @change = if(@missing, 'alter table history add column slot varbinary(1024) not null default ''''', 'do 0');
prepare change_history from @change;
execute change_history;
deallocate prepare change_history;
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'audit' and column_name = 'client');
set @change = if(@missing, 'alter table audit add column client varbinary(40) not null default ''''', 'do 0');
prepare change_audit from @change;
execute change_audit;
deallocate prepare change_audit;
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'audit' and column_name = 'address');
set @change = if(@missing, 'alter table audit add column address varbinary(100) not null default ''''', 'do 0');
prepare change_audit from @change;
execute change_audit;
deallocate prepare change_audit;
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'audit' and column_name = 'request');
set @change = if(@missing, 'alter table audit add column request varbinary(100) not null default ''''', 'do 0');
prepare change_audit from @change;
execute change_audit;
deallocate prepare change_audit;
