"""Quotas from PostgreSQL: made-up ids that harm the lookups of other clients."""

from postgres import Postgres
from rig import eventually
from wire import get


def test_an_id_that_cannot_be_decoded_does_not_count_as_an_outage(rig):
    database = Postgres(rig)
    database.sql("CREATE TABLE keys (hash bytea PRIMARY KEY, quota int); INSERT INTO keys SELECT decode(to_hex(i), 'hex'), 4 FROM generate_series(16, 47) i")
    query = "SELECT quota FROM keys WHERE hash = decode($1, 'hex')"
    weir = rig.weir(limits={"each": dict(script="fixed_window", limit=60, period="1d")}, headers=["ietf"],
                    quotas={"postgres": {"connection": database.connection, "query": query}, "timeout": "10s"})

    def policy_of(client):
        return get(weir.address, headers={"X-Client-Id": client})["RateLimit-Policy"]
    eventually(lambda: weir.metric("weir_quota_database_up") == 1)
    for number in range(16, 48):
        assert policy_of("not hexadecimal %d" % number) == '"each";q=60;w=86400'
        assert policy_of("%x" % number) == '"each";q=4;w=86400', number
    assert weir.metric("weir_quota_queries_total", result="failed") == 0
