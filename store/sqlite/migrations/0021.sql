-- oldest: 1
-- What the work said about its failure, and what is the same for failures of one kind.
alter table history add column cause text not null default '';
alter table history add column fingerprint integer not null default 0;
