-- What waits, by id, so that a look at it can begin at one: the rows before are published, but until a VACUUM they are still in the index.
-- By (id + 0), since no other index has that order: a plan that was made for an empty outbox can only use this one, and stays right for
-- a large one. So the relay keeps its plans.
--
-- Orders wait while it is built, a few seconds for a million rows. Where that is too long, build it beforehand by the same name, concurrently.
do $$
begin
    if exists (select from pg_index where indexrelid = to_regclass('outbox_waiting_by_id') and not indisvalid) then
        drop index outbox_waiting_by_id; -- what an interrupted CREATE INDEX CONCURRENTLY leaves: nobody may use it
    end if;
end $$;
create index if not exists outbox_waiting_by_id on outbox ((id + 0)) where published_at is null;
drop index outbox_waiting;
