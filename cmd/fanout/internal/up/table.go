package up

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

const tryOrder = `curl --json '{"customer_id":"c-42","email":"ada@example.com","currency":"EUR","items":[{"sku":"tea-100","quantity":2,"unit_price":1250}]}'`

// printTable says what runs where and what to try.
func printTable(c *console, cfg Config, srv *servers, services []*service, late []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nNAME\tPID\tADDRESS")
	for _, s := range services {
		fmt.Fprintf(w, "%s\t%d\t%s\n", s.name, s.current().Pid(), s.url())
	}
	fmt.Fprintf(w, "redis\t%d\t%s (log: .fanout/redis.log)\n", srv.redis.Pid(), srv.redis.Addr())
	fmt.Fprintf(w, "postgres\t%d\t127.0.0.1:%d (log: .fanout/postgres.log)\n", srv.postgres.Pid(), srv.postgres.Port())
	fmt.Fprintf(w, "mailbox\t\t%s (%s)\n", srv.sink.Addr(), relative(cfg.Root, srv.mailDir))
	w.Flush()
	fmt.Fprintf(&b, `
Place an order:     %s %s/orders
See its bonus:      curl %s/customers/c-42/bonus
See the sums:       curl %s/stats
Read its mail:      ls .fanout/mail
Look into Redis:    redis-cli -u redis://default:fanout@%s --no-auth-warning XINFO GROUPS orders
Look into Postgres: psql '%s'
Check the books:    . .fanout/env && .fanout/bin/fanout check --wait 30s
Kill a service:     kill -9 $(cat .fanout/bonus.pid)   (it is started again after %s)
Stop everything:    Ctrl-C   (the data stay; make down removes them)

`, tryOrder, services[0].url(), services[2].url(), services[3].url(), srv.redis.Addr(),
		srv.postgres.DatabaseURL(database, "fanout", "fanout"), cfg.RestartAfter)
	if len(late) > 0 {
		fmt.Fprintf(&b, "Not ready yet: %s. Their logs below may say why.\n\n", strings.Join(late, ", "))
	}
	c.say("%s", strings.TrimSuffix(b.String(), "\n"))
}
