"""From layers to the steps that the kernels run.

A network has two programs: one for single images, and one for blocks of them, in which fully
connected layers, and convolutions where it pays, hold each feature of 32 images side by side
("columns"). Each operation adds its own steps; those with weights, which have kernels to choose
from, do so by `linear` here and `conv` in `convolutions`.
"""

from __future__ import annotations

import numpy as np

import asterism.runtime.choice.cost as cost
import asterism.runtime.layers.packing as packing
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.stages import FusedLayer
from asterism.runtime.building import Planning
from asterism.runtime.choice.machine import machine
from asterism.runtime.layers.convolutions import Convolutions
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.layers.recurrence import Recurrence
from asterism.runtime.sixteen_bits import may_be_short, seconds, shortened
from asterism.runtime.steps import Buffer, KernelPlan, Planned, place, tabulate


def plan(graph: Graph, planning: Planning, start: int = 0) -> KernelPlan:
    """The steps of a network for single images, or for blocks of them.

    graph     the network
    planning  what it was lowered to, and for what it is planned
    start     where its scratch begins
    """
    with cost.planning_for(cost.MACHINE.get() or machine(planning.level)):
        steps, choices = _steps(planning)
        if may_be_short(graph, planning.level):
            short, others = _steps(planning._replace(ranges=graph.ranges))
            short = shortened(short, graph.ranges, planning.level)
            if seconds(short, others) < seconds(steps, choices):
                steps, choices = short, others
    scratch = place(steps, start)
    return KernelPlan(steps, scratch, choices, tabulate(steps))


def _steps(planning: Planning) -> tuple[list[Planned], dict[int, cost.Choice]]:
    """In floats, and how long the layers with weights should take."""
    program = _Program(planning)
    for layer in planning.layers:
        OPERATIONS[layer.node.op].emit(program, layer)
    return program.finish(planning.layers[-1]), program.choices


class _Program(Convolutions, Recurrence):
    """What operations add their steps to."""

    def finish(self, last: FusedLayer) -> list[Planned]:
        """The steps, with those that bring results to where the caller wants them."""
        for value, wanted in zip(self.ends.results, self.results, strict=True):
            found = self.rows(value, last)
            if found is not wanted:  # an input, or a result for the second time
                sizes = [1, found.size, found.size, 0]
                self.add("COPY_CHUNKS", last, found, wanted, sizes=sizes)
        return self.steps

    def linear(self, layer: FusedLayer) -> None:
        value = layer.inputs[0]
        features, outputs = self.seen(layer)[-1], self.shapes[layer.out][-1]
        rows = self.size(layer.out) // outputs
        if rows > 1:
            source = self.rows(value, layer)
            self.choices[layer.place] = self.over_rows(layer, source, self.out(layer), rows)
            return
        live = np.flatnonzero((layer.weight != 0).any(0)).astype(np.int32)
        turned = -features * (value not in self.values) if value in self.columns else 8 * len(live)
        turned = min(turned, features)
        choice = cost.linear(layer, self.many and rows == 1, rows, turned, self.lanes)
        self.choices[layer.place] = choice
        if not choice.sparse:
            sizes, data = [rows, features, outputs], packing.fc_dense(layer)
            whole = self.many and rows == 1
            source = self.rows(value, layer)
            out = self.out(layer)
            self.add(
                "FC_DENSE",
                layer,
                source,
                out,
                sizes=sizes,
                data=data,
                whole=whole,
                activation=layer.fused,
            )
        elif self.many and rows == 1:
            source, slots = self.as_columns(value, layer, live)
            data = packing.fc_sparse(layer, slots)
            out = Buffer(outputs * BLOCK, columns=True)
            self.columns[layer.out] = out, np.arange(outputs, dtype=np.int32)
            sizes = [len(data[2])]
            self.add(
                "FC_SPARSE",
                layer,
                source,
                out,
                sizes=sizes,
                data=data,
                whole=True,
                activation=layer.fused,
            )
        else:
            data = packing.fc_sparse_one(layer)
            sizes = [rows, features, outputs, len(data[3]) // 8]
            source = self.rows(value, layer)
            self.add(
                "FC_SPARSE_ONE",
                layer,
                source,
                self.out(layer),
                sizes=sizes,
                data=data,
                activation=layer.fused,
            )
