"""Who encrypts on a gateway: the kernel, or charon by itself where the kernel cannot. The node is asked, by a role."""

from enum import StrEnum


class Engine(StrEnum):
    """Where packets are encrypted."""

    KERNEL = "kernel"
    """By ESP in the kernel, through an XFRM interface for each tunnel."""
    DAEMON = "daemon"
    """By charon's own library, through a TUN device for each charon: slower, and without a kernel's help."""


_LEAVE_NOTHING = (
    " ip xfrm state delete src 192.0.2.1 dst 192.0.2.2 proto esp spi 0xfffffffe 2>/dev/null;"
    " ip link delete ipsec0probe 2>/dev/null;"
)
# An interface that does nothing, and a state that carries nothing: made and taken away again. A kernel that lacks
# one of the two says so by failing; what another question has made, or left behind, must not look like that.
PROBE = (
    f"exec 9>/run/bedplate-probe; flock 9;{_LEAVE_NOTHING}"
    " ip link add ipsec0probe type xfrm if_id 4294967295 2>/dev/null"
    " && ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0xfffffffe mode tunnel if_id 4294967295"
    " aead 'rfc4106(gcm(aes))' 0x$(printf '00%.0s' $(seq 36)) 128 2>/dev/null && echo kernel || echo daemon;"
    f"{_LEAVE_NOTHING} true"
)


def engine_told(answer: str) -> Engine:
    """Return what the answer of a node to PROBE means; ValueError when it is no answer."""
    return Engine(answer.strip())


def engine_sentence(engine: Engine) -> str:
    """Return what is told about it to whoever sets up the node."""
    if engine is Engine.KERNEL:
        return "the kernel encrypts (ESP, XFRM interfaces)"
    return "this kernel lacks ESP or XFRM interfaces: charon encrypts by itself (kernel-libipsec), and more slowly"
