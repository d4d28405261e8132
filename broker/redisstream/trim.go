package redisstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// trimStep is how many entries one run of the script looks at, so that it never holds Redis up for long.
const trimStep = 100

// TrimConfig says what a [Trimmer] removes.
type TrimConfig struct {
	// Stream is the key of the stream. Required.
	Stream string
	// Groups are all groups that must have acknowledged an entry before it is removed. Required.
	Groups []string
	// Retention keeps an entry for this long after its event's time. Default 24 h.
	Retention time.Duration
	// MaxLen: entries beyond this length are removed before their Retention. Default 1,000,000.
	MaxLen int64
	// Interval is the time between two runs, less up to half at random. Default 10 s.
	Interval time.Duration
	// Logger gets a warning where something keeps the stream from being trimmed, once a minute. Default slog.Default().
	Logger *slog.Logger
}

// TrimStatus is what the last run found.
type TrimStatus struct {
	// Removed counts the entries removed by this Trimmer.
	Removed int64
	// Length is how many entries the stream has.
	Length int64
	// Blocked names the configured groups that keep entries which are due from being removed: they have not
	// acknowledged them, or are missing.
	Blocked []string
	// Unknown names groups of the stream that nobody configured. They keep nothing from being removed.
	Unknown []string
}

// Trimmer removes what every configured group has acknowledged, once it is old or too much. Several may run at once.
type Trimmer struct {
	cfg    TrimConfig
	client *redis.Client
	mu     sync.Mutex
	status TrimStatus
	warned time.Time
}

// NewTrimmer returns a trimmer that uses client, which stays the caller's.
func NewTrimmer(client *redis.Client, cfg TrimConfig) (*Trimmer, error) {
	or(&cfg.Retention, 24*time.Hour)
	or(&cfg.MaxLen, 1_000_000)
	or(&cfg.Interval, 10*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch {
	case cfg.Stream == "":
		return nil, errors.New("redisstream trimmer: Stream is empty")
	case len(cfg.Groups) == 0:
		return nil, errors.New("redisstream trimmer: Groups is empty")
	case cfg.Retention < 0 || cfg.MaxLen < 0 || cfg.Interval < time.Millisecond:
		return nil, errors.New("redisstream trimmer: a setting is negative, or Interval under 1ms")
	}
	return &Trimmer{cfg: cfg, client: client}, nil
}

// Status returns what the last run found.
func (t *Trimmer) Status() TrimStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Blocked, s.Unknown = slices.Clone(s.Blocked), slices.Clone(s.Unknown)
	return s
}

// Run trims every Interval until ctx is done, and returns nil then. While Redis is away it tries again.
func (t *Trimmer) Run(ctx context.Context) error {
	calm := calm{log: t.cfg.Logger.With("stream", t.cfg.Stream), what: "trim"}
	for sleep(ctx, jitter(t.cfg.Interval)) {
		if err := t.Trim(ctx); err != nil {
			if ctx.Err() == nil {
				calm.fail(err)
			}
			continue
		}
		calm.ok()
		t.warn()
	}
	return nil
}

// Trim removes all that is due, in small steps.
func (t *Trimmer) Trim(ctx context.Context) error {
	for ctx.Err() == nil {
		removed, err := t.step(ctx)
		if err != nil {
			return fmt.Errorf("trim %s: %w", t.cfg.Stream, err)
		}
		if removed < trimStep {
			return nil
		}
	}
	return ctx.Err()
}

// Preview returns what Trim would find now, and removes nothing: Removed is how many it would remove, Length what would be
// left.
func (t *Trimmer) Preview(ctx context.Context) (TrimStatus, error) {
	var all TrimStatus
	for start := "-"; ctx.Err() == nil; {
		s, next, err := t.run(ctx, start, all.Removed, true)
		if err != nil {
			return TrimStatus{}, fmt.Errorf("preview the trimming of %s: %w", t.cfg.Stream, err)
		}
		found := s.Removed
		s.Removed += all.Removed
		s.Length -= all.Removed
		all = s
		if found < trimStep {
			return all, nil
		}
		start = "(" + next
	}
	return TrimStatus{}, ctx.Err()
}

func (t *Trimmer) step(ctx context.Context) (removed int64, err error) {
	s, _, err := t.run(ctx, "-", 0, false)
	if err != nil {
		return 0, err
	}
	removed = s.Removed
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Removed += t.status.Removed
	t.status = s
	return removed, nil
}

