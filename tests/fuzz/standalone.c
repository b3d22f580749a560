/* standalone.c - runs a harness without libFuzzer: on the files named as arguments, or on its
 * seeds, FUZZ_SEEDS below $srcdir. */
#include <dirent.h>

#include "fuzz.h"

#ifndef FUZZ_ENGINE /* libFuzzer and AFL++ have their own main() */

static unsigned inputs;

static int run(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, n);
    inputs++;
    return 0;
}

static int run_seeds(void)
{
    char path[8192];
    const char *srcdir = getenv("srcdir");
    int failed = 0, n = snprintf(path, 4096, "%s/%s/", srcdir ? srcdir : ".", FUZZ_SEEDS);
    DIR *seeds = n < 4096 ? opendir(path) : NULL;
    if (seeds == NULL) {
        perror(path);
        return 1;
    }
    for (const struct dirent *entry; (entry = readdir(seeds)) != NULL;) {
        snprintf(path + n, sizeof path - 4096, "%s", entry->d_name);
        if (entry->d_name[0] != '.')
            failed |= run(path);
    }
    closedir(seeds);
    return failed || inputs == 0;
}

int main(int argc, char **argv)
{
    int failed = argc == 1 ? run_seeds() : 0;
    for (int i = 1; i < argc; i++)
        failed |= run(argv[i]);
    printf("%u inputs\n", inputs);
    return failed;
}

#endif
