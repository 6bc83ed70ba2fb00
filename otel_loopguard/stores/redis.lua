-- The scripts of redis.py, each behind a line with its name.

--- add_records
-- Adds records to the profile of a tool; returns how many.
-- Keys: the profile. Arguments: records kept, milliseconds kept, then time in ms and record.
--
-- ZADD comes first: at a key of another type it ends the script, before anything gets an expiry.
-- A process whose clock is ahead must not have the newest records for ever, so times are cut at now.

local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local keep, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local at = math.min(tonumber(ARGV[i]), now)
  redis.call('ZADD', KEYS[1], string.format('%.3f', at), ARGV[i + 1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.3f', now - ttl))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -keep - 1)
redis.call('PEXPIRE', KEYS[1], string.format('%d', ttl))
return (#ARGV - 2) / 2

--- append
-- Appends entries to a journal; returns how many.
-- Keys: the journal, its sets of ids. Arguments: entries kept, milliseconds kept, ids of a set, then
-- number of the id, id and value of each entry.
--
-- Entries are numbered 1-0, 2-0, ...; a stream that numbers by the clock is another program's. The
-- sets of ids take turns: as many ids are known as there are entries kept, at least. XADD comes
-- first: after a DEL a full server would let the rest of the script pass, above its limit. Where
-- entries were removed from outside (XTRIM, XDEL) Redis still knows the last number that it gave,
-- and takes none below it.

local keep, ttl, per = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local sets, number = #KEYS - 1, 0
local function given()
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end
local function is_ours(id)
  local high, low = string.match(id, '^(%d+)-(%d+)$')
  number = tonumber(high)
  return low == '0' and number < 2 ^ 40
end
local foreign = redis.error_reply('LOOPGUARD this stream is not a journal of otel-loopguard')
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last then last = last[1] elseif redis.call('EXISTS', KEYS[1]) == 1 then last = given() end
if last and not is_ours(last) then return foreign end
for s = 2, #KEYS do redis.call('SCARD', KEYS[s]) end
local seen = 0
for i = 4, #ARGV, 3 do
  local known = false
  for s = 2, #KEYS do
    if redis.call('SISMEMBER', KEYS[s], ARGV[i]) == 1 then known = true end
  end
  if not known then
    local entry = {KEYS[1], string.format('%d-0', number + 1), ARGV[i + 1], ARGV[i + 2]}
    if type(redis.pcall('XADD', unpack(entry))) == 'table' then
      if redis.call('EXISTS', KEYS[1]) == 1 and not is_ours(given()) then return foreign end
      entry[2] = string.format('%d-0', number + 1)
      redis.call('XADD', unpack(entry))
    end
    local set = KEYS[2 + math.floor(number / per) % sets]
    if number % per == 0 then redis.call('DEL', set) end
    redis.call('SADD', set, ARGV[i])
    number = number + 1
  end
  seen = seen + 1
end
redis.call('XTRIM', KEYS[1], 'MAXLEN', keep)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ttl) end
return seen

--- put
-- Puts a value. Keys: the value. Arguments: mark of ours, value, milliseconds kept or nothing.
-- SET would replace a key of any type.

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'string' then
  return redis.error_reply('WRONGTYPE this key holds a ' .. kind)
end
if kind == 'string' and redis.call('GETRANGE', KEYS[1], 0, 0) ~= ARGV[1] then
  return redis.error_reply('LOOPGUARD this value was not written by this version')
end
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
end
return 1

--- claim
-- Claims a key; returns 1 if the owner has it now. Keys: the claim. Arguments: owner, milliseconds.

local owner = redis.call('GET', KEYS[1])
if owner then return owner == ARGV[1] and 1 or 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1

--- enlist
-- Adds a name to a list, or takes it off. Keys: the list. Arguments: name, milliseconds it is kept
-- or nothing, names kept.

if ARGV[2] == '' then return redis.call('ZREM', KEYS[1], ARGV[1]) end
local time = redis.call('TIME')
local now, ttl = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], string.format('%d', now + ttl), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[3]) - 1)
redis.call('PEXPIRE', KEYS[1], string.format('%d', math.max(ttl, redis.call('PTTL', KEYS[1]))))
return 1
