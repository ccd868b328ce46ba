-- oldest: 1
-- Notices between nodes, for those behind a connection pooler, which cannot listen. They are counted by
-- their text. A crash empties the table.
create unlogged table notices (
  payload text primary key,
  told    bigint not null default 1,
  at_time timestamptz not null default now()
) with (fillfactor = 50);
