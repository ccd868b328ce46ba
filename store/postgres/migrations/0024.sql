-- oldest: 1
-- When the next start of a line is due by its rate.
alter table pools add column turn bigint not null default 0;
