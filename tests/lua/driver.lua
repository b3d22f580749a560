-- Runs lua/driver.lua and lua/standalone.lua in plain Lua with a simulated Redis.
--
--   lua5.1 tests/lua/driver.lua          LUADIR as for model.lua

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local luadir = os.getenv("LUADIR") or here .. "/../../lua"
local passed, failed = 0, 0

local function check(ok, what, ...)
  if ok then passed = passed + 1 else
    failed = failed + 1
    print("FAILED " .. what:format(...))
  end
end

local function check_quietly(ok)
  if ok then passed = passed + 1 end
  return ok
end

local function text_of(name)
  local file = assert(io.open(luadir .. "/" .. name .. ".lua"))
  local text = file:read("*a")
  file:close()
  return text
end

-- The simulated Redis: data, expiry in ms, clock in µs, and a record of the commands.
local function new_redis(clock)
  local redis = { data = {}, px = {}, ends = {}, clock = clock or 1790000000123456, log = {} }
  function redis.call(name, ...)
    local args = { ... }
    redis.log[#redis.log + 1] = name
    for _, value in ipairs(args) do assert(type(value) == "string" or type(value) == "number", "arguments of Redis commands must be strings or numbers") end
    if name == "TIME" then
      return { ("%.0f"):format(math.floor(redis.clock / 1000000)), ("%.0f"):format(redis.clock % 1000000) }
    elseif name == "GET" then
      return redis.data[args[1]] or false
    elseif name == "MGET" then
      local values = {}
      for i, key in ipairs(args) do values[i] = redis.data[key] or false end
      return values
    elseif name == "SET" then
      local key, value, ms = args[1], args[2], args[4]
      value = type(value) == "number" and ("%.17g"):format(value) or value
      if args[3] == "KEEPTTL" then
        assert(redis.data[key], "KEEPTTL on a missing key")
        redis.data[key] = value
      else
        assert(args[3] == "PX" and tostring(ms):match("^%d+$") and tonumber(ms) > 0, "expiry")
        redis.data[key], redis.px[key] = value, tonumber(ms)
        redis.ends[key] = math.floor(redis.clock / 1000) + ms
      end
    elseif name == "SETRANGE" then
      assert(args[2] == "0" and #args[3] == #redis.data[args[1]], "another length")
      redis.data[args[1]] = args[3]
    elseif name == "DEL" then
      redis.data[args[1]], redis.px[args[1]] = nil, nil
    else
      error("unknown command " .. name)
    end
  end
  redis.pcall = redis.call
  function redis.error_reply(text) return { err = text } end
  return redis
end

local preamble = "local limiter, numbers = {}, {}\nlocal muldiv = (function(...) " .. text_of("muldiv") .. "\nend)()\n"
for _, name in ipairs { "token_bucket", "fixed_window", "rolling_window", "leaky_bucket", "gcra" } do
  preamble = preamble .. ('limiter["%s"] = (function(...) %s\nend)(muldiv, numbers)\n'):format(name, text_of(name))
end
preamble = preamble .. [[
limiter["number"] = function(state, now, limit, period, burst, cost)
  assert(state == nil or type(state) == "string", "a state must be read as a string")
  return cost, 1, 0, period, (tonumber(state) or 0) + cost + 0.5
end
limiter["broken"] = function() error("broken on purpose") end
local limits = {
  ["1"] = { run = limiter["token_bucket"], period = 60000000, offset = nil },
  ["2"] = { run = limiter["fixed_window"], period = 1000000, offset = nil },
  ["3"] = { run = limiter["fixed_window"], period = 1000000, offset = 250000 },
  ["4"] = { run = limiter["rolling_window"], period = 1000000, offset = nil, options = { 10 } },
  ["5"] = { run = limiter["leaky_bucket"], period = 1000000, offset = nil, options = { 500000 } },
  ["6"] = { run = limiter["number"], period = 1000000, offset = nil },
  ["7"] = { run = limiter["broken"], period = 1000000, offset = nil },
  ["8"] = { run = limiter["gcra"], period = 1000000, offset = nil },
  ["9"] = { run = limiter["fixed_window"], period = 60000000, offset = nil },
  ["10"] = { run = limiter["fixed_window"], period = 60000000, offset = nil, repeats = 2 },
  ["20"] = { run = limiter["fixed_window"], period = 1000000, amount = 2, burst = 2 },
  ["21"] = { run = limiter["gcra"], period = 1000000, amount = 1000, burst = 500, numbers = ":0:02:1000:1000000:500" },
  ["22"] = { run = limiter["leaky_bucket"], period = 1000000, amount = 4, burst = 4, options = { 250000 }, numbers = ":0:02:4:1000000:4" },
  ["23"] = { run = limiter["rolling_window"], period = 1000000, amount = 4, burst = 4, options = { 10 }, next = true },
}
]]

local compiled = {}                                    -- keyed by the script's text; Redis uses its SHA-1
local function run(text, redis, keys, args)
  compiled[text] = compiled[text] or assert(loadstring(text))
  local chunk = compiled[text]
  for i, value in ipairs(args) do args[i] = type(value) == "number" and ("%.0f"):format(value) or value end
  redis.log = {}
  local function pack(format, ...)
    return format == "<i8i8i8" and ("%.0f %.0f %.0f"):format(...) or format == "<i8i8i8i8" and ("%.0f %.0f %.0f %.0f"):format(...)
  end
  setfenv(chunk, setmetatable({ redis = redis, KEYS = keys, ARGV = args, struct = { pack = pack } }, { __index = _G,
    __newindex = function(_, name) error("global " .. name) end }))
  local reply, copy = chunk(), {}
  if type(reply) == "string" then                                         -- packed numbers, see below
    for number in reply:gmatch("%d+") do copy[#copy + 1] = number + 0 end
    return copy
  end
  if reply.err then return reply end
  for _, value in ipairs(reply) do copy[#copy + 1] = value end            -- Redis also converts a table up to the first nil
  return copy
end
local driver_text = preamble .. text_of("driver")
-- In these tests each request is a run of its own and starts with its number of limits; arguments of several
-- requests are passed unchanged.
local function as_runs(args)
  local at = 2
  while at <= #args and not args.runs do
    local count = args[at]
    args[at] = 10 + count
    at = at + 1 + 6 * count
  end
  return args
end
local function driver(redis, keys, args)
  args = as_runs(args)
  local reply = run(driver_text, redis, keys, args)
  local now = table.remove(reply)                                         -- the last element of each reply
  check(now == (tonumber(args[1]) and tonumber(args[1]) > 0 and tonumber(args[1]) or redis.clock), "the time of the call is %s", tostring(now))
  return reply
end
-- Whether a fixed_window state has these counts, with any end; and whether a key expires at most two slots later
-- than necessary.
local function counts(state, head) return state and state:sub(1, #head + 1) == head .. ":" end
local function lives(px, ms) return px >= ms and px <= ms + 2 * 4195 end
local function is(reply, ...)
  local expected = { ... }
  local same = #reply == #expected
  for i = 1, #expected do same = same and reply[i] == expected[i] end
  check(same, "line %d: got %s, not %s", debug.getinfo(2).currentline, table.concat(reply, " "), table.concat(expected, " "))
end

do -- one limit: the clock, one read, one write
  local redis = new_redis()
  is(driver(redis, { "a" }, { "", 1, 2, 1, 1, 0, 3, 3 }), 1, 2, 0, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SET", "commands: %s", table.concat(redis.log, " "))
  check(lives(redis.px.a, 1000) and counts(redis.data.a, "1790000000123456:1"), "state %s for %s ms", redis.data.a, tostring(redis.px.a))
  redis.clock = redis.clock + 1
  is(driver(redis, { "a" }, { "", 1, 2, 1, 3, 0, 3, 3 }), 0, 2, 999999, 999999, 0)
  check(table.concat(redis.log, " ") == "TIME MGET", "a rejected request writes nothing")
  is(driver(redis, { "a" }, { "", 1, 2, 1, 3, 1, 3, 3 }), 2, 0, 0, 999999, 0)
  is(driver(redis, { "a" }, { "", 1, 2, 1, 0, 0, 3, 3 }), 0, 0, 999999, 999999, 0)
  check(table.concat(redis.log, " ") == "TIME MGET", "a query writes nothing")
  is(driver(redis, { "a" }, { "", 1, 2, 1, -9, 0, 3, 3 }), -9, 3, 0, 0, 0)
  check(redis.data.a == nil, "a state equal to the initial state is deleted")
end

do -- the caller's clock: expiry has a margin
  local redis = new_redis()
  is(driver(redis, { "a" }, { 5000000, 1, 2, 1, 1, 0, 3, 3 }), 1, 2, 0, 1000000, 0)
  check(table.concat(redis.log, " ") == "MGET SET" and lives(redis.px.a, 1000 + 3600000), "the caller's clock")
  is(driver(redis, { "b" }, { 5100000, 1, 3, 1, 1, 0, 3, 3 }), 1, 2, 0, 150000, 0)
end

do -- a limiter that returns the time until more units are available: the last number of each reply
  local redis = new_redis()
  is(driver(redis, { "a" }, { "", 1, 23, 1, 1, 0, 4, 4 }), 1, 3, 0, 1000000, 0, 1000000)
  redis.clock = redis.clock + 300000
  is(driver(redis, { "a" }, { "", 1, 23, 1, 1, 0, 4, 4 }), 1, 2, 0, 1000000, 0, 700000)
  is(driver(redis, { "a", "m" }, { "", 1, 23, 1, 1, 16, 4, 4 }), 1, 1, 0, 1000000, 0, 700000)
  is(driver(redis, { "a", "m" }, { "", 1, 23, 1, 1, 16, 4, 4 }), 1, 1, 1, 1000000, 0, 1000000)        -- a repeat: reset
  is(driver(redis, { "a" }, { "", 1, 23, 1, 2, 0, 4, 4 }), 0, 1, 700000, 1000000, 0, 700000)
  is(driver(redis, { "a" }, { "", 1, 23, 1, 0, 0, 4, 4 }), 1, 1, 0, 1000000, 0, 700000)
  -- with another limit; that limit rejects
  is(driver(redis, { "a", "w" }, { "", 2, 23, 1, 1, 0, 4, 4, 2, 2, 1, 0, 1, 1 }), 1, 0, 0, 1000000, 0, 700000, 1, 0, 0, 1000000, 0)
  is(driver(redis, { "b", "w" }, { "", 2, 23, 1, 1, 0, 4, 4, 2, 2, 1, 0, 1, 1 }), 1, 4, 0, 0, 0, 0, 0, 0, 1000000, 1000000, 0)
  -- plain runs
  is(driver(redis, { "c" }, { runs = true, -11, 23 }), 3, 1000000, 1000000)
  is(driver(redis, { "c", "d" }, { runs = true, "", -11, 23, -11, 20 }), 2, 1000000, 1000000, 1, 1000000)
end

do -- options, delay
  local redis = new_redis()
  is(driver(redis, { "a" }, { "", 1, 5, 1, 1, 0, 4, 4 }), 1, 3, 0, 250000, 0)
  is(driver(redis, { "a" }, { "", 1, 5, 1, 1, 0, 4, 4 }), 1, 2, 0, 500000, 250000)
  is(driver(redis, { "a" }, { "", 1, 5, 1, 1, 0, 4, 4 }), 1, 0, 0, 750000, 500000)
  is(driver(redis, { "a" }, { "", 1, 5, 1, 1, 0, 4, 4 }), 0, 0, 250000, 750000, 0)
end

do -- all limits are charged or none
  local redis = new_redis()
  local both = { "", 2, 1, 1, 1, 0, 5, 5, 2, 2, 1, 0, 2, 2 }
  local function args() local copy = {}; for i, v in ipairs(both) do copy[i] = v end; return copy end
  is(driver(redis, { "t", "w" }, args()), 1, 4, 0, 12000000, 0, 1, 1, 0, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SET SET", "commands: %s", table.concat(redis.log, " "))
  is(driver(redis, { "t", "w" }, args()), 1, 3, 0, 24000000, 0, 1, 0, 0, 1000000, 0)
  local t, w = redis.data.t, redis.data.w
  is(driver(redis, { "t", "w" }, args()), 1, 3, 0, 24000000, 0, 0, 0, 1000000, 1000000, 0)       -- t is not charged
  check(redis.data.t == t and redis.data.w == w and table.concat(redis.log, " ") == "TIME MGET", "no limit is charged")
  -- the rejecting limit first; no state is created for a limit that was never charged
  is(driver(redis, { "w", "new" }, { "", 2, 2, 1, 1, 0, 2, 2, 1, 2, 1, 0, 5, 5 }), 0, 0, 1000000, 1000000, 0, 1, 5, 0, 0, 0)
  check(redis.data.new == nil, "nothing is written")
  -- a query of a used-up limit is rejected as well; a refund never is
  is(driver(redis, { "w", "new" }, { "", 2, 2, 1, 0, 0, 2, 2, 1, 2, 1, 0, 5, 5 }), 0, 0, 1000000, 1000000, 0, 1, 5, 0, 0, 0)
  is(driver(redis, { "w", "new" }, { "", 2, 2, 1, -1, 0, 2, 2, 1, 2, 1, 0, 5, 5 }), -1, 1, 0, 1000000, 0, 1, 4, 0, 12000000, 0)
  -- best effort admits with the remaining units
  is(driver(redis, { "w", "new" }, { "", 2, 2, 1, 5, 1, 2, 2, 1, 2, 1, 0, 5, 5 }), 1, 0, 0, 1000000, 0, 1, 3, 0, 24000000, 0)
end

do -- a shadow limit does not reject the request, and is charged only if the request is admitted
  local redis = new_redis()
  driver(redis, { "w" }, { "", 1, 2, 1, 2, 0, 2, 2 })
  is(driver(redis, { "w", "t" }, { "", 2, 2, 1, 1, 4, 2, 2, 1, 2, 1, 0, 1, 1 }), 0, 0, 1000000, 1000000, 0, 1, 0, 0, 60000000, 0)
  check(counts(redis.data.w, "1790000000123456:2") and redis.data.t, "limit t is charged")
  is(driver(redis, { "v", "t" }, { "", 2, 2, 1, 1, 4, 2, 2, 1, 2, 1, 0, 1, 1 }), 1, 2, 0, 0, 0, 0, 0, 60000000, 60000000, 0)
  check(redis.data.v == nil, "limit t rejects: limit v is not charged")
  is(driver(redis, { "w", "t" }, { "", 2, 2, 1, 1, 4, 2, 2, 1, 2, 1, 4, 1, 1 }),
     0, 0, 1000000, 1000000, 0, 0, 0, 60000000, 60000000, 0)
  is(driver(redis, { "v", "x" }, { "", 2, 2, 1, 9, 5, 2, 2, 1, 2, 1, 0, 1, 1 }), 2, 0, 0, 1000000, 0, 1, 0, 0, 60000000, 0)
end

do -- descriptors: all are charged or none; those with quota_mode (odd numbers of limits) reject only together
  local redis = new_redis()
  local function window(key, cost, mode, limit) return { 2, key, cost, mode, limit, limit } end
  -- Each descriptor: a number, and its limits.
  local function run_of(passes, descriptors)
    local args = { runs = true, "", 19, passes, #descriptors }
    for _, one in ipairs(descriptors) do
      args[#args + 1] = one[1]
      for i = 2, #one do
        for _, value in ipairs(one[i]) do args[#args + 1] = value end
      end
    end
    return args
  end
  local keys = { "a", "b", "c" }
  is(driver(redis, keys, run_of(0, { { 2, window(1, 1, 0, 2) }, { 4, window(2, 1, 0, 3), window(3, 2, 0, 3) } })),
     1, 1, 0, 1000000, 0, 1, 2, 0, 1000000, 0, 2, 1, 0, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SET SET SET", "commands: %s", table.concat(redis.log, " "))
  -- the second descriptor rejects: nothing is written, and the others have their numbers without the charge
  is(driver(redis, keys, run_of(0, { { 2, window(1, 1, 0, 2) }, { 4, window(2, 1, 0, 3), window(3, 2, 0, 3) } })),
     1, 1, 0, 1000000, 0, 1, 2, 0, 1000000, 0, 0, 1, 1000000, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET", "commands: %s", table.concat(redis.log, " "))
  -- with quota_mode it alone is not charged; the same key later in the call sees that
  is(driver(redis, keys, run_of(0, { { 2, window(1, 1, 0, 2) }, { 5, window(2, 1, 0, 3), window(3, 2, 0, 3) }, { 3, window(2, 2, 0, 3) } })),
     1, 0, 0, 1000000, 0, 1, 2, 0, 1000000, 0, 0, 1, 1000000, 1000000, 0, 2, 0, 0, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SETRANGE SETRANGE", "commands: %s", table.concat(redis.log, " "))
  -- all with quota_mode reject the call, unless another one passes without a limit
  is(driver(redis, { "x", "b" }, run_of(0, { { 2, window(1, 1, 0, 2) }, { 3, window(2, 1, 0, 3) } })), 1, 2, 0, 0, 0, 0, 0, 1000000, 1000000, 0)
  check(redis.data.x == nil, "the call is rejected")
  is(driver(redis, { "x", "b" }, run_of(1, { { 2, window(1, 1, 0, 2) }, { 3, window(2, 1, 0, 3) } })),
     1, 1, 0, 1000000, 0, 0, 0, 1000000, 1000000, 0)
  check(redis.data.x ~= nil, "the call is admitted")
  -- refunds, questions and shadow limits
  is(driver(redis, keys, run_of(0, { { 2, window(1, -1, 0, 2) }, { 2, window(1, 0, 0, 2) }, { 2, window(2, 9, 4, 3) } })),
     -1, 1, 0, 1000000, 0, 1, 1, 0, 1000000, 0, 0, 0, -1, 1000000, 0)
  -- between other runs of the same call
  local args = run_of(0, { { 2, window(2, 1, 0, 5) } })
  table.insert(args, 2, 11)
  for i, value in ipairs { 2, 1, 1, 0, 2, 2 } do table.insert(args, 2 + i, value) end
  for _, value in ipairs { 11, 2, 3, 1, 0, 5, 5 } do args[#args + 1] = value end
  is(driver(redis, { "k1", "k2", "k3" }, args), 1, 1, 0, 1000000, 0, 1, 4, 0, 1000000, 0, 1, 4, 0, 1000000, 0)
end

do -- mode 7: a limit that rejects is charged into debt, and waits accordingly
  local redis = new_redis()
  is(driver(redis, { "w" }, { "", 1, 2, 1, 2, 7, 3, 3 }), 2, 1, 0, 1000000, 0)
  is(driver(redis, { "w" }, { "", 1, 2, 1, 2, 7, 3, 3 }), 0, 0, 1000000, 1000000, 0)
  check(counts(redis.data.w, "1790000000123456:4"), "state %s", redis.data.w)
  is(driver(redis, { "w", "t" }, { "", 2, 2, 1, 1, 7, 3, 3, 1, 2, 1, 7, 2, 2 }), 0, 0, 1000000, 1000000, 0, 1, 1, 0, 30000000, 0)
  check(counts(redis.data.w, "1790000000123456:5") and redis.data.t, "both are charged")
  is(driver(redis, { "t" }, { "", 1, 1, 1, 2, 7, 2, 2 }), 0, 0, 90000000, 90000000, 0)               -- 3 of 2 are used
  is(driver(redis, { "w" }, { "", 1, 2, 1, 0, 0, 3, 3 }), 0, 0, 1000000, 1000000, 0)
end

do -- a repetition is not charged while the result is stored, and receives its numbers
  local redis = new_redis()
  is(driver(redis, { "w", "m" }, { "", 1, 2, 1, 2, 16, 3, 3 }), 2, 1, 0, 1000000, 0)
  check(counts(redis.data.w, "1790000000123456:2") and redis.data.m == "2:1:1790000001123456:10" and redis.px.m == 1000, "the stored result is %s", tostring(redis.data.m))
  redis.clock = redis.clock + 400000
  is(driver(redis, { "w", "m" }, { "", 1, 2, 1, 2, 16, 3, 3 }), 2, 1, 1, 600000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SET" and redis.data.m == "2:1:1790000001123456:9" and redis.px.m == 600,
        "a repetition is counted and not charged: %s for %d ms", redis.data.m, redis.px.m)
  is(driver(redis, { "w", "n" }, { "", 1, 2, 1, 2, 16, 3, 3 }), 0, 1, 600000, 600000, 0)
  check(redis.data.n == nil, "a rejection is not stored for deduplication")
  -- twice in one call; one key of several limits; a rejection by another limit discards the result
  redis = new_redis()
  is(driver(redis, { "w", "m" }, { "", 1, 2, 1, 1, 16, 3, 3, 1, 2, 1, 1, 16, 3, 3 }), 1, 2, 0, 1000000, 0, 1, 2, 1, 1000000, 0)
  is(driver(redis, { "w", "o", "v" }, { "", 2, 2, 1, 1, 16, 3, 3, 2, 3, 9, 0, 3, 3 }), 1, 2, 0, 1000000, 0, 0, 3, -1, 0, 0)
  check(redis.data.o == nil and counts(redis.data.w, "1790000000123456:1"), "nothing is charged or stored")
  is(driver(redis, { "w", "m", "v" }, { "", 2, 2, 1, 1, 16, 3, 3, 2, 3, 9, 0, 3, 3 }), 1, 2, 1, 1000000, 0, 0, 3, -1, 0, 0)
  is(driver(redis, { "w", "m", "v" }, { "", 2, 2, 1, 1, 20, 3, 3, 2, 3, 1, 4, 3, 3 }), 1, 2, 1, 1000000, 0, 1, 2, 0, 1000000, 0)
  for _, strange in ipairs { "what?", "1:2:1000000", "1:2:1790000000123456:5" } do      -- invalid, from an earlier version, expired
    redis.data.m, redis.data.w = strange, nil
    is(driver(redis, { "w", "m" }, { "", 1, 2, 1, 1, 16, 3, 3 }), 1, 2, 0, 1000000, 0)
  end
end

do -- repetitions are limited: the next one is charged and its result stored; a rejected request uses none
  local redis = new_redis()
  local function repeats() return redis.data.m:match("%d+$") + 0 end
  for i = 1, 30 do
    local first = i % 3 == 1                                               -- limit 10: two repetitions are free
    is(driver(redis, { "w", "m" }, { "", 1, 10, 1, 1, 16, 10, 10 }), 1, 10 - math.ceil(i / 3), first and 0 or 1, 60000000, 0)
    check(repeats() == 2 - (i - 1) % 3, "%d free repetitions left after request %d", repeats(), i)
  end
  is(driver(redis, { "w", "m" }, { "", 1, 10, 1, 1, 16, 10, 10 }), 0, 0, 60000000, 60000000, 0)
  redis = new_redis()
  driver(redis, { "w", "m" }, { "", 1, 10, 1, 1, 16, 10, 10 })
  is(driver(redis, { "w", "m", "v" }, { "", 2, 10, 1, 1, 16, 10, 10, 2, 3, 9, 0, 3, 3 }), 1, 9, 1, 60000000, 0, 0, 3, -1, 0, 0)
  check(repeats() == 2, "the other limit rejected: no free repetition is used")
  is(driver(redis, { "w", "m", "v" }, { "", 2, 10, 1, 1, 16, 10, 10, 2, 3, 1, 0, 3, 3 }), 1, 9, 1, 60000000, 0, 1, 2, 0, 1000000, 0)
  check(repeats() == 1, "an admitted request uses one free repetition")
  -- in one call
  redis = new_redis()
  local args = { "" }
  for _ = 1, 4 do for _, v in ipairs { 1, 10, 1, 1, 16, 10, 10 } do args[#args + 1] = v end end
  is(driver(redis, { "w", "m" }, args), 1, 9, 0, 60000000, 0, 1, 9, 1, 60000000, 0, 1, 9, 1, 60000000, 0, 1, 8, 0, 60000000, 0)
end

do -- requests in one call use the same states; a key is read once
  local redis = new_redis()
  local args = { "" }
  for _ = 1, 4 do for _, v in ipairs { 1, 2, 1, 1, 0, 3, 3 } do args[#args + 1] = v end end
  is(driver(redis, { "a" }, args), 1, 2, 0, 1000000, 0, 1, 1, 0, 1000000, 0, 1, 0, 0, 1000000, 0, 0, 0, 1000000, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SET SETRANGE SETRANGE", "commands: %s", table.concat(redis.log, " "))
  -- the second request is rejected by its second limit: the third request may use the units of its first limit
  redis = new_redis()
  is(driver(redis, { "x", "y" }, { "", 1, 2, 2, 1, 0, 1, 1,
                                   2, 2, 1, 1, 0, 1, 1, 2, 2, 1, 0, 1, 1,
                                   1, 2, 1, 1, 0, 1, 1 }),
     1, 0, 0, 1000000, 0,  1, 1, 0, 0, 0, 0, 0, 1000000, 1000000, 0,  1, 0, 0, 1000000, 0)
  -- charged and refunded in one call: no state remains
  redis = new_redis()
  is(driver(redis, { "x" }, { "", 1, 2, 1, 2, 0, 3, 3, 1, 2, 1, -2, 0, 3, 3, 1, 2, 1, 0, 0, 3, 3 }),
     2, 1, 0, 1000000, 0, -2, 3, 0, 0, 0, 1, 3, 0, 0, 0)
  check(redis.data.x == nil, "no state remains")
  -- a rejection does not undo the charge of an earlier request in the same call
  redis = new_redis()
  driver(redis, { "x", "y" }, { "", 1, 2, 1, 1, 0, 3, 3, 2, 2, 1, 1, 0, 3, 3, 2, 2, 9, 0, 3, 3 })
  check(counts(redis.data.x, "1790000000123456:1") and redis.data.y == nil, "x is charged once")
end

do -- runs: requests that differ only in their keys, with one limit and with several, with separate keys and a shared one
  local redis = new_redis()
  is(driver(redis, { "a", "b", "c" }, { runs = true, "", 31, 2, 1, 1, 0, 3, 3, 1 }), 1, 2, 0, 1000000, 0, 1, 2, 0, 1000000, 0, 1, 2, 0, 1000000, 0)
  check(table.concat(redis.log, " ") == "TIME MGET SET SET SET" and redis.data.a and redis.data.b and redis.data.c, "three keys")
  is(driver(redis, { "a", "s", "b" }, { runs = true, "", 22, 2, 1, 1, 0, 2, 2, 2, 2, 2, 1, 0, 1, 1, 0, 11, 2, 2, 0, 0, 1, 1 }),
     1, 0, 0, 1000000, 0, 1, 0, 0, 1000000, 0,  1, 1, 0, 1000000, 0, 0, 0, 1000000, 1000000, 0,  0, 0, 1000000, 1000000, 0)
  check(counts(redis.data.b, "1790000000123456:1") and counts(redis.data.a, "1790000000123456:2"), "a rejected request is not charged")
end

do -- plain runs: one unit of each limit, with the limit's own numbers; an immediate grant is returned as two numbers
  local redis = new_redis()
  local function plain(keys, ...) return driver(redis, keys, { runs = true, ... }) end
  is(plain({ "a" }, -11, 21), 499, 1000)
  check(redis.data.a == "1790000000124456:0:02:1000:1000000:500" and table.concat(redis.log, " ") == "TIME MGET SET", "state: %s", redis.data.a)
  is(plain({ "a", "b" }, -21, 21), 498, 2000, 499, 1000)
  is(driver(redis, { "a" }, { "", 1, 21, 1, 1, 0, 1000, 500 }), 1, 497, 0, 3000, 0)            -- the same in the general form
  is(driver(redis, { "b" }, { "", 1, 21, 1, 1, 0, 1000, 400 }), 1, 398, 0, 2000, 0)            -- a client limit, then the general form
  is(plain({ "b" }, -11, 21), 497, 3000)
  is(plain({ "w" }, -11, 20), 1, 1000000)
  is(plain({ "w", "v" }, -21, 20), 0, 1000000, 1, 1000000)
  is(plain({ "v", "w" }, -21, 20), 0, 1000000, -1, 0, 0, 1000000, 1000000, 0)
  check(counts(redis.data.w, "1790000000123456:2"), "a rejected request is not charged: %s", redis.data.w)
  is(plain({ "q" }, -11, 22), 3, 250000)
  is(plain({ "q" }, -11, 22), -1, 1, 0, 0, 500000, 250000)                                      -- a delay
  -- several limits: all are charged or none
  is(plain({ "x", "y", "w" }, -12, 21, 20, -11, 20), 499, 1000, 1, 1000000, -1, 0, 0, 1000000, 1000000, 0)
  is(plain({ "x", "w", "z", "y" }, -22, 21, 20), 499, 1000, -1, 0, 0, 1000000, 1000000, 0, 499, 1000, 0, 1000000)
  -- before and after other runs, with the caller's clock
  redis = new_redis()
  is(plain({ "a", "b" }, "", -11, 21, 11, 20, 2, 2, 0, 2, 2), 499, 1000, 2, 0, 0, 1000000, 0)
  is(plain({ "a", "e", "c" }, "", 11, 20, 3, 1, 0, 2, 2, -21, 21), 1, 1, 0, 1000000, 0, 498, 2000, 499, 1000)
  is(plain({ "d" }, 1790000000200000, -11, 21), 499, 1000)
end

do -- a key gets a new expiry only if it would expire too early
  local redis = new_redis(1790000000000000 - 1790000000000000 % 4194304 + 1000000)
  local function ask(mode) return driver(redis, { "a" }, { "", 1, 8, 1, 1, mode or 0, 1000, 1000 }) end
  local function writes() return (table.concat(redis.log, " "):gsub("TIME MGET ?", "")) end
  local first = redis.clock
  local function at() return redis.data.a:match("^(%d+):0:02:1000:1000000:1000$") + 0 end
  ask()
  check(writes() == "SET", "first: %s", writes())
  ask()
  check(writes() == "SETRANGE" and at() == first + 2000, "within the same expiry slot: %s, %s", writes(), redis.data.a)
  driver(redis, { "a", "b" }, { runs = true, "", 21, 8, 1, 1, 0, 1000, 1000, 0, 11, 8, 2, 1, 0, 1000, 1000 })
  check(at() == first + 4000, "two requests in one call: %s", redis.data.a)
  is(driver(redis, { "a" }, { "", 1, 8, 1, -3, 0, 1000, 1000 }), -3, 999, 0, 1000, 0)
  check(writes() == "SETRANGE", "given back: %s", writes())
  redis.clock = first + 4194304
  ask()
  check(writes() == "SET" and lives(redis.px.a, 1), "in the next expiry slot: %s", writes())
  redis.data.a = "1.7900000000e15"
  redis.clock = 1790000000000000 - 1000
  ask()
  check(at() > 0, "got over %s", redis.data.a)
  is(driver(redis, { "w" }, { "", 1, 2, 1, 1, 0, 300, 300 }), 1, 299, 0, 1000000, 0)
  for i = 2, 12 do
    driver(redis, { "w" }, { "", 1, 2, 1, 1, 0, 300, 300 })
    check(writes() == (i == 10 and "SET" or "SETRANGE") and redis.data.w:match(":(%d+):") + 0 == i, "%d: %s %s", i, writes(), redis.data.w)
  end
  is(driver(redis, { "w" }, { "", 1, 9, 1, 1, 0, 300, 300 }), 1, 287, 0, 60000000, 0)         -- a longer period now
  check(writes() == "SET" and lives(redis.px.w, 60000), "a longer period: %s", writes())
  -- after any sequence of requests, a key does not expire before its state ends
  math.randomseed(20)
  redis = new_redis(1790000000000000)
  local needed = {}
  for _ = 1, 20000 do
    redis.clock = redis.clock + math.random(0, 300000) * math.random(0, 10)
    for key, ends in pairs(redis.ends) do if ends <= redis.clock / 1000 then redis.data[key], redis.ends[key] = nil, nil end end
    local limit, key, cost = math.random(1, 9), "k" .. math.random(1, 9), math.random(-1, 3)
    if limit == 6 or limit == 7 then limit = 8 end
    local amount = math.random(1, 200)
    local reply = driver(redis, { key }, { "", 1, limit, 1, cost, math.random(0, 1), amount, amount })
    if redis.log[#redis.log]:match("SET") then
      if not check_quietly(redis.ends[key] * 1000 >= redis.clock + reply[4] - 1000) then
        check(false, "%s of limit %d ends %.0f µs too early", key, limit, redis.clock + reply[4] - redis.ends[key] * 1000)
      end
    end
  end
end

do -- one key twice in a request: both charges or none
  local redis = new_redis()
  is(driver(redis, { "a" }, { "", 2, 2, 1, 1, 0, 3, 3, 2, 1, 1, 0, 3, 3 }), 1, 2, 0, 1000000, 0, 1, 1, 0, 1000000, 0)
  is(driver(redis, { "a" }, { "", 2, 2, 1, 1, 0, 3, 3, 2, 1, 1, 0, 3, 3 }), 1, 1, 0, 1000000, 0, 0, 0, 1000000, 1000000, 0)
  check(counts(redis.data.a, "1790000000123456:2"), "no part of it is stored: %s", redis.data.a)
end

do -- a refund identifies its charge by its time, and rejects nothing
  local redis = new_redis()
  local first = redis.clock
  is(driver(redis, { "a", "w" }, { "", 2, 4, 1, 2, 0, 3, 3, 2, 2, 2, 0, 3, 3 }), 2, 1, 0, 1000000, 0, 2, 1, 0, 1000000, 0)
  redis.clock = first + 300000
  is(driver(redis, { "a" }, { "", 1, 4, 1, 1, 0, 3, 3 }), 1, 0, 0, 1000000, 0)
  is(driver(redis, { "a" }, { "", 1, 4, 1, -1, first, 3, 3 }), -1, 1, 0, 1000000, 0)          -- the newest charge remains
  is(driver(redis, { "a", "w" }, { "", 2, 4, 1, -1, first, 3, 3, 2, 2, -2, first, 3, 3 }), -1, 2, 0, 1000000, 0, -2, 3, 0, 0, 0)
  redis.clock = first + 1000000                           -- the window has ended; the next unit is free at the time of the other charge
  is(driver(redis, { "a" }, { "", 1, 4, 1, -1, first, 3, 3 }), -1, 2, 0, 300000, 0)
  is(driver(redis, { "a" }, { "", 1, 4, 1, 3, 0, 3, 3 }), 0, 2, 300000, 300000, 0)
  driver(redis, { "w" }, { "", 1, 2, 1, 1, 0, 3, 3 })
  is(driver(redis, { "w" }, { "", 1, 2, 1, -1, first, 3, 3 }), -1, 2, 0, 1000000, 0)          -- charged in an earlier window
end

do -- a limiter may return a number as its state
  local redis = new_redis()
  driver(redis, { "a" }, { "", 1, 6, 1, 1, 0, 3, 3, 1, 6, 1, 1, 0, 3, 3 })
  check(redis.data.a == "3", "got %s", tostring(redis.data.a))
  driver(redis, { "b" }, { "", 1, 6, 1, 1790000000123456, 0, 3, 3 })
  check(tonumber(redis.data.b) == 1790000000123456.5, "got %s", tostring(redis.data.b))
end

do -- an error in a limiter fails the call before anything is written
  local redis = new_redis()
  local fine, why = pcall(driver, redis, { "a", "b" }, { "", 2, 2, 1, 1, 0, 3, 3, 7, 2, 1, 0, 3, 3 })
  check(not fine and tostring(why):find("broken on purpose") and next(redis.data) == nil, "a broken limiter")
end

do -- with error isolation, an error in a limiter fails only its own request
  local guard = "local guard = (function(...) " .. text_of("guard") .. "\nend)()\n"
  local own = preamble .. guard .. [[
limits["18"] = { run = guard(true, limiter["broken"]), period = 1000000 }
limits["19"] = { run = guard(true, function(state, now, limit, period, burst, cost) return cost / 2, 0, 0, 0 end), period = 1000000 }
limits["10"] = { run = guard(false, "mine.lua:1: oh"), period = 1000000 }
limits["11"] = { run = guard(true, 5), period = 1000000 }
limits["12"] = { run = guard(true, function() return 0, 0, 5, 0, "x" end), period = 1000000 }
limits["13"] = { run = guard(true, limiter["fixed_window"]), period = 1000000 }
local mute = setmetatable({}, { __tostring = function() error("no text") end })
limits["14"] = { run = guard(true, function() error(mute) end), period = 1000000 }
limits["15"] = { run = guard(true, function() return 1, 0, 0, 0, nil, 1790000000123456 end), period = 1000000 }
limits["16"] = { run = guard(true, function() return mute end), period = 1000000 }
limits["17"] = { run = guard(false, setmetatable({}, { __tostring = function() return 5 end })), period = 1000000 }
]] .. text_of("driver")
  local function ask(redis, keys, args) return run(own, redis, keys, as_runs(args)) end
  local redis = new_redis()
  -- three requests, the second limit of the second one fails: the third may use the units of the second
  local reply = ask(redis, { "a", "b" }, { "", 1, 2, 1, 1, 0, 3, 3, 2, 2, 1, 1, 0, 3, 3, 18, 2, 1, 0, 3, 3, 1, 13, 1, 2, 0, 3, 3 })
  check(reply[11] == 0 and reply[13] == -2 and tostring(reply[15]):find("broken on purpose"), "the error is returned: %s", tostring(reply[15]))
  check(reply[1] == 1 and reply[6] == 1 and reply[7] == 2 and reply[16] == 2 and reply[17] == 0, "the other requests have results: %s", table.concat(reply, " "))
  check(counts(redis.data.a, "1790000000123456:3") and redis.data.b == nil, "two are charged: %s", tostring(redis.data.a))
  for limit, why in pairs { [18] = "broken on purpose", [19] = "it returned 0.5 as granted", [10] = "mine.lua:1: oh", [11] = "no function",
                            [12] = "a new state with a rejection", [14] = "a table that has no text", [15] = "as delay",
                            [16] = "it returned a table that has no text as granted", [17] = "a table that has no text" } do
    reply = ask(redis, { "c" }, { "", 1, limit, 1, 1, 0, 3, 3 })
    check(reply[1] == 0 and reply[3] == -2 and tostring(reply[5]):find(why, 1, true), "limit %d: %s", limit, tostring(reply[5]))
  end
  check(redis.data.c == nil, "nothing is written")
end

local standalone_text = "local exact = false\nlocal limiter = (function(...) " .. text_of("fixed_window") .. "\nend)()\n" .. text_of("standalone")
local function standalone(redis, ...) return run(standalone_text, redis, { "s" }, { ... }) end

do -- standalone: defaults, deduplication
  local redis = new_redis(7000000)
  is(standalone(redis, 3, 1000000), 1, 2, 0, 1000000)
  is(standalone(redis, 3, 1000000, "", 1, 0, "id", "", ""), 1, 1, 0, 1000000)
  check(redis.data["s:d:id"] ~= nil and redis.px["s:d:id"] == 1000, "the result is stored")
  redis.clock = redis.clock + 400000
  is(standalone(redis, 3, 1000000, "", 1, 0, "id", "", ""), 1, 1, 0, 600000)
  check(counts(redis.data.s, "7000000:2"), "a repetition is not charged")
  is(standalone(redis, 3, 1000000, "", 1, 0, "other", "", ""), 1, 0, 0, 600000)
  is(standalone(redis, 3, 1000000, "", 1, 0, "third", "", ""), 0, 0, 600000, 600000)
  check(redis.data["s:d:third"] == nil, "a rejection is not stored for deduplication")
  redis.clock = redis.clock + 600000
  is(standalone(redis, 3, 1000000, "", 1, 0, "id", "", ""), 1, 2, 0, 1000000)
  is(standalone(redis, 3, 1000000, "", -1, 0, "", "", ""), -1, 3, 0, 0)
  check(redis.data.s == nil, "a state equal to the initial state is deleted")
  is(standalone(redis, 3, 1000000, "", 1, 0, "", 250000, 9100000), 1, 2, 0, 150000)
  -- the driver may keep the expiry within the same slot; here Redis' clock in ms is almost one ms behind
  local slot = 1790000000000000 - 1790000000000000 % 4194304
  while slot % 1000 ~= 992 do slot = slot + 4194304 end
  redis = new_redis(slot - 1005000)
  standalone(redis, 3, 1000000)
  check(redis.ends.s * 1000 >= slot, "it expires at the end of its slot: %d us too short", slot - redis.ends.s * 1000)
  check(standalone(redis, "").err ~= nil, "usage")
  check(not pcall(standalone, redis, "many", 1000000), "not a number")
end

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
