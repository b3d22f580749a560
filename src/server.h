/* server.h - weir as a running process. */
#ifndef WEIR_SERVER_H
#define WEIR_SERVER_H

/* Runs until a signal ends it. The exit status: 0, or 1 when it could not start (the reason was logged). */
int server_run(const char *policy_file, const char *lua_dir);

#endif
