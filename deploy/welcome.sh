#!/bin/sh
# Prints what to try. A port that is a range (8082-8091) is named by its first.
cat <<TEXT

orderfanout is up. Place an order:

  curl --json '{"customer_id":"c-42","email":"ada@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":2,"unit_price":1250}]}' http://127.0.0.1:${ORDERS_PORT%%-*}/orders

and see what the three jobs made of it:

  the mail     http://127.0.0.1:${MAILPIT_PORT%%-*}
  the bonus    curl http://127.0.0.1:${BONUS_PORT%%-*}/customers/c-42/bonus
  the figures  curl http://127.0.0.1:${ANALYTICS_PORT%%-*}/stats

Kill a worker in the middle of its work, and see that nothing is lost and nothing is done twice:

  BONUS_HANDLER_DELAY=5s docker compose up -d bonus     a pause in which to kill it
  (place an order)
  docker compose kill bonus
  docker compose exec redis redis-cli XPENDING orders bonus
  docker compose start bonus                            after its pause the entry is credited, once
  docker compose up -d bonus                            and without the pause again

Look inside:  docker compose exec redis redis-cli XINFO GROUPS orders
              docker compose exec postgres psql
Check it all: docker compose --progress quiet run --rm fanout check --wait 30s
TEXT
