package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/orderfanout/internal/link"
)

var chaosServices = []string{"orders", "mailer", "bonus", "analytics"}

// chaosWorld is a system of two replicas a service, each with its own ways to Redis, Postgres and the mail server.
type chaosWorld struct {
	*system
	slots [][2]*slot // by chaosServices

	redisMu, postgresMu sync.Mutex // one fault at a time on each server

	mu       sync.Mutex
	began    time.Time
	byKind   map[string]int
	poison   int
	accepted map[string]bool // order ids that a client was told with 201

	tailLost atomic.Int64 // times that a killed Redis had lost entries
	unclear  atomic.Int64 // answers that a client had to ask again for
	slowest  atomic.Int64 // ns until a client had its 201, with all its tries
}

// slot is the place of one replica.
type slot struct {
	service, name         string
	redis, postgres, mail *link.Link
	env                   []string

	mu   sync.Mutex // held by the fault that has the process down or frozen
	proc atomic.Pointer[instance]
}

func newChaosWorld(t *testing.T, seed uint64) *chaosWorld {
	t.Helper()
	w := &chaosWorld{system: newSystem(t), byKind: map[string]int{}, accepted: map[string]bool{}}
	for _, service := range chaosServices {
		w.slots = append(w.slots, [2]*slot{w.newSlot(service, "one"), w.newSlot(service, "two")})
	}
	for _, both := range w.slots {
		for _, sl := range both {
			sl.proc.Store(w.run(sl.service, sl.name, sl.env...))
		}
	}
	return w
}

func (w *chaosWorld) newSlot(service, name string) *slot {
	w.Helper()
	sl := &slot{service: service, name: name}
	for _, to := range []struct {
		link **link.Link
		addr string
	}{
		{&sl.redis, w.redis.Addr()},
		{&sl.postgres, fmt.Sprintf("127.0.0.1:%d", w.postgres.Port())},
		{&sl.mail, strings.TrimPrefix(w.mail.URL(), "smtp://")},
	} {
		l, err := link.New(to.addr)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = l.Close() })
		*to.link = l
	}
	sl.env = []string{
		"REDIS_URL=redis://" + service + ":" + service + "@" + sl.redis.Addr(),
		"DATABASE_URL=" + strings.Replace(w.postgres.DatabaseURL(dbName, service, service), fmt.Sprint(w.postgres.Port()), portOf(sl.postgres), 1),
		"SMTP_URL=smtp://" + sl.mail.Addr(),
		"MAX_ATTEMPTS=1000", "MAX_DELIVERIES=1000000", // no order is to blame for all this
		"RETRY_MIN=200ms", "RETRY_MAX=2s",
	}
	return sl
}

func portOf(l *link.Link) string {
	_, port, _ := strings.Cut(l.Addr(), ":")
	return port
}

// start starts the slot's process, without waiting until it is ready.
func (w *chaosWorld) start(sl *slot) {
	in, err := w.spawn(sl.service, sl.name, sl.env...)
	if err != nil {
		w.Errorf("start %s %s: %v", sl.service, sl.name, err)
		return
	}
	sl.proc.Store(in)
}

// end kills the slot's process.
func (w *chaosWorld) end(sl *slot) {
	in := sl.proc.Load()
	_ = in.Signal(syscall.SIGKILL)
	if !in.Wait(10 * time.Second) {
		w.Errorf("%s %s does not end", sl.service, sl.name)
	}
}

// startLoad has eight clients post orders, about 40 a second, each until it is told 201. It returns a function that lets them
// end and waits for that.
func (w *chaosWorld) startLoad() (stop func()) {
	const clients, pause = 8, 200 * time.Millisecond
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			client := &http.Client{Timeout: 10 * time.Second}
			defer client.CloseIdleConnections()
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-tick.C:
					w.place(client, c, n)
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// place posts one order, with the same key at one replica or the other, until it is told that the order is placed.
func (w *chaosWorld) place(client *http.Client, c, n int) {
	began := time.Now()
	key := fmt.Sprintf("c%d-%d", c, n)
	body := fmt.Sprintf(`{"customer_id":"c-%d","email":"c%d@example.com","currency":"EUR","items":[{"sku":"tea-%d","quantity":%d,"unit_price":1250}]}`, c*10+n%10, c, n%5, 1+n%7)
	for try := 0; time.Since(began) < 2*time.Minute; try++ {
		in := w.slots[0][(c+n+try)%2].proc.Load()
		req, err := http.NewRequest(http.MethodPost, in.url+"/orders", strings.NewReader(body))
		if err != nil {
			w.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		res, err := client.Do(req)
		if err == nil {
			data, readErr := io.ReadAll(res.Body)
			res.Body.Close()
			var o order
			switch {
			case readErr == nil && res.StatusCode == http.StatusCreated && json.Unmarshal(data, &o) == nil:
				w.accept(o.ID, time.Since(began))
				return
			case res.StatusCode != http.StatusConflict && res.StatusCode != http.StatusServiceUnavailable && readErr == nil:
				w.Errorf("order %s: %s %s", key, res.Status, data)
				return
			}
		}
		w.unclear.Add(1)
		time.Sleep(min(time.Duration(try+1)*50*time.Millisecond, 500*time.Millisecond))
	}
	w.Errorf("order %s: nobody took it within two minutes", key)
}

func (w *chaosWorld) accept(id string, took time.Duration) {
	for old := w.slowest.Load(); int64(took) > old && !w.slowest.CompareAndSwap(old, int64(took)); old = w.slowest.Load() {
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted[id] = true
}

// heal ends every trouble and starts what is down.
func (w *chaosWorld) heal() {
	w.refuseWith.Store(0)
	for _, both := range w.slots {
		for _, sl := range both {
			for _, l := range []*link.Link{sl.redis, sl.postgres, sl.mail} {
				l.Judge(nil)
				l.Mend()
			}
			if !sl.proc.Load().Running() {
				w.start(sl)
			}
		}
	}
}
