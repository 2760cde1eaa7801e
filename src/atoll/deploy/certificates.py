"""Keys and certificates, made with the `cryptography` package.

All keys are on the elliptic curve P-384: the SuperLink accepts only NIST curves for nodes.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.deploy.layout import Layout, is_address
from atoll.errors import SiteError

AUTHORITY_DAYS = 3650
SERVER_DAYS = 730
NEW_FEDERATION = "make a new federation and new bundles: atoll federation init"  # hints
RENEW = "renew it: atoll federation renew {}"
SOON = timedelta(days=30)  # a certificate that expires within this time is reported
EARLIER = timedelta(days=1)  # clocks differ: a certificate is valid one day before it is made

PrivateKey = ec.EllipticCurvePrivateKey


def make_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def make_authority(key: PrivateKey, host: str, now: datetime | None = None) -> x509.Certificate:
    """The federation's own certificate authority: anyone who holds its key can pose as the server."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Atoll federation {host}"[:64])])
    public = key.public_key()
    return (
        _builder(name, name, public, now or datetime.now(UTC), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA384())
    )


def make_server_certificate(
    authority: x509.Certificate,
    authority_key: PrivateKey,
    key: PrivateKey,
    host: str,
    now: datetime | None = None,
    days: int = SERVER_DAYS,
) -> x509.Certificate:
    """A certificate for the server for its public name, and for localhost: the proxy and local tools use that."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    public = key.public_key()
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(name, authority.subject, public, now or datetime.now(UTC), days)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA384())
    )


def read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise SiteError(
            f"{path}: missing; restore it from a backup of the bundle or the federation", code="certificate-missing"
        ) from None
    except (OSError, ValueError) as problem:
        raise SiteError(
            f"{path}: not a readable certificate ({problem}); restore it", code="certificate-unreadable"
        ) from None


def check_validity(path: Path, hint: str) -> str | None:
    """A warning if a certificate expires within 30 days; a `SiteError` if it is not valid now.

    A slow clock makes a certificate appear to be from the future.
    """
    certificate, now = read_certificate(path), datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise SiteError(f"{path} expired on {end:%Y-%m-%d}; {hint}", code="certificate-expired")
    if now < begin:
        raise SiteError(
            f"{path} is valid from {begin:%Y-%m-%d %H:%M} UTC: this machine's clock is behind; set it",
            code="certificate-not-yet-valid",
        )
    return f"{path} expires on {end:%Y-%m-%d}; {hint}" if now > end - SOON else None


def validity_fault(path: Path, hint: str) -> str | None:
    """What is wrong with a certificate: it must be valid today and for 30 more days. None: nothing."""
    try:
        return check_validity(path, hint)
    except SiteError as problem:
        return str(problem)


def of_server(layout: Layout) -> dict[Path, str]:
    """The certificates that a federation's server needs, and what to do about one that expires."""
    return {layout.ca: NEW_FEDERATION, layout.server / "server.crt": RENEW.format(layout.folder)}


def refuse_invalid(layout: Layout) -> None:
    """A `SiteError` if one of the server's certificates is not valid now: no TLS library would name it."""
    for path, hint in of_server(layout).items():
        check_validity(path, hint)


def read_private_key(path: Path) -> PrivateKey:
    """A private key in PEM (server) or OpenSSH form (site)."""
    try:
        data = path.read_bytes()
        load = serialization.load_ssh_private_key if b"OPENSSH" in data else serialization.load_pem_private_key
        key = load(data, None)
    except FileNotFoundError:
        raise SiteError(
            f"{path}: missing; restore it from a backup of the bundle or the federation", code="key-missing"
        ) from None
    except (OSError, ValueError, TypeError) as problem:
        raise SiteError(f"{path}: not a readable private key ({problem}); restore it", code="key-unreadable") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SiteError(
            f"{path}: not an elliptic-curve key; restore the one that `atoll federation init` made",
            code="key-wrong-kind",
        )
    return key


def certificate_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_server_key(path: Path, key: PrivateKey) -> None:
    form = serialization.PrivateFormat.PKCS8
    write_secret(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def write_site_key(path: Path, key: PrivateKey) -> None:
    form = serialization.PrivateFormat.OpenSSH
    write_secret(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def public_line(key: PrivateKey) -> bytes:
    """A site's public key as one line in OpenSSH form, as `keys/NAME.pub` holds it."""
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"


def public_point(line: bytes) -> bytes:
    """The same key in PEM form, as the SuperLink registers and lists it."""
    key = serialization.load_ssh_public_key(line)
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def write_secret(path: Path, data: bytes) -> None:
    """A new file that is readable by its owner only, from the moment it exists."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _alternative_names(host: str) -> list[x509.GeneralName]:
    own = x509.IPAddress(ipaddress.ip_address(host)) if is_address(host) else x509.DNSName(host)
    local: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return [own, *(name for name in local if name != own)]


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
