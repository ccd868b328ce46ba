-- oldest: 14
-- How far a flow has come. A program that knows no flows would claim their runs, and fail them.
alter table active add column flow text not null default '';
alter table history add column flow text not null default '';
