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
