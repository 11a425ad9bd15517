"""Sequences of different lengths, packed step by step or padded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.tensor import create
from lehr.tensor.tensor import Tensor


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None


class PackedSequence(_Packed):
    """Sequences, longest first, one step of all after the other.

    data         [sum of lengths, *]
    batch_sizes  [longest], int64 on the CPU: how many sequences have that step
    sorted_indices, unsorted_indices  [batch]: to the packed order and back, or None
    """

    def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None,
                unsorted_indices: Any = None) -> Any:
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("PackedSequence needs batch_sizes")
            data, batch_sizes = data
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence "
                "and pack_padded_sequences in nn.utils.rnn.")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Its data converted or moved as `Tensor.to` does."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        order = [None if i is None else i.to(data.device) for i in (self.sorted_indices,
                                                                    self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *order)

    def _converted(self, name: str) -> Any:
        return type(self)(getattr(self.data, name)(), *self[1:])

    def cpu(self) -> Any:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = "cuda") -> Any:
        """On a GPU."""
        return self.to(device)

    def double(self) -> Any:
        """In float64."""
        return self._converted("double")

    def float(self) -> Any:
        """In float32."""
        return self._converted("float")

    def half(self) -> Any:
        """In float16."""
        return self._converted("half")

    def long(self) -> Any:
        """In int64."""
        return self._converted("long")

    def int(self) -> Any:
        """In int32."""
        return self._converted("int")

    def pin_memory(self) -> Any:
        """In page-locked memory."""
        return self._converted("pin_memory")

    @property
    def is_cuda(self) -> bool:
        return self.data.device.type == "cuda"  # type: ignore[no-any-return]

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        return self.data.is_pinned()  # type: ignore[no-any-return]


def invert_permutation(permutation: Any) -> Any:
    """The permutation [n] that undoes another; None for None."""
    if permutation is None:
        return None
    F = Tensor.F
    positions = F.arange(permutation.numel(), dtype=dt.int64, device=permutation.device)
    return F.scatter(F.empty_like(permutation), 0, permutation, positions)


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs [longest, batch, *] (or [batch, longest, *]) by `lengths` [batch].

    `enforce_sorted` refuses lengths that do not fall; otherwise sequences are sorted first.
    """
    sizes = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    F = Tensor.F
    order = None
    if not enforce_sorted:
        ranks = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        order = create.tensor(ranks, dtype=dt.int64, device=input.device)
        sizes = [sizes[i] for i in ranks]
        input = F.index_select(input, 0 if batch_first else 1, order)
    steps = F.transpose(input, 0, 1) if batch_first else input
    if len(sizes) != steps.size(1):
        raise RuntimeError("Expected `len(lengths)` to be equal to batch_size, but got "
                           f"{len(sizes)} (batch_size={steps.size(1)})")
    if not sizes or sizes[-1] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element "
                           "in 'lengths' that is <= 0")
    if any(a < b for a, b in zip(sizes, sizes[1:], strict=False)):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when "
                           "`enforce_sorted` is True. You can pass `enforce_sorted=False` to "
                           "pack_padded_sequence and/or pack_sequence to sidestep this requirement "
                           "if you do not need ONNX exportability.")
    if sizes[0] > steps.size(0):
        raise RuntimeError(f"Expected lengths of at most {steps.size(0)}, got {sizes[0]}")
    counts = [sum(n > t for n in sizes) for t in range(sizes[0])]
    data = F.cat([steps[t, :n] for t, n in enumerate(counts)], 0)  # type: ignore[index]
    made: Any = PackedSequence(data, create.tensor(counts, dtype=dt.int64), order)
    return made


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False,
                        padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """([longest, batch, *] filled up with `padding_value`, lengths [batch]): packing undone."""
    F = Tensor.F
    counts = sequence.batch_sizes.tolist()
    longest = len(counts)
    if total_length is not None:
        if total_length < longest:
            raise ValueError("Expected total_length to be at least the length of the longest "
                             "sequence in "
                             f"input, but got total_length={total_length} and max sequence length "
                             "being "
                             f"{longest}")
        longest = total_length
    batch = counts[0]
    rest = tuple(sequence.data.shape[1:])
    steps = []
    for part in sequence.data.split(counts, 0):
        missing = batch - part.size(0)
        if missing:
            fill = F.full((missing, *rest), padding_value, dtype=part.dtype, device=part.device)
            part = F.cat([part, fill], 0)
        steps.append(part)
    for _ in range(longest - len(counts)):
        steps.append(F.full((batch, *rest), padding_value, dtype=sequence.data.dtype,
                            device=sequence.data.device))
    padded = F.stack(steps, 1 if batch_first else 0)
    lengths = create.tensor([sum(n > i for n in counts) for i in range(batch)], dtype=dt.int64)
    back = sequence.unsorted_indices
    if back is not None:
        padded = F.index_select(padded, 0 if batch_first else 1, back)
        lengths = lengths[back.cpu()]  # type: ignore[index]
    return padded, lengths


def pad_sequence(sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """[longest, batch, *] (or [batch, longest, *]) of tensors [length, *], filled up."""
    if padding_side not in ("right", "left"):
        raise ValueError(f"padding_side should be one of 'right' or 'left', but got {padding_side}")
    parts = list(sequences)
    if not parts:
        raise RuntimeError("received an empty list of sequences")
    F = Tensor.F
    longest = max(p.size(0) for p in parts)
    out = []
    for p in parts:
        missing = longest - p.size(0)
        if missing:
            fill = F.full((missing, *p.shape[1:]), padding_value, dtype=p.dtype, device=p.device)
            p = F.cat([p, fill] if padding_side == "right" else [fill, p], 0)
        out.append(p)
    return F.stack(out, 0 if batch_first else 1)  # type: ignore[no-any-return]


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor,
                   batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch."""
    batch = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [batch[i, : int(n)] for i, n in enumerate(lengths.tolist())]  # type: ignore[index]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors [length, *]."""
    lengths = [s.size(0) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
