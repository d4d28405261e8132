package redisstream

import "github.com/redis/go-redis/v9"

// The scripts hold every rule that must be checked and acted upon in one step. A script that fails half-way does not
// roll back, so each writes first what may be refused: under full memory the first write raises and nothing has changed.

// takeScript lists pending entries in the order of their ids and makes this consumer their owner. It changes neither
// their delivery counts nor their failures. An entry whose body is gone is acknowledged.
//
//	KEYS  stream, fail hash
//	ARGV  group, consumer, least idle ms, start of the range, most entries, owner ("" for any), latest ms since 1970 on
//	      the server's clock (0 for any) after which nothing is taken, ids to leave alone…
//	reply {start of the next range or "" at the end, ms since 1970 on the server's clock,
//	       {id, owner, deliveries, failures, ms until the next try, {name, value, …} or {} where the body is gone}, …}
var takeScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[7] ~= '0' and now > tonumber(ARGV[7]) then return {ARGV[4], now} end
local list = {'XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], ARGV[4], '+', ARGV[5]}
if ARGV[6] ~= '' then list[9] = ARGV[6] end
local pending = redis.call(unpack(list))
local reply, leave = {'', now}, {}
for i = 8, #ARGV do leave[ARGV[i]] = true end
local function take(id, owner, deliveries)
  local got = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', deliveries)
  local fields = got[1] and got[1][2] or {}
  local failures, wait = 0, 0
  local fail = redis.call('HGET', KEYS[2], id)
  if fail then
    local n, due = string.match(fail, '^(%d+):(%d+)$')
    failures, wait = tonumber(n) or 0, math.max((tonumber(due) or 0) - now, 0)
  end
  if #fields == 0 then
    redis.call('XACK', KEYS[1], ARGV[1], id)
    redis.call('HDEL', KEYS[2], id)
  end
  reply[#reply + 1] = {id, owner, deliveries, failures, wait, fields}
end
for _, p in ipairs(pending) do
  if not leave[p[1]] then take(p[1], p[2], p[4]) end
end
if #pending == tonumber(ARGV[5]) then reply[1] = '(' .. pending[#pending][1] end
return reply`)

// renewScript sets the idle time, and where asked the delivery count, of entries that this consumer owns.
//
//	KEYS  stream, fail hash
//	ARGV  group, consumer, idle ms, then for each entry: id, deliveries (-1: as they are)
//	reply {{id, what, owner}, …} for entries that it did not touch; what is "owner" where another consumer owns it,
//	      "acked" where it is not pending, "gone" where its body is not in the stream
var renewScript = redis.NewScript(`
local reply, plain = {}, {}
local function claim(ids, extra)
  local args = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}
  for _, id in ipairs(ids) do args[#args + 1] = id end
  args[#args + 1] = 'IDLE'
  args[#args + 1] = ARGV[3]
  for _, a in ipairs(extra) do args[#args + 1] = a end
  args[#args + 1] = 'JUSTID'
  local got = {}
  for _, id in ipairs(redis.call(unpack(args))) do got[id] = true end
  for _, id in ipairs(ids) do
    if not got[id] then
      reply[#reply + 1] = {id, 'gone', ''}
      redis.pcall('HDEL', KEYS[2], id)
    end
  end
end
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  local p = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not p then
    local body = redis.call('XRANGE', KEYS[1], id, id)
    reply[#reply + 1] = {id, body[1] and 'acked' or 'gone', ''}
  elseif p[2] ~= ARGV[2] then
    reply[#reply + 1] = {id, 'owner', p[2]}
  elseif ARGV[i + 1] == '-1' then
    plain[#plain + 1] = id
  else
    claim({id}, {'RETRYCOUNT', ARGV[i + 1]})
  end
end
if #plain > 0 then claim(plain, {}) end
return reply`)

// failScript writes down a failure of an entry that this consumer owns.
//
//	KEYS  stream, fail hash
//	ARGV  group, consumer, id, failures, ms until the next try
//	reply 1, or 0 where another consumer owns the entry or nobody does
var failScript = redis.NewScript(`
local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
if not p or p[2] ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5]
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4] .. ':' .. string.format('%.0f', due))
return 1`)

// deadScript moves an entry that this consumer owns to the dead letters: written there and acknowledged here, or
// neither. Lua cannot pass on more than some 8,000 values, so an entry with more keeps its fields as one JSON list.
//
//	KEYS  stream, dead letters, fail hash
//	ARGV  group, consumer, id, how many values are the entry's own, its names and values, then dead_* names and values
//	reply 1, or 0 where another consumer owns the entry or nobody does
var deadScript = redis.NewScript(`
local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
if not p or p[2] ~= ARGV[2] then return 0 end
local add, own = {'XADD', KEYS[2], '*'}, tonumber(ARGV[4])
if own > 7000 then
  local fields = {}
  for i = 5, 4 + own do fields[#fields + 1] = ARGV[i] end
  add[4], add[5] = 'dead_fields', cjson.encode(fields)
else
  for i = 5, 4 + own do add[#add + 1] = ARGV[i] end
end
for i = 5 + own, #ARGV do add[#add + 1] = ARGV[i] end
redis.call(unpack(add))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('HDEL', KEYS[3], ARGV[3])
return 1`)

// tidyScript removes consumers that have nothing pending and were idle for long. XGROUP DELCONSUMER drops what a
// consumer still has pending (https://redis.io/docs/latest/commands/xgroup-delconsumer/), so check and removal are one.
//
//	KEYS  stream
//	ARGV  group, this consumer (which stays), least idle ms
//	reply the names that it removed
var tidyScript = redis.NewScript(`
local removed = {}
for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local info = {}
  for i = 1, #c, 2 do info[c[i]] = c[i + 1] end
  if info.name ~= ARGV[2] and info.pending == 0 and info.idle >= tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], info.name)
    removed[#removed + 1] = info.name
  end
end
return removed`)
