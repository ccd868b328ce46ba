-- oldest: 1
-- When tokens were last used, and what else they are good for: labels, certificates, people.
alter table tokens add column last_used bigint not null default 0;
alter table tokens add column terms text not null default '';
