grant insert, update on outbox to fanout;
