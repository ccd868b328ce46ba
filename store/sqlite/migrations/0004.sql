-- The nodes that take no runs because somebody has said so, by their names: it holds
-- whatever session they have.
create table drains (
  node   text primary key,
  since  integer not null,
  by     text not null,
  reason text not null
) without rowid;
