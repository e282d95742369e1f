"""The order of layers: a module imports from layers below its own, and nobody imports private names of others. Folders
say what is in them, and CONTRIBUTING.md shows the layers: `python -m tests.test_layers` draws them there anew.

The source is read, not run. Imports inside functions, and those for type checkers only, are told apart from those that
are made when a module is imported: they may go upwards where `LAZY` says so.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import suffice

ROOT = Path(suffice.__file__).parent
HOUSE = Path(__file__).parent.parent / "CONTRIBUTING.md"

# From the bottom up. A layer is a set of rooms that do not import each other; a room is a package, or some modules.
ORDER = [
    {"arrays", "lazy", "protocols"},
    {"space", "options", "files", "signals", "executors", "datasets"},
    {"terms"},
    {"lower", "evaluation"},
    {"held_out", "certifying"},
    {"losses", "problems", "autodiff", "result"},
    {"search"},
    {"search.objective"},
    {"journal", "search.derivatives"},
    {"search.solves"},
    {"search.bilevel"},
    {"search.tuner"},
    {"globally"},
    {"search.tune"},
    {"report"},
    {"plots"},
    {"sklearn"},
    {"testing"},
    {"tabular"},
    {"cli"},
    {"__main__"},
]

# Rooms of several packages.
ROOMS = {
    **dict.fromkeys(("rows", "models", "penalties"), "terms"),
    **dict.fromkeys(("imaging.variation", "imaging.measurement"), "terms"),
    **dict.fromkeys(("solvers", "prove", "imaging", "cuda"), "lower"),
    **dict.fromkeys(("prove.held_out", "prove.loss_at", "prove.scores"), "held_out"),
}

# Two wings that know nothing of each other, so that either may be used, read and tested without the other.
LOWER = {"terms", "lower", "held_out", "losses", "problems", "autodiff"}
UPPER = {"evaluation", "result", "search", "search.objective"}

# Edges that go upwards, but not before somebody calls for them.
LAZY = {
    ("result", "plots"): "Result.plot_path and its like draw, and nothing else of a result does",
    (
        "certifying",
        "sklearn",
    ): "certify takes a point, or a fitted estimator, for which alone it needs scikit-learn",
    ("globally", "plots"): "GlobalCertificate.plot draws, and nothing else of a certificate does",
    ("cli", ""): "`suffice --version`",
    ("journal", ""): "a journal says which version of the package wrote it",
    ("sklearn", ""): "a report says which version of the package made it",
}

# Names that two classes have, each in a public module of its own.
TWICE = {
    "ElasticNet": "a penalty of suffice.terms, and the model of suffice.problems that has it",
    "Objective": "what suffice.tune minimises, and what a fitted estimator of suffice.sklearn has minimised",
}

# Questions how or where a matrix is stored, which only rows/ and cuda/ are to ask: others say what they want of it.
STORAGE = re.compile(
    r"(?<!def )\b(?:issparse|is_sparse|lives_elsewhere|are_blocks|in_blocks|is_dask\w*)\("
    r"|\bisinstance\([^()]*(?:\b(?:Blocked|RowBlocks)\b|\b[XA], np\.ndarray)"
)

# No more than a reader holds in mind: lines of a module and of a function, annotated fields of a class.
LONGEST = {"module": 450, "function": 60, "class": 15}

# What is longer because it is a table: a row of it is read alone.
TABLES: dict[str, str] = {}

# Modules that ask all the same, and how often.
ASKING = {
    "arrays": 1,  # where the question is at home: `like` brings an array to where another one lives
}


@dataclass(frozen=True)
class Import:
    """`module` imports `target` or, where that is one, a name in it; without the package's own name."""

    module: str
    target: str
    name: str
    lazy: bool

    def __str__(self) -> str:
        return f"{self.module}: {'.'.join(filter(None, (self.target, self.name)))}"


