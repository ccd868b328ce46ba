-- oldest: 1
-- By how much the clock of a node is ahead of the database's, as it says: in
-- nanoseconds. An older program that goes on beside it says nothing.
alter table sessions add column clock_ahead bigint not null default 0;

create or replace view belfry_nodes as
select node, belfry_id(id) as session, belfry_time(joined) as joined, belfry_time(renewed) as renewed, leaving = 1 as leaving,
  reaped = 1 as reaped, running, ready, belfry_time(d.since) as drained, d.made_by as drained_by, d.reason as drain_reason, about::json as about,
  clock_ahead / 1000000000.0 as clock_ahead_seconds
from sessions s left join drains d using (node);
