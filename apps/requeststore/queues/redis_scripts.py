"""What a queue in Redis has its server do in one step each (Redis 6.2 or newer).

KEYS, the same for each script: the lists, that of the highest level first, that of level 0, the
plain list, last (ten of them); then the consumers (a sorted set: name by the time its lease ends,
in milliseconds of the server's clock); what this consumer has taken (a hash: number -> the digit of
the level, then the entry); and those that wait (a sorted set: name by the end of its wait).

Entries come in from the left and are taken from the right. Taken ones lie in a hash and not in a
list, as to settle one of many must not search for it.
"""

from __future__ import annotations

from typing import Final

LEVELS: Final = 10

# Puts entries into one list. Who waits for entries waits for the plain list, so one of a higher
# level goes there, to the end that is taken from, if somebody waits: he takes the others as well.
# ARGV: position of the list among the keys, then the entries.
PUSH: Final = """
local level, first = tonumber(ARGV[1]), 2
if level < 10 then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[13], '-inf', now)
    if redis.call('EXISTS', KEYS[13]) == 1 then
        redis.call('RPUSH', KEYS[10], ARGV[2])
        first = 3
    end
end
if first <= #ARGV then redis.call('LPUSH', KEYS[level], unpack(ARGV, first)) end
return #ARGV - 1
"""

# Renews the lease, then takes up to ARGV[3] entries, which get the numbers from ARGV[4] on.
# ARGV: consumer, lease in milliseconds, most, first number, for how many milliseconds it will wait
# if there are none.
TAKE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[11], now + ARGV[2], ARGV[1])
local left, number, found = tonumber(ARGV[3]), tonumber(ARGV[4]), {}
for level = 9, 0, -1 do
    if left <= 0 then break end
    local values = redis.call('RPOP', KEYS[10 - level], left)
    if values then
        for _, value in ipairs(values) do
            redis.call('HSET', KEYS[12], string.format('%.0f', number), level .. value)
            number = number + 1
            found[#found + 1] = value
        end
        left = left - #values
    end
end
if #found == 0 and tonumber(ARGV[5]) > 0 then
    redis.call('ZADD', KEYS[13], now + ARGV[5], ARGV[1])
elseif tonumber(ARGV[3]) > 0 then
    redis.call('ZREM', KEYS[13], ARGV[1])
end
return found
"""

# ARGV: numbers, the newest first, so that the oldest is the next to be taken.
GIVE_BACK: Final = """
local moved = 0
for index = 1, #ARGV do
    local value = redis.call('HGET', KEYS[12], ARGV[index])
    if value then
        redis.call('HDEL', KEYS[12], ARGV[index])
        redis.call('RPUSH', KEYS[10 - tonumber(string.sub(value, 1, 1))], string.sub(value, 2))
        moved = moved + 1
    end
end
return moved
"""

_BACK: Final = """
local function back(own)
    local numbers = redis.call('HKEYS', own)
    table.sort(numbers, function(a, b) return tonumber(a) > tonumber(b) end)
    for _, number in ipairs(numbers) do
        local value = redis.call('HGET', own, number)
        redis.call('RPUSH', KEYS[10 - tonumber(string.sub(value, 1, 1))], string.sub(value, 2))
    end
    redis.call('DEL', own)
    return #numbers
end
"""

# Puts back all that this consumer has taken and forgets it. ARGV: consumer.
RELEASE: Final = f"""{_BACK}
redis.call('ZREM', KEYS[11], ARGV[1])
return back(KEYS[12])
"""

# Puts back what consumers without a lease have taken. The name stays known for a day more, because
# a process that was frozen may wake and take again. ARGV: what the names of hashes begin with, for
# how many milliseconds a name stays known, after how many entries it is enough for one step.
RESCUE: Final = f"""{_BACK}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local moved = 0
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[11], '-inf', '(' .. now)) do
    if moved >= tonumber(ARGV[3]) then break end
    moved = moved + back(ARGV[1] .. name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[11], '-inf', now - ARGV[2])) do
    if redis.call('EXISTS', ARGV[1] .. name) == 0 then redis.call('ZREM', KEYS[11], name) end
end
return moved
"""

# How many wait and how many are taken. ARGV: what the names of hashes begin with.
COUNT: Final = """
local waiting, taken = 0, 0
for index = 1, 10 do waiting = waiting + redis.call('LLEN', KEYS[index]) end
for _, name in ipairs(redis.call('ZRANGE', KEYS[11], 0, -1)) do
    taken = taken + redis.call('HLEN', ARGV[1] .. name)
end
return {waiting, taken}
"""

# Deletes what waits; how many that were.
CLEAR: Final = """
local waiting = 0
for index = 1, 10 do
    waiting = waiting + redis.call('LLEN', KEYS[index])
    redis.call('UNLINK', KEYS[index])
end
return waiting
"""

ALL: Final = (PUSH, TAKE, GIVE_BACK, RELEASE, RESCUE, COUNT, CLEAR)
