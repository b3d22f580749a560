/* check_embedded.c - the embedded Redis: it replies, removes its directory, is restarted when
 * killed, and ends with the process that started it. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/log.h"
#include "redis/embedded.h"
#include "run_suite.h"

static const uint64_t timeout_us = 20000000;
static char home[64];

static void set_up(void)
{
    strcpy(home, "/tmp/weir-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    setenv("RUNTIME_DIRECTORY", home, 1);
    ck_assert_int_eq(log_open("/dev/null"), 0);
}

/* The directory must be empty. */
static void tear_down(void)
{
    ck_assert_msg(rmdir(home) == 0, "%s: %s", home, strerror(errno));
}

/* Returns the number behind `name` in a section of INFO; -1: no reply. */
static long long query_number(const struct embedded *e, const char *section, const char *name)
{
    redisContext *redis = redisConnectUnix(embedded_address(e)->local.sun_path);
    redisReply *reply = redis && !redis->err ? redisCommand(redis, "INFO %s", section) : NULL;
    const char *found =
        reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
    long long number = found ? atoll(found + strlen(name)) : -1;
    freeReplyObject(reply);
    if (redis)
        redisFree(redis);
    return number;
}

static pid_t server_pid(const struct embedded *e)
{
    return (pid_t)query_number(e, "server", "process_id:");
}

START_TEST(it_starts_with_private_files_and_removes_them)
{
    struct embedded *e = embedded_start();
    struct stat found;
    char directory[128];

    ck_assert_ptr_nonnull(e);
    ck_assert_int_gt(server_pid(e), 0);
    snprintf(directory, sizeof directory, "%s", embedded_address(e)->local.sun_path);
    *strrchr(directory, '/') = 0;
    ck_assert_int_eq(stat(directory, &found), 0);
    ck_assert_uint_eq(found.st_mode & 0777, 0700);
    ck_assert_int_ne(getpgid(server_pid(e)), getpgid(0)); /* Ctrl-C does not reach it */
    embedded_stop(e);
    embedded_stop(NULL);
}
END_TEST

/* In a container with a limit, Redis refuses writes before the kernel kills it. */
START_TEST(its_memory_is_bounded_by_that_of_the_cgroup)
{
    struct embedded *e = embedded_start();

    ck_assert_ptr_nonnull(e);
    ck_assert_int_eq(query_number(e, "memory", "maxmemory:"),
                     (long long)(available_memory("/proc/self/cgroup", "/sys/fs/cgroup") / 4));
    embedded_stop(e);
}
END_TEST

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

/* A one-hour-old directory of a killed weir. */
static void create_leftover(char directory[128], const char *name)
{
    static const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char file[160];

    snprintf(directory, 128, "%s/weir-redis-%s", home, name);
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    snprintf(file, sizeof file, "%s/redis.log", directory);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(utimensat(AT_FDCWD, directory, long_ago, 0), 0);
}

