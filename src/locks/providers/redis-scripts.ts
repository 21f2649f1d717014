/**
 * Each script is one decision of the server, by its own clock. A lock's value is `<lockedBy>@<server ms of the acquisition>`.
 * Java's is `ADDED:<time>@<host>:<uuid>`, which never equals one of our tokens. Numbers are passed as strings: Lua's own
 * conversion keeps only 14 digits, and a fence has 16.
 */
const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('GET', KEYS[1])
local holder, at = string.match(value or '', '^(.*)@(%d+)$')
`

/**
 * KEYS: lock, fence. ARGV: token, lockAtMostFor in ms, reentry suffix or '', retention of the fence in ms.
 * A driver that sends it again after a lost connection finds its own token and gets the same answer. If the counter was
 * evicted in between, no caller has seen the first fence, and the clock yields another one.
 * The counter keeps the fence above all earlier ones, or the clock does if the counter was lost. A value that isn't a fence counts as lost.
 */
export const TAKE = `${NOW}
local counted = tonumber(redis.call('GET', KEYS[2]) or '')
if not (counted and counted > 0 and counted < ${Number.MAX_SAFE_INTEGER}) then counted = nil end
local function newFence()
  local fence = string.format('%.0f', math.max(now * 1000, (counted or 0) + 1))
  redis.call('SET', KEYS[2], fence, 'PX', ARGV[4])
  return fence
end
if holder == ARGV[1] then
  local fence = counted and string.format('%.0f', counted) or newFence()
  return { at, string.format('%.0f', now + redis.call('PTTL', KEYS[1])), fence }
end
if value and not (ARGV[3] ~= '' and holder and string.match(holder, '|.*$') == ARGV[3]) then return false end
if value then redis.call('DEL', KEYS[1]) end
local since = string.format('%.0f', now)
redis.call('SET', KEYS[1], ARGV[1] .. '@' .. since, 'NX', 'PX', ARGV[2])
return { since, string.format('%.0f', now + ARGV[2]), newFence() }
`

/** KEYS: lock. ARGV: token, lockAtLeastFor in ms, the token to store while lockAtLeastFor lasts. */
export const FREE = `${NOW}
if holder ~= ARGV[1] then return 0 end
local left = math.min(at, now) + ARGV[2] - now
if left > 0 then
  redis.call('SET', KEYS[1], ARGV[3] .. '@' .. at, 'PX', string.format('%.0f', left))
else
  redis.call('DEL', KEYS[1])
end
return 1
`

/** KEYS: lock. ARGV: token, lockAtMostFor in ms, lockAtLeastFor in ms (counted from the acquisition). */
export const EXTEND = `${NOW}
if holder ~= ARGV[1] then return false end
local left = math.max(tonumber(ARGV[2]), math.min(at, now) + ARGV[3] - now)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
return string.format('%.0f', now + left)
`

/** KEYS: lock, fence. ARGV: token, the least that the fence must be, retention of the fence in ms. */
export const RAISE = `${NOW}
if holder ~= ARGV[1] then return 0 end
local counted = tonumber(redis.call('GET', KEYS[2]) or '')
if not (counted and counted >= tonumber(ARGV[2])) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return 1
`

/** KEYS: lock, fence. */
export const FIND = `${NOW}
if not value then return false end
return { value, string.format('%.0f', now), string.format('%.0f', redis.call('PTTL', KEYS[1])), redis.call('GET', KEYS[2]) }
`

/** KEYS: lock. ARGV: the value that was seen. */
export const RELEASE = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
`
