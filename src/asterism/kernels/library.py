"""The compiled kernels, by ctypes: what the C files in kernels/ declare.

Without a library, or with ASTERISM_KERNELS=none in the environment, Python does the work; so can
portable, avx2, avx512vl or avx512 be asked for. ASTERISM_LIBRARY names a library to use instead of
ours.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import warnings
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache

from asterism.errors import InputError

INTERFACE = 20  # as in kernels/program.h
LEVELS = ("portable", "avx2", "avx512vl", "avx512")
LANES = (4, 8, 8, 16)  # floats in a vector of each
SLICES = (8, 8, 16, 16)  # rows that a step of a recurrent layer takes at once
KERNELS = (
    *("PACK", "CONV_SPARSE", "CONV_DENSE", "CONV_ROWS", "CONV_COLUMNS", "POOL_MAX", "POOL_AVERAGE"),
    *("FC_SPARSE_ONE", "FC_DENSE", "TO_COLUMNS", "FC_SPARSE", "FROM_COLUMNS", "ACTIVATE", "ADD"),
    *("MULTIPLY", "SCALE", "LAYER_NORM", "SOFTMAX", "GATHER", "COPY_CHUNKS"),
    *("FC_SPARSE_ROWS", "LSTM", "GRU"),
    *("COMBINE", "MEAN", "CONV_TAPS", "RESIZE"),
    *("EMBED", "MATMUL", "KEYS", "ATTEND"),
    *("SPREAD", "CONV_PLANES", "DENSE_PLANES"),
    *("TURN", "DENSE_PLACES", "DEPTHWISE_PLACES"),
    *("CONV_PLANES16", "SPREAD16", "TO_16", "FROM_16"),
)
ACTIVATIONS = (
    *("none", "relu", "leaky_relu", "clamp", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"),
    *("scale_shift", "elu", "power", "hard_swish", "hard_sigmoid", "mish", "exp", "log", "abs"),
    *("softplus", "erf"),
)


class Operand(ctypes.Structure):
    _fields_ = (("space", c_int64), ("offset", c_int64), ("stride", c_int64))


class Step(ctypes.Structure):
    _fields_ = (
        ("operation", c_int64),
        ("whole_block", c_int64),
        ("activation", c_int64),
        ("a", c_float),
        ("b", c_float),
        ("source", Operand),
        ("other", Operand),
        ("out", Operand),
        ("size", c_int64 * 20),
        ("data", c_void_p * 5),
    )


class StreamState(ctypes.Structure):
    """What kernels/stream.c says of itself: the first fields of its coder."""

    _fields_ = (
        ("status", c_int64),
        ("at", c_int64),
        ("range", c_int64),
        ("out", c_void_p),
        ("out_size", c_int64),
    )


def load() -> ctypes.CDLL | None:
    """The library of this installation, if it was built and is wanted."""
    return None if os.environ.get("ASTERISM_KERNELS") == "none" else _load()


@cache
def _load() -> ctypes.CDLL | None:
    asked = os.environ.get("ASTERISM_LIBRARY")
    # An editable install has the library in another folder of the same package.
    folders = importlib.import_module("asterism.kernels").__path__
    found = [
        os.path.join(folder, name)
        for folder in folders
        for name in os.listdir(folder)
        if "asterism.kernels." in name
    ]
    for path in [asked] if asked else found:
        try:
            library = ctypes.CDLL(path)
            _declare(library)
        except (OSError, AttributeError) as error:
            if asked:
                raise InputError(
                    f"ASTERISM_LIBRARY={asked} is no library of ours: {error}"
                ) from error
            # As after an update of an editable install, when nothing was compiled again.
            warnings.warn(f"install asterism again: {path} is not its own ({error})", stacklevel=3)
            continue
        return library
    return None


def _declare(library: ctypes.CDLL) -> None:
    """The types of all functions; AttributeError where the library is not of this version."""
    if library.asterism_interface() != INTERFACE:
        raise AttributeError("it was compiled for another version")
    steps, states = POINTER(Step), POINTER(StreamState)
    library.asterism_new.argtypes = [steps, c_int64, steps, *[c_int64] * 5, c_int]
    library.asterism_new.restype = c_void_p
    library.asterism_free.argtypes = [c_void_p]
    library.asterism_run.argtypes = [c_void_p, c_void_p, c_void_p, c_int64, c_int64]
    library.asterism_profile.argtypes = [*[c_void_p] * 3, c_int64, POINTER(c_double)]
    for name in ("conv", "winograd"):
        getattr(library, f"asterism_{name}_forward").argtypes = [c_int, *[c_void_p] * 7, c_int64]
        getattr(library, f"asterism_{name}_backward").argtypes = [c_int, *[c_void_p] * 11, c_int64]
    library.asterism_norm_moments.argtypes = [c_int, *[c_void_p] * 3, c_int64]
    library.asterism_norm_apply.argtypes = [c_int, *[c_void_p] * 5, c_int64]
    library.asterism_norm_sums.argtypes = [c_int, *[c_void_p] * 7, c_int64]
    library.asterism_norm_invert.argtypes = [c_int, *[c_void_p] * 5, c_int64]
    library.asterism_normals.argtypes = [c_int, *[c_void_p] * 9, c_int64]
    library.asterism_inverted.argtypes = [c_int, *[c_void_p] * 8, c_int64]
    library.asterism_to_blocks.argtypes = [c_int, *[c_void_p] * 3, c_int64]
    library.asterism_halve.argtypes = [c_int, c_void_p, c_void_p, c_void_p, c_int64]
    library.asterism_halve_backward.argtypes = [c_int, *[c_void_p] * 5, c_int64]
    library.asterism_cover.argtypes = [
        *(c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64, c_int64),
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    ]
    library.asterism_to_q.argtypes = [c_void_p, c_int64, c_int]
    library.asterism_to_theta.argtypes = [c_void_p, c_int64]
    library.asterism_bundle.argtypes = [c_void_p, c_int64, c_void_p, c_void_p]
    library.asterism_unbundle.argtypes = [c_void_p, c_int64, c_void_p]
    library.asterism_shrink.argtypes = [c_char_p, c_int64, c_void_p]
    library.asterism_count_magnitudes.argtypes = [c_void_p, c_void_p]
    library.asterism_mask.argtypes = [c_void_p, c_int32, c_void_p]
    library.asterism_keep.argtypes = [c_void_p, c_void_p, c_int64]
    library.asterism_list_kept.argtypes = [c_void_p, c_int64, c_void_p]
    library.asterism_find_nonzeros.argtypes = [c_void_p, c_int64, c_int64, c_void_p]
    library.asterism_find_nonzeros.restype = c_int64
    library.asterism_stream_new.argtypes = [c_char_p, c_int64, c_char_p, *[c_int64] * 3]
    library.asterism_stream_new.restype = states
    library.asterism_stream_free.argtypes = [states]
    library.asterism_stream_finish.argtypes = [states]
    library.asterism_code_flag.argtypes = [states, c_int, c_int64]
    library.asterism_code_number.argtypes = [states, c_uint64, c_int64]
    library.asterism_code_number.restype = c_uint64
    library.asterism_code_numbers.argtypes = [states, c_void_p, c_int64, c_int64]
    library.asterism_code_text.argtypes = [states, c_void_p, c_int64]
    library.asterism_code_text.restype = c_int64
    library.asterism_code_bits.argtypes = [states, c_void_p, c_char_p, c_int64]
    library.asterism_code_rows.argtypes = [
        *(states, c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_char_p, c_int),
    ]
    library.asterism_code_indices.argtypes = [
        *(states, c_void_p, c_void_p, c_int64, c_void_p, c_int64),
    ]


def choose_level(library: ctypes.CDLL) -> int:
    """The kernels that this machine runs fastest, or those that the environment names."""
    asked = os.environ.get("ASTERISM_KERNELS")
    if not asked:
        return int(library.asterism_best_level())
    last = int(library.asterism_level())
    if asked not in LEVELS or LEVELS.index(asked) > last:
        names = ", ".join(["none", *LEVELS[: last + 1]])
        raise InputError(f"ASTERISM_KERNELS={asked} does not work here: choose one of {names}")
    return LEVELS.index(asked)
