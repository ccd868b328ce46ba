-- oldest: 1
-- What an attempt used of its machine, as job.Usage writes it.
alter table history add column used text not null default '';
