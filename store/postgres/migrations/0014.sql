-- oldest: 1
-- How far a flow has come.
alter table active add column flow text not null default '';
alter table history add column flow text not null default '';
