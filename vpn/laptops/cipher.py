"""What a gateway and a laptop may agree to: authenticated ciphers over TLS 1.2 or newer, the same words at both ends.

Sources: OpenVPN 2.6 reference manual, "Data Channel Renegotiation" and "TLS Mode Options", read 2026-11.
"""

from collections.abc import Mapping

CIPHERS: Mapping[str, str] = {
    "tls-version-min": "1.2",
    "tls-cipher": "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384:TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256",
    "tls-ciphersuites": "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
    "data-ciphers": "AES-256-GCM:CHACHA20-POLY1305",
    "tls-cert-profile": "preferred",
    # No packet of an authenticated cipher uses it; said so that nobody reads SHA1 in a log.
    "auth": "SHA256",
}
