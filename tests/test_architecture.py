"""The house stands: what may import what, and what a public name must carry.

An import only goes down to a strictly lower floor; rooms on one floor do not know each
other. The checks read the source and take the root of the package, so the tests below
also show them failing on small packages that break one rule each.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


PACKAGE = Path(__file__).parents[1] / "tfjax"

FLOORS = {
    "_core": 0,
    "geometry": 1,
    "attention": 1,
    "energies": 2,
    "fields": 3,
    "integrate": 4,
    "theory": 5,
    "meanfield": 5,
    "quantum": 5,
    "diagnostics": 5,
    "nn": 6,
    "train": 7,
    "tune": 8,
    "apps": 8,
    "figures": 9,
    "cli": 10,
}
LOWEST_FLOOR_OF = {"diffrax": FLOORS["integrate"], "optax": FLOORS["train"]}
DIFFRAX_TYPES_FROM = FLOORS["fields"]
DRAWING = {"matplotlib", "mpl_toolkits"}
MAX_LINES = 450
ROOTS = {"Module", "NamedTuple", "Protocol", "Generic", "ABC", "object"}
RESULTS = {"NamedTuple", "Protocol"}


# --- Reading the source ---------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    module: str  # absolute, and for `from a import b` the module a
    names: tuple[str, ...]  # () for a plain `import a`
    line: int
    in_function: bool
    for_types: bool  # under `if TYPE_CHECKING:`


@dataclass(frozen=True)
class Module:
    path: Path
    name: str
    tree: ast.Module
    lines: int

    @property
    def room(self) -> str:
        """The first part of the name below the package; '' for the package itself."""
        return (self.name.split(".") + [""])[1]


def modules(root: Path) -> dict[str, Module]:
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(path, name, ast.parse(text), len(text.splitlines()))
    return found


def absolute(module: Module, level: int, target: str | None) -> str:
    """The absolute name of `from <level dots><target> import ...`."""
    if level == 0:
        return target or ""
    parts = module.name.split(".")
    keep = len(parts) - level + (module.path.name == "__init__.py")
    return ".".join([*parts[:keep], *([target] if target else [])])


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports(module: Module) -> Iterator[Import]:
    def walk(node: ast.AST, function: bool, types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, function, types)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            source = absolute(module, node.level, node.module)
            yield Import(source, names, node.lineno, function, types)
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).split(".")[-1]
            first = node.args[0]
            literal = isinstance(first, ast.Constant) and isinstance(first.value, str)
            if called in {"import_module", "__import__"} and literal:
                dots = len(first.value) - len(first.value.lstrip("."))
                source = absolute(module, dots, first.value[dots:])
                yield Import(source, (), node.lineno, function, types)
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for child in node.body:
                yield from walk(child, function, True)
            for child in node.orelse:
                yield from walk(child, function, types)
            return
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function or inside, types)

    yield from walk(module.tree, False, False)


# --- The rules ------------------------------------------------------------------------


def import_faults(root: Path) -> list[str]:
    """Imports that go up or sideways, unknown rooms, libraries out of place."""
    faults = []
    for module in modules(root).values():
        if module.room == "":
            continue  # the package itself re-exports lazily
        if module.room not in FLOORS:
            faults.append(f"{module.name}: unknown room {module.room!r}")
            continue
        for each in imports(module):
            where = f"{module.name}:{each.line}"
            faults += [f"{where}: {fault}" for fault in _judge(module, each, root.name)]
    return faults


def _judge(module: Module, each: Import, package: str) -> Iterator[str]:
    floor = FLOORS[module.room]
    library, *below = each.module.split(".")
    if library == package:
        if not below:
            yield f"imports from the package {package} itself; name the room"
        elif below[0] not in FLOORS:
            yield f"imports from the unknown room {below[0]!r}"
        elif below[0] != module.room and FLOORS[below[0]] >= floor:
            direction = "up" if FLOORS[below[0]] > floor else "sideways"
            yield f"imports {direction}, from {module.room} to {below[0]}"
    elif library in DRAWING:
        if module.room != "figures":
            yield f"{library} belongs in figures only"
        elif not (each.in_function or each.for_types):
            yield f"{library} is imported outside a function"
    elif floor < LOWEST_FLOOR_OF.get(library, 0):
        types = library == "diffrax" and each.for_types and floor >= DIFFRAX_TYPES_FROM
        if not types:
            yield f"{library} belongs on floor {LOWEST_FLOOR_OF[library]} and above"


def config_faults(root: Path) -> list[str]:
    """Places outside the command line that change jax's global configuration."""
    faults = []
    for module in modules(root).values():
        if module.room == "cli":
            continue
        known = _jax_aliases(module.tree)
        for node in ast.walk(module.tree):
            touched = []
            if isinstance(node, ast.Call):
                touched = [node.func]
            elif isinstance(node, ast.Assign):
                touched = [t for t in node.targets if isinstance(t, ast.Attribute)]
            elif isinstance(node, ast.AnnAssign | ast.AugAssign):
                touched = [node.target]
            for target in touched:
                head, *rest = ast.unparse(target).split(".")
                if ".".join([known.get(head, head), *rest]).startswith("jax.config."):
                    faults.append(f"{module.name}:{node.lineno}: changes jax.config")
    return faults


