#!/usr/bin/env python3
"""Makes the ONNX models of tests/unit/model/files with the onnx package, and onnx.tsv beside them
with what that package says about them. Needs onnx and numpy; run it when a new kind of model is
wanted, and commit what it makes:

    python3 tests/oracle/make_onnx.py tests/unit/model/files
"""

import collections
import math
import os
import sys

import numpy
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

# The name, as safetensors has it, and the bits of each type.
TYPES = {
    T.FLOAT: ("F32", 32), T.UINT8: ("U8", 8), T.INT8: ("I8", 8), T.UINT16: ("U16", 16),
    T.INT16: ("I16", 16), T.INT32: ("I32", 32), T.INT64: ("I64", 64), T.STRING: ("STRING", 0),
    T.BOOL: ("BOOL", 8), T.FLOAT16: ("F16", 16), T.DOUBLE: ("F64", 64), T.UINT32: ("U32", 32),
    T.UINT64: ("U64", 64), T.COMPLEX64: ("C64", 64), T.COMPLEX128: ("C128", 128),
    T.BFLOAT16: ("BF16", 16), T.FLOAT8E4M3FN: ("F8_E4M3", 8), T.FLOAT8E4M3FNUZ: ("F8_E4M3FNUZ", 8),
    T.FLOAT8E5M2: ("F8_E5M2", 8), T.FLOAT8E5M2FNUZ: ("F8_E5M2FNUZ", 8), T.UINT4: ("U4", 4),
    T.INT4: ("I4", 4), T.FLOAT4E2M1: ("F4", 4), T.FLOAT8E8M0: ("F8_E8M0", 8), T.UINT2: ("U2", 2),
    T.INT2: ("I2", 2), T.FLOAT6E2M3: ("F6_E2M3", 6), T.FLOAT6E3M2: ("F6_E3M2", 6),
}
IDENTITY = h.make_node("Identity", ["x"], ["y"])
ONES = numpy.ones


def info(name, kind, shape):
    return h.make_tensor_value_info(name, kind, shape)


