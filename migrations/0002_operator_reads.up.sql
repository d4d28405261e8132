-- The operator's tool only reads Postgres: republishing goes to Redis.
revoke insert, update on outbox from fanout;
