package e2e

import (
	"slices"
	"testing"
	"time"
)

// The recovery benchmarks measure how long it takes until work that was interrupted is done. Give the number of tries:
//
//	go test -run '^$' -bench Recovery -benchtime 10x ./e2e

// recovery is a system in which one order after the other is interrupted.
type recovery struct {
	*system
	b       *testing.B
	orders  *instance
	credits int64
	took    []time.Duration
}

func newRecovery(b *testing.B) *recovery {
	r := &recovery{system: newSystem(b), b: b}
	r.orders = r.run("orders", "o")
	return r
}

// order places an order that the recovery is to bring to its end.
func (r *recovery) order() {
	r.Helper()
	r.mustPost(r.orders, "c-42", 1)
	r.credits++
}

// credited waits until every order is credited, and notes the time since began.
func (r *recovery) credited(began time.Time) {
	r.Helper()
	for r.count("select count(*) from bonus_ledger") < r.credits {
		if time.Since(began) > time.Minute {
			r.Fatal("not credited within a minute")
		}
		time.Sleep(time.Millisecond)
	}
	r.took = append(r.took, time.Since(began))
}

func (r *recovery) report() {
	slices.Sort(r.took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	r.b.ReportMetric(ms(r.took[len(r.took)/2]), "median-ms")
	r.b.ReportMetric(ms(r.took[len(r.took)-1]), "max-ms")
}

// BenchmarkRecoverySameConsumer: from the start of the process that was killed -9 in the middle of its work.
func BenchmarkRecoverySameConsumer(b *testing.B) {
	r := newRecovery(b)
	for b.Loop() {
		bonus := r.run("bonus", "b", "HANDLER_DELAY=20s", "CLAIM_IDLE=5s")
		r.order()
		r.eventually("bonus has it", func() bool { return r.pending("bonus") == 1 })
		r.kill(bonus)
		began := time.Now()
		bonus = r.run("bonus", "b", "CLAIM_IDLE=5s")
		r.credited(began)
		r.term(bonus, 10*time.Second)
	}
	r.report()
}

// BenchmarkRecoveryOtherReplica: from the kill -9 of one replica until another one, which was there, has done its work. CLAIM_IDLE
// is the default, 5 s.
func BenchmarkRecoveryOtherReplica(b *testing.B) {
	r := newRecovery(b)
	for b.Loop() {
		doomed := r.run("bonus", "doomed", "HANDLER_DELAY=20s", "CLAIM_IDLE=5s")
		r.order()
		r.eventually("bonus has it", func() bool { return r.pending("bonus") == 1 })
		other := r.run("bonus", "other", "CLAIM_IDLE=5s")
		time.Sleep(6 * time.Second) // it takes nothing from others for one CLAIM_IDLE after its start
		r.kill(doomed)
		r.credited(time.Now())
		r.term(other, 10*time.Second)
	}
	r.report()
}

// BenchmarkRecoveryRedis: from the moment when Redis, killed -9, answers again, until orders that came meanwhile are credited.
func BenchmarkRecoveryRedis(b *testing.B) {
	r := newRecovery(b)
	r.run("bonus", "b")
	for b.Loop() {
		if err := r.redis.Kill(); err != nil {
			b.Fatal(err)
		}
		for range 20 {
			r.order()
		}
		time.Sleep(5 * time.Second) // long enough for the waits between tries to be at their longest
		if err := r.redis.Restart(); err != nil {
			b.Fatal(err)
		}
		r.credited(time.Now())
	}
	r.report()
}

// BenchmarkRecoveryPostgres: from the moment when Postgres, killed -9, answers again, until orders that had been published are credited
// and a new one is taken and credited.
func BenchmarkRecoveryPostgres(b *testing.B) {
	r := newRecovery(b)
	for b.Loop() {
		bonus := r.run("bonus", "b", "HANDLER_DELAY=500ms")
		r.order()
		r.eventually("bonus has it", func() bool { return r.pending("bonus") == 1 })
		if err := r.postgres.Kill(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := r.postgres.Restart(); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		r.db.Reset()
		r.eventually("an order is taken", func() bool {
			_, _, err := r.post(r.orders, "c-42", 1)
			return err == nil
		})
		r.credits++
		r.credited(began)
		r.term(bonus, 10*time.Second)
	}
	r.report()
}
