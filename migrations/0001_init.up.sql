-- The whole schema. Money is in minor units. Event ids are text, as CloudEvents has them; order ids are UUIDv7.

create table orders (
    id          uuid primary key,
    customer_id text not null,
    email       text not null,
    currency    text not null,
    total       bigint not null check (total >= 0),
    status      text not null,
    created_at  timestamptz not null,
    event_id    text collate "C" not null unique
);
create index orders_by_customer on orders (customer_id, id desc);

create table order_items (
    order_id   uuid not null references orders,
    position   int not null,
    sku        text not null,
    quantity   bigint not null check (quantity > 0),
    unit_price bigint not null check (unit_price >= 0),
    primary key (order_id, position)
);

-- Written in the order's own transaction; removed after 24 h.
create table idempotency_keys (
    customer_id  text not null,
    key          text not null,
    request_hash bytea not null,
    order_id     uuid not null references orders,
    created_at   timestamptz not null default now(),
    primary key (customer_id, key)
);
create index idempotency_keys_by_age on idempotency_keys (created_at);

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
create index outbox_unpublished on outbox (id) where published_at is null;
create index outbox_published on outbox (published_at) where published_at is not null;

-- One row a relay name: who may publish until when, and where the broker stood then.
create table outbox_relay (
    name          text primary key,
    holder        text not null,
    expires_at    timestamptz not null,
    broker_server text not null default '',
    broker_last   text not null default ''
);

-- The marker: which consumer has done which event. Removed after PROCESSED_RETENTION.
create table processed (
    consumer     text collate "C" not null,
    event_id     text collate "C" not null,
    processed_at timestamptz not null default now(),
    primary key (consumer, event_id)
);
create index processed_by_age on processed (processed_at);

-- The permanent guard: one row an event, for zero points too.
create table bonus_ledger (
    event_id    text collate "C" primary key,
    order_id    uuid not null,
    customer_id text not null,
    points      bigint not null check (points >= 0),
    created_at  timestamptz not null default now()
);
create index bonus_ledger_by_customer on bonus_ledger (customer_id, created_at desc, event_id desc);

create table bonus_accounts (
    customer_id text primary key,
    balance     bigint not null check (balance >= 0)
);

grant usage on schema public to orders, bonus, fanout;
grant select, insert on orders, order_items to orders;
grant select, insert, delete on idempotency_keys to orders;
grant select, insert, update, delete on outbox, outbox_relay to orders;
grant select, insert, delete on processed to bonus;
grant select, insert on bonus_ledger to bonus;
grant select, insert, update on bonus_accounts to bonus;
grant select on all tables in schema public to fanout;
grant insert, update on outbox to fanout;
