-- Claims a key; returns 1 if the owner has it now. Keys: the claim. Arguments: owner, milliseconds.

local owner = redis.call('GET', KEYS[1])
if owner then return owner == ARGV[1] and 1 or 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
