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
