package books

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// markerDays is how many days back marker sets are looked for.
const markerDays = 400

// amounts are orders and, by currency, revenue.
type amounts struct {
	orders  int64
	revenue map[string]int64
}

func (a *amounts) add(o order) {
	if a.revenue == nil {
		a.revenue = make(map[string]int64)
	}
	a.orders++
	a.revenue[o.currency] += o.total
}

// sums are all that analytics has added up, at one moment.
type sums struct {
	now    time.Time
	totals amounts
	days   map[string]amounts
	marked map[string]int64     // ids in the marker set of a day
	ends   map[string]time.Time // when the set ends
	keeps  time.Duration        // how long a marker is remembered: a set after its day, a mail's after it was sent
}

// sumsScript reads the sums of one moment. The days' keys stand in KEYS[2]; they have the same hash tag.
//
//	KEYS  totals, days
//	ARGV  prefix of the days, prefix of the marker sets, days of marker sets…
//	reply {Unix seconds, totals, {day, sums of the day, …}, {day, ids in its marker set, when it ends, …}}
var sumsScript = redis.NewScript(`
local days, marked = {}, {}
for _, day in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  days[#days + 1] = day
  days[#days + 1] = redis.call('HGETALL', ARGV[1] .. day)
end
for i = 3, #ARGV do
  local key = ARGV[2] .. ARGV[i]
  local n = redis.call('SCARD', key)
  if n > 0 then
    marked[#marked + 1] = ARGV[i]
    marked[#marked + 1] = n
    marked[#marked + 1] = redis.call('EXPIRETIME', key)
  end
end
return {redis.call('TIME')[1], redis.call('HGETALL', KEYS[1]), days, marked}`)

// readSums reads the sums. How long markers are kept is what the configuration says, or less where the marker sets that
// there are say so: whoever reads the books may not have the services' settings.
func readSums(ctx context.Context, client *redis.Client, cfg Config) (sums, error) {
	args := []any{dayPrefix, countedPrefix}
	today := time.Now().UTC()
	for i := -1; i < markerDays; i++ {
		args = append(args, today.AddDate(0, 0, -i).Format(time.DateOnly))
	}
	reply, err := sumsScript.Run(ctx, client, []string{totalsKey, daysKey}, args...).Slice()
	if err != nil {
		return sums{}, fmt.Errorf("read the sums of analytics: %w", err)
	}
	s := sums{days: make(map[string]amounts), marked: make(map[string]int64), ends: make(map[string]time.Time)}
	s.now = time.Unix(number(reply[0]), 0).UTC()
	s.totals = newAmounts(reply[1])
	days, _ := reply[2].([]any)
	for i := 0; i+1 < len(days); i += 2 {
		day, _ := days[i].(string)
		s.days[day] = newAmounts(days[i+1])
	}
	marked, _ := reply[3].([]any)
	told := time.Duration(0)
	for i := 0; i+2 < len(marked); i += 3 {
		day, _ := marked[i].(string)
		s.marked[day] = number(marked[i+1])
		began, err := time.Parse(time.DateOnly, day)
		if end := number(marked[i+2]); end > 0 && err == nil {
			s.ends[day] = time.Unix(end, 0)
			told = max(told, s.ends[day].Sub(began)-24*time.Hour)
		}
	}
	if s.keeps = cfg.ProcessedRetention; told > 0 {
		s.keeps = min(s.keeps, told)
	}
	return s, nil
}

// recall notes what earlier ones say of markers that have ended meanwhile.
func (s *sums) recall(earlier sums) {
	s.keeps = min(s.keeps, earlier.keeps)
	for day, end := range earlier.ends {
		if _, ok := s.ends[day]; !ok {
			s.ends[day] = end
		}
	}
}

// forgotten reports that the marker set in which the order would be has ended.
func (s *sums) forgotten(o order) bool {
	if o.made.IsZero() {
		return false
	}
	day := o.made.Truncate(24 * time.Hour)
	if end, ok := s.ends[day.Format(time.DateOnly)]; ok {
		return !s.now.Before(end)
	}
	return !s.now.Before(day.Add(24*time.Hour + s.keeps))
}

// mailForgotten reports that the marker of a mail that was sent as soon as its order was accepted may have ended.
func (s *sums) mailForgotten(o order) bool {
	return !o.made.IsZero() && !s.now.Add(clockMargin).Before(o.made.Add(s.keeps))
}

func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// newAmounts reads the fields and values of a hash of sums.
func newAmounts(v any) amounts {
	a := amounts{revenue: make(map[string]int64)}
	fields, _ := v.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		if currency, ok := strings.CutPrefix(name, revenuePrefix); ok {
			a.revenue[currency] = number(fields[i+1])
		} else if name == "orders" {
			a.orders = number(fields[i+1])
		}
	}
	return a
}
