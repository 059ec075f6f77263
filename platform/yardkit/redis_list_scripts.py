"""Lua scripts of ``yardkit.redis_list``, each one atomic step on the server (Redis 6.2 or newer).

KEYS, the same for each script: the lists of waiting values, from the highest level to level 0;
then the consumers (sorted set: name by the end of its lease, in milliseconds of the server's
clock); the values this consumer has taken (hash: number -> digit of the level, then the value);
the consumers that wait (sorted set: name by the end of its wait).

Values enter on the left and are taken from the right. Taken ones are kept in a hash, not a list:
settling one of many needs no search.
"""

from __future__ import annotations

from typing import Final

_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local levels = #KEYS - 3
local consumers, own, waiters = KEYS[levels + 1], KEYS[levels + 2], KEYS[levels + 3]
"""

# Pushes values to one list. Consumers wait on the list of level 0, so while any waits the first
# value of a higher level goes there, to the end that is taken from: it wakes them.
# ARGV: index of the list among the keys, then the values.
PUSH: Final = f"""{_NOW}
local index, first = tonumber(ARGV[1]), 2
if index < levels then
    redis.call('ZREMRANGEBYSCORE', waiters, '-inf', now)
    if redis.call('EXISTS', waiters) == 1 then
        redis.call('RPUSH', KEYS[levels], ARGV[2])
        first = 3
    end
end
if first <= #ARGV then redis.call('LPUSH', KEYS[index], unpack(ARGV, first)) end
return #ARGV - 1
"""

# Renews the lease, then takes up to ARGV[3] values, numbered from ARGV[4] on.
# ARGV: consumer, lease in milliseconds, most, first number, milliseconds it will wait when there
# are none (0: the consumer is not noted as waiting).
TAKE: Final = f"""{_NOW}
redis.call('ZADD', consumers, now + ARGV[2], ARGV[1])
local left, number, found = tonumber(ARGV[3]), tonumber(ARGV[4]), {{}}
for level = levels - 1, 0, -1 do
    if left <= 0 then break end
    local values = redis.call('RPOP', KEYS[levels - level], left)
    if values then
        for _, value in ipairs(values) do
            redis.call('HSET', own, string.format('%.0f', number), level .. value)
            number = number + 1
            found[#found + 1] = value
        end
        left = left - #values
    end
end
if #found == 0 and tonumber(ARGV[5]) > 0 then
    redis.call('ZADD', waiters, now + ARGV[5], ARGV[1])
elseif tonumber(ARGV[3]) > 0 then
    redis.call('ZREM', waiters, ARGV[1])
end
return found
"""

_BACK: Final = """
local function put_back(hash, numbers)
    local moved = 0
    for _, number in ipairs(numbers) do
        local value = redis.call('HGET', hash, number)
        if value then
            redis.call('HDEL', hash, number)
            local level = tonumber(string.sub(value, 1, 1))
            redis.call('RPUSH', KEYS[levels - level], string.sub(value, 2))
            moved = moved + 1
        end
    end
    return moved
end
local function put_all_back(taken)
    local moved = 0
    if redis.call('TYPE', taken)['ok'] == 'list' then
        -- Written before 0.2, when an inbound kept taken values in a list, the oldest on the right.
        while redis.call('LMOVE', taken, KEYS[levels], 'LEFT', 'RIGHT') do moved = moved + 1 end
        return moved
    end
    local numbers = redis.call('HKEYS', taken)
    table.sort(numbers, function(a, b) return tonumber(a) > tonumber(b) end)
    return put_back(taken, numbers)
end
"""

# ARGV: numbers, the newest first, so that the oldest is the next to be taken.
GIVE_BACK: Final = f"""{_NOW}{_BACK}
return put_back(own, ARGV)
"""

# Puts back everything this consumer has taken and deletes its lease. ARGV: consumer.
RELEASE: Final = f"""{_NOW}{_BACK}
redis.call('ZREM', consumers, ARGV[1])
return put_all_back(own)
"""

# Puts back what consumers without a lease have taken. ARGV: prefix of the names of hashes,
# milliseconds that a name stays known after its lease, number of values that ends the step.
RESCUE: Final = f"""{_NOW}{_BACK}
local moved = 0
for _, name in ipairs(redis.call('ZRANGEBYSCORE', consumers, '-inf', '(' .. now)) do
    if moved >= tonumber(ARGV[3]) then break end
    moved = moved + put_all_back(ARGV[1] .. name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', consumers, '-inf', now - ARGV[2])) do
    if redis.call('EXISTS', ARGV[1] .. name) == 0 then redis.call('ZREM', consumers, name) end
end
return moved
"""

# Returns how many values wait and how many are taken. ARGV: prefix of the names of hashes.
COUNT: Final = f"""{_NOW}
local waiting, taken = 0, 0
for index = 1, levels do waiting = waiting + redis.call('LLEN', KEYS[index]) end
for _, name in ipairs(redis.call('ZRANGE', consumers, 0, -1)) do
    taken = taken + redis.call('HLEN', ARGV[1] .. name)
end
return {{waiting, taken}}
"""

# Deletes the waiting values; returns how many.
CLEAR: Final = f"""{_NOW}
local waiting = 0
for index = 1, levels do
    waiting = waiting + redis.call('LLEN', KEYS[index])
    redis.call('UNLINK', KEYS[index])
end
return waiting
"""

ALL: Final = (PUSH, TAKE, GIVE_BACK, RELEASE, RESCUE, COUNT, CLEAR)
