/* server.h - runs the weir process. */
#ifndef WEIR_SERVER_H
#define WEIR_SERVER_H

/* Runs the proxy until SIGTERM or SIGINT. Returns the exit status: 0, or 1 if it could not start;
 * the reason has been reported. */
int server_run(const char *policy_file, const char *lua_dir);

#endif