def raw(name, kind, dims):
    count, bits = math.prod(dims), TYPES[kind][1]
    if kind == T.STRING:
        return h.make_tensor(name, kind, dims, [b"ab"] * count)
    tensor = T(name=name, data_type=kind, dims=dims, raw_data=bytes(-(-count * bits // 8)))
    return tensor


def typed(name, kind, dims):
    value = b"abc" if kind == T.STRING else 1
    return h.make_tensor(name, kind, dims, [value] * math.prod(dims))


def model(graph, opsets=(("", 21),), **kwargs):
    return h.make_model(graph, opset_imports=[h.make_opsetid(d, v) for d, v in opsets],
                        producer_name="tests", producer_version="1.2", **kwargs)


def nested():
    """Tensors everywhere that they can stand."""
    then = h.make_graph(
        [h.make_node("Constant", [], ["c"], value=numpy_helper.from_array(ONES(6, "f4"), "cv"))],
        "then", [], [info("c", T.FLOAT, [6])],
        initializer=[numpy_helper.from_array(ONES(3, "i8"), "in_then")])
    other = h.make_graph([h.make_node("If", ["k"], ["c2"], then_branch=then, else_branch=then)],
                         "else", [], [info("c2", T.FLOAT, [6])])
    sparse = h.make_sparse_tensor(numpy_helper.from_array(ONES(2, "f4"), "sparse_w"),
                                  numpy_helper.from_array(numpy.array([1, 5]), "index"), [10])
    optional = h.make_optional_type_proto(h.make_tensor_type_proto(T.FLOAT, [2]))
    graph = h.make_graph(
        [h.make_node("If", ["k"], ["y"], then_branch=then, else_branch=other),
         h.make_node("Constant", [], ["u"], value=h.make_tensor("", T.FLOAT, [], [1.0])),
         h.make_node("Constant", [], ["v"], value_floats=[1.0, 2.0]),
         h.make_node("F", ["u"], ["z"], domain="my")],
        "nested", [info("k", T.BOOL, []), h.make_tensor_sequence_value_info("s", T.FLOAT, None),
                   h.make_value_info("o", optional), info("n", T.FLOAT16, None)],
        [info("y", T.FLOAT, [6])], sparse_initializer=[sparse])
    function = h.make_function(
        "my", "F", ["a"], ["b"],
        [h.make_node("Constant", [], ["f"], value=numpy_helper.from_array(ONES((4, 4), "f2"))),
         h.make_node("Add", ["a", "f"], ["b"])], [h.make_opsetid("", 21)])
    training = onnx.TrainingInfoProto(algorithm=h.make_graph(
        [h.make_node("Neg", ["a"], ["b"])], "step", [], [],
        initializer=[numpy_helper.from_array(ONES(7, "f8"), "momentum")]))
    made = model(graph, (("", 21), ("my", 1), ("ai.onnx.ml", 3)), functions=[function])
    made.training_info.append(training)
    return made


def models():
    x, y = info("x", T.FLOAT, ["batch", 3, None, 224]), info("y", T.FLOAT, ["batch"])
    yield "types-raw.onnx", model(h.make_graph(
        [IDENTITY], "raw", [x], [y], initializer=[raw(f"t{k}", k, [3, 5]) for k in TYPES]))
    yield "types-typed.onnx", model(h.make_graph(
        [IDENTITY], "typed", [x], [y], initializer=[typed(f"t{k}", k, [2, 3]) for k in TYPES]))
    weight = numpy_helper.from_array(ONES(2, "f4"), "w")
    old = model(h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "old",
                             [x, info("w", T.FLOAT, [2])], [y], initializer=[weight]))
    old.ir_version = 3
    yield "inputs-with-values.onnx", old
    yield "nested.onnx", nested()
    yield "external.onnx", model(h.make_graph(
        [IDENTITY], "external", [x], [y],
        initializer=[numpy_helper.from_array(ONES((64, n), "f4"), f"w{n}") for n in (1, 2, 3)]))


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield from nodes_of(inner)


def graphs_of(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield from graphs_of(inner)


def value_text(value):
    if not value.type.HasField("tensor_type"):
        return f"{value.name}::"
    kind = value.type.tensor_type
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
            for d in kind.shape.dim]
    return f"{value.name}:{TYPES[kind.elem_type][0]}:" + (
        " x ".join(dims) if kind.HasField("shape") else "?")


def describe(made):
    roots = [made.graph] + [t.algorithm for t in made.training_info]
    graphs = [g for root in roots for g in graphs_of(root)]
    nodes = [n for root in roots for n in nodes_of(root)] + [n for f in made.functions
                                                             for n in f.node]
    initialisers = [t for g in graphs for t in g.initializer]
    initialisers += [s.values for g in graphs for s in g.sparse_initializer]
    constants = [a.t for n in nodes for a in n.attribute if a.HasField("t")]
    sums = collections.defaultdict(lambda: [0, 0])
    external = 0
    for tensor in initialisers + constants:
        name, bits = TYPES[tensor.data_type]
        count = math.prod(tensor.dims)
        sums[name][0] += count
        sums[name][1] += sum(map(len, tensor.string_data)) if name == "STRING" else -(
            -count * bits // 8)
        external += tensor.data_location == T.EXTERNAL
    given = {t.name for t in made.graph.initializer}
    return "\t".join([
        str(made.ir_version), " ".join(f"{o.domain}:{o.version}" for o in made.opset_import),
        str(len(nodes)), str(len(initialisers)), str(len(constants)), str(external),
        " ".join(f"{n}:{sums[n][0]}:{sums[n][1]}" for n in sorted(sums)),
        ";".join(value_text(v) for v in made.graph.input if v.name not in given),
        ";".join(value_text(v) for v in made.graph.output)])


def main():
    folder = sys.argv[1]
    lines = ["file\tir\topsets\tnodes\tinitialisers\tconstants\texternal\t"
             "types (name:elements:bytes)\tinputs\toutputs"]
    for name, made in models():
        path = os.path.join(folder, name)
        external = name.startswith("external")
        onnx.save_model(made, path, save_as_external_data=external, size_threshold=0,
                        location=name + "_data" if external else None)
        if external: # where the bytes are is what is tested; the bytes themselves are not
            os.unlink(path + "_data")
        lines.append(f"{name}\t{describe(onnx.load(path, load_external_data=False))}")
    with open(os.path.join(folder, "onnx.tsv"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