def modules() -> dict[str, Path]:
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def imports(module: str, source: str) -> Iterator[Import]:
    """Every import of the package in a module's source, and every private attribute of a module that was imported."""
    tree = ast.parse(source)
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, later) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for inner in ast.walk(node)
    }
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "suffice":
                    yield Import(module, alias.name.removeprefix("suffice").lstrip("."), "", id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if (node.module or "").split(".")[0] != "suffice":
                continue
            target = (node.module or "").removeprefix("suffice").lstrip(".")
            for alias in node.names:
                inside = f"{target}.{alias.name}".lstrip(".")
                if inside in MODULES:
                    bound[alias.asname or alias.name] = inside
                    yield Import(module, inside, "", id(node) in lazy)
                else:
                    yield Import(module, target, alias.name, id(node) in lazy)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in bound and attr.startswith("_"):
                yield Import(module, bound[name], attr, True)


ALL = [one for module, path in MODULES.items() for one in imports(module, path.read_text("utf-8"))]


def place(module: str) -> tuple[int, str]:
    """The layer of a module, and the package or module by which the layer knows it."""
    levels = {name: level for level, names in enumerate(ORDER) for name in names}
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        room = ROOMS.get(name, name)
        if room in levels:
            return levels[room], room
    raise AssertionError(f"{module or 'suffice'} stands in no layer: give it a place in ORDER")


def upwards(found: list[Import]) -> list[Import]:
    """Imports of what does not lie below, or lies in the other wing, beyond those that `LAZY` allows."""
    wrong = []
    for one in found:
        if not one.module:  # the package itself shows what it has
            continue
        level, own = place(one.module)
        if one.target:
            there, other = place(one.target)
            apart = any(own in wing and other in beside for wing, beside in ((LOWER, UPPER), (UPPER, LOWER)))
            if other == own or (there < level and not apart):
                continue
        else:
            other = ""
        if not (one.lazy and (own, other) in LAZY):
            wrong.append(one)
    return wrong


def private(found: list[Import]) -> set[str]:
    """Whatever is private to another package, or to another module of the top level: its names, its modules."""
    names = set()
    for one in found:
        parts = one.target.split(".")
        if parts[0] == one.module.split(".")[0]:  # at home
            continue
        if any(part.startswith("_") and not part.startswith("__") for part in (*parts, one.name)):
            names.add(str(one) if one.name.startswith("_") else f"{one.module}: {one.target}")
    return names


def picture() -> str:
    """The layers with the packages of each, the last one on top."""
    lines = []
    for number, rooms in reversed(list(enumerate(ORDER, 1))):
        wings: dict[str, list[str]] = {}
        for room in sorted(rooms):
            wing = "lower: " if room in LOWER else "upper: " if room in UPPER else ""
            packages = [name for name in {*ROOMS, *rooms} if ROOMS.get(name, name) == room and name in MODULES]
            wings.setdefault(wing, []).extend(packages)
        lines.append(f"{number:3}  " + "  |  ".join(wing + ", ".join(sorted(wings[wing])) for wing in sorted(wings)))
    return "\n".join(lines)


SHOWN = re.compile(r"(<!-- layers -->\n```text\n).*?(\n```\n<!-- end of layers -->)", re.S)


def drawn(page: str) -> str:
    """The page with this picture between its markers."""
    assert SHOWN.search(page)
    return SHOWN.sub(lambda match: match[1] + picture() + match[2], page)


def test_every_module_has_its_layer():
    assert all(place(module) for module in MODULES if module)


def test_modules_import_from_the_layers_below_only():
    assert [str(one) for one in upwards(ALL)] == []


def test_examples_stand_on_the_package_and_not_the_other_way_round():
    """The command line calls for the paper's studies and for comparisons by name, when it is asked to."""
    for package in ("suffice_paper", "suffice_bench"):
        naming = [module for module, path in MODULES.items() if package in path.read_text("utf-8")]
        assert naming == ["cli"]
        assert f'_beside("{package}", ' in MODULES["cli"].read_text("utf-8")


def test_private_names_stay_at_home():
    assert private(ALL) == set()


def test_these_tests_see_what_they_are_to_forbid():
    above = "from suffice.solvers.solver import Solution\ndef f():\n    from suffice import sklearn\n"
    assert [str(one) for one in upwards(list(imports("search.looks", above)))] == [
        "search.looks: solvers.solver.Solution",
        "search.looks: sklearn",
    ]
    assert upwards(list(imports("result", "def f():\n    from suffice import plots\n"))) == []
    assert len(upwards(list(imports("result", "from suffice import plots\n")))) == 1
    hidden = "from suffice import files\nfrom suffice.sklearn import _page\nfiles._QUIETLY\n"
    assert private(list(imports("tabular.run", hidden))) == {
        "tabular.run: sklearn._page",
        "tabular.run: files._QUIETLY",
    }


def test_the_picture_of_the_layers_is_that_of_the_code():
    page = HOUSE.read_text("utf-8")
    assert page == drawn(page), "python -m tests.test_layers draws it anew"


def test_every_folder_is_a_map_of_its_modules():
    missing = {}
    for path in ROOT.rglob("__init__.py"):
        words = set(re.findall(r"\w+", ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""))
        inside = {one.stem for one in path.parent.glob("*.py")} | {
            one.parent.name for one in path.parent.glob("*/*.py")
        }
        missing[path.parent.name] = inside - words - {"__init__", "__main__"}
    assert {name: modules for name, modules in missing.items() if modules} == {}


def test_no_name_of_a_class_stands_twice():
    trees = (ast.parse(path.read_text("utf-8")) for path in MODULES.values())
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == set(TWICE)
    assert max(names.values()) == 2


def test_how_a_matrix_is_stored_is_asked_in_rows_alone():
    asking = {
        module: len(STORAGE.findall(path.read_text("utf-8")))
        for module, path in MODULES.items()
        if module.split(".")[0] not in ("rows", "cuda")
    }
    assert {module: count for module, count in asking.items() if count} == ASKING
    for question in ("sp.issparse(X)", "is_dask_frame(X)", "isinstance(a.X, np.ndarray)", "isinstance(X, A | Blocked)"):
        assert STORAGE.search(question)


def long(module: str, source: str) -> Iterator[str]:
    """What exceeds `LONGEST` in a module's source."""
    if source.count("\n") > LONGEST["module"]:
        yield module
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                size, most = (node.end_lineno or 0) - node.lineno + 1, LONGEST["function"]
            case ast.ClassDef():
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                size = sum("ClassVar" not in ast.dump(one.annotation) for one in fields)
                size, most = size - any(ast.unparse(one.annotation) == "KW_ONLY" for one in fields), LONGEST["class"]
            case _:
                continue
        if size > most:
            yield f"{module}.{node.name}"


def test_modules_functions_and_classes_are_no_longer_than_a_reader_holds_in_mind():
    found = [one for module, path in MODULES.items() for one in long(module, path.read_text("utf-8"))]
    assert sorted(found) == sorted(TABLES)
    many = "".join(f"    a{k}: int\n" for k in range(16))
    source = f"class A:\n{many}\nasync def f():\n" + "    pass\n" * 60 + "\n" * 400
    assert list(long("m", source)) == ["m", "m.A", "m.f"]


def test_nobody_caches_properties_under_a_lock():
    """functools' would hold one lock for all problems of a class while one of them waits for its turn (`lazy`)."""
    locked = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if any(name.name == "cached_property" for name in node.names)
    ]
    assert not locked


if __name__ == "__main__":
    HOUSE.write_text(drawn(HOUSE.read_text("utf-8")), "utf-8")
