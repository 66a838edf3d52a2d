"""torch's attention layers, for a while in the plain operations that they stand for.

`nn.MultiheadAttention` moves the batch behind the tokens, folds it into the heads, and may take a
compiled path of its own; a mask makes `nn.TransformerEncoder` look into its numbers. None of this
can be captured. Owns the way around: the same function, batch first.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import transformer

_HINT = "_detect_is_causal_mask"


@contextmanager
def plain_attention(model: nn.Module) -> Iterator[None]:
    """Has `model`, which is a copy that nobody else uses, run its attention in plain operations."""
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention) and _is_common(module):
            module.forward = types.MethodType(_forward, module)  # type: ignore[method-assign]
    fast, detect = torch.backends.mha.get_fastpath_enabled(), getattr(transformer, _HINT, None)
    torch.backends.mha.set_fastpath_enabled(False)
    setattr(transformer, _HINT, lambda mask, is_causal=None, size=None: bool(is_causal))
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        if detect is not None:
            setattr(transformer, _HINT, detect)


def _is_common(module: nn.MultiheadAttention) -> bool:
    return module.bias_k is None and not module.add_zero_attn


def _forward(
    self: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """As torch's own; arguments that it would treat in another way go to that."""
    if key_padding_mask is not None or query.dim() != 3:
        return nn.MultiheadAttention.forward(
            *(self, query, key, value, key_padding_mask, need_weights, attn_mask),
            *(average_attn_weights, is_causal),
        )
    if not self.batch_first:
        query, key, value = _turned(query, key, value)
    width = (self.num_heads, self.head_dim)
    q, k, v = (
        torch.unflatten(part, -1, width).transpose(1, 2)
        for part in _projected(self, query, key, value)
    )
    hint = is_causal and not need_weights  # else torch goes by the mask itself
    mask = None if hint else attn_mask
    if mask is not None and mask.dtype == torch.bool:
        mask = mask.logical_not()  # here true is what is seen, and there what is not
    made = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=hint)
    result: Tensor = self.out_proj(made.transpose(1, 2).flatten(2))
    result = result if self.batch_first else result.transpose(0, 1)
    if not need_weights:
        return result, None
    weights = _weights(q, k, attn_mask)
    return result, weights.mean(1) if average_attn_weights else weights


def _projected(self: nn.MultiheadAttention, *inputs: Tensor) -> list[Tensor]:
    """Queries, keys and values. One matrix for all three reads each input as a whole."""
    if not self._qkv_same_embed_dim:
        biases: Any = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        each = zip(inputs, matrices, biases, strict=True)
        return [F.linear(x, matrix, bias) for x, matrix, bias in each]
    made = {id(x): F.linear(x, self.in_proj_weight, self.in_proj_bias) for x in inputs}
    return [made[id(x)].chunk(3, -1)[place] for place, x in enumerate(inputs)]


def _turned(*inputs: Tensor) -> list[Tensor]:
    """With the batch first; one that is given twice stays one."""
    made = {id(x): x.transpose(0, 1) for x in inputs}
    return [made[id(x)] for x in inputs]


def _weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    scores: Tensor = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1)
