"""Exported C on emulated machines: the record's LeNet-5 answers there as the runtime does here.

Needs gcc-arm-none-eabi, qemu-system-arm, gcc-avr, avr-libc, simavr, gcc-aarch64-linux-gnu,
gcc-riscv64-linux-gnu and qemu-user. Run as `python tests/export/c/emulated/check.py`.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asterism.experiments.data import load as load_data
from asterism.export.code import export_code, export_int8
from asterism.runtime import Net, load

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[4]
RECORD = ROOT / "experiments/file/lenet5-record@1239-0.asterism"
M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


AIMS = {"size": "-Os", "speed": "-O2", "8 bits": "-O2", "8 bits, least RAM": "-Os"}


class Machine(NamedTuple):
    """A compiler with its options, what begins there, the emulator, and how many images it sees.

    aims  the forms of a network that it has memory for
    """

    name: str
    compiler: Sequence[str]
    begin: str
    emulator: Sequence[str]
    images: int
    aims: Sequence[str] = tuple(AIMS)


MACHINES = (
    Machine(
        "Cortex-M4",
        ("arm-none-eabi-gcc", *M4, "-nostartfiles", "-T", str(HERE / "cortex_m.ld")),
        "cortex_m.c",
        (
            *("qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting"),
            *("-icount", "shift=0"),
            "-kernel",
        ),
        100,
    ),
    Machine(
        "ATmega1284P",
        ("avr-gcc", "-mmcu=atmega1284p"),
        "avr.c",
        ("simavr", "-m", "atmega1284p", "-f", "20000000"),
        3,
    ),
    Machine(
        "Arduino Uno (ATmega328P)",
        ("avr-gcc", "-mmcu=atmega328p"),
        "avr.c",
        ("simavr", "-m", "atmega328p", "-f", "16000000"),
        20,
        ("8 bits, least RAM",),
    ),
    Machine("ARM64", ("aarch64-linux-gnu-gcc", "-static"), "host.c", ("qemu-aarch64",), 1000),
    Machine("RISC-V", ("riscv64-linux-gnu-gcc", "-static"), "host.c", ("qemu-riscv64",), 1000),
)


def images_header(images: np.ndarray) -> str:
    """Images as a table, in the flash of a machine that has one apart."""
    numbers = ",".join(map(str, images.reshape(-1)))
    return (
        "#ifdef __AVR__\n#include <avr/pgmspace.h>\n#define READ(p) pgm_read_byte(p)\n#else\n"
        "#define PROGMEM\n#define READ(p) (*(p))\n#endif\n"
        f"#define IMAGES {len(images)}\n"
        f"static const uint8_t pixels[{images.size}] PROGMEM = {{{numbers}}};\n"
        f"#define PIXEL(image, i) READ(pixels + image * {images[0].size} + i)\n"
    )


def run(machine: Machine, folder: Path, flags: Sequence[str]) -> tuple[np.ndarray, int]:
    """All answers, and how many instructions one took, where the machine counts them."""
    program = str(folder / "program")
    files = [str(HERE / "main.c"), str(HERE / machine.begin), str(folder / "net.c")]
    command = [*machine.compiler, "-std=gnu99", *flags, f"-I{folder}", *files, "-lm", "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [*machine.emulator, program], capture_output=True, text=True, timeout=600, check=False
    )
    plain = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)  # simavr writes in colours
    words = re.findall(r"\b[0-9a-f]{8}\b", plain)
    bits = np.array([int(word, 16) for word in words], np.uint32)
    return bits[:-1].view(np.float32), int(bits[-1]) // machine.images


def export(net: Net, aim: str, folder: Path, examples: np.ndarray) -> Callable[..., np.ndarray]:
    """Writes net.c and net.h; what they should answer, as they give it."""
    path = folder / "net.c"
    if "8 bits" not in aim:
        rest = {"speed": aim == "speed", "header": True}
        export_code(net.graph, net.weights, path, origin=RECORD, **rest)
        return net
    rest = {"origin": RECORD, "header": True, "least_ram": "RAM" in aim}
    _, made = export_int8(net.graph, net.weights, path, examples, **rest)
    return lambda x: np.round(made(x) / made.network.scales[1])


def main() -> None:
    net, data = load(RECORD), load_data("mnist")
    pixels = np.round(data.test.images[:1000].numpy() * 255).astype(np.uint8)
    for machine, aim in [(each, aim) for each in MACHINES for aim in each.aims]:
        images = pixels[: machine.images]
        with tempfile.TemporaryDirectory() as name:
            expected = export(net, aim, Path(name), data.train.images[:500].numpy())
            (Path(name) / "images.h").write_text(images_header(images))
            found, instructions = run(machine, Path(name), [AIMS[aim]])
        truth = expected(images.astype(np.float32) / 255)
        most = 1e-5 * np.abs(truth).max()
        np.testing.assert_allclose(found.reshape(truth.shape), truth, rtol=1e-5, atol=most)
        count = f", {instructions:,} instructions each" * (instructions > 0)
        print(f"{machine.name}, {aim}: {len(images)} images{count}", flush=True)


if __name__ == "__main__":
    main()
