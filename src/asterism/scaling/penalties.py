"""Concave penalties g and what the paper derives from them: psi, its slope, and omega, the scale.

Owns the algebra alone: pure functions of the magnitude z = |theta|, elementwise. Knows no models,
optimizers or iterations.

A penalty of first order is majorised by a weighted ℓ1 norm, one of second order by a weighted
ℓ2 norm (`eq:re-weighted`):

    order 1:  psi = g'(z)                      g(theta) ≤ const + psi·|theta|     omega = 1/psi
    order 2:  psi = h'(z²), g(theta) = h(theta²)   g(theta) ≤ const + psi·theta²  omega = psi**-½

`scale` is the layer's RMS weight. Unless `relative` is off, constants are in units of it, so that
a rescaled layer behaves the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError

Scale = Tensor | float


class Penalty(ABC):
    """The contract: `value`, `psi` and `omega` of a magnitude z ≥ 0."""

    order: int
    relative: bool

    @abstractmethod
    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        """g(z), elementwise, up to a constant factor and term."""

    @abstractmethod
    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        """The slope of the majoriser at z, positive and finite."""

    @abstractmethod
    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        """The scale of the change of variables theta = q ⊙ omega.

        z         the magnitudes of the layer's weights
        scale     the layer's RMS weight, the unit of constants
        previous  omega of the re-weighting before; None at the first
        """

    @property
    def plain_in_q(self) -> bool:
        """Whether the majoriser is Σ|q| or Σq² once theta = q ⊙ omega: omega = psi^(-1/order)."""
        return True

    def psi_offset(self, scale: Scale = 1.0) -> Scale | None:
        """c where psi = 1 / (z^e + c), which all layers compute in one pass; else None.

        A class derived from one that has it may have another psi: it has none of itself.
        """
        return None

    @property
    def psi_exponent(self) -> float:
        """e of `psi_offset`."""
        return self.order

    def relative_psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        """psi(z) / psi(0): 1 at zero and falling, so that one `lam` fits every layer."""
        return self.psi(z, scale) / self.psi(z.new_zeros(1), scale)


@dataclass(frozen=True)
class ReweightedL1(Penalty):
    """g = log(z + tau), omega = z + tau (`eq:reweighted l1`).

    >>> ReweightedL1(tau=0.5, relative=False).omega(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 2.5000])
    """

    tau: float = 0.1
    relative: bool = True
    order = 1

    def __post_init__(self) -> None:
        _check_positive("tau", self.tau)

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self.omega(z, scale).log()

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self.omega(z, scale).reciprocal()

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        return z + (self.tau * scale if self.relative else self.tau)

    def psi_offset(self, scale: Scale = 1.0) -> Scale | None:
        if type(self) is not ReweightedL1:
            return None
        return self.tau * scale if self.relative else self.tau


@dataclass(frozen=True)
class ReweightedL2(Penalty):
    """g = log(z² + tau), omega = sqrt(z² + tau) (`eq:reweighted l2`).

    >>> ReweightedL2(tau=9.0, relative=False).omega(torch.tensor([0.0, 4.0]))
    tensor([3., 5.])
    """

    tau: float = 0.1
    relative: bool = True
    order = 2

    def __post_init__(self) -> None:
        _check_positive("tau", self.tau)

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self._square(z, scale).log()

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self._square(z, scale).reciprocal()

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        return self._square(z, scale).sqrt()

    def _square(self, z: Tensor, scale: Scale) -> Tensor:
        return z * z + (self.tau * scale**2 if self.relative else self.tau)

    def psi_offset(self, scale: Scale = 1.0) -> Scale | None:
        if type(self) is not ReweightedL2:
            return None
        return self.tau * scale**2 if self.relative else self.tau


@dataclass(frozen=True)
class Focuss(Penalty):
    """g = (2/p)·z^p, omega = z^(2-p) + tau, 0 ≤ p ≤ 2 (`eq:focuss`).

    The paper prints omega = 1/psi although g is of second order; there tau only keeps omega away
    from zero and is no part of g. With `classical` the second-order rule omega = psi^-½ is
    followed instead, as FOCUSS was first written:

        g = (2/p)·(z² + tau²)^(p/2)    psi = (z² + tau²)^(p/2-1)    omega = (z² + tau²)^(½-p/4)

    At p = 0 both g become logarithms, the limit that p → 0 stands for.

    p          the power of the norm
    tau        keeps omega away from zero
    classical  whether omega follows the second-order rule
    relative   whether tau is in units of the layer's RMS weight

    >>> Focuss(p=0.5, tau=0.1, relative=False).omega(torch.tensor([0.0, 4.0]))
    tensor([0.1000, 8.1000])
    """

    p: float = 0.5
    tau: float = 0.1
    classical: bool = False
    relative: bool = True
    order = 2

    def __post_init__(self) -> None:
        _check_positive("tau", self.tau)
        if not 0 <= self.p <= 2:
            raise InputError(f"FOCUSS needs 0 ≤ p ≤ 2, got p = {self.p}")

    @property
    def plain_in_q(self) -> bool:
        return self.classical

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        square = self._smoothed_square(z, scale) if self.classical else z * z
        return square.log() if self.p == 0 else square ** (self.p / 2) * (2 / self.p)

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self.omega(z, scale) ** (-2 if self.classical else -1)

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        if self.classical:
            return self._smoothed_square(z, scale) ** (0.5 - self.p / 4)
        return z ** (2 - self.p) + self._offset(scale)

    def _offset(self, scale: Scale) -> Scale:
        return self.tau * (scale ** (2 - self.p) if self.relative else 1.0)

    def psi_offset(self, scale: Scale = 1.0) -> Scale | None:
        return None if self.classical or type(self) is not Focuss else self._offset(scale)

    @property
    def psi_exponent(self) -> float:
        return 2 - self.p

    def _smoothed_square(self, z: Tensor, scale: Scale) -> Tensor:
        return z * z + (self.tau * scale if self.relative else self.tau) ** 2


@dataclass(frozen=True)
class HardThreshold(Penalty):
    """g = u(z - a)·z (`eq:g dns`): omega = 0 below a, 1 from b on, unchanged between (`eq:T`).

    With a = b and computed from theta, a pruned weight stays pruned; computed from q, as Dynamic
    Network Surgery does, it can return. psi = 1/omega does not exist at zero, so omega is defined
    directly.

    a         weights of smaller magnitude are cut
    b         those of at least this magnitude return; a if not given
    relative  whether both are in units of the layer's RMS weight

    >>> HardThreshold(1.0, relative=False).omega(torch.tensor([0.5, 1.0, 2.0]))
    tensor([0., 1., 1.])
    """

    a: float
    b: float | None = None
    relative: bool = True
    order = 1

    def __post_init__(self) -> None:
        if not 0 <= self.a <= self._upper < math.inf:
            raise InputError(f"HardThreshold needs 0 ≤ a ≤ b < ∞, got a = {self.a}, b = {self.b}")

    @property
    def plain_in_q(self) -> bool:
        return False

    @property
    def _upper(self) -> float:
        return self.a if self.b is None else self.b

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return z * (z >= self.a * (scale if self.relative else 1.0))

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        raise InputError("HardThreshold has no psi: use it with lam = 0")

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        unit = scale if self.relative else 1.0
        between = torch.ones_like(z) if previous is None else previous
        return torch.where(z < self.a * unit, 0.0, torch.where(z >= self._upper * unit, 1, between))


@dataclass(frozen=True)
class Concave(Penalty):
    """Any concave g of the magnitude, given as a torch function; psi comes from autograd.

    g         from a tensor of magnitudes to one of penalties
    order     1 where g is concave in z, 2 where it is concave in z²
    relative  whether z comes in units of the layer's RMS weight

    >>> log_sum = Concave(lambda z: torch.log(z + 0.5), relative=False)
    >>> log_sum.omega(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 2.5000])
    """

    g: Callable[[Tensor], Tensor]
    order: int = 1
    relative: bool = True

    def __post_init__(self) -> None:
        if self.order not in (1, 2):
            raise InputError(f"a penalty is of order 1 or 2, got order = {self.order}")

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self.g(z / scale if self.relative else z)

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        psi = self._slope(z, scale)
        bad = ~(psi.isfinite() & (psi > 0))
        if bad.any():
            name = getattr(self.g, "__name__", repr(self.g))
            raise InputError(
                f"psi of the penalty {name} must be positive and finite, found {psi[bad][0]:g} at"
                f" z = {z[bad][0]:g}: let g rise with the magnitude, with a bounded slope at zero"
            )
        return psi

    def relative_psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        if z.is_cpu:
            return super().relative_psi(z, scale)
        # A look at psi in each step would wait for the device. A weight that a bad one has made
        # NaN is found at the next cut.
        return self._slope(z, scale) / self._slope(z.new_zeros(1), scale)

    def _slope(self, z: Tensor, scale: Scale) -> Tensor:
        x = z.detach()
        if self.order == 2:  # where the square is lost to underflow, so is h'
            x = x.masked_fill(x * x < torch.finfo(x.dtype).tiny, 0.0)
        with torch.enable_grad():
            x.requires_grad_()
            g = self.value(x, scale)
            return _derivative(g, x) if self.order == 1 else _derivative_in_square(g, x)

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        return self.psi(z, scale) ** (-1 / self.order)


def _derivative(g: Tensor, x: Tensor, create_graph: bool = False) -> Tensor:
    """g'(x), elementwise; 0 where g does not depend on x."""
    if not g.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(g.sum(), x, create_graph=create_graph)[0]


def _derivative_in_square(g: Tensor, x: Tensor) -> Tensor:
    """h'(x²) = g'(x) / 2x, which tends to g''(0) / 2 where g is smooth at zero."""
    slope = _derivative(g, x, create_graph=True)
    smooth_zero = (x == 0) & (slope == 0)
    return torch.where(smooth_zero, _derivative(slope, x), slope / x).detach() / 2


def _check_positive(name: str, number: float) -> None:
    if not 0 < number < math.inf:
        raise InputError(f"{name} must be positive and finite, got {number}")
