-- What waits, in the order of its ids. They are second in it, so that no other index has this order: a plan that was made for an empty
-- outbox can only use this one, and stays right for a large one. So the relay keeps its plans.
--
-- Orders wait while it is built, a few seconds for a million rows. Where that is too long, build it beforehand by the same name, concurrently.
create index if not exists outbox_waiting on outbox (published_at, id) where published_at is null;
drop index outbox_unpublished;
