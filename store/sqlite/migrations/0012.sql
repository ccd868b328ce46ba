-- For how long the node of a claimed attempt may be silent, as its job said at the claim.
alter table active add column lost_after integer not null default 0;
