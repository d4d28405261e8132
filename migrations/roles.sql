-- A role a service, owning nothing. Each statement may be run again, and by several at once. The passwords are for a
-- development machine: where a role is there already, its password is left alone (docs/adopt.md).
--
-- The connection budget: the limit covers three replicas of the service, and all limits together stay under
-- max_connections (100 by default). A test adds it up.
do $$
declare
    budget constant jsonb := '{"orders": 45, "bonus": 30, "fanout": 5}';
    name   text;
begin
    for name in select jsonb_object_keys(budget) loop
        begin
            execute format('create role %I login password %L', name, name);
        exception when duplicate_object or unique_violation then null;
        end;
        execute format('alter role %I connection limit %s', name, budget ->> name);
        execute format('alter role %I set lock_timeout = ''5s''', name);
        execute format('alter role %I set idle_in_transaction_session_timeout = ''10s''', name);
    end loop;
end $$;
