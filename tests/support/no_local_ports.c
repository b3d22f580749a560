/* no_local_ports.c - LD_PRELOAD library: while the file that NO_LOCAL_PORTS names exists, connect()
 * of a TCP socket fails as if every local port were in use. See tests/integration/test_health.py. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
    const char *file = getenv("NO_LOCAL_PORTS");
    int type = 0;
    socklen_t type_size = sizeof type;

    if (to->sa_family == AF_INET && file && access(file, F_OK) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_STREAM) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, to, size);
}
