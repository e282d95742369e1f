"""Whatever bytes a file has that should hold a model: one sentence and exit code 2, and memory is bounded first."""

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")
pandas = pytest.importorskip("pandas")
skops = pytest.importorskip("skops.io")
import scipy.sparse as sp  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402

from suffice.cli import app  # noqa: E402
from suffice.tabular import model_file  # noqa: E402

runner = typer_testing.CliRunner()
N = 40
rng = np.random.default_rng(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, and its table beside it."""
    path = tmp_path_factory.mktemp("models")
    table = {"a": rng.standard_normal(N), "g": rng.choice(["x", "y"], N), "y": rng.standard_normal(N)}
    pandas.DataFrame(table).to_csv(path / "t.csv", index=False)
    given = ["--target", "y", "--model", "ridge", "--max-evaluations", "2", "--out", str(path / "run"), "--no-report"]
    assert runner.invoke(app, ["tune", str(path / "t.csv"), *given]).exit_code in (0, 1)
    return path / "run"


@pytest.fixture
def model(folder):
    """The file, as it was before and will be again."""
    file = folder / "model.skops"
    before = file.read_bytes()
    yield file
    file.write_bytes(before)


def commands(folder):
    table, file = str(folder.parent / "t.csv"), str(folder / "model.skops")
    yield ["predict", str(folder), table]
    yield ["certify", str(folder), table]
    yield ["certify", file, table, "--target", "y"]


def refused(folder, *, told=""):
    for command in commands(folder):
        result = runner.invoke(app, command)
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, (command, result.exception)
        assert "model.skops" in result.stderr and told in result.stderr and result.stdout == ""


def archive(members, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def members_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as read:
        return {name: read.read(name) for name in read.namelist()}


def lied_about(content, name, size):
    """The archive with a directory that claims this size for a member."""
    at = content.rindex(name.encode()) - 46
    assert content[at : at + 4] == b"PK\1\2"
    return content[: at + 24] + size.to_bytes(4, "little") + content[at + 28 :]


def nested(levels):
    tree = '{"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": ['
    return tree[:-1] + '"protocol": 3, "content": [' + levels * tree + levels * "]}" + "]}"


FOREIGN = {
    "nothing": b"",
    "text": b"a,b\n1,2\n",
    "an empty archive": archive({}),
    "another archive": archive({"readme.txt": "hello"}),
    "a schema that is no JSON": archive({"schema.json": "{"}),
    "a schema that is a list": archive({"schema.json": "[1]"}),
    "an empty schema": archive({"schema.json": "{}"}),
    "brackets": archive({"schema.json": "[" * 100_000}),
    "lists in lists": archive({"schema.json": nested(20_000)}),
    "an array": skops.dumps(np.ones(3)),
    "a dictionary": skops.dumps({"coef_": [1.0]}),
    "a number": skops.dumps(3.0),
    "a sparse matrix": skops.dumps(sp.csr_matrix(np.eye(3))),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_refused(model, content):
    model.write_bytes(content)
    for command in commands(model.parent):
        result = runner.invoke(app, command)
        if command[0] == "certify" and result.exit_code == 1:  # it loads, and nothing can be told of it
            assert "Traceback" not in result.output and len(result.stdout.splitlines()) == 1
            continue
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, (command, result.exception)
        assert "model.skops" in result.stderr


def test_a_model_without_its_fit_or_columns_is_refused(model):
    model.write_bytes(skops.dumps(Ridge()))
    assert runner.invoke(app, ["predict", str(model.parent), str(model.parent.parent / "t.csv")]).exit_code == 2


def test_cut_and_flipped_files_are_refused_or_mean_the_same(model):
    before = model.read_bytes()
    table = str(model.parent.parent / "t.csv")
    expected = runner.invoke(app, ["predict", str(model.parent), table]).stdout
    assert expected
    chance = np.random.default_rng(0)
    for turn in range(60):
        content = bytearray(before)
        if turn % 2:
            del content[int(chance.integers(len(content))) :]
        else:
            content[int(chance.integers(len(content)))] ^= 1 << int(chance.integers(8))
        model.write_bytes(bytes(content))
        result = runner.invoke(app, ["predict", str(model.parent), table])
        if result.exit_code == 0:
            assert result.stdout == expected  # a date or the like
        else:
            assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, (turn, result.exception)


def test_schemas_that_were_tampered_with_are_refused_or_make_a_model(model):
    members = members_of(model.read_bytes())
    schema = json.loads(members["schema.json"])
    nodes, waiting = [], [schema]
    while waiting:
        node = waiting.pop()
        nodes += [node] if isinstance(node, dict) else []
        waiting += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    chance = np.random.default_rng(1)
    table = str(model.parent.parent / "t.csv")
    for turn in range(60):
        node = nodes[int(chance.integers(len(nodes)))]
        key = str(chance.choice(sorted(node)))
        saved = node[key]
        if turn % 3 == 0:
            del node[key]
        else:
            node[key] = [None, 3, [], {}, "x", True, "ObjectNode", -1][turn % 8]
        model.write_bytes(archive(members | {"schema.json": json.dumps(schema)}))
        node[key] = saved
        result = runner.invoke(app, ["predict", str(model.parent), table])
        if result.exit_code != 0:
            assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, (turn, result.exception)
            assert "model.skops" in result.stderr


def test_arrays_that_are_missing_are_told(model):
    members = members_of(model.read_bytes())
    for kept in ({"schema.json"}, members.keys() - {"schema.json"}):
        model.write_bytes(archive({name: members[name] for name in kept}))
        refused(model.parent, told="damaged")


def bombs(members, monkeypatch):
    """Archives that unpack to more than they may, here 1 MB."""
    monkeypatch.setattr(model_file.files, "DATA", 1 << 20)
    monkeypatch.setattr(model_file, "SCHEMA", 1 << 18)
    array = io.BytesIO()
    np.save(array, np.zeros(1 << 16))  # half of a MB
    one = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": "z.npy"}
    many = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": 3 * [one]}
    packed = io.BytesIO()
    sp.save_npz(packed, sp.csr_matrix(np.ones((1, 1 << 17))))
    sparse = {**one, "__class__": "csr_matrix", "__module__": "scipy.sparse", "__loader__": "SparseMatrixNode"}
    sparse |= {"type": "scipy", "file": "s.npz"}
    deflated = zipfile.ZIP_DEFLATED
    yield "a large member", archive(members | {"large": bytes(3 << 20)}, deflated), "would unpack to"
    yield "a large schema", archive(members | {"schema.json": "[" + (1 << 18) * " " + "]"}, deflated), "its schema"
    yield (
        "one array three times",
        archive({"z.npy": array.getvalue(), "schema.json": json.dumps(many)}, deflated),
        "to 1,",
    )
    yield "sparse", archive({"s.npz": packed.getvalue(), "schema.json": json.dumps(sparse)}), "would unpack to"
    yield "another method", archive(members, zipfile.ZIP_BZIP2), "skops.io.dump"
    whole = archive({"schema.json": json.dumps(json.loads(members["schema.json"])), "more": bytes(3 << 20)}, deflated)
    yield "a lie about a size", lied_about(whole, "schema.json", 100), "model"


def test_nothing_is_unpacked_beyond_its_bound(model, monkeypatch):
    for name, content, told in bombs(members_of(model.read_bytes()), monkeypatch):
        model.write_bytes(content)
        tracemalloc.start()
        with pytest.raises(ValueError, match=told):
            model_file.load_file(model)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 << 20, name
        refused(model.parent, told=told)


def test_files_that_may_run_code_are_refused_as_clearly(tmp_path):
    (tmp_path / "m.joblib").write_bytes(b"no pickle")
    with pytest.raises(ValueError, match="joblib is damaged, or holds no model"):
        model_file.load_file(tmp_path / "m.joblib", trust=True)


def test_saving_a_model_does_not_wait_for_packages_that_scikit_learn_could_use(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("print('imported')\n")
    code = (
        "import pathlib; from sklearn.linear_model import Ridge; from suffice.tabular.model_file import save\n"
        f"print(save(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]), pathlib.Path({str(tmp_path)!r}))[1])\n"
        "import torch"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert made.stdout.split() == ["[]", "imported"]  # no failure; who asks for torch afterwards gets it
