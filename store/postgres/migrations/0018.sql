-- oldest: 1
-- Lists of jobs that fail read failures alone, however many runs succeed in between.
create index history_failed on history (ended, run, attempt) where is_final = 1 and outcome in (2, 3, 5, 7);
-- The same for jobs that are paused.
create index jobs_paused on jobs (live) where paused_at <> 0;
