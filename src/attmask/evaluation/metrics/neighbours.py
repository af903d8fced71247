"""Exact nearest neighbours by cosine similarity, for banks of any size.

Similarities are computed block by block and compared while they are still in the CPU cache. Only
those above the k-th best of their query so far become candidates, and the maximum of a group of
sixteen is compared first, so most of the time is the matrix multiply. `benchmarks/knn.py` measures
it.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

# No measurable gain: 1024 or 4096 queries, 512 or 2048 vectors, groups of 8 or 32. Slower: products
# written into rows of 32,768 similarities, and `topk` of each block (3 to 12 ns per similarity; the
# multiply takes 8).
_CPU_BLOCK = (2048, 1024)  # queries x bank vectors: 8 MB of similarities
_ACCELERATOR_BLOCK = (4096, 8192)
_MOST_KEYS = 2**22  # 32 MB of candidates
_OPENING = 8  # blocks for the first bound; more blocks give a higher bound and fewer candidates
_GROUP = 16
_PROBES = 64
_LENGTHS_AT_ONCE = 8192
_LOW = 2**32 - 1


def nearest(
    bank: Float[Tensor, "M D"],
    queries: Float[Tensor, "Q D"],
    k: int,
    *,
    exclude_self: bool = False,
    device: torch.device | None = None,
) -> Iterator[tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]]:
    """Yield cosine and bank index of the k nearest neighbours, nearest first, chunk by chunk.

    Ties go to the lower index. With `exclude_self`, bank and queries are the same images, and no
    image is its own neighbour. The results are on the CPU. The search needs about 120 MB in
    addition to the arguments, twice as much if all vectors are equal.
    """
    if exclude_self and len(bank) != len(queries):
        raise ValueError(f"{len(queries)} queries are not the {len(bank)} vectors of the bank")
    if not 1 <= k <= len(bank) - exclude_self:
        raise ValueError(f"{k} neighbours of {len(bank) - exclude_self} vectors")
    device = device or torch.device("cpu")
    most_queries, most_rows = _CPU_BLOCK if device.type == "cpu" else _ACCELERATOR_BLOCK
    # All products have the same shape, and the last pieces are padded with zeros: another shape may
    # be summed in another order, and then equal vectors would get different similarities.
    rows = _rounded_up(min(most_rows, len(bank)))
    most_queries = min(most_queries, max(_GROUP, _MOST_KEYS // (rows + 3 * k)))
    chunks = -(-len(queries) // most_queries)
    most_queries = _rounded_up(-(-len(queries) // max(1, chunks)))  # none nearly empty
    asked = torch.zeros(max(_GROUP, most_queries), bank.shape[1], device=device)
    blocks = torch.empty(min(_OPENING, -(-len(bank) // rows)), len(asked), rows, device=device)
    bank_lengths, query_lengths = _lengths(bank).to(device), _lengths(queries).to(device)
    for first in range(0, len(queries), len(asked)):
        chunk = slice(first, min(first + len(asked), len(queries)))
        asked[: chunk.stop - first].copy_(queries[chunk]).div_(query_lengths[chunk, None])
        seen = _similarities(asked, bank, bank_lengths, blocks, first if exclude_self else None)
        best = _Best(chunk.stop - first, k, rows, device)
        opening = list(islice(seen, len(blocks)))
        best.start([block for _, block in opening])
        for begin, block in chain(opening, seen):
            best.see(block, begin)
        similarity, index = best.in_order()
        yield similarity.cpu(), index.cpu()


def _similarities(
    asked: Float[Tensor, "q D"],
    bank: Float[Tensor, "M D"],
    lengths: Float[Tensor, "M"],
    blocks: Float[Tensor, "opening q rows"],
    selves: int | None,
) -> Iterator[tuple[int, Float[Tensor, "q rows"]]]:
    """Yield the first bank index and the similarities of each piece of the bank.

    The first pieces have one block each, all others share a block. `selves` is the bank index of
    the first query if queries must not match themselves.
    """
    rows = blocks.shape[2]
    piece = torch.zeros(rows, bank.shape[1], device=asked.device)
    for number, begin in enumerate(range(0, len(bank), rows)):
        block = blocks[number if number < len(blocks) else 0]
        part = bank[begin : begin + rows]
        piece[: len(part)].copy_(part).div_(lengths[begin : begin + rows, None])
        _multiply(asked, piece, block)
        block[:, len(part) :] = -torch.inf
        if selves is not None:
            block.diagonal(selves - begin).fill_(-torch.inf)
        yield begin, block


def _rounded_up(count: int) -> int:
    return -(-count // _GROUP) * _GROUP


def _lengths(vectors: Float[Tensor, "M D"]) -> Float[Tensor, "M"]:
    pieces = vectors.split(_LENGTHS_AT_ONCE)
    lengths = torch.cat([piece.float().norm(dim=1) for piece in pieces])
    if not bool(lengths.isfinite().all()):
        raise ValueError("the vectors are not finite")
    return lengths.clamp_min_(1e-12)


def _multiply(
    asked: Float[Tensor, "q D"], piece: Float[Tensor, "p D"], block: Float[Tensor, "q p"]
) -> None:
    """Write the matrix product of queries and bank vectors into the block."""
    is_on_cpu = block.device.type == "cpu"
    if is_on_cpu and _numpy_treats_equals_alike(*piece.shape):
        np.matmul(asked.numpy(), piece.numpy().T, out=block.numpy())
    else:
        torch.mm(asked, piece.T, out=block)


@cache
def _numpy_treats_equals_alike(rows: int, width: int) -> bool:
    """Whether NumPy gives equal vectors equal products in every column.

    Its OpenBLAS is faster than PyTorch's MKL, but on CPUs without AVX-512 it sums some columns in
    another order, so copies of an image would get different similarities.
    """
    chance = np.random.default_rng(0)
    asked = chance.standard_normal((_PROBES, width), dtype=np.float32)
    one = chance.standard_normal((1, width), dtype=np.float32)
    products = asked @ np.repeat(one, rows, axis=0).T
    return bool((products == products[:, :1]).all())


class _Best:
    """The k best of each query so far, and a buffer of candidates.

    A similarity and its index are packed into one integer that is ordered by higher similarity,
    then by lower index. All integers differ, so ties need no special treatment.
    """

    def __init__(self, queries: int, k: int, rows: int, device: torch.device) -> None:
        self.k, self.room = k, k + rows + 2 * k
        self.keys = torch.empty((queries, self.room), dtype=torch.int64, device=device)
        self.keys[:, :k] = _NOTHING
        self.filled = torch.full((queries,), k, device=device)
        self.worst = torch.full((queries,), -torch.inf, device=device)
        self.candidates = 0

    def start(self, blocks: Sequence[Float[Tensor, "q p"]]) -> None:
        """Set the first bound: the k-th largest maximum of all groups in some blocks."""
        some = torch.cat([self._groups(block).amax(dim=1) for block in blocks], dim=1)
        if self.k <= some.shape[1]:
            least = some.topk(self.k, dim=1, sorted=False).values.amin(dim=1)
            self.worst = least.nextafter(torch.tensor(-torch.inf, device=least.device))

    def see(self, block: Float[Tensor, "q p"], begin: int) -> None:
        """Add the similarities above the bound; the indices of the block start at `begin`."""
        groups = self._groups(block)
        row, column = (groups.amax(dim=1) > self.worst[:, None]).nonzero().unbind(dim=1)
        members = groups[row, :, column]
        above = members > self.worst.index_select(0, row)[:, None]
        flat = above.view(-1).nonzero().squeeze(1)
        group = flat // _GROUP
        index = (flat % _GROUP).mul_(groups.shape[2]).add_(column.index_select(0, group))
        keys = _keys(members.view(-1).index_select(0, flat), index.add_(begin))
        self._add(row.index_select(0, group), keys)
        full = int(self.filled.max()) + block.shape[1] > self.room
        if full or self.candidates > len(self.keys) * self.k:
            self._sift()

    def _groups(self, block: Float[Tensor, "Q p"]) -> Float[Tensor, "q group apart"]:
        """Strided groups of similarities, the fastest layout to compute their maxima."""
        return block[: len(self.keys)].view(len(self.keys), _GROUP, -1)

    def _add(self, row: Int64[Tensor, "n"], keys: Int64[Tensor, "n"]) -> None:
        """Append candidates, ordered by row, to those of their rows."""
        more = row.bincount(minlength=len(self.filled))
        ahead = self.filled - (more.cumsum(0) - more)
        slot = torch.arange(len(row), device=row.device) + ahead.index_select(0, row)
        self.keys.view(-1)[slot.add_(row, alpha=self.room)] = keys
        self.filled += more
        self.candidates += len(row)

    def _sift(self) -> None:
        """Keep the k best of each row."""
        self.keys[:, : self.k] = self._used().topk(self.k, dim=1, sorted=False).values
        self.worst = _opened(self.keys[:, : self.k].amin(dim=1))[0]
        self.filled.fill_(self.k)
        self.candidates = 0

    def in_order(self) -> tuple[Float[Tensor, "q k"], Int64[Tensor, "q k"]]:
        """Similarity and index of the k best, the best first."""
        return _opened(self._used().topk(self.k, dim=1).values)

    def _used(self) -> Int64[Tensor, "q used"]:
        """The columns that any row uses, with the unused entries of the other rows cleared."""
        used = self.keys[:, : int(self.filled.max())]
        column = torch.arange(used.shape[1], device=used.device)
        return used.masked_fill_(column >= self.filled[:, None], _NOTHING)


def _keys(similarity: Float[Tensor, "n"], index: Int64[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """Integers ordered by similarity, then by descending index."""
    bits = (similarity + 0.0).view(torch.int32)  # -0 becomes 0
    # The bits of negative floats are in reverse order.
    ordered = bits.bitwise_xor_((bits >> 31).bitwise_and_(0x7FFFFFFF))
    return ordered.long().mul_(2**32).add_(_LOW).sub_(index)


def _opened(keys: Int64[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Int64[Tensor, "..."]]:
    """The similarity and the index of each key."""
    bits = (keys >> 32).int()
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return bits.view(torch.float32), _LOW - (keys & _LOW)


_NOTHING = int(_keys(torch.tensor([-torch.inf]), torch.tensor([_LOW])))
"""A key below every candidate."""
