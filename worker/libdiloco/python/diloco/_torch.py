# SPDX-License-Identifier: Apache-2.0
"""Parameters of a PyTorch module: on CPU or CUDA, whole or as DTensors (FSDP2, tensor parallel), fp32, bf16 or fp16."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist

from . import _abi
from ._errors import DilocoError
from ._frozen import frozen_of
from ._moves import Moves, host_values
from ._probes import Idle, Overwritten, Still
from ._tensors import Described, Tensors
from ._whereabouts import Whereabouts, is_spread

TYPES = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16, torch.float16: _abi.F16}
VARIANCE = "running_var"  # of BatchNorm and the like, the buffer's own name
WRAPPERS = ("module.", "_orig_mod.", "_forward_module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def plain_name(name: str) -> str:
    """A parameter's name as it is without DDP, torch.compile and other wrappers around the module."""
    for wrapper in WRAPPERS[1:]:
        name = name.replace(wrapper, "")
    return name.removeprefix(WRAPPERS[0])


def _along(
    placements: Iterable[Any], mesh: Any, shape: tuple[int, ...], name: str
) -> tuple[list[int], list[int], list[int]]:
    """Of each dimension the first index and how many a rank has; and the mesh dimensions that only repeat."""
    first, count, repeated = [0] * len(shape), list(shape), []
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise DilocoError(f"parameter {name}: this rank is not in the mesh that it is spread over")
    # What is sharded by FSDP on top of tensor parallelism (_StridedShard) divides what that has left.
    order = sorted(enumerate(placements), key=lambda item: type(item[1]).__name__ == "_StridedShard")
    for axis, placement in order:
        if placement.is_replicate():
            repeated.append(axis)
            continue
        if not (placement.is_shard() or type(placement).__name__ == "_StridedShard"):
            raise DilocoError(f"parameter {name} is placed as {placement}, which is no shard and no copy")
        dim, parts, at = placement.dim, mesh.size(axis), coordinate[axis]
        chunk = -(-count[dim] // parts)
        own = max(0, min(chunk, count[dim] - at * chunk))
        first[dim] += min(at * chunk, count[dim])
        count[dim] = own
    return first, count, repeated


def _part(first: list[int], count: list[int], shape: tuple[int, ...], name: str) -> tuple[int, int, int, int]:
    """As libdiloco counts: columns of a matrix of shape[0] rows, and values from the first on within these."""
    if len(shape) == 1:
        return (0, shape[0], first[0], count[0])
    inner = 1
    for dim in range(2, len(shape)):
        inner *= shape[dim]
        if count[dim] != shape[dim]:
            raise DilocoError(f"parameter {name} is sharded along dimension {dim}; 0 and 1 are possible")
    width = shape[1] * inner
    column0, columns = first[1] * inner, count[1] * inner
    if columns == 0:
        return (0, width, 0, 0)
    return (column0, columns, first[0] * columns, count[0] * columns)


def part_of(name: str, param: Any) -> tuple[tuple[int, int, int, int], list[int]]:
    """What this rank has of a DTensor, as libdiloco counts; and the dimensions of its mesh along which others have the
    same."""
    shape = tuple(param.shape) or (1,)
    first, count, repeated = _along(param.placements, param.device_mesh, shape, name)
    local = tuple(param.to_local().shape)
    if local != tuple(count[: len(local)]):
        raise DilocoError(f"parameter {name}: rank {dist.get_rank()} has {local} of it, not {tuple(count)}")
    return _part(first, count, shape, name), repeated


def _host(shape: Iterable[int]) -> torch.Tensor:
    """Room for fp32 values in host memory, whatever device the script has made its default."""
    return torch.empty(tuple(shape), dtype=torch.float32, device="cpu")


def spread_as(value: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """`local`, fp32 values in host memory, as this rank's part of a tensor that is spread as `value` is."""
    if not is_spread(value):
        return local
    from torch.distributed.tensor import DTensor

    part = DTensor.from_local(  # of nothing yet: it would take the values to the mesh's device
        local.to("meta"), value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
    )
    part._local_tensor = local
    return part


def width_of(shape: tuple[int, ...]) -> int:
    """Columns of a tensor, as libdiloco counts."""
    return math.prod(shape[1:]) if len(shape) > 1 else shape[0]


class Param:
    """One parameter: its local values, and whom its values come from where ranks hold copies."""

    def __init__(
        self,
        name: str,
        given: torch.Tensor,
        local: torch.Tensor,
        shape: tuple[int, ...],
        part: tuple[int, int, int, int],
        sources: list[tuple[Any, int]],
    ):
        """part: as libdiloco counts, of the whole of `shape`; one of no values is another rank's to bring.
        sources: groups of ranks that hold copies, and which rank there brings them to the others"""
        self.name, self.given, self.local, self.sources = name, given, local, sources
        self.shape, self.part = shape or (1,), part
        if any(dist.get_rank(group) != source for group, source in sources):
            self.part = (0, width_of(self.shape), 0, 0)

    @classmethod
    def of(cls, name: str, param: torch.Tensor, group: Any, nearest: Callable[[Any], int]) -> "Param":
        shape = tuple(param.shape)
        if not is_spread(param):
            sources = [(group, nearest(group))] if group is not None else []
            return cls(name, param, param.detach(), shape, (0, 0, 0, 0), sources)
        part, repeated = part_of(name, param)
        groups = [param.device_mesh.get_group(axis) for axis in repeated if param.device_mesh.size(axis) > 1]
        return cls(name, param, param.to_local().detach(), shape, part, [(one, nearest(one)) for one in groups])

    def has_values(self) -> bool:
        """Whether they are this rank's to bring, and not copies of another one's."""
        return self.part[1] == 0 or self.part[3] > 0

    def is_as(self, other: "Param") -> bool:
        """But for where it lies."""
        return (
            self.shape == other.shape
            and self.part == other.part
            and self.local.dtype == other.local.dtype
            and self.local.device == other.local.device
            and self.local.is_contiguous()
        )

    def __str__(self) -> str:
        spread = f", of which this rank has {tuple(self.local.shape)}" if is_spread(self.given) else ""
        gaps = "" if self.local.is_contiguous() else ", not contiguous"
        return f"{self.local.dtype} {list(self.shape)} on {self.local.device}{spread}{gaps}"

    def take_from_source(self) -> None:
        for group, source in self.sources:
            dist.broadcast(self.local, src=dist.get_global_rank(group, source), group=group)


def _is_variance(param: Param) -> bool:
    return param.name.rpartition(".")[2] == VARIANCE


class Module(Tensors):
    """The parameters of a module that are trained; with `buffers`, its floating-point buffers, too."""

    def __init__(
        self,
        model: Any,
        group: Any = None,
        buffers: bool = False,
        as_device: bool = False,
        nearest: Callable[[Any], int] | None = None,
    ):
        """nearest: of a group whose ranks hold copies, the rank there whose copy is exchanged; None: the first"""
        named = dict(model) if isinstance(model, dict) else dict(self._named(model, buffers))
        nearest = nearest if nearest is not None else lambda _group: 0
        self._model, self._group, self._nearest = model, group, nearest
        if not named:
            raise DilocoError("the model has no parameter that requires a gradient: there is nothing to share")
        self.params = [self._param(name, value) for name, value in named.items()]
        where = {param.local.device for param in self.params}
        self.on_device = as_device or any(device.type != "cpu" for device in where)
        for param in self.params:
            self._check(param)
        if len({device.type for device in where}) > 1:
            raise DilocoError("the model is partly on the CPU and partly on a GPU; move it to one kind of device")
        self.described = [
            Described(
                param.name,
                number + 1 if self.on_device else param.local.data_ptr() or 1,
                TYPES[param.local.dtype],
                param.shape,
                param.part,
                param.local,
            )
            for number, param in enumerate(self.params)
        ]
        self.watched = [n for n, param in enumerate(self.params) if param.sources or _is_variance(param)]
        self._moves = Moves([param.local for param in self.params]) if self.on_device else None
        self.device = self._moves.struct if self._moves is not None else None
        self._whereabouts = Whereabouts(model, [param.given for param in self.params])
        self._hooks: list[Any] = []
        self._values = [param.local for param in self.params]
        self._still, self._idle = Still(param.given for param in self.params), Idle()
        self._overwritten = Overwritten(self._values)
        self._losses, self._tokens = _Later(), _Later()
        self._loss = 0.0

    def open(self) -> None:
        self._hooks = [module.register_load_state_dict_post_hook(self._note_load) for module in self._owners()]
        self._hooks.append(self._still.listen())
        self.loaded, self.idle = False, 0
        if self._moves is not None:
            self._moves.open(self._values)
        if not isinstance(self._model, dict):
            self.frozen = frozen_of(self._frozen(self._model), self._group, _along)

    def _owners(self) -> list[torch.nn.Module]:
        """The modules that have the parameters themselves."""
        if isinstance(self._model, dict):
            return []
        own = {id(param.given) for param in self.params}
        return [one for one in self._model.modules() if any(id(value) in own for value in one._parameters.values())]

    def _note_load(self, _module: Any, _keys: Any) -> None:
        self.loaded = True

    @staticmethod
    def _named(model: torch.nn.Module, buffers: bool) -> Iterable[tuple[str, torch.Tensor]]:
        for name, param in model.named_parameters():  # each of those that are tied once
            if param.requires_grad:
                yield plain_name(name), param
        for name, buffer in model.named_buffers() if buffers else ():
            if not buffer.is_floating_point():
                continue
            if buffer.device.type != "meta" and not torch.isfinite(buffer).all():  # a mask: no mean of it is a number
                raise DilocoError(f"buffer {name} holds an infinite value or none; leave buffers=True out, and share "
                                  "by diloco.attach({name: tensor}) what is to be")
            yield plain_name(name), buffer

    @staticmethod
    def _frozen(model: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
        for name, param in model.named_parameters():
            if not param.requires_grad:
                yield plain_name(name), param

    def moved(self) -> list[tuple[int, int]]:
        if self._whereabouts.still():
            return []
        now = self._now()
        found = [self._again(param, now.get(param.name)) for param in self.params]
        places = []
        for number, (old, new) in enumerate(zip(self.params, found)):
            if new.local.data_ptr() == old.local.data_ptr():
                continue
            one = self.described[number]
            one.keeps = new.local
            if self._moves is not None:
                self._moves.flat[number] = new.local.view(-1)
            else:
                one.address = new.local.data_ptr() or 1
                places.append((number, one.address))
        self.params, self._values = found, [param.local for param in found]
        self._whereabouts = Whereabouts(self._model, [param.given for param in found])
        self._still.params = {id(param.given) for param in found}
        return places

    def _now(self) -> dict[str, torch.Tensor]:
        """All that the model holds, trained or not."""
        if isinstance(self._model, dict):
            return dict(self._model)
        there = dict(self._model.named_buffers()) | dict(self._model.named_parameters())
        return {plain_name(name): value for name, value in there.items()}

    def _param(self, name: str, value: torch.Tensor) -> Param:
        return Param.of(name, value, self._group, self._nearest)

    def _again(self, old: Param, value: torch.Tensor | None) -> Param:
        """A parameter as it is in the model now."""
        if value is None:
            raise DilocoError(f"parameter {old.name} is no longer in the model; attach after what changes the model")
        if is_spread(old.given) and not is_spread(value) and Whereabouts.has(old.given, value, old.local.data_ptr()):
            return old
        new = self._param(old.name, value)
        if not new.is_as(old):
            raise DilocoError(
                f"parameter {old.name} is {new} now, and was {old} when the model was attached; attach after what "
                "changes it, as .to(), .half() or fully_shard()"
            )
        return new

    def before_moves(self) -> None:
        self._overwritten.before(self._values)

    def after_moves(self, changed: Callable[[int], Any]) -> None:
        self._overwritten.after(self._values, changed)
        if changed(_abi.ANY):
            self._still.begin(self._values)
            self._idle.moved()

    def stood_still(self) -> bool:
        number = self._overwritten.look(self._values)
        if number is not None:
            raise DilocoError(
                f"the optimizer has written over what the run brought into parameter {self.params[number].name}: it "
                "has masters of its own, as those of DeepSpeed, apex and Megatron do. Attach these "
                "(diloco.attach({name: master})), and copy one into the model where island.changed(name)"
            )
        still = self._still.is_one(self._values)
        if self._idle.look(self._still.in_a_row, lambda: self._overwritten.sample(self._values)):
            self.idle = self._still.in_a_row
        return still

    @staticmethod
    def _check(param: Param) -> None:
        local = param.local
        if local.device.type not in ("cpu", "cuda"):
            raise DilocoError(f"parameter {param.name} is on {local.device}; the CPU and CUDA devices are possible")
        if local.dtype not in TYPES:
            raise DilocoError(f"parameter {param.name} is {local.dtype}; float32, bfloat16 and float16 are possible")
        if not local.is_contiguous():
            raise DilocoError(f"parameter {param.name} is not contiguous: replace it by a copy that is (.contiguous())")

    def changed(self, numbers: list[int]) -> None:
        for number in numbers:
            param = self.params[number]
            param.take_from_source()
            if _is_variance(param):
                param.local.clamp_(min=0)  # momentum, rounding and shifts may all go beyond where it has become small

    def exchange(self, read: Callable[[int, int, int], None]) -> Callable[[], None]:
        saved = [param.local.clone() for param in self.params]  # detached, so that no gradient goes there

        def back() -> None:
            for param, values in zip(self.params, saved):
                param.local.copy_(values)

        try:
            for number, param in enumerate(self.params):
                if param.has_values():
                    values = _host(param.local.shape)
                    read(number, values.data_ptr(), values.numel())
                    param.local.copy_(values)
            self.changed([number for number, param in enumerate(self.params) if param.sources or _is_variance(param)])
        except BaseException:
            back()
            raise
        return back

    def distance(self, read: Callable[[int, int, int], None]) -> tuple[float, float]:
        away = size = 0.0
        for number, param in enumerate(self.params):
            if param.has_values():
                anchor = _host(param.local.shape)
                read(number, anchor.data_ptr(), anchor.numel())
                anchor = anchor.to(param.local.device)
                away += float((param.local.float() - anchor).square_().sum(dtype=torch.float64))
                size += float(anchor.square_().sum(dtype=torch.float64))
        return away, size

    def loss_of(self, loss: Any) -> float:
        """The latest loss that is known without waiting for a GPU."""
        if not isinstance(loss, torch.Tensor):
            return super().loss_of(loss)
        if loss.is_cpu:
            return float(loss.item())
        self._losses.give(loss)
        self._loss = ([self._loss] + self._losses.come())[-1]
        return self._loss

    def tokens_of(self, tokens: Any, last: bool) -> int:
        """What a GPU has not counted yet comes with a later step."""
        if isinstance(tokens, torch.Tensor) and not tokens.is_cpu:
            self._tokens.give(tokens)
            tokens = 0
        return int(tokens) + int(sum(self._tokens.come(last)))

    def saved(self, kept: bytearray) -> torch.Tensor:
        """torch.save() writes a tensor as it is; of other bytes it would make a text first, three times as long."""
        return torch.frombuffer(kept, dtype=torch.uint8) if kept else torch.empty(0, dtype=torch.uint8, device="cpu")

    def room(self, number: int) -> tuple[torch.Tensor, int, int]:
        param = self.params[number]
        values = _host(param.local.shape)
        return spread_as(param.given, values), values.data_ptr(), values.numel()

    def take(self, number: int, kept: Any, address: int, count: int) -> None:
        param = self.params[number]
        values = kept.to_local() if is_spread(kept) else kept
        if values.dtype != torch.float32 or values.shape != param.local.shape:
            there = f"{values.dtype} {list(values.shape)}"
            raise DilocoError(
                f"attach(state=) has {there} for parameter {param.name}, of which this rank has "
                f"{list(param.local.shape)}: other ranks have saved it; torch.distributed.checkpoint reads it for these"
            )
        host_values(address, 1, count, count).copy_(values.reshape(1, -1))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._moves is not None:
            self._moves.close()


class _Later:
    """Numbers that are still on a GPU. Each is known some time after it was given, and nobody waits for it."""

    def __init__(self, event: Any = torch.cuda.Event, pinned: bool = True):
        self._event, self._pinned = event, pinned
        self._under_way: deque[tuple[Any, torch.Tensor]] = deque()

    def give(self, value: torch.Tensor) -> None:
        on_host = torch.empty((), dtype=torch.float64, device="cpu", pin_memory=self._pinned)
        on_host.copy_(value.detach().double(), non_blocking=True)
        event = self._event()
        event.record()
        self._under_way.append((event, on_host))

    def come(self, wait: bool = False) -> list[float]:
        """Those that are known by now, in order; with `wait` all."""
        known = []
        while self._under_way and (wait or self._under_way[0][0].query()):
            event, on_host = self._under_way.popleft()
            event.synchronize()
            known.append(float(on_host))
        return known
