-- oldest: 1
-- A run has as many bytes before its claim as after it: a row that grows is moved on its
-- page, and does not fit on one that was filled in the order of the ids. Sixteen zeros
-- are no token, as none are.
alter table active alter column token set default x'00000000000000000000000000000000';
