#include "admin/clients_api.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "admin/client_query.h"
#include "base/json_read.h"

static bool refuse_because(char *why, const char *text)
{
    snprintf(why, GRANT_WHY_MAX, "%s", text);
    return false;
}

static bool read_grant_quota(const json_t *node, int64_t *quota, char *why)
{
    char number[24];

    if (json_is_null(node)) {
        *quota = GRANT_NONE;
        return true;
    }
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(node));
    struct slice text = json_is_integer(node) ? slice_of(number) : SLICE("");
    if (slice_equal(json_text(node), SLICE("unlimited")))
        text = SLICE("unlimited");
    if (grant_quota_read(text, quota) && *quota != GRANT_NONE)
        return true;
    return refuse_because(
        why, "quota: expected a whole number from 0 to 999999999999999, or -1 or \"unlimited\", "
             "or null to revoke a grant");
}

static bool read_time(const json_t *node, int64_t *us, char *why)
{
    return (json_is_string(node) && grant_time_read(json_text(node), us)) ||
           refuse_because(why, "for: expected a duration from \"1s\" to \"30d\", such as \"1h\"");
}

static bool knows_members(json_t *object, char *why)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "quota") == 0 || strcmp(key, "for") == 0)
            continue;
        snprintf(why, GRANT_WHY_MAX, "unknown member \"%.64s\"; expected quota and for", key);
        return false;
    }
    return true;
}

static bool read_object(json_t *object, int64_t *quota, int64_t *us, char *why)
{
    const json_t *quota_node = json_object_get(object, "quota"),
                 *time_node = json_object_get(object, "for");

    if (!json_is_object(object))
        return refuse_because(
            why, "a JSON object was expected, such as {\"quota\": 100, \"for\": \"1h\"}");
    if (!knows_members(object, why))
        return false;
    if (!quota_node)
        return refuse_because(why, "the quota is missing, as in {\"quota\": 100, \"for\": \"1h\"}");
    if (!read_grant_quota(quota_node, quota, why) || (time_node && !read_time(time_node, us, why)))
        return false;
    if (!time_node == (*quota == GRANT_NONE))
        return true;
    return refuse_because(
        why, time_node ? "null revokes the grant and takes no duration: remove for"
                       : "for is missing: how long, from \"1s\" to \"30d\", as in \"1h\"");
}

static bool refuse_json(const json_error_t *error, char *why)
{
    switch (json_error_code(error)) {
    case json_error_duplicate_key: return refuse_because(why, "a member is given twice");
    case json_error_numeric_overflow:
        return refuse_because(why, "quota: expected a whole number from 0 to 999999999999999");
    default:
        return refuse_because(
            why, "the body is not a JSON object such as {\"quota\": 100, \"for\": \"1h\"}");
    }
}

bool grant_body_read(struct slice body, int64_t *quota, int64_t *us, char why[static GRANT_WHY_MAX])
{
    json_error_t error;
    json_t *object = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &error);

    *us = 0;
    if (!object)
        return refuse_json(&error, why);
    bool good = read_object(object, quota, us, why);
    json_decref(object);
    return good;
}
