-- Whether a node has results that the store has not accepted: then no reason says that its attempts run.
alter table sessions add column unreported integer not null default 0;
