"""Certificate authorities and client certificates, made at test time."""

import datetime
import itertools
import os
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tls_client import client, pair

serials = itertools.count(1000)


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)


def hours(n):
    return datetime.timedelta(hours=n)


def name_of(*attributes):
    """A subject of texts, which are common names, or of pairs of an OID and a text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that are too long
        return x509.Name([x509.NameAttribute(*(a if isinstance(a, tuple) else (NameOID.COMMON_NAME, a)), _validate=False)
                          for a in attributes])


def pem(thing):
    return thing.public_bytes(serialization.Encoding.PEM)


class Issued:
    """A certificate with its key. `file`: its PEM file, with the intermediate certificates; `key_file`."""

    def __init__(self, directory, certificate, key, chain):
        self.certificate, self.key = certificate, key
        base = os.path.join(directory, f"issued-{certificate.serial_number}")
        self.file, self.key_file = base + ".pem", base + ".key"
        with open(self.file, "wb") as out:
            out.write(b"".join(map(pem, [certificate, *chain])))
        with open(self.key_file, "wb") as out:
            out.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

    def context(self, **more):
        """A client that sends it. Trusts tests/tls/cert.pem."""
        context = client("one", **more)
        context.load_cert_chain(self.file, self.key_file)
        return context


class Authority:
    """`issuer`: another authority; None: self-signed."""

    def __init__(self, directory, name="Clients", issuer=None):
        self.directory, self.issuer, self.name = directory, issuer, name_of(name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = (
            x509.CertificateBuilder().subject_name(self.name).issuer_name(issuer.name if issuer else self.name)
            .public_key(self.key.public_key()).serial_number(next(serials))
            .not_valid_before(now() - hours(48)).not_valid_after(now() + hours(10000))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign((issuer or self).key, hashes.SHA256()))
        self.file = os.path.join(directory, f"authority-{self.certificate.serial_number}.pem")
        with open(self.file, "wb") as out:
            out.write(pem(self.certificate))

    def issue(self, *attributes, sans=(), until=hours(100), since=hours(-1), usage=ExtendedKeyUsageOID.CLIENT_AUTH):
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (x509.CertificateBuilder().subject_name(name_of(*attributes)).issuer_name(self.name).public_key(key.public_key())
                   .serial_number(next(serials)).not_valid_before(now() + since).not_valid_after(now() + until))
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(sans)), critical=False)
        if usage:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return Issued(self.directory, builder.sign(self.key, hashes.SHA256()), key, self.chain())

    def chain(self):
        """The intermediate certificates from this one up."""
        return [self.certificate, *self.issuer.chain()] if self.issuer else []

    def crl(self, *revoked, until=hours(24), age=hours(1), critical=(), names_key=False):
        """Returns a revocation list, PEM. critical: extensions, such as an IssuingDistributionPoint."""
        builder = (x509.CertificateRevocationListBuilder().issuer_name(self.name)
                   .last_update(min(now(), now() + until) - age).next_update(now() + until))
        for extension in critical:
            builder = builder.add_extension(extension, critical=True)
        if names_key:
            builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        for one in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(one.certificate.serial_number).revocation_date(now() - hours(1)).build())
        return pem(builder.sign(self.key, hashes.SHA256()))


def write(rig, name, *contents):
    path = os.path.join(rig.directory, name)
    with open(path + ".new", "wb") as out:
        out.write(b"".join(contents))
    os.replace(path + ".new", path)
    return path


def listener(authority_file, **tls):
    return {"address": "127.0.0.1:0", "tls": {**pair("one"), "client_ca": authority_file, **tls}}


FROM_CN = {"from": ["certificate:cn", "ip"]}
MANY = {"per-client": {"script": "gcra", "limit": 1000, "period": "1h"}}
