-- oldest: 1
-- Runs of a session are read in pages by due time and id: without the id in the index
-- a page of a backlog costs a look at all of it, which is then sorted.
create index active_session_due on active (session, due, id);
drop index active_session;
alter index active_session_due rename to active_session;
