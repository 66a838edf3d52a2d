"""A device that is not the CPU: torch's PrivateUse1, called `far`, which computes on the CPU.

Its tensors do not mix with those of the CPU, and what waits for it is counted: each of the
operations in `WAITS` would make the host wait until a real device has done all its work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "far"
aten = torch.ops.aten

# From the device to Python, and operations with results of a size that only the device knows.
WAITS = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.index.Tensor,
    aten.bincount.default,
    aten.repeat_interleave.Tensor,
    aten.unique_dim.default,
    aten._unique2.default,
}
COPIES = (aten.copy_.default, aten._to_copy.default)


class FarTensor(Tensor):
    """A tensor of the device, which keeps its numbers in a tensor of the CPU."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor, requires_grad: bool = False) -> FarTensor:
        far: FarTensor = Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=torch.device(NAME, 0),
            requires_grad=requires_grad,
        )
        far.near = near
        return far

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._to_copy.default and not _is_far(kwargs.get("device", NAME)):
            return func(args[0].near, **kwargs).clone()
        if func is aten.copy_.default and not isinstance(args[0], FarTensor):
            return args[0].copy_(args[1].near)
        if func not in COPIES:
            _check_one_device(func, [*tree_leaves(args), *tree_leaves(kwargs)])
        if _is_far(kwargs.get("device")):
            kwargs = {**kwargs, "device": torch.device("cpu")}
        near = func(*_to_near(args), **_to_near(kwargs))
        if not _shares_memory(func):
            return _to_far(near)
        return return_and_correct_aliasing(func, args, kwargs, _to_far(near))

    def __reduce_ex__(self, protocol: Any) -> Any:
        # As torch saves the tensors of devices without memory of their own.
        near = self.detach().near
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, (
            near,
            self.dtype,
            str(self.device),
            self.requires_grad,
        )

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.near!r} on {self.device}"


@cache
def _shares_memory(func: Any) -> bool:
    """Whether what an operation returns is a view of an argument, or an argument itself."""
    return any(each.alias_info is not None for each in func._schema.returns)


def _is_far(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _to_near(nested: Any) -> Any:
    return tree_map_only(FarTensor, lambda far: far.near, nested)


def _to_far(nested: Any) -> Any:
    return tree_map_only(Tensor, FarTensor, nested)


def _check_one_device(func: Any, leaves: Sequence[Any]) -> None:
    """An error as a GPU gives it. Numbers of the CPU may enter arithmetic, as they may there."""
    pointwise = torch.Tag.pointwise in func.tags
    for each in leaves:
        if isinstance(each, Tensor) and not isinstance(each, FarTensor):
            if pointwise and each.ndim == 0:
                continue
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices,"
                f" {NAME}:0 and {each.device}, in {func}"
            )


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.calls += 1
        far = any(isinstance(each, FarTensor) for each in tree_leaves((args, kwargs)))
        by_mask = func is aten.index.Tensor and not any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in args[1]
        )
        to_cpu = func is aten._to_copy.default and not _is_far(kwargs.get("device", NAME))
        to_cpu |= func is aten.copy_.default and not isinstance(args[0], FarTensor)
        if far and ((func in WAITS and not by_mask) or to_cpu):
            self.found.append(str(func))
        return func(*args, **kwargs)


class _Module(_DummyBackendModule):
    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


@cache
def device() -> torch.device:
    """The device, registered when it is first asked for."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    _register(aten.empty.memory_format, _empty)
    _register(aten.empty_strided.default, _empty_strided)
    _register(aten._copy_from.default, _copy_from)
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    _LIBRARIES.append(everything)  # which would take its kernels along
    for name in ("linear", "conv2d", "matmul"):
        _register_autocast(name)
    return torch.device(NAME, 0)


_LIBRARIES: list[Any] = []


def _register(func: Any, kernel: Callable[..., Any], key: str = "PrivateUse1") -> None:
    name = func.name().removesuffix(".default")
    torch.library.impl(name, key)(kernel)


def _empty(size: Any, *, device: Any = None, **options: Any) -> Tensor:
    return FarTensor(torch.empty(size, **{k: v for k, v in options.items() if v is not None}))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    return FarTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: FarTensor, non_blocking: bool = False) -> Tensor:
    target.near.copy_(_to_near(source))  # where torch.tensor fills what it has made
    return target


def _register_autocast(name: str) -> None:
    packet = getattr(aten, name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(NAME)
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        ):
            args = tree_map_only(Tensor, lambda t: t.to(dtype), args)
            return packet(*args, **kwargs)

    torch.library.impl(f"aten::{name}", "AutocastPrivateUse1")(kernel)
