-- The scripts of leases.py, each behind a line with its name. Keys of a session are those of
-- `_NAMES` there: its lease, judged spans by time, their notes, decisions by time, unsent ones.

--- take
-- Keys: those of a session. Arguments: owner, number that it holds or 0, milliseconds a lease is
-- kept, spans. Returns the number, whether it is new, the note of each span (false: it was not
-- judged), and with a new number the unsent decisions and the open calls.
-- A lease that the store lost keeps its number: its holder goes on. Nothing is written before all is
-- read, which ends the script at a key of another type.
local held, number = tonumber(ARGV[2]), tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
local taken = 0
if number == 0 and held > 0 then
  number = held
elseif held == 0 or held ~= number or redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  number, taken = number + 1, 1
end
local known, unsent, calls = {}, {}, ''
for i = 4, #ARGV do
  known[i - 3] = false
  if redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    known[i - 3] = redis.call('HGET', KEYS[3], ARGV[i]) or ''
  end
end
if taken == 1 then
  unsent, calls = redis.call('HGETALL', KEYS[5]), redis.call('HGET', KEYS[1], 'calls')
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'number', number)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {number, taken, known, unsent, calls}

--- commit
-- Keys: those of a session, then those of its journal. Arguments: owner, its number, milliseconds
-- leases and decisions are kept, milliseconds spans are, numbers of spans and decisions, open calls
-- (empty: none, `=`: as they are stored), then each span with its note and each decision with its
-- record, then the arguments of `append`. Returns for each decision whether it is still unsent; -1
-- if another worker has the lease. In front of it stand `append`, `most_spans`, `most_decisions`.
local number = redis.call('HGET', KEYS[1], 'number')
if not number then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'number', ARGV[2])
elseif number ~= ARGV[2] or redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return -1
end
local spans, made, at = tonumber(ARGV[5]), tonumber(ARGV[6]), 7
local entries = {unpack(ARGV, 8 + 2 * (spans + made), 10 + 2 * (spans + made))}
for i = 11 + 2 * (spans + made), #ARGV do entries[#entries + 1] = ARGV[i] end
if #entries > 3 then
  local stored = append({unpack(KEYS, 6)}, entries)
  if type(stored) == 'table' then return stored end
end
if ARGV[7] == '' then
  redis.call('HDEL', KEYS[1], 'calls')
elseif ARGV[7] ~= '=' then
  redis.call('HSET', KEYS[1], 'calls', ARGV[7])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, spans do
  redis.call('ZADD', KEYS[2], now, ARGV[at + 1])
  if ARGV[at + 2] ~= '' then redis.call('HSET', KEYS[3], ARGV[at + 1], ARGV[at + 2]) end
  at = at + 2
end
local unsent = {}
for i = 1, made do
  if redis.call('ZADD', KEYS[4], 'NX', now, ARGV[at + 1]) == 1 then
    redis.call('HSET', KEYS[5], ARGV[at + 1], ARGV[at + 2])
  end
  unsent[i] = redis.call('HEXISTS', KEYS[5], ARGV[at + 1])
  at = at + 2
end
local function trim(ids, values, most, since)
  local old = redis.call('ZCOUNT', ids, '-inf', since)
  local count = math.max(old, redis.call('ZCARD', ids) - most)
  if count <= 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', ids, 0, count - 1)) do
    redis.call('HDEL', values, id)
  end
  redis.call('ZREMRANGEBYRANK', ids, 0, count - 1)
end
trim(KEYS[2], KEYS[3], most_spans, now - ARGV[4])
trim(KEYS[4], KEYS[5], most_decisions, now - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
for i = 2, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[4]) end
for i = 4, 5 do redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
return unsent

--- watch
-- Keys: sessions with open calls, by the time until which a worker watches them. Arguments:
-- milliseconds that is kept, milliseconds until that time, sessions.
local time = redis.call('TIME')
local until_ = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
for i = 3, #ARGV do redis.call('ZADD', KEYS[1], until_, ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])

--- abandoned
-- Keys: as `watch`. Arguments: milliseconds that the caller has to take them, how many it takes at
-- most. Returns the sessions that nobody watches any more.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, session in ipairs(found) do redis.call('ZADD', KEYS[1], now + ARGV[1], session) end
return found

--- bind
-- Keys: the session of a trace. Arguments: its key if it is known, milliseconds it is kept. Returns
-- the key.
-- GET comes first: SET would replace a key of any type.
local known = redis.call('GET', KEYS[1])
if ARGV[1] == '' then return known end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
