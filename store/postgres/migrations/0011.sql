-- oldest: 1
-- For how long the node of a claimed attempt may be silent, as its job said at the claim.
alter table active add column lost_after bigint not null default 0;
