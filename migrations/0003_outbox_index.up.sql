-- What waits, in the order of its ids. They are second in it, so that no other index has this order: a plan that was made for an empty
-- outbox can only use this one, and stays right for a large one. So the relay keeps its plans.
create index outbox_waiting on outbox (published_at, id) where published_at is null;
drop index outbox_unpublished;
