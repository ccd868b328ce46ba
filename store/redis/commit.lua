-- Compares versions and writes, all or nothing. It knows nothing of jobs, and nothing fails
-- behind its first write: what may be refused for lack of memory, of replicas or of a disk is
-- refused there.
--
-- KEYS: the state of the store, copied keys, other keys, the order of these, the feed of
-- changes, the sizes of its entries.
-- ARGV: how many bytes the feed keeps; how many compares, puts and deletes of copied keys and of
-- other keys follow; then compares (all keys, then all versions), puts (key, value) and deletes.
local meta, feed, sizes = KEYS[1], KEYS[5], KEYS[6]
local at = 7
local some = 1000 -- unpack fails beyond 8,000

local function matches(hash, n)
  local first = at
  at = at + 2 * n
  for from = 1, n, some do
    local to = math.min(from + some - 1, n)
    local have = redis.call('HMGET', hash, unpack(ARGV, first + from, first + to))
    for i = from, to do
      local value = have[i - from + 1]
      if (value and string.sub(value, 1, 8) or '') ~= ARGV[first + n + i] then return false end
    end
  end
  return true
end

if not matches(KEYS[2], tonumber(ARGV[2])) or not matches(KEYS[3], tonumber(ARGV[3])) then return {0, 0, 0} end

-- A version is the moment of the commit, in microseconds, and higher than the one before. So a
-- server that takes over gives none that was given before and is lost.
local clock = redis.call('TIME')
local state = redis.call('HMGET', meta, 'version', 'tail', 'steps')
local version = math.max((tonumber(state[1]) or 0) + 1, clock[1] * 1000000 + clock[2])
local stamp, id = struct.pack('>I8', version), string.format('%.0f', version)
local copied, other = tonumber(ARGV[4]), tonumber(ARGV[5])
if copied + other > 0 then redis.call('HSET', meta, 'version', id) end

local entry = {}
local function put(hash, n, told)
  for from = 1, n, some do
    local pairs, order = {}, {}
    for i = from, math.min(from + some - 1, n) do
      local key, value = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
      pairs[#pairs + 1] = key
      pairs[#pairs + 1] = stamp .. value
      if told then
        entry[#entry + 1] = struct.pack('>I4I4', #key, #value + 1) .. key .. value
      else
        order[#order + 1] = 0
        order[#order + 1] = key
      end
    end
    redis.call('HSET', hash, unpack(pairs))
    if not told then redis.call('ZADD', KEYS[4], unpack(order)) end
  end
  at = at + 2 * n
end
put(KEYS[2], copied, true)
put(KEYS[3], other, false)

local function delete(hash, n, told)
  for from = 1, n, some do
    local to = math.min(from + some - 1, n)
    redis.call('HDEL', hash, unpack(ARGV, at + from, at + to))
    if told then
      for i = from, to do entry[#entry + 1] = struct.pack('>I4I4', #ARGV[at + i], 0) .. ARGV[at + i] end
    else
      redis.call('ZREM', KEYS[4], unpack(ARGV, at + from, at + to))
    end
  end
  at = at + n
end
delete(KEYS[2], tonumber(ARGV[6]), true)
delete(KEYS[3], tonumber(ARGV[7]), false)

local steps = 0
if #entry > 0 then
  steps = (tonumber(state[3]) or 0) + 1
  local count, text = string.format('%.0f', steps), table.concat(entry)
  redis.call('HSET', meta, 'tail', id, 'steps', count)
  redis.call('XADD', feed, id, 'p', state[2] or '0', 'n', count, 'd', text)
  redis.call('RPUSH', sizes, #text + 100)
  local kept = redis.call('HINCRBY', meta, 'fed', #text + 100)
  local left = redis.call('LLEN', sizes)
  while kept > tonumber(ARGV[1]) and left > 1 do
    kept = redis.call('HINCRBY', meta, 'fed', -redis.call('LPOP', sizes))
    left = left - 1
    redis.call('XTRIM', feed, 'MAXLEN', left)
  end
end
return {1, version, steps}
