"""What a Redis inbound has its server do in one step each (Redis 6.2 or newer).

KEYS: the list, the consumers (a sorted set: name by the time its lease ends, in milliseconds of
the server's clock), this consumer's own list of taken items. A consumer takes from the right and
puts to the left of its own list, so the oldest taken item is the rightmost there.

An own list outlives its consumer's lease until somebody has put its items back; the consumer's
name stays known for a day more, because a process that was frozen may wake and take again.
"""

from __future__ import annotations

from typing import Final

# Renews the lease, then takes up to ARGV[3] items. ARGV: consumer, lease in milliseconds, most.
TAKE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
local found = {}
for number = 1, tonumber(ARGV[3]) do
    local value = redis.call('LMOVE', KEYS[1], KEYS[3], 'RIGHT', 'LEFT')
    if not value then break end
    found[number] = value
end
return found
"""

# ARGV: values that are done with. Returns how many of them were still there.
FINISH: Final = """
local removed = 0
for index = 1, #ARGV do
    removed = removed + redis.call('LREM', KEYS[3], -1, ARGV[index])
end
return removed
"""

# The same when nobody knows whether it was done before. ARGV: pairs of how many of a value are
# still out, and the value: counting what stays makes it safe to say twice.
FINISH_AGAIN: Final = """
for index = 1, #ARGV, 2 do
    local value = ARGV[index + 1]
    local there = #redis.call('LPOS', KEYS[3], value, 'COUNT', 0)
    local surplus = there - tonumber(ARGV[index])
    if surplus > 0 then redis.call('LREM', KEYS[3], -surplus, value) end
end
return 0
"""

# ARGV: values, the newest first, so that the oldest is the next to be taken.
GIVE_BACK: Final = """
local moved = 0
for index = 1, #ARGV do
    if redis.call('LREM', KEYS[3], -1, ARGV[index]) == 1 then
        redis.call('RPUSH', KEYS[1], ARGV[index])
        moved = moved + 1
    end
end
return moved
"""

# Puts back all that this consumer has taken and forgets it. ARGV: consumer.
RELEASE: Final = """
local moved = 0
while redis.call('LMOVE', KEYS[3], KEYS[1], 'LEFT', 'RIGHT') do moved = moved + 1 end
redis.call('ZREM', KEYS[2], ARGV[1])
return moved
"""

# Puts back what consumers without a lease have taken. ARGV: what the names of own lists begin
# with, for how many milliseconds a name stays known, the most items to move in one step.
RECLAIM: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local moved = 0
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
    local own = ARGV[1] .. name
    while moved < tonumber(ARGV[3]) and redis.call('LMOVE', own, KEYS[1], 'LEFT', 'RIGHT') do
        moved = moved + 1
    end
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[2])) do
    if redis.call('LLEN', ARGV[1] .. name) == 0 then redis.call('ZREM', KEYS[2], name) end
end
return moved
"""

ALL: Final = (TAKE, FINISH, FINISH_AGAIN, GIVE_BACK, RELEASE, RECLAIM)
