create index outbox_unpublished on outbox (id) where published_at is null;
drop index outbox_waiting;
