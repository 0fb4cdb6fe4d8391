"""The tree of a checked expression: the conjuncts, and the paths read by each conjunct.

The library gives the tree as a `cel.expr.CheckedExpr`, the exchange format of CEL. Only the fields used by this module
are declared; protobuf keeps the other fields, so a part of the tree can be handed back as a separate expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory

from controlplane.engine.rules.schema import FIELDS, MAPS, Path, kind_of

_TYPE_URL: Final = "type.googleapis.com/cel.expr.CheckedExpr"
# name: (number, type), where a type which is not a message of this table is a scalar, and `*` means repeated.
_TREE: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "CheckedExpr": {
        "reference_map": (2, "*Note"), "type_map": (3, "*Note"), "expr": (4, "Expr"), "source_info": (5, "SourceInfo"),
    },
    "Note": {"key": (1, "int64")},
    "SourceInfo": {"line_offsets": (3, "*int32"), "positions": (4, "*Position")},
    "Position": {"key": (1, "int64"), "value": (2, "int32")},
    "Expr": {
        "id": (2, "int64"), "const_expr": (3, "Constant"), "ident_expr": (4, "Ident"), "select_expr": (5, "Select"),
        "call_expr": (6, "Call"), "list_expr": (7, "List"), "struct_expr": (8, "Struct"),
        "comprehension_expr": (9, "Comprehension"),
    },
    "Constant": {"string_value": (6, "string")},
    "Ident": {"name": (1, "string")},
    "Select": {"operand": (1, "Expr"), "field": (2, "string")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "*Expr")},
    "List": {"elements": (1, "*Expr")},
    "Struct": {"entries": (2, "*Entry")},
    "Entry": {"map_key": (3, "Expr"), "value": (4, "Expr")},
    "Comprehension": {
        "iter_var": (1, "string"), "iter_range": (2, "Expr"), "accu_var": (3, "string"), "accu_init": (4, "Expr"),
        "loop_condition": (5, "Expr"), "loop_step": (6, "Expr"), "result": (7, "Expr"), "iter_var2": (8, "string"),
    },
}  # fmt: skip
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {"int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64, "string": _Field.TYPE_STRING}


@cache
def _checked_class() -> type[message.Message]:
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", package="tree", syntax="proto2")
    for name, fields in _TREE.items():
        shape = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
            declared = shape.field.add(name=field, number=number, label=label)
            kind = kind.removeprefix("*")
            if kind in _SCALARS:
                declared.type = _SCALARS[kind]
            else:
                declared.type, declared.type_name = _Field.TYPE_MESSAGE, f".tree.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tree.CheckedExpr"))


class SyntaxPart(NamedTuple):
    """A part between the outermost `&&`: the part as a separate expression, the paths read, and the root node."""

    serialized: bytes
    paths: frozenset[Path]
    node: Any


class SyntaxTree:
    """A checked expression, read from the serialised form."""

    def __init__(self, serialized: bytes) -> None:
        self._checked: Any = _checked_class().FromString(any_pb2.Any.FromString(serialized).value)

    def conjuncts(self) -> Iterator[SyntaxPart]:
        """Each part between the outermost `&&`, in order."""
        references = {note.key: note for note in self._checked.reference_map}
        types = {note.key: note for note in self._checked.type_map}
        for node in _operands(self._checked.expr):
            # Copy only the notes on the nodes of the part: copying all notes would be quadratic in the number of parts.
            ids = [part.id for part in _nodes(node)]
            part: Any = _checked_class()()
            part.expr.CopyFrom(node)
            part.reference_map.extend(references[key] for key in ids if key in references)
            part.type_map.extend(types[key] for key in ids if key in types)
            packed = any_pb2.Any(type_url=_TYPE_URL, value=part.SerializeToString())
            yield SyntaxPart(packed.SerializeToString(), _widest(path for path, _ in _reads(node, frozenset())), node)

    def place_of(self, root: str) -> tuple[int, int]:
        """Line and column, from 1, of the first mention of a variable."""
        places = (self.place(node) for path, node in _reads(self._checked.expr, frozenset()) if path[0] == root)
        return min(places)

    def place(self, node: Any) -> tuple[int, int]:
        """Line and column, from 1, of a node."""
        offset = next((place.value for place in self._checked.source_info.positions if place.key == node.id), 0)
        starts = [0, *(end for end in self._checked.source_info.line_offsets if end <= offset)]
        return len(starts), offset - starts[-1] + 1


def _operands(node: Any) -> Iterator[Any]:
    if node.HasField("call_expr") and node.call_expr.function == "_&&_":
        for part in node.call_expr.args:
            yield from _operands(part)
    else:
        yield node


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child, _ in _children(node, frozenset()):
        yield from _nodes(child)


def _widest(paths: Iterator[Path]) -> frozenset[Path]:
    """The paths, without single entries of maps which are also read as a whole."""
    all_paths = frozenset(paths)
    return frozenset(path for path in all_paths if len(path) < 3 or path[:2] not in all_paths)


def _reads(node: Any, bound: frozenset[str]) -> Iterator[tuple[Path, Any]]:
    """The paths in a part of the tree, each with the node of the variable; `bound` are names introduced by a macro."""
    chain, rest = _chain(node)
    root = rest.ident_expr.name.removeprefix(".") if rest.HasField("ident_expr") else ""
    if root in FIELDS and rest.ident_expr.name not in bound:
        for path in _paths(root, chain):
            yield path, rest
        return
    for child, names in _children(node, bound):
        yield from _reads(child, names)


def _paths(root: str, chain: list[str]) -> Iterator[Path]:
    if not chain:
        yield from ((root, field) for field in FIELDS[root])
        return
    path = (root, chain[0])
    yield (*path, chain[1]) if len(chain) > 1 and kind_of(path) in MAPS else path


def _chain(node: Any) -> tuple[list[str], Any]:
    """The fields and constant keys selected from an operand, and the operand: `a.b['c']` is [b, c] of a."""
    if node.HasField("select_expr"):
        chain, rest = _chain(node.select_expr.operand)
        return [*chain, node.select_expr.field], rest
    if node.HasField("call_expr") and node.call_expr.function in ("_[_]", "@in"):
        container, key = node.call_expr.args[:: 1 if node.call_expr.function == "_[_]" else -1]
        if key.const_expr.HasField("string_value"):
            chain, rest = _chain(container)
            return [*chain, key.const_expr.string_value], rest
    return [], node


def _children(node: Any, bound: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    if node.HasField("select_expr"):
        yield node.select_expr.operand, bound
    elif node.HasField("call_expr"):
        if node.call_expr.HasField("target"):
            yield node.call_expr.target, bound
        yield from ((part, bound) for part in node.call_expr.args)
    elif node.HasField("list_expr"):
        yield from ((part, bound) for part in node.list_expr.elements)
    elif node.HasField("struct_expr"):
        for entry in node.struct_expr.entries:
            yield from ((part, bound) for part in (entry.map_key, entry.value))
    elif node.HasField("comprehension_expr"):
        loop = node.comprehension_expr
        inner = bound | {loop.iter_var, loop.iter_var2, loop.accu_var}
        yield from ((part, bound) for part in (loop.iter_range, loop.accu_init))
        yield from ((part, inner) for part in (loop.loop_condition, loop.loop_step, loop.result))
