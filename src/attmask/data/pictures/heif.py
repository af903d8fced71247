"""HEIC and HEIF pictures, which Pillow reads once pillow-heif is registered with it."""

from functools import cache

from attmask.data.pictures.endings import can_read_heif

HEIF = "HEIF"
_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})


def looks_like_heif(data: bytes) -> bool:
    """Whether the first bytes of a file name one of HEIF's brands (AVIF shares two of them)."""
    return data[4:8] == b"ftyp" and data[8:12] in _BRANDS


@cache
def register_heif() -> None:
    """Let Pillow read HEIF in this process, if pillow-heif is installed."""
    if can_read_heif():
        from pillow_heif import register_heif_opener

        register_heif_opener(decode_threads=1)  # worker processes share out the cores
