-- When the occurrence after that of a run is due, and the floor of the job before the claim.
alter table active add column next_due integer not null default 0;
alter table active add column floor_before integer not null default 0;
-- Why the present epoch of a job began, in words.
alter table job_state add column epoch_why text not null default '';
-- When the first attempt of a run started, in the records of further ones.
alter table history add column begun integer not null default 0;
