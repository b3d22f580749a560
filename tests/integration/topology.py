"""Redis topologies: Sentinel with master and replicas, Cluster; and a load that continues during
failover."""

import itertools
import threading
import time
from collections import Counter

from rig import Process, Redis, eventually, free_port, redis_program, time_scale
from wire import Connection, IncompleteResponse

MASTER = "shop"
# Sentinels start a failover after this time, but only while a test waits for one: a busy machine may
# delay a server for longer.
DOWN_AFTER_MS = 800 * time_scale
NEVER_MS = 600_000
# Nodes of a cluster count as failed after this time, unless a test waits for that.
LONG_MS = 30_000
# Logged if no node that weir knows replies within 0.5 s. At first, weir knows only the nodes in the
# policy. A busy machine can delay them.
LATE_NODE = r"none of \d+ nodes returns the slot map .*: no (reply|TLS handshake) in time"


class Sentinel(Process):
    def __init__(self, rig, number, master, count, arguments, host="127.0.0.1", tls=None):
        self.tls = tls
        self.address = ("127.0.0.1", free_port())
        self.text = f"127.0.0.1:{self.address[1]}"
        name = f"sentinel-{number}"
        port = [f"port {self.address[1]}"]
        if tls:
            port = ["port 0", f"tls-port {self.address[1]}", *(f"{a[2:]} {b}" for a, b in zip(tls[::2], tls[1::2]))]
        lines = [*port, "bind 127.0.0.1", f"dir {rig.directory}",
                 *(argument for argument in arguments if "hostnames" in argument),
                 f"sentinel monitor {MASTER} {host} {master.address[1]} {count // 2 + 1}",
                 f"sentinel down-after-milliseconds {MASTER} {NEVER_MS}", f"sentinel failover-timeout {MASTER} 3000",
                 f"sentinel parallel-syncs {MASTER} 1",
                 *(argument for argument in arguments if "hostnames" not in argument)]
        super().__init__(rig, name, [redis_program, rig.write(f"{name}.conf", "\n".join(lines) + "\n"), "--sentinel"])

    def command(self, *words):
        return Redis.command(self, *words)

    def master(self):
        host, port = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return host, int(port)

    def is_ready(self, sentinels, replicas):
        try:
            found = self.command("SENTINEL", "MASTER", MASTER)
        except OSError:
            return False
        found = dict(zip(found[::2], found[1::2]))
        return (int(found["num-other-sentinels"]), int(found["num-slaves"])) == (sentinels - 1, replicas)


class Sentinels:
    """A master, replicas, and sentinels that monitor them. A failover starts within new_master(), by
    command, or after down_after(DOWN_AFTER_MS)."""

    def __init__(self, rig, replicas=1, sentinels=3, arguments=(), tls=None):
        more = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        self.master = Redis(rig, "redis-master", tcp=True, file=True, arguments=more, tls=tls)
        self.replicas = [Redis(rig, f"redis-replica-{i}", tcp=True, file=True, arguments=[
            *more, "--replicaof", "127.0.0.1", str(self.master.address[1])], tls=tls) for i in range(replicas)]
        eventually(lambda: self.master.command("ROLE")[2] and len(self.master.command("ROLE")[2]) == replicas, 10, "replicas")
        self.sentinels = [Sentinel(rig, i, self.master, sentinels, arguments, tls=tls) for i in range(sentinels)]
        eventually(lambda: all(s.is_ready(sentinels, replicas) for s in self.sentinels), 15, "sentinels that list all servers")
        eventually(lambda: all(r.command("INFO", "replication").count("master_link_status:up") for r in self.replicas), 15)

    def policy(self, **more):
        return {"sentinel": {"master": MASTER, "nodes": [s.text for s in self.sentinels]}, **more}

    def down_after(self, milliseconds):
        for sentinel in filter(Sentinel.alive, self.sentinels):
            sentinel.command("SENTINEL", "SET", MASTER, "down-after-milliseconds", milliseconds)

    def new_master(self, seconds=30):
        """Waits until a sentinel names another master. Returns that server and the time."""
        alive = [s for s in self.sentinels if s.alive()]
        self.down_after(DOWN_AFTER_MS)
        eventually(lambda: any(s.master() != self.master.address for s in alive), seconds, "another master")
        now = time.monotonic()
        self.down_after(NEVER_MS)
        address = next(s.master() for s in alive if s.master() != self.master.address)
        return next(r for r in self.replicas if r.address == address), now


class Load:
    """Sends requests over several connections until stop(). `responses`: (time, status, remaining).
    The pauses leave the processor to the other tests."""

    PAUSE_S = 0.005

    def __init__(self, addresses, connections=8, headers=None, target="/"):
        self.responses, self.cut, self.over = [], [], threading.Event()
        self.headers, self.target = headers or {}, target
        self.threads = [threading.Thread(target=self.run, args=(address,), daemon=True)
                        for address in itertools.islice(itertools.cycle(addresses), connections)]
        for thread in self.threads:
            thread.start()

    def run(self, address):
        connection = None
        while not self.over.is_set():
            try:
                connection = connection or Connection(address)
                response = connection.request(self.target, headers=self.headers)
            except (IncompleteResponse, OSError) as error:
                self.cut.append(error)
                connection = None
                continue
            remaining = response["X-RateLimit-Remaining"]
            self.responses.append((time.monotonic(), response.status, remaining and int(remaining)))
            if response["Connection"] == "close":
                connection.close()
                connection = None
            self.over.wait(self.PAUSE_S)
        if connection:
            connection.close()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.cut, self.cut[:3]
        return self.responses

    def since(self, moment, status=200):
        """The time of the first response with this status after `moment`, or None."""
        return next((t for t, s, _ in list(self.responses) if t > moment and s == status), None)


