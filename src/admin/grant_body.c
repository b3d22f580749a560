#include "admin/grant_body.h"

#include <stdio.h>

#include "base/json_tree.h"
#include "clients/client_query.h"

static bool say(char *why, const char *text)
{
    snprintf(why, GRANT_WHY_MAX, "%s", text);
    return false;
}

static bool read_quota(const struct json_node *node, int64_t *quota, char *why)
{
    bool named = node->kind == JSON_STRING && slice_equal(node->text, SLICE("unlimited"));

    if (node->kind == JSON_NULL) {
        *quota = GRANT_NONE;
        return true;
    }
    if ((named || node->kind == JSON_NUMBER) && grant_quota_read(node->text, quota) &&
        *quota != GRANT_NONE)
        return true;
    return say(why, "quota: expected a whole number from 0 to 1000000000, or -1 or \"unlimited\", "
                    "or null to revoke a grant");
}

static bool read_time(const struct json_node *node, int64_t *us, char *why)
{
    return (node->kind == JSON_STRING && grant_time_read(node->text, us)) ||
           say(why, "for: expected a duration from \"1s\" to \"30d\", such as \"1h\"");
}

/* Sets the members' nodes; NULL: missing. False: a member is unknown, or given twice. */
static bool find_members(const struct json_node *object, const struct json_node **quota,
                         const struct json_node **time, char *why)
{
    *quota = *time = NULL;
    for (const struct json_node *member = object->first; member; member = member->next) {
        bool is_quota = slice_equal(member->key, SLICE("quota"));
        const struct json_node **found = is_quota ? quota : time;
        if (!is_quota && !slice_equal(member->key, SLICE("for"))) {
            snprintf(why, GRANT_WHY_MAX, "unknown member \"%.64s\"; expected quota and for",
                     member->key.p);
            return false;
        }
        if (*found)
            return say(why, is_quota ? "quota is given twice" : "for is given twice");
        *found = member;
    }
    return true;
}

static bool read_object(const struct json_node *object, int64_t *quota, int64_t *us, char *why)
{
    const struct json_node *quota_node, *time_node;

    if (!object)
        return say(why, "the body is not a JSON object such as {\"quota\": 100, \"for\": \"1h\"}");
    if (object->kind != JSON_OBJECT)
        return say(why, "a JSON object was expected, such as {\"quota\": 100, \"for\": \"1h\"}");
    if (!find_members(object, &quota_node, &time_node, why))
        return false;
    if (!quota_node)
        return say(why, "the quota is missing, as in {\"quota\": 100, \"for\": \"1h\"}");
    if (!read_quota(quota_node, quota, why) || (time_node && !read_time(time_node, us, why)))
        return false;
    if (!time_node == (*quota == GRANT_NONE))
        return true;
    return say(why, time_node ? "null revokes the grant and takes no duration: remove for"
                              : "for is missing: how long, from \"1s\" to \"30d\", as in \"1h\"");
}

bool grant_body_read(struct slice body, int64_t *quota, int64_t *us, char why[static GRANT_WHY_MAX])
{
    struct arena arena = {NULL};

    *us = 0;
    bool good = read_object(json_read(&arena, body), quota, us, why);
    arena_free(&arena);
    return good;
}
