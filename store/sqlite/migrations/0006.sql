-- Where runs stand by state and session is kept in memory, and read at the start.
drop index active_session;
