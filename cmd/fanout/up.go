package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/orderfanout/cmd/fanout/internal/up"
	"example.com/orderfanout/internal/env"
)

func upCommand() *cobra.Command {
	cfg := up.DefaultConfig()
	r := env.NewReader(os.Getenv)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the whole system on this machine, without Docker",
		Long: `Run the whole system on this machine: Redis, Postgres, the four services, and a mailbox that keeps each mail as a file.

It is started from the checkout, which the services are built from. All data are kept in .fanout there. A service that
ends is started again after three seconds. Ctrl-C drains everything; the next start finds its data.

Any setting of the services can be given in the environment (MAX_ATTEMPTS=3 fanout up). BONUS_HANDLER_DELAY and BONUS_ACK_DELAY
slow down the bonus service only, so that it can be killed in the middle of its work; BONUS_CRASH_AT=bonus.committed lets it end
itself there, once (docs/crash-points.md). The same goes for ORDERS_, MAILER_ and ANALYTICS_.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.Err(); err != nil {
				return err
			}
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			if cfg.Root, err = up.FindRoot(wd); err != nil {
				return err
			}
			cfg.Colour = onTerminal()
			cfg.Env, cfg.FirstEnv = serviceSettings("HANDLER_DELAY", "ACK_DELAY"), serviceSettings("CRASH_AT")
			ctx, hurry := interruptions()
			return up.Run(ctx, hurry, cfg, cmd.OutOrStdout())
		},
	}
	for _, p := range []struct {
		name, variable string
		port           *int
	}{
		{"orders", "ORDERS_PORT", &cfg.Orders},
		{"mailer", "MAILER_PORT", &cfg.Mailer},
		{"bonus", "BONUS_PORT", &cfg.Bonus},
		{"analytics", "ANALYTICS_PORT", &cfg.Analytics},
		{"redis", "REDIS_PORT", &cfg.Redis},
		{"postgres", "POSTGRES_PORT", &cfg.Postgres},
	} {
		def := r.Int(p.variable, *p.port, 1, 65535)
		cmd.Flags().IntVar(p.port, p.name+"-port", def, "port of "+p.name+" ("+p.variable+")")
	}
	return cmd
}

// interruptions returns a context that ends with the first signal to stop, and one that ends with the second.
func interruptions() (ctx, hurry context.Context) {
	ctx, stop := context.WithCancel(context.Background())
	hurry, kill := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		stop()
		<-signals
		kill()
	}()
	return ctx, hurry
}

// onTerminal tells whether stdout is a terminal that shows colours.
func onTerminal() bool {
	st, err := os.Stdout.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// serviceSettings reads those of the settings that the environment gives to one service alone, as BONUS_ACK_DELAY.
func serviceSettings(settings ...string) map[string][]string {
	byService := map[string][]string{}
	for _, service := range []string{"orders", "mailer", "bonus", "analytics"} {
		for _, name := range settings {
			if v := os.Getenv(strings.ToUpper(service) + "_" + name); v != "" {
				byService[service] = append(byService[service], name+"="+v)
			}
		}
	}
	return byService
}