def _jax_aliases(tree: ast.Module) -> dict[str, str]:
    """Local names for jax and jax.config."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in {"jax", "jax.config"} and alias.asname:
                    known[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module == "jax":
            for alias in node.names:
                if alias.name == "config":
                    known[alias.asname or "config"] = "jax.config"
    return known


def size_faults(root: Path) -> list[str]:
    return [
        f"{module.name}: {module.lines} lines, more than {MAX_LINES}"
        for module in modules(root).values()
        if module.lines > MAX_LINES
    ]


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_definitions(root: Path) -> dict[str, list[Definition]]:
    """The functions and classes that the rooms' `__init__` files re-export.

    By `module.name`, where it is defined; several for one name are overloads.
    """
    known = modules(root)
    found: dict[str, list[Definition]] = {}
    for module in known.values():
        whole = module.path.name == "__init__.py" or module.name.count(".") == 1
        if not whole or module.room in {"", "_core"}:
            continue
        for name in _names(module.tree):
            if not name.startswith("_"):
                home, definitions = _resolve(known, module.name, name)
                if definitions:
                    found[f"{home}.{name}"] = definitions
    return found


def _names(tree: ast.Module) -> set[str]:
    """What a module offers: definitions, and imports written `name as name`."""
    names = set()
    for node in tree.body:
        if isinstance(node, Definition):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname for a in node.names if a.asname == a.name}
    return names - {None}


def _resolve(
    known: dict[str, Module], home: str, name: str
) -> tuple[str, list[Definition]]:
    """Follow a re-export to where the name is defined; [] if it is no definition."""
    module = known[home]
    body = module.tree.body
    here = [n for n in body if isinstance(n, Definition) and n.name == name]
    if here:
        return home, here
    for node in body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                source = absolute(module, node.level, node.module)
                if (alias.asname or alias.name) == name and source in known:
                    return _resolve(known, source, alias.name)
    return home, []


def documentation_faults(root: Path) -> list[str]:
    """Public names without annotations, a docstring, or a section that they need."""
    faults = []
    for name, definitions in public_definitions(root).items():
        for node in definitions:
            last = node is definitions[-1]
            if isinstance(node, ast.ClassDef):
                faults += [f"{name}{fault}" for fault in _class_faults(node)]
            else:
                faults += [f"{name}: {fault}" for fault in _annotation_faults(node)]
                if last:
                    faults += [f"{name}: {fault}" for fault in _section_faults(node)]
    return faults


def _class_faults(node: ast.ClassDef) -> Iterator[str]:
    doc = ast.get_docstring(node) or ""
    if not doc:
        yield ": no docstring"
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    init = methods.get("__init__")
    if init is not None:
        doc += ast.get_docstring(init) or ""
    takes = _arguments(init) if init is not None else _fields(node)
    if takes and not _has_section(doc, "Arguments"):
        yield ": no section **Arguments**"
    # A class of ours or of diffrax above this one has fixed the signatures of methods.
    inherits = {ast.unparse(base).split(".")[-1] for base in node.bases} - ROOTS
    for name, each in methods.items():
        public = name == "__call__" or not name.startswith("_")
        if name == "__init__" or (public and not inherits):
            for fault in _annotation_faults(each):
                yield f".{name}: {fault}"


def _fields(node: ast.ClassDef) -> list[str]:
    """The fields that the generated `__init__` of a dataclass or module takes."""
    if {ast.unparse(base).split(".")[-1] for base in node.bases} & RESULTS:
        return []  # results and contracts, which nobody constructs by hand
    return [
        ast.unparse(each.target)
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and not re.search(r"ClassVar|init=False", ast.unparse(each))
        and not re.search(r"Abstract(Class)?Var", ast.unparse(each.annotation))
    ]


def _arguments(node: Function) -> list[ast.arg]:
    spec = node.args
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    every += [each for each in (spec.vararg, spec.kwarg) if each]
    return [each for each in every if each.arg not in {"self", "cls"}]


def _annotation_faults(node: Function) -> Iterator[str]:
    for each in _arguments(node):
        if each.annotation is None:
            yield f"argument {each.arg} is not annotated"
    if node.returns is None and node.name != "__init__":
        yield "the result is not annotated"


def _section_faults(node: Function) -> Iterator[str]:
    doc = ast.get_docstring(node) or ""
    if not doc:
        yield "no docstring"
        return
    nothing = {"None", "NoReturn", "Never"}
    if _arguments(node) and not _has_section(doc, "Arguments"):
        yield "no section **Arguments**"
    returns = "None" if node.returns is None else ast.unparse(node.returns)
    if returns not in nothing and not _has_section(doc, "Returns"):
        yield "no section **Returns**"


def _has_section(doc: str, name: str) -> bool:
    return re.search(rf"^\s*\*\*{name}(:\*\*|\*\*:?)", doc, re.MULTILINE) is not None


# --- The house ------------------------------------------------------------------------


def test_imports_go_down():
    assert import_faults(PACKAGE) == []


def test_global_configuration_is_left_alone():
    assert config_faults(PACKAGE) == []


def test_files_are_short():
    assert size_faults(PACKAGE) == []


def test_public_names_are_annotated_and_documented():
    assert documentation_faults(PACKAGE) == []


def test_the_checks_see_the_package():
    seen = {module.room for module in modules(PACKAGE).values()}
    assert {"_core", "geometry", "attention"} <= seen
    public = public_definitions(PACKAGE)
    assert "tfjax.geometry._sphere.Sphere" in public
    assert "tfjax.attention._softmax.attend" in public


# --- The checks themselves ------------------------------------------------------------


@pytest.fixture
def house(tmp_path):
    """A function that writes a package of the given files and returns its root."""

    def write(**files: str) -> Path:
        root = tmp_path / "tfjax"
        for name, text in {"": "", **files}.items():
            folder = root.joinpath(*name.split("__"))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").write_text(textwrap.dedent(text))
        return root

    return write


@pytest.mark.parametrize(
    ("room", "line", "fault"),
    [
        ("energies", "from ..fields import self_attention", "up"),
        ("energies", "from tfjax.integrate._solve import solve", "up"),
        ("energies", "import tfjax.fields", "up"),
        ("energies", "def f():\n    from ..fields import x", "up"),
        ("energies", "import importlib\nimportlib.import_module('tfjax.nn')", "up"),
        ("energies", "import importlib\nimportlib.import_module('..nn')", "up"),
        ("energies", "if TYPE_CHECKING:\n    from ..fields import Field", "up"),
        ("geometry", "from ..attention import attend", "sideways"),
        ("theory", "from ..diagnostics import count_clusters", "sideways"),
        ("integrate", "from .. import geometry", "itself"),
        ("integrate", "from tfjax import solve", "itself"),
        ("integrate", "import tfjax", "itself"),
        ("integrate", "from ..utils import x", "unknown room 'utils'"),
        ("utils", "", "unknown room 'utils'"),
        ("energies", "import diffrax as dfx", "floor 4"),
        ("energies", "if TYPE_CHECKING:\n    import diffrax", "floor 4"),
        ("fields", "from diffrax import ODETerm", "floor 4"),
        ("fields", "if TYPE_CHECKING:\n    pass\nelse:\n    import diffrax", "floor 4"),
        ("nn", "import optax", "floor 7"),
        ("figures", "import matplotlib.pyplot as plt", "outside a function"),
        ("figures", "class A:\n    from mpl_toolkits import mplot3d", "outside a func"),
        ("diagnostics", "def f():\n    import matplotlib", "figures only"),
        ("cli", "def f():\n    from matplotlib import pyplot", "figures only"),
    ],
)
def test_a_forbidden_import_is_found(house, room, line, fault):
    faults = import_faults(house(**{room: line}))
    assert len(faults) == 1
    assert fault in faults[0]
    assert faults[0].startswith(f"tfjax.{room}:")


def test_a_forbidden_import_deep_in_a_room_is_found(house):
    root = house(energies="", energies__riesz="from ...fields import self_attention")
    assert len(import_faults(root)) == 1


def test_permitted_imports_pass(house):
    root = house(
        energies="from .._core import safe_norm\nfrom ..geometry._sphere import Sphere",
        energies__riesz="from .. import interaction_energy\nfrom ..._core import x",
        fields="if TYPE_CHECKING:\n    import diffrax",
        integrate="import diffrax\nfrom tfjax.fields import self_attention",
        train="import optax\nimport diffrax",
        figures="def f():\n    import matplotlib.pyplot as plt",
        cli="from ..figures import paper\nimport argparse",
    )
    (root / "__init__.py").write_text("from . import figures\nimport diffrax\n")
    assert import_faults(root) == []


@pytest.mark.parametrize(
    "text",
    [
        "import jax\njax.config.update('jax_enable_x64', True)",
        "import jax as j\nj.config.update('jax_enable_x64', True)",
        "from jax import config\nconfig.update('jax_enable_x64', True)",
        "def f():\n    from jax import config as c\n    c.update('jax_enable_x64', 1)",
        "import jax\njax.config.jax_enable_x64 = True",
    ],
)
def test_a_change_of_the_global_configuration_is_found(house, text):
    assert len(config_faults(house(fields=text))) == 1
    assert config_faults(house(fields="", cli=text)) == []


def test_reading_the_configuration_is_no_change(house):
    text = "import jax\nx64 = jax.config.jax_enable_x64\nconfig = {}\nconfig.update()"
    assert config_faults(house(fields=text)) == []


def test_a_long_file_is_found(house):
    assert size_faults(house(fields="x = 1\n" * MAX_LINES)) == []
    assert len(size_faults(house(fields="x = 1\n" * (MAX_LINES + 1)))) == 1


WELL = '''
def energy(x: int, *, beta: float = 1.0) -> float:
    """An energy.

    **Arguments:**

    - `x`: tokens.
    - `beta`: inverse temperature.

    **Returns:**

    A number.
    """
'''


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (WELL.replace("x: int", "x"), "argument x is not annotated"),
        (WELL.replace("beta: float", "beta"), "argument beta is not annotated"),
        (WELL.replace(" -> float", ""), "the result is not annotated"),
        (WELL.replace("**Arguments:**", "Arguments:"), "no section **Arguments**"),
        (WELL.replace("**Returns:**", "Returns"), "no section **Returns**"),
        ("def energy() -> None:\n    pass\n", "no docstring"),
        ("class energy:\n    x: int\n", "no docstring"),
        (
            'class energy:\n    "D."\n    def __init__(self, x: int):\n        pass\n',
            "no section **Arguments**",
        ),
        (
            'class energy(eqx.Module):\n    "Doc."\n    beta: float\n',
            "no section **Arguments**",
        ),
        (
            'class energy(eqx.Module):\n    "D."\n    def at(self, x):\n        pass\n',
            "argument x is not annotated",
        ),
    ],
)
def test_a_badly_documented_public_name_is_found(house, broken, fault):
    root = house(energies="from ._pair import energy as energy", energies___pair=broken)
    (root / "energies" / "_pair.py").write_text(broken)
    faults = documentation_faults(root)
    assert any(fault in each for each in faults), faults
    assert all(each.startswith("tfjax.energies._pair.energy") for each in faults)


def test_a_well_documented_public_name_passes(house):
    root = house(energies="from ._pair import energy as energy")
    (root / "energies" / "_pair.py").write_text(WELL + "\ndef _hidden(x): pass\n")
    assert list(public_definitions(root)) == ["tfjax.energies._pair.energy"]
    assert documentation_faults(root) == []


def test_the_methods_of_a_subclass_follow_its_base(house):
    root = house(energies="from ._pair import A as A\nfrom ._pair import B as B")
    text = """
        class A(AbstractSolver):
            "Doc."
            order: ClassVar[int] = 2
            def step(self, y): pass

        class B(NamedTuple):
            "Doc."
            weights: int
    """
    (root / "energies" / "_pair.py").write_text(textwrap.dedent(text))
    assert len(public_definitions(root)) == 2
    assert documentation_faults(root) == []


def test_names_that_are_not_re_exported_are_private(house):
    root = house(energies="from ._pair import energy")
    (root / "energies" / "_pair.py").write_text("def energy(x): pass\n")
    assert documentation_faults(root) == []