// run runs the script once: on entries from start on, before which there are passed others, and without removing them where
// dry. The last that is due is last.
func (t *Trimmer) run(ctx context.Context, start string, passed int64, dry bool) (s TrimStatus, last string, err error) {
	now := time.Now()
	cutoff := now.Add(-t.cfg.Retention)
	args := []any{cutoff.UTC().Format(trimTime), now.UTC().Format(trimTime), cutoff.UnixMilli(), now.UnixMilli(), t.cfg.MaxLen, trimStep, start, passed, dry}
	for _, g := range t.cfg.Groups {
		args = append(args, g)
	}
	reply, err := trimScript.Run(ctx, t.client, []string{t.cfg.Stream}, args...).Slice()
	if err != nil {
		return TrimStatus{}, "", err
	}
	if len(reply) != 5 {
		return TrimStatus{}, "", errReply
	}
	s.Removed, _ = reply[0].(int64)
	s.Length, _ = reply[1].(int64)
	s.Blocked, s.Unknown = texts(reply[2]), texts(reply[3])
	last, _ = reply[4].(string)
	return s, last, nil
}

// warn names what keeps the stream long, once a minute.
func (t *Trimmer) warn() {
	s := t.Status()
	if len(s.Blocked)+len(s.Unknown) == 0 || time.Since(t.warned) < calmEvery {
		return
	}
	t.warned = time.Now()
	if len(s.Blocked) > 0 {
		t.cfg.Logger.Warn("groups keep the stream from being trimmed", "stream", t.cfg.Stream, "groups", s.Blocked, "length", s.Length)
	}
	if len(s.Unknown) > 0 {
		t.cfg.Logger.Warn("the stream has groups that nobody configured; they keep nothing", "stream", t.cfg.Stream, "groups", s.Unknown)
	}
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// trimTime is the part of an RFC 3339 time, in UTC, that the script compares as text.
const trimTime = "2006-01-02T15:04:05"

// trimScript removes entries from the front that are due (their event's time has passed the cut-off, or the stream is
// too long) and that every configured group has acknowledged. It removes nothing while one of the groups is missing. The time of an
// event is its field "time"; where that is no UTC time or lies in the future, the entry's id stands in, and where
// that lies in the future too, the entry counts as old.
//
//	KEYS  stream
//	ARGV  cut-off and now as texts, cut-off and now in ms, longest length, most entries to look at, where to begin ("-" for
//	      the front), how many entries lie before that, 1 to only say what would be removed, groups…
//	reply {removed, length, {groups that block}, {groups that nobody configured}, the last that was removed or ""}
var trimScript = redis.NewScript(`
local key, stream = KEYS[1], {}
local function less(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if #am ~= #bm then return #am < #bm end
  if am ~= bm then return am < bm end
  if #as ~= #bs then return #as < #bs end
  return as < bs
end
if redis.call('EXISTS', key) == 0 then
  local missing = {}
  for i = 10, #ARGV do missing[#missing + 1] = ARGV[i] end
  return {0, 0, missing, {}, ''}
end
local wanted, last = {}, {}
for i = 10, #ARGV do wanted[ARGV[i]] = true end
local unknown = {}
for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
  local info = {}
  for i = 1, #g, 2 do info[g[i]] = g[i + 1] end
  if wanted[info.name] then last[info.name] = info['last-delivered-id'] else unknown[#unknown + 1] = info.name end
end
local missing = {}
for i = 10, #ARGV do
  if not last[ARGV[i]] then missing[#missing + 1] = ARGV[i] end
end
local length = redis.call('XLEN', key)
if #missing > 0 then return {0, length, missing, unknown, ''} end
-- A group is done with every id up to the last that it was given, less those pending from the oldest on.
local oldest = {}
for name in pairs(last) do
  local pending = redis.call('XPENDING', key, name)
  if pending[1] > 0 then oldest[name] = pending[2] end
end
local function done(name, id)
  return not less(last[name], id) and (not oldest[name] or less(id, oldest[name]))
end
local excess = length - tonumber(ARGV[5])
local function due(entry, n)
  if n + tonumber(ARGV[8]) <= excess then return true end
  local fields = entry[2]
  for i = 1, #fields, 2 do
    local v = fields[i + 1]
    if fields[i] == 'time' and string.match(v, '^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d') and string.sub(v, -1) == 'Z' then
      local at = string.sub(v, 1, 19)
      if at <= ARGV[2] then return at < ARGV[1] end
    end
  end
  local ms = tonumber(string.match(entry[1], '^(%d+)'))
  return ms < tonumber(ARGV[3]) or ms > tonumber(ARGV[4])
end
local blocked, cut, removed = {}, nil, 0
for n, entry in ipairs(redis.call('XRANGE', key, ARGV[7], '+', 'COUNT', ARGV[6])) do
  if not due(entry, n) then break end
  for name in pairs(last) do
    if not done(name, entry[1]) then blocked[#blocked + 1] = name end
  end
  if #blocked > 0 then break end
  cut, removed = entry[1], n
end
local last = cut or ''
if cut and ARGV[9] ~= '1' then
  local ms, seq = string.match(cut, '^(%d+)-(%d+)$')
  -- The first id to keep is the next one; beyond what Lua counts exactly, the last entry stays for another time.
  if #seq < 16 then cut = ms .. '-' .. string.format('%.0f', tonumber(seq) + 1) else removed = removed - 1 end
  redis.call('XTRIM', key, 'MINID', '=', cut)
end
return {removed, length - removed, blocked, unknown, last}`)
