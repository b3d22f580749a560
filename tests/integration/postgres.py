"""A PostgreSQL server per test: on a Unix socket, without durability, as user nobody if the tests run as root.

    database = Postgres(rig)
    database.sql("INSERT INTO clients VALUES ('client-2', 3)")
    weir = rig.weir(quotas=dict(postgres=dict(connection=database.connection, query=database.query)), ...)
    assert database.query_count("client-2") == 1
"""

import atexit
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import tempfile

from rig import Process, children_of, eventually, free_port

# initdb takes a second or two, so the first test that needs a database creates a template for the
# whole run. The process that runs all tests removes it.
template = os.path.join(tempfile.gettempdir(), f"weir-test-{os.getpid()}-postgres")
atexit.register(shutil.rmtree, template, ignore_errors=True)

SETUP = """
CREATE TABLE clients (id text PRIMARY KEY, quota bigint, plan text);
CREATE UNLOGGED TABLE log (id text);
CREATE FUNCTION quota_of(text) RETURNS TABLE (quota bigint, plan text) LANGUAGE sql VOLATILE AS
    'INSERT INTO log VALUES ($1); SELECT c.quota, c.plan FROM clients c WHERE c.id = $1';
INSERT INTO clients VALUES ('client-0', 0), ('client-1', -1), ('client-2', 3);
"""


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    path = found[-1] if found else shutil.which(name)
    assert path, f"{name} is missing: install the Debian package postgresql"
    return path


def unprivileged():
    """Popen keywords: the server refuses to run as root."""
    return dict(user="nobody", group="nogroup", extra_groups=[]) if os.geteuid() == 0 else {}


# Every test copies the template. Two thirds of it are not needed.
SHRINK = """UPDATE pg_database SET datistemplate = false
DROP DATABASE template0
DROP DATABASE template1
"""


def run(*arguments, where, stdin=""):
    result = subprocess.run(arguments, cwd=where, input=stdin, capture_output=True, text=True, timeout=60,
                            env={**os.environ, "LC_ALL": "C.UTF-8"}, **unprivileged())
    assert result.returncode == 0, f"{arguments[0]}: {result.stderr}"
    return result.stdout


def make_template():
    os.makedirs(template, exist_ok=True)
    with open(os.path.join(template, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = os.path.join(template, "data")
        if not os.path.exists(data):
            if os.geteuid() == 0:
                shutil.chown(template, "nobody", "nogroup")
            run(program("initdb"), "-D", data + ".new", "-U", "weir", "-A", "trust", "-E", "UTF8", "--no-locale",
                "--no-sync", "--wal-segsize=1", where=template)
            run(program("postgres"), "--single", "-D", data + ".new", "-c", "fsync=off", "postgres", where=template, stdin=SHRINK)
            run(program("pg_resetwal"), "-D", data + ".new", where=template)
            os.rename(data + ".new", data)
        return data


class Postgres:
    query = "SELECT * FROM quota_of($1)"

    def __init__(self, rig, tcp=False):
        self.rig, self.process = rig, None
        self.port, self.listen = (free_port(), "127.0.0.1") if tcp else (5432, "")
        self.directory = os.path.join(rig.directory, "postgres")
        os.chmod(rig.directory, 0o711)
        os.mkdir(self.directory)
        if os.geteuid() == 0:
            shutil.chown(self.directory, "nobody", "nogroup")
        self.data = os.path.join(self.directory, "data")
        run("cp", "-a", make_template(), self.data, where=self.directory)
        self.connection = f"host={self.directory} port={self.port} user=weir dbname=postgres"
        self.start()
        self.sql(SETUP)

    def start(self):
        command = ("cd {0} && exec {1} -D data -k {0} -p {2} -c listen_addresses={3} -c fsync=off -c shared_buffers=4MB "
                   "-c max_connections=16 -c autovacuum=off -c max_wal_senders=0 -c wal_level=minimal")
        self.process = Server(self.rig, f"postgres-{len(self.rig.processes)}",
                              ["sh", "-c", command.format(self.directory, program("postgres"), self.port, self.listen)], **unprivileged())
        self.process.wait_for_output("database system is ready to accept connections")

    def stop(self):
        """Stops the server at once, as in a crash."""
        self.process.finish()

    def sql(self, text):
        return run(program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.connection, "-c", text,
                   where=self.directory).strip()

    def query_count(self, client=None):
        """The number of queries that weir sent, for one client or for all."""
        return int(self.sql("SELECT count(*) FROM log" + (f" WHERE id = '{client}'" if client else "")))

    def freeze(self):
        """Stops the server, so that it starts no other backend, and its backend processes. The kernel
        still accepts connections."""
        self.process.signal(signal.SIGSTOP)
        for pid in children_of(self.process.pid):
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:  # it has exited
                pass

    def thaw(self):
        for pid in self.process.pids():
            os.kill(pid, signal.SIGCONT)


class Server(Process):
    def pids(self):
        return [self.pid, *children_of(self.pid)]

    def finish(self):
        if self.alive():
            pids = self.pids()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            self.popen.send_signal(signal.SIGQUIT)
            self.popen.wait(30)
            eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), what="PostgreSQL to exit")
