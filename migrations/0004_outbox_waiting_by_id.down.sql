create index outbox_waiting on outbox (published_at, id) where published_at is null;
drop index outbox_waiting_by_id;
