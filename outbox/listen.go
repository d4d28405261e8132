package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is where replicas tell each other about rows.
const channel = "outbox_relay"

// quietTime is how long the listener trusts a silent connection before it asks whether anybody is there.
const quietTime = 30 * time.Second

// notify tells the other replicas, and ourselves, that rows wait.
func (r *Relay) notify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := r.pool.Exec(ctx, `select pg_notify($1::text, '')`, unprepared, channel); err != nil {
		return fmt.Errorf("notify %s: %w", channel, err)
	}
	return nil
}

// listen passes notices on until ctx is done. It has a connection of its own: in a small pool it would starve the rest. Without it,
// rows wait for the sweep.
func (r *Relay) listen(ctx context.Context) {
	calm := calm{log: r.cfg.Logger, what: "outbox: listen"}
	for ctx.Err() == nil {
		err := r.listenOnce(ctx, &calm)
		if ctx.Err() != nil {
			return
		}
		sleep(ctx, calm.failed(err))
	}
}

func (r *Relay) listenOnce(ctx context.Context, calm *calm) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // it is gone, or goes
	}()
	calm.worked()
	// Something may have been said while nobody listened.
	signal(r.notice)
	for {
		wait, cancel := context.WithTimeout(ctx, quietTime)
		_, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			signal(r.notice)
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			if err := ping(ctx, conn); err != nil {
				return err
			}
		default:
			return fmt.Errorf("listen on %s: %w", channel, err)
		}
	}
}

func (r *Relay) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	pool := r.pool.Config() // a copy
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, pool.ConnConfig); err != nil {
			return nil, fmt.Errorf("connect to listen on %s: %w", channel, err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to listen on %s: %w", channel, err)
	}
	if _, err := conn.Exec(ctx, `listen `+channel, unprepared); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen on %s: %w", channel, err)
	}
	return conn, nil
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := conn.Ping(ctx); err != nil {
		return fmt.Errorf("ping the connection that listens on %s: %w", channel, err)
	}
	return nil
}
