-- The role, with its part of the connection budget: orders 45, bonus 30, fanout 5 (migrations/roles.sql), and 12 for sms, three replicas
-- with four connections each, make 92. Three are reserved for administrators, and max_connections is 100.
do $$
begin
    create role sms login password 'sms'; -- for a development machine
exception when duplicate_object then null;
end $$;
alter role sms connection limit 12;
alter role sms set lock_timeout = '5s';
alter role sms set idle_in_transaction_session_timeout = '10s';

create table if not exists phones (
    customer_id text primary key,
    phone       text not null
);
create table if not exists sms (
    order_id uuid not null,
    phone    text not null,
    text     text not null,
    sent_at  timestamptz not null default now()
);

-- The owner made the tables; the role may do its work, and nothing else.
grant usage on schema public to sms;
grant select on phones to sms;
grant insert on sms to sms;
grant select, insert, delete on processed to sms;
