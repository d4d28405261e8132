-- What the package processed needs. A consumer's role needs select, insert and delete.

-- The marker: which consumer has done which event.
create table processed (
    consumer     text collate "C" not null,
    event_id     text collate "C" not null,
    processed_at timestamptz not null default now(),
    primary key (consumer, event_id)
);
create index processed_by_age on processed (processed_at);
