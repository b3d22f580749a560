#include "admin/grant_calls.h"

#include <stdlib.h>

/* - A user who may not read grants may still run INSPECT.
 * - Each new grant deletes expired ones, so the hash stays small.
 * - A version is a time, because the key may expire and be created again. */
const char grant_preamble[] =
    "if ARGV[1] == 'granted' or ARGV[1] == 'grants' or ARGV[1] == 'grant' then\n"
    "  local call, key, time = redis.call, KEYS[1], redis.call('TIME')\n"
    "  local now = time[1] * 1000000 + time[2]\n"
    "  if ARGV[1] == 'granted' then\n"
    "    local text = redis.pcall('HGET', key, ARGV[2])\n"
    "    return { now, type(text) == 'table' and 0 or text or '' }\n"
    "  end\n"
    "  local version = call('HGET', key, 'version') or ''\n"
    "  if ARGV[1] == 'grants' then\n"
    "    if version == ARGV[2] then return { now, version } end\n"
    "    return { now, version, unpack(call('HGETALL', key)) }\n"
    "  end\n"
    "  local client, quota, us, channel, max = unpack(ARGV, 2)\n"
    "  if quota == 'none' then\n"
    "    call('HDEL', key, client)\n"
    "  else\n"
    "    local all, others = call('HGETALL', key), 0\n"
    "    for i = 1, #all, 2 do\n"
    "      if all[i] ~= 'version' and all[i] ~= client then\n"
    "        if tonumber(all[i + 1]:match(':(%d+)$') or 0) <= now then call('HDEL', key, all[i])\n"
    "        else others = others + 1 end\n"
    "      end\n"
    "    end\n"
    "    if others >= max + 0 then return { 0, 0 } end\n"
    "    call('HSET', key, client, ('%s:%.0f'):format(quota, now + us))\n"
    "    local ms = (us - us % 1000) / 1000 + 1000\n"
    "    if call('PTTL', key) < ms then call('PEXPIRE', key, ('%.0f'):format(ms)) end\n"
    "  end\n"
    "  local next_version = ('%.0f'):format(now)\n"
    "  if next_version == version then next_version = version .. '+' end\n"
    "  if call('EXISTS', key) == 1 then call('HSET', key, 'version', next_version) end\n"
    "  local notified = redis.pcall('PUBLISH', channel, '" GRANT_MESSAGE "' .. client)\n"
    "  return { 1, type(notified) == 'number' and 1 or 0 }\n"
    "end\n";

char *grant_key(const struct policy *policy)
{
    char *key;
    return asprintf(&key, "%s:grants", policy->redis.key_prefix) < 0 ? NULL : key;
}

bool grant_parse(const struct redis_reply *value, int64_t *quota, int64_t *until_us)
{
    long long numbers[2];
    int taken = 0;

    if (value->type != RESP_STRING || value->text.n > 40 ||
        sscanf(value->text.p, "%lld:%lld%n", &numbers[0], &numbers[1], &taken) != 2 ||
        (size_t)taken != value->text.n || numbers[0] < GRANT_UNLIMITED || numbers[0] > LIMIT_MAX ||
        numbers[1] < 0 || numbers[1] > INT64_C(9007199254740992))
        return false;
    *quota = numbers[0];
    *until_us = numbers[1];
    return true;
}
