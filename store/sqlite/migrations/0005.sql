-- By how much the clock of a node is ahead of the store's, as it says.
alter table sessions add column clock_ahead integer not null default 0;
