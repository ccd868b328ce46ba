-- oldest: 1
-- When an attempt was claimed, and the slot that its run needed: '.' is that of the job itself.
alter table history add column claimed bigint not null default 0;
alter table history add column slot text not null default '';
-- Where a change came from, and what the changes of one request have in common.
alter table audit add column client text not null default '';
alter table audit add column address text not null default '';
alter table audit add column request text not null default '';
