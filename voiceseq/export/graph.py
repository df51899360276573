"""Writing an ONNX graph node by node.

    graph = Graph()
    x = graph.input("x", (None, 4))
    graph.output("y", graph.add("Relu", graph.dense(x, weight, bias)), (None, 2))
    model = graph.model("example", {"who": "me"})

Values are known by their names. What is inside a node (the branches of an If, the body of a Scan) is a graph made by
``graph.inner()``, which may use all that is outside.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Shape = Sequence[int | None]
# Old enough for the runtimes that people embed: layer norm became an operator in opset 17.
OPSET, IR = 17, 8
STEPS = 127  # of an 8-bit weight on either side of zero


class Graph:
    """``quantize``: matrices are stored in 8 bits, one scale an output, and multiplied out when the file is opened.

    ``outer`` is the graph that it stands in; tensors and names are the outermost one's.
    """

    def __init__(self, quantize: bool = False, outer: Self | None = None) -> None:
        self.quantize = quantize
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.tensors: list[TensorProto] = outer.tensors if outer else []
        self._names: dict[str, int] = outer._names if outer else {}

    def inner(self) -> Self:
        return type(self)(self.quantize, self)

    def input(self, name: str, shape: Shape, dtype: DTypeLike = np.float32) -> str:
        """None in a shape: any number."""
        self.inputs.append(_value(name, shape, dtype))
        return name

    def output(self, name: str, value: str, shape: Shape, dtype: DTypeLike = np.float32) -> str:
        """The ``value`` leaves the graph under this name, and is known by it from now on."""
        self.outputs.append(_value(name, shape, dtype))
        made_here = {output for node in self.nodes for output in node.output} - {one.name for one in self.outputs}
        if value not in made_here:  # from outside, or given away under another name
            self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
            return name
        for node in self.nodes:  # a copy less
            node.output[:] = [name if one == value else one for one in node.output]
            node.input[:] = [name if one == value else one for one in node.input]
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node with ``count`` outputs."""
        outputs = [self._name(operator) for _ in range(count)]
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], **attributes))
        return outputs

    def constant(self, values: Any, dtype: DTypeLike | None = None) -> str:
        """An array of the given dtype, or of its own."""
        name = self._name("constant")
        self.tensors.append(numpy_helper.from_array(np.array(values, dtype, order="C"), name))
        return name

    def matrix(self, values: NDArray[Any], over: int) -> str:
        """Weights, of which those that differ only along the axis ``over`` belong to one output."""
        if not self.quantize:
            return self.constant(values, np.float32)
        scale = np.maximum(np.abs(values).max(over, keepdims=True), np.finfo(np.float32).tiny) / STEPS
        steps = self.add("Cast", self.constant(np.rint(values / scale), np.int8), to=TensorProto.FLOAT)
        return self.add("Mul", steps, self.constant(scale, np.float32))

    def dense(self, x: str, weight: NDArray[Any], bias: str) -> str:
        """``(time, inputs)`` times ``(inputs, outputs)`` plus what ``bias`` is."""
        return self.add("Gemm", x, self.matrix(weight, 0), bias)

    def norm(self, x: str, gain: NDArray[Any], bias: NDArray[Any]) -> str:
        """Layer norm over the last axis."""
        terms = self.constant(gain, np.float32), self.constant(bias, np.float32)
        return self.add("LayerNormalization", x, *terms, axis=-1, epsilon=1e-5)

    def proto(self, name: str) -> GraphProto:
        """As the attribute of a node."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs)

    def model(self, name: str, facts: Mapping[str, str]) -> ModelProto:
        """The outermost graph as a model with ``facts`` for its metadata."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.tensors)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR, producer_name="voiceseq")
        helper.set_model_props(model, dict(facts))
        return model

    def _name(self, operator: str) -> str:
        number = self._names[operator] = self._names.get(operator, 0) + 1
        return f"{operator.lower()}.{number}"


def _value(name: str, shape: Shape, dtype: DTypeLike) -> ValueInfoProto:
    sizes = [f"{name}.{axis}" if size is None else size for axis, size in enumerate(shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)