START_TEST(directories_of_killed_processes_are_removed_unless_in_use)
{
    char left[128], held[128], file[160];
    struct stat found;

    create_leftover(left, "aaaaaa");
    create_leftover(held, "bbbbbb");
    int fd = open(held, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    struct embedded *e = embedded_start();
    ck_assert_ptr_nonnull(e);
    ck_assert_int_eq(stat(left, &found), -1);
    ck_assert_int_eq(stat(held, &found), 0);
    embedded_stop(e);
    close(fd);
    snprintf(file, sizeof file, "%s/redis.log", held);
    unlink(file);
    rmdir(held);
}
END_TEST

START_TEST(it_is_restarted_after_a_crash)
{
    static const struct timeval moment = {0, 5000};
    struct event_base *base = event_base_new();
    struct event *tick = event_new(base, -1, EV_PERSIST, on_timer, NULL);
    struct embedded *e = embedded_start();
    uint64_t since = clock_us();

    ck_assert_ptr_nonnull(e);
    event_add(tick, &moment);
    embedded_watch(e, base);
    for (int round = 0; round < 2; round++) {
        pid_t first = server_pid(e), second;
        ck_assert_int_gt(first, 0);
        ck_assert_int_eq(kill(first, SIGKILL), 0);
        while ((second = server_pid(e)) <= 0 || second == first) {
            event_base_loop(base, EVLOOP_ONCE);
            ck_assert(clock_us() - since < timeout_us);
        }
    }
    embedded_stop(e);
    event_free(tick);
    event_base_free(base);
}
END_TEST

START_TEST(it_exits_with_its_parent)
{
    int channel[2];
    pid_t child, server;
    uint64_t since = clock_us();

    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1),
                     0); /* the test becomes the server's reaper */
    ck_assert_int_eq(pipe(channel), 0);
    child = fork();
    if (child == 0) {
        struct embedded *e = embedded_start();
        server = e ? server_pid(e) : -1;
        if (write(channel[1], &server, sizeof server) != sizeof server)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(channel[0], &server, sizeof server), sizeof server);
    ck_assert_int_gt(server, 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    while (waitpid(server, NULL, WNOHANG) == 0) {
        const struct timespec moment = {0, 2000000};
        ck_assert(clock_us() - since < timeout_us);
        nanosleep(&moment, NULL);
    }
    ck_assert_int_eq(kill(server, 0), -1);
    char command[128]; /* a killed process cleans up nothing, so the test does */
    snprintf(command, sizeof command, "rm -rf %s/weir-redis-*", home);
    ck_assert_int_eq(system(command), 0);
    close(channel[0]);
    close(channel[1]);
}
END_TEST

START_TEST(a_missing_program_is_reported)
{
    char path[] = "/tmp/weir-log-XXXXXX", line[1024] = "";
    close(mkstemp(path));
    ck_assert_int_eq(log_open(path), 0);
    setenv("PATH", "/nowhere", 1);
    if (access("/usr/bin/redis-server", X_OK) == 0) { /* found without PATH */
        struct embedded *e = embedded_start();
        ck_assert_ptr_nonnull(e);
        embedded_stop(e);
    } else {
        ck_assert_ptr_null(embedded_start());
        FILE *log = fopen(path, "r");
        ck_assert_ptr_nonnull(fgets(line, sizeof line, log));
        fclose(log);
        ck_assert_ptr_nonnull(strstr(line, "apt-get install redis-server"));
    }
    unlink(path);
}
END_TEST

/* Without descriptors for its pipes, the private Redis says so, and leaves none open. */
START_TEST(a_lack_of_descriptors_is_reported)
{
    struct rlimit before, few;
    char path[] = "/tmp/weir-log-XXXXXX", line[1024] = "";
    close(mkstemp(path));
    ck_assert_int_eq(log_open(path), 0);
    FILE *log = fopen(path, "r");
    int next = dup(0);

    close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    for (int left = 0; left <= 3; left++) {
        few.rlim_cur = (rlim_t)(next + left);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        ck_assert_ptr_null(embedded_start_private("this test"));
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, log));
        ck_assert_ptr_nonnull(strstr(line, "LimitNOFILE="));
        ck_assert_int_eq(dup(0), next);
        close(next);
    }
    fclose(log);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("embedded");
    TCase *tests = tcase_create("embedded");
    bool installed =
        system("command -v redis-server >/dev/null || command -v valkey-server >/dev/null") == 0;

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    if (installed) {
        tcase_add_test(tests, it_starts_with_private_files_and_removes_them);
        tcase_add_test(tests, its_memory_is_bounded_by_that_of_the_cgroup);
        tcase_add_test(tests, directories_of_killed_processes_are_removed_unless_in_use);
        tcase_add_test(tests, it_is_restarted_after_a_crash);
        tcase_add_test(tests, it_exits_with_its_parent);
        tcase_add_test(tests, a_lack_of_descriptors_is_reported);
    }
    tcase_add_test(tests, a_missing_program_is_reported);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
