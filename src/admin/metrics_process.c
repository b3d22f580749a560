/* metrics_process.c - metrics of the process and of its policy. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/certificates.h"
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "admin/problems.h"
#include "base/descriptors.h"
#include "net/buffer_memory.h"

/* --- The process ------------------------------------------------------------------------------ */

static void write_cpu(struct evbuffer *out)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) == 0)
        metric_single_number(out, "process_cpu_seconds_total", "counter",
                             "User and system CPU time of all threads, in seconds.",
                             (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
}

/* Writes nothing if the file cannot be read, since a wrong number would be worse. */
static void write_memory(struct evbuffer *out)
{
    unsigned long pages, resident;
    FILE *file = fopen("/proc/self/statm", "re");

    if (!file && descriptors_lack(errno) && descriptors_give(DESCRIPTOR_FOR_MAIN, errno))
        file = fopen("/proc/self/statm", "re");
    if (!file)
        return;
    if (fscanf(file, "%lu %lu", &pages, &resident) == 2) {
        double size = (double)sysconf(_SC_PAGESIZE);
        metric_single_number(out, "process_virtual_memory_bytes", "gauge",
                             "Virtual memory, in bytes.", (double)pages * size);
        metric_single_number(out, "process_resident_memory_bytes", "gauge",
                             "Resident memory, in bytes.", (double)resident * size);
    }
    fclose(file);
}

/* Returns the number of open descriptors, without the one used for counting. 0: unknown. */
static unsigned open_descriptors(void)
{
    struct stat st;
    DIR *directory;
    unsigned n = 0;

    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) /* since Linux 6.2 */
        return (unsigned)st.st_size;
    directory = opendir("/proc/self/fd");
    if (!directory && descriptors_lack(errno) && descriptors_give(DESCRIPTOR_FOR_MAIN, errno))
        directory = opendir("/proc/self/fd");
    if (!directory)
        return 0;
    for (const struct dirent *entry; (entry = readdir(directory));)
        n += entry->d_name[0] != '.';
    closedir(directory);
    return n - 1;
}

static void write_descriptors(struct evbuffer *out)
{
    unsigned open = open_descriptors();
    struct rlimit limit;

    if (open)
        metric_single_number(out, "process_open_fds", "gauge", "Open file descriptors.", open);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        metric_single_number(out, "process_max_fds", "gauge",
                             "Maximum number of open file descriptors.", (double)limit.rlim_cur);
}

/* The directory of threads has a link for each, and two more. */
static void write_process_limits(struct evbuffer *out)
{
    struct rlimit limit;
    struct stat st;

    if (getrlimit(RLIMIT_AS, &limit) == 0)
        metric_single_number(out, "process_virtual_memory_max_bytes", "gauge",
                             "Maximum amount of virtual memory, in bytes; -1: no maximum.",
                             limit.rlim_cur == RLIM_INFINITY ? -1 : (double)limit.rlim_cur);
    if (stat("/proc/self/task", &st) == 0 && st.st_nlink > 2)
        metric_single_number(out, "process_threads", "gauge", "Threads of the process.",
                             (double)st.st_nlink - 2);
}

static void write_buffers(struct evbuffer *out)
{
    metric_single_number(out, "weir_buffer_memory_bytes", "gauge",
                         "Memory of buffers and requests, in bytes.", (double)memory_used());
    metric_single_number(out, "weir_buffer_memory_max_bytes", "gauge",
                         "size_limits.memory, in bytes.", (double)memory_limit());
}

void metrics_write_process(struct evbuffer *out, const struct admin_view *view)
{
    write_cpu(out);
    write_process_limits(out);
    write_memory(out);
    write_buffers(out);
    write_descriptors(out);
    metric_single_number(out, "process_start_time_seconds", "gauge",
                         "Start time of the process, in seconds since 1970.",
                         (double)view->started_wall_us / 1e6);
}

/* --- The policy ------------------------------------------------------------------------------- */

static void write_certificates(struct evbuffer *out, const struct policy *policy)
{
    static const char name[] = "weir_certificate_expiry_timestamp_seconds";
    struct certificate found[CERTIFICATES_LISTED_MAX];
    unsigned count = certificates_list(policy, found);
    char bytes[4096 + 64];

    if (count)
        metric_head(out, name, "gauge",
                    "Expiry time of the first certificate or revocation list of the file, in "
                    "seconds since 1970.");
    for (unsigned i = 0; i < count; i++) {
        struct text path = text_over(bytes, sizeof bytes);
        label_value(&path, found[i].path);
        evbuffer_add_printf(out, "%s{certificate=\"%.*s\",kind=\"%s\"} %lld\n", name,
                            SLICE_ARG(text_slice(&path)), found[i].is_crl ? "crl" : "certificate",
                            (long long)found[i].until_s);
    }
}

static void write_problem_metrics(struct evbuffer *out, const struct admin_view *view)
{
    char bytes[PROBLEM_TEXT_MAX];

    metric_head(out, "weir_problem", "gauge",
                "1 while the problem lasts; /readyz and weir top have it as a sentence.");
    for (unsigned i = 0; i < PROBLEM_COUNT; i++) {
        struct text sentence = text_over(bytes, sizeof bytes);
        metric_labelled(out, "weir_problem", problem_exists(view, i, &sentence),
                        LABELS("problem", problem_name(i)));
    }
}

void metrics_write_policy(struct evbuffer *out, const struct admin_view *view)
{
    metric_head(out, "weir_reload_total", "counter",
                "Reloads of the policy; failure: the previous policy stays in effect.");
    metric_labelled(out, "weir_reload_total", view->reloads_good, LABELS("result", "success"));
    metric_labelled(out, "weir_reload_total", view->reloads_failed, LABELS("result", "failure"));
    metric_single_number(out, "weir_policy_loaded_timestamp_seconds", "gauge",
                         "Time when the current policy was loaded, in seconds since 1970.",
                         (double)view->policy_loaded_wall_us / 1e6);
    write_certificates(out, view->policy);
    write_problem_metrics(out, view);
}
