-- What the package outbox needs. A role that adds events needs insert on outbox; a role that relays them needs select, insert, update and
-- delete on both tables.

-- Events waiting to be published, and for a while those that were. The identity column gives the order.
create table outbox (
    id                bigint generated always as identity primary key,
    event_id          text collate "C" not null unique,
    source            text not null,
    type              text not null,
    time              timestamptz not null,
    subject           text not null,
    partition_key     text not null,
    data_content_type text not null,
    data_schema       text not null,
    trace_parent      text not null,
    only_group        text not null default '',
    data              bytea not null,
    created_at        timestamptz not null default clock_timestamp(),
    published_at      timestamptz,
    entry_id          text
);
-- What waits, by id. (id + 0), since no other index has that order: a plan that was made for an empty outbox can only use this one.
create index outbox_waiting_by_id on outbox ((id + 0)) where published_at is null;
create index outbox_published on outbox (published_at) where published_at is not null;

-- One row a relay name, made by the relay: who may publish until when, and where the broker stood then.
create table outbox_relay (
    name          text primary key,
    holder        text not null,
    expires_at    timestamptz not null,
    broker_server text not null default '',
    broker_last   text not null default ''
);
