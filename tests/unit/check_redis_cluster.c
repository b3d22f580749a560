/* check_redis_cluster.c - cluster replies: slots of keys, redirections, the slot map. Tests with
 * real nodes are in tests/integration/test_cluster.py. */
#include <check.h>
#include <stdlib.h>

#include "redis/cluster_map.h"
#include "redis/redis_reply_reader.h"
#include "redis/sentinel.h"
#include "redis/slot.h"
#include "run_suite.h"

static struct address at(const char *text)
{
    struct address address;
    const char *why;
    ck_assert(address_parse(slice_of(text), false, &address, &why));
    return address;
}

static const char *text_of(const struct address *address)
{
    static char text[ADDRESS_TEXT_MAX];
    return address_format(address, text);
}

START_TEST(slots_equal_those_of_redis)
{
    /* From the cluster specification, and from CLUSTER KEYSLOT. */
    ck_assert_uint_eq(redis_slot_of(SLICE("123456789")), 0x31c3);
    ck_assert_uint_eq(redis_slot_of(SLICE("foo")), 12182);
    ck_assert_uint_eq(redis_slot_of(SLICE("")), 0);
    ck_assert_uint_eq(redis_slot_of(SLICE("{user1000}.following")),
                      redis_slot_of(SLICE("user1000")));
    ck_assert_uint_eq(redis_slot_of(SLICE("foo{}{bar}")),
                      redis_slot_of((struct slice){"foo{}{bar}", 10}));
    ck_assert_uint_eq(redis_slot_of(SLICE("foo{{bar}}zap")), redis_slot_of(SLICE("{bar")));
    ck_assert_uint_eq(redis_slot_of(SLICE("foo{bar}{zap}")), redis_slot_of(SLICE("bar")));
    ck_assert_uint_ne(redis_slot_of(SLICE("foo{}bar")), redis_slot_of(SLICE("bar")));
    ck_assert_uint_ne(redis_slot_of(SLICE("foo{bar")), redis_slot_of(SLICE("bar")));
}
END_TEST

static bool reads(const char *error, bool *asking, unsigned *slot, struct address *address)
{
    struct address here = at("10.0.0.1:7000");
    return redis_redirect_read(error, &here, asking, slot, address);
}

START_TEST(redirections_are_parsed)
{
    struct address to;
    unsigned slot;
    bool asking;

    ck_assert(reads("MOVED 3999 127.0.0.1:6381", &asking, &slot, &to));
    ck_assert(!asking && slot == 3999);
    ck_assert_str_eq(text_of(&to), "127.0.0.1:6381");
    ck_assert(reads("ASK 16383 ::1:6381", &asking, &slot, &to));
    ck_assert(asking && slot == 16383);
    ck_assert_str_eq(text_of(&to), "[::1]:6381");
    ck_assert(reads("MOVED 0 :6381", &asking, &slot, &to));
    ck_assert_str_eq(text_of(&to), "10.0.0.1:6381");
    ck_assert(reads("MOVED 0 ?:6381", &asking, &slot, &to));
    ck_assert_str_eq(text_of(&to), "10.0.0.1:6381");
}
END_TEST

START_TEST(invalid_redirections_are_ignored)
{
    static const char *const bad[] = {"MOVED",
                                      "MOVED ",
                                      "MOVED 1",
                                      "MOVED 16384 127.0.0.1:6381",
                                      "MOVED -1 127.0.0.1:6381",
                                      "MOVED 1 127.0.0.1",
                                      "MOVED 1 127.0.0.1:",
                                      "MOVED 1 127.0.0.1:0",
                                      "MOVED 1 127.0.0.1:65536",
                                      "MOVED 1 127.0.0.1:6381 ",
                                      "MOVED 1 a.name:6381",
                                      "MOVED x 127.0.0.1:6381",
                                      "MOVED 1  127.0.0.1:6381",
                                      "MOVED 1 :",
                                      "MOVED 1 :0",
                                      "MOVED :1 2",
                                      "ASKING 1 127.0.0.1:6381",
                                      "ERR",
                                      ""};
    struct address to;
    unsigned slot;
    bool asking;

    for (size_t i = 0; i < COUNT_OF(bad); i++)
        ck_assert_msg(!reads(bad[i], &asking, &slot, &to), "%s", bad[i]);
}
END_TEST

