-- oldest: 1
-- When tokens were last used, and what else they are good for: labels, certificates, people.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'tokens' and column_name = 'terms');
set @change = if(@missing, 'alter table tokens add column last_used bigint not null default 0, add column terms mediumtext not null default ('''')', 'do 0');
prepare change_stmt from @change;
execute change_stmt;
deallocate prepare change_stmt;
