-- oldest: 1
-- For how long the node of a claimed attempt may be silent, as its job said at the claim.
set @missing = (select count(*) = 0 from information_schema.columns
  where table_schema = database() and table_name = 'active' and column_name = 'lost_after');
set @change = if(@missing, 'alter table active add column lost_after bigint not null default 0', 'do 0');
prepare change_active from @change;
execute change_active;
deallocate prepare change_active;