def charged_twice(answers, failover_time):
    """The number of units of a fixed window that both masters admitted, because they were not
    replicated yet. These are the last units before the failover, each admitted at most twice. All
    other units were admitted once."""
    units = Counter(remaining for _, status, remaining in answers if status == 200)
    last = min(remaining for t, status, remaining in answers if status == 200 and t < failover_time)
    twice = [unit for unit, times in units.items() if times > 1]
    assert all(units[unit] == 2 and unit >= last for unit in twice), "more units admitted twice than replication lost"
    return len(twice)


def slot_of(key):
    """The cluster slot of a key, from its hash tag."""
    start = key.find("{")
    end = key.find("}", start + 1) if start >= 0 else -1
    if end > start + 1:
        key = key[start + 1:end]
    crc = 0
    for byte in key.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc % 16384


def slot_of_client(name):
    return slot_of("{id:" + name + "}")


class Node(Redis):
    """A cluster node. `number`: its index; the first half are masters."""

    def __init__(self, rig, number, start=True, tls=None):
        self.bus = free_port()
        super().__init__(rig, f"node-{number}", tcp=True, start=start, tls=tls and [*tls, "--tls-cluster", "yes"], arguments=[
            "--cluster-enabled", "yes", "--cluster-port", str(self.bus), "--cluster-config-file", f"node-{number}.conf",
            "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
            "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"])

    def id(self):
        return self.command("CLUSTER", "MYID")

    def epoch(self, which):
        """`which`: "my" for the node's own, "current" for the highest one that it knows."""
        info = self.command("CLUSTER", "INFO")
        return int(info.split(f"cluster_{which}_epoch:")[1].split()[0])


class Cluster:
    """Three masters with a third of the slots each, and one replica for each. Without replicas, nodes
    count as failed after 30 s: a busy machine may stop one for more than a second."""

    def __init__(self, rig, masters=3, replicas=True, tls=None):
        self.rig = rig
        self.nodes = [Node(rig, i, tls=tls) for i in range(masters * (2 if replicas else 1))]
        self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]
        for i, node in enumerate(self.masters):
            node.command("CLUSTER", "ADDSLOTSRANGE", 16384 * i // masters, 16384 * (i + 1) // masters - 1)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        eventually(self.have_met, 15, "nodes that list each other")
        for master, replica in zip(self.masters, self.replicas):
            eventually(lambda m=master, r=replica: self.replicates(m, r), 10, "a replica")
        eventually(lambda: all(self.is_ready(n, masters) for n in self.nodes), 20, "a cluster")
        if not replicas:
            self.fail_after_ms(LONG_MS)

    def fail_after_ms(self, milliseconds):
        for node in filter(lambda node: node.process.alive(), self.nodes):
            node.command("CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def have_met(self):
        """Whether all nodes list each other. Nodes give up a handshake after a second: it is begun again."""
        first, lists = self.nodes[0], [node.command("CLUSTER", "NODES") for node in self.nodes]
        for node, listed in zip(self.nodes[1:], lists[1:]):
            if f":{first.address[1]}@" not in listed or f":{node.address[1]}@" not in lists[0]:
                node.command("CLUSTER", "MEET", "127.0.0.1", first.address[1], first.bus)
        return all(len(listed.splitlines()) == len(self.nodes) and "handshake" not in listed for listed in lists)

    @staticmethod
    def replicates(master, replica):
        try:
            return replica.command("CLUSTER", "REPLICATE", master.id()) == "OK"
        except RuntimeError:  # the node is not known yet
            return False

    def is_ready(self, node, masters):
        slots = node.command("CLUSTER", "SLOTS")
        replicas = 1 if self.replicas else 0
        return "cluster_state:ok" in node.command("CLUSTER", "INFO") and len(slots) == masters and \
            all(len(s) == 3 + replicas for s in slots)

    def policy(self, *nodes, **more):
        return {"cluster": [n.text for n in nodes or self.nodes], **more}

    def owner(self, slot):
        """The master of a slot, as a node reports it."""
        for start, end, master, *_ in next(n for n in self.nodes if n.process.alive()).command("CLUSTER", "SLOTS"):
            if start <= slot <= end:
                return next(n for n in self.nodes if n.address[1] == master[1])
        return None

    def keys(self):
        return sorted(key for n in self.nodes if n.process.alive() and n.command("ROLE")[0] == "master"
                      for key in n.command("KEYS", "*"))

    def begin_move(self, slot, to):
        """Starts to move the slot: new keys are created on the target."""
        source = self.owner(slot)
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id())
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id())
        return source

    @staticmethod
    def move_keys(source, to, slot):
        while True:
            keys = source.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            if not keys:
                return
            source.command("MIGRATE", *to.address, "", 0, 5000, "KEYS", *keys)

    def end_move(self, source, to, slot):
        self.move_keys(source, to, slot)
        for node in [to, source] + [m for m in self.masters if m not in (to, source)]:
            if node.process.alive():
                node.command("CLUSTER", "SETSLOT", slot, "NODE", to.id())
