"""Creates keys and tokens with PyJWT (Debian's python3-jwt), which runs in the system's Python.

    issuer = Issuer(rig, "RS256", "EdDSA")
    issuer.jwks                                     # a JWK set of the public keys; kid is the algorithm name
    issuer.sign("RS256", {"sub": "alice"}, ...)     # tokens, in the order of the claims
"""

import json
import subprocess
import threading

SECRET = "a secret of the issuer with 38 letters"

MAKE = r"""
import base64, json, sys
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

def number(value, size=None):
    size = size or (value.bit_length() + 7) // 8
    return base64.urlsafe_b64encode(value.to_bytes(size, "big")).rstrip(b"=").decode()

def jwk(key):
    public = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        n = public.public_numbers()
        return {"kty": "RSA", "n": number(n.n), "e": number(n.e)}
    if isinstance(key, ec.EllipticCurvePrivateKey):
        n = public.public_numbers()
        return {"kty": "EC", "crv": "P-256", "x": number(n.x, 32), "y": number(n.y, 32)}
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "x": number(int.from_bytes(raw, "big"), 32)}

new = {"RS256": lambda: rsa.generate_private_key(65537, 2048), "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
       "EdDSA": ed25519.Ed25519PrivateKey.generate}

def load(pem):
    return serialization.load_pem_private_key(pem.encode(), None)

def pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()

def fulfil(order):
    keys = {name: load(text) if text else new[name]() for name, text in order["keys"].items()}
    return {"keys": {name: pem(key) for name, key in keys.items()},
            "set": [{**jwk(key), "kid": name, "alg": name, "use": "sig"} for name, key in keys.items()],
            "tokens": [jwt.encode(claims, keys.get(algorithm) or order["secret"], algorithm, headers)
                       for algorithm, claims, headers in order["tokens"]]}

for line in sys.stdin:
    print(json.dumps(fulfil(json.loads(line))), flush=True)
"""


class Maker:
    """The process that makes keys and tokens: a line of JSON for each order. One for each test."""

    def __init__(self, rig):
        self.lock = threading.Lock()
        self.popen = subprocess.Popen(["/usr/bin/python3", "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        rig.add_cleanup(self.close)

    def make(self, keys, tokens):
        with self.lock:
            print(json.dumps({"keys": keys, "tokens": tokens, "secret": SECRET}), file=self.popen.stdin, flush=True)
            line = self.popen.stdout.readline()
        assert line, "it ended; if PyJWT is missing: install the Debian package python3-jwt"
        return json.loads(line)

    def close(self):
        self.popen.stdin.close()
        self.popen.wait()
        self.popen.stdout.close()


def maker_of(rig):
    if not hasattr(rig, "token_maker"):
        rig.token_maker = Maker(rig)
    return rig.token_maker


class Issuer:
    """`kid`: of the key, if there is one algorithm; without it, the name of the algorithm."""

    def __init__(self, rig, *algorithms, kid=None):
        self.maker = maker_of(rig)
        made = self.maker.make({algorithm: None for algorithm in algorithms}, [])
        self.kid, self.keys = kid, made["keys"]
        self.set = [{**key, "kid": kid or key["kid"]} for key in made["set"]]
        self.jwks = json.dumps({"keys": self.set})

    def sign(self, algorithm, *claims, kid=True):
        headers = {"kid": self.kid or algorithm} if kid and algorithm in self.keys else {}
        return self.maker.make(self.keys, [[algorithm, c, headers] for c in claims])["tokens"]
