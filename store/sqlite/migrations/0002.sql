-- What the policy expects of runs: which expectations a finished attempt has not
-- met, in words, and for a run that has not ended the next moment at which one is
-- not met. Only jobs that expect something are in the index.
alter table history add column unmet text not null default '';

alter table active add column first_due integer not null default 0;
alter table active add column alert_at integer not null default 0;

create index active_alert on active (alert_at) where alert_at <> 0;
