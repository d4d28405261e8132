drop table bonus_accounts, bonus_ledger, processed, outbox_relay, outbox, idempotency_keys, order_items, orders;
