-- oldest: 1
-- The nodes that take no runs because somebody has said so, by their names: it holds
-- whatever session they have. An older program that goes on beside it takes runs.
create table drains (
  node    text primary key,
  since   bigint not null,
  made_by text not null,
  reason  text not null
);
