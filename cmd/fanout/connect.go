package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/orderfanout/internal/env"
)

const stream = "orders"

// groups are the consumer groups, in the order in which they are shown.
var groups = []string{"mailer", "bonus", "analytics"}

// connectRedis opens the Redis of REDIS_URL.
func connectRedis() (*redis.Client, *redis.Options, error) {
	r := env.NewReader(os.Getenv)
	url := r.URL("REDIS_URL", "", "redis", "rediss")
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w; after make up: . .fanout/env; docker compose run --rm fanout has it", err)
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, errors.New("REDIS_URL: is not a Redis URL (redis://[user:password@]host[:port])")
	}
	redis.SetLogger(silent{})
	return redis.NewClient(opts), opts, nil
}

// connectPostgres opens the Postgres of DATABASE_URL.
func connectPostgres(ctx context.Context) (*pgxpool.Pool, error) {
	r := env.NewReader(os.Getenv)
	url := r.URL("DATABASE_URL", "", "postgres", "postgresql")
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w; after make up: . .fanout/env; docker compose run --rm fanout has it", err)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("DATABASE_URL: is not a Postgres URL (postgres://user:password@host:port/database)")
	}
	cfg.MaxConns = 2
	return pgxpool.NewWithConfig(ctx, cfg)
}

// silent drops what go-redis would print by itself: the same errors come back from its calls.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// checkGroup returns an error where there is no such group.
func checkGroup(group string) error {
	if group == "" {
		return fmt.Errorf("name a group with --group: %s", strings.Join(groups, ", "))
	}
	if !slices.Contains(groups, group) {
		return fmt.Errorf("there is no group %q: use %s", group, strings.Join(groups, ", "))
	}
	return nil
}

// groupList is a flag that names one or more groups, each once.
type groupList struct {
	names   *[]string
	changed bool // what stands there is no default any more
}

// Set adds groups. An empty name is an error: as a rule a variable that is not set.
func (l *groupList) Set(value string) error {
	if !l.changed {
		*l.names, l.changed = nil, true
	}
	for name := range strings.SplitSeq(value, ",") {
		if err := checkGroup(name); err != nil {
			return err
		}
		if !slices.Contains(*l.names, name) {
			*l.names = append(*l.names, name)
		}
	}
	return nil
}

func (l *groupList) String() string { return strings.Join(*l.names, ",") }
func (l *groupList) Type() string   { return "groups" }

func groupFlag(cmd *cobra.Command, group *string) {
	cmd.Flags().StringVarP(group, "group", "g", "", "consumer group: "+strings.Join(groups, ", "))
	_ = cmd.RegisterFlagCompletionFunc("group", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
}

// confirmed asks before something that cannot be taken back, unless yes.
func confirmed(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if !strings.EqualFold(strings.TrimSpace(answer), "y") {
		return errors.New("nothing was done (answer y, or give --yes)")
	}
	return nil
}

func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