/* Parses `bytes` as RESP. */
static bool read_map(const char *bytes, struct redis_cluster_map *map, const char **why)
{
    struct address here = at("10.0.0.1:7000");
    static const unsigned unanswered = 1;
    struct redis_reply_reader replies = {.unsolicited = false};
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    redis_reply_reader_install(&replies, reader, &unanswered);
    ck_assert_int_eq(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
    ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
    ck_assert_ptr_nonnull(reply);
    bool good = redis_cluster_map_read(reply, &here, map, why);
    redis_reply_free(reply);
    redisReaderFree(reader);
    return good;
}

#define NODE(ip, port) "*3\r\n$" ip "\r\n:" port "\r\n$2\r\nid\r\n"

START_TEST(a_slot_map_is_parsed)
{
    static struct redis_cluster_map map;
    const char *why;

    ck_assert(read_map(
        "*3\r\n"
        "*4\r\n:0\r\n:99\r\n" NODE("8\r\n10.0.0.2", "7001")
            NODE("8\r\n10.0.0.3", "7002") "*3\r\n:100\r\n:100\r\n" NODE(
                "0\r\n", "7003") "*3\r\n:16383\r\n:16383\r\n" NODE("8\r\n10.0.0.2", "7001"),
        &map, &why));
    ck_assert_uint_eq(map.node_count, 2);
    ck_assert_uint_eq(map.slot_count, 102);
    ck_assert_uint_eq(map.replica_count, 1);
    ck_assert_str_eq(text_of(&map.nodes[map.of_slot[99] - 1]), "10.0.0.2:7001");
    ck_assert_str_eq(text_of(&map.nodes[map.of_slot[100] - 1]), "10.0.0.1:7003");
    ck_assert_uint_eq(map.of_slot[101], 0);
    ck_assert_uint_eq(map.of_slot[16383], map.of_slot[0]);
    ck_assert_str_eq(text_of(&map.replicas[0]), "10.0.0.3:7002");
    ck_assert(read_map("*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$-1\r\n:7003\r\n", &map, &why));
    ck_assert_str_eq(text_of(&map.nodes[0]), "10.0.0.1:7003");
}
END_TEST

START_TEST(invalid_slot_maps_are_refused)
{
    static const char *const bad[] = {
        "+OK\r\n",
        "*0\r\n",
        "$-1\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n" NODE("8\r\n10.0.0.2", "7001"),
        "*1\r\n*3\r\n:-1\r\n:1\r\n" NODE("8\r\n10.0.0.2", "7001"),
        "*1\r\n*3\r\n:2\r\n:1\r\n" NODE("8\r\n10.0.0.2", "7001"),
        "*1\r\n*3\r\n:0\r\n:1\r\n" NODE("6\r\na.name", "7001"),
        "*1\r\n*3\r\n:0\r\n:1\r\n" NODE("8\r\n10.0.0.2", "70001"),
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$8\r\n10.0.0.2\r\n",
        "*1\r\n*3\r\n:0\r\n$1\r\n1\r\n" NODE("8\r\n10.0.0.2", "7001")};
    static struct redis_cluster_map map;
    const char *why;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        why = NULL;
        ck_assert_msg(!read_map(bad[i], &map, &why) && why, "%s", bad[i]);
    }
    ck_assert(!read_map(bad[3], &map, &why));
    ck_assert_str_eq(why, "it is not a cluster node; use redis.address");
}
END_TEST

START_TEST(addresses_from_sentinels_are_parsed)
{
    struct address address;

    ck_assert(redis_sentinel_address(SLICE("10.0.0.2"), SLICE("6379"), &address));
    ck_assert_str_eq(text_of(&address), "10.0.0.2:6379");
    ck_assert(redis_sentinel_address(SLICE("2001:db8::1"), SLICE("6379"), &address));
    ck_assert_str_eq(text_of(&address), "[2001:db8::1]:6379");
    ck_assert(!redis_sentinel_address(SLICE("redis.example"), SLICE("6379"), &address));
    ck_assert(!redis_sentinel_address(SLICE("10.0.0.2"), SLICE("0"), &address));
    ck_assert(!redis_sentinel_address(SLICE("10.0.0.2"), SLICE("x"), &address));
    ck_assert(!redis_sentinel_address(SLICE_NONE, SLICE_NONE, &address));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_cluster");
    TCase *tests = tcase_create("redis_cluster");

    tcase_add_test(tests, slots_equal_those_of_redis);
    tcase_add_test(tests, redirections_are_parsed);
    tcase_add_test(tests, invalid_redirections_are_ignored);
    tcase_add_test(tests, a_slot_map_is_parsed);
    tcase_add_test(tests, invalid_slot_maps_are_refused);
    tcase_add_test(tests, addresses_from_sentinels_are_parsed);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
