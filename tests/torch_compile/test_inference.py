"""``torch.compile(backend="tilewright")`` without gradients means what eager mode means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright.torch  # noqa: E402
from tests.torch_compile.helpers import agree, compiled, same  # noqa: E402
from tilewright.support.errors import BuildError  # noqa: E402

F = torch.nn.functional
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# ---- the entry point ----------------------------------------------------------------------------


def test_pytorch_finds_the_backend_by_its_name(tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib")  # since Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = project["entry-points"]["torch_dynamo_backends"]
    info = tmp_path / "tilewright-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilewright\nVersion: 0\n")
    rows = "".join(f"{name} = {value}\n" for name, value in group.items())
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{rows}")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'src')!r}]\n"
        "import torch\n"
        "f = torch.compile(lambda x: x * 2 + 1, backend='tilewright')\n"
        "print(f(torch.ones(3)).tolist())\n"
        "try:\n"
        "    torch.compile(f, backend='tilewright', options={'speed': 9})(torch.ones(2))\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == "[3.0, 3.0, 3.0]"
    assert "the options are mode, work_dir, threads, trials" in "\n".join(rest)


def test_without_pytorch_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tilewright.torch\n"
        "try:\n"
        "    tilewright.torch.compile(len)\n"
        "except tilewright.TilewrightError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "tilewright[torch]" in done.stdout, done.stderr


# ---- values, strides, aliases -------------------------------------------------------------------


def _pair(x: Any) -> Any:
    return x + 1, x * 2


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "broadcast": (lambda x, y: (x + y, x * y), (torch.randn(4, 1), torch.randn(3))),
    "matmul": (lambda x, y: (x @ y).relu(), (torch.randn(5, 4), torch.randn(4, 6))),
    "views of a result": (
        lambda x: ((x + 1).t(), (x + 1)[1:, ::2], (x * 2).expand(2, 3, 4)),
        (torch.randn(3, 4),),
    ),
    "views of an input": (lambda x: (x.t(), x[1:], x.view(-1) * 2), (torch.randn(3, 4),)),
    "transposed input": (lambda x: (x + 1, x @ x.t(), x.sum(0)), (torch.randn(4, 3).t(),)),
    "input with gaps": (_pair, (torch.randn(4, 6)[:, ::2],)),
    "input from the middle": (_pair, (torch.randn(30)[3:],)),
    "expanded input": (_pair, (torch.randn(1, 6).expand(4, 6),)),
    "channels last": (
        lambda x, w: F.relu(F.conv2d(x, w, padding=1)),
        (torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last), torch.randn(4, 3, 3, 3)),
    ),
    "written input": (lambda x, y: x.add_(y).mul_(2).sum(), (torch.randn(3, 4), torch.randn(4))),
    "written view": (lambda x: x[1].zero_() + x[0], (torch.randn(3, 4),)),
    "integers": (
        lambda x, y: (x + y, x // 3, x % 3, x > y, (x / 2).round(), x.float().mean()),
        (torch.arange(-4, 4), torch.arange(8)),
    ),
    "truth": (
        lambda x, y: (x & y, ~x, x.any(), y.all(), x.int() + 1, torch.where(x, 1.0, 2.0)),
        (torch.tensor([True, False] * 2), torch.tensor([True, True, False, False])),
    ),
    "bytes": (lambda x: (x + 250, x.to(torch.int8)), (torch.arange(10, dtype=torch.uint8),)),
    "doubles": (lambda x: (x.exp(), x.sum(1)), (torch.randn(3, 4, dtype=torch.float64),)),
    "no elements": (
        lambda x: (x + 1, x.sum(0), torch.cat([x, x], 1), x.t() @ x),
        (torch.randn(0, 4),),
    ),
    "no axes": (lambda x: (x * 2, x.view(1)), (torch.tensor(3.0),)),
    "numbers": (lambda x, k, n: (x * k + n, k, n + 1), (torch.randn(3), 0.5, 3)),
    "constants": (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), (torch.randn(3),)),
    "input as result": (lambda x: (x, x + 1), (torch.randn(3),)),
    "nested results": (lambda x: {"a": [x + 1, (x * 2, None)]}, (torch.randn(3),)),
    "pieces": (lambda x: [part + 1 for part in x.split(2)], (torch.randn(5, 4),)),
    "dot products by attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        (torch.randn(1, 2, 8, 4),),
    ),
    "embedding": (
        lambda i, w: F.embedding(i, w).mean(1),
        (torch.randint(0, 5, (2, 3)), torch.randn(5, 4)),
    ),
}


def _bands(x: Any) -> Any:
    """Write to slices of slices, whose copies PyTorch's shape functions give the gaps of both."""
    made = x.new_zeros(4, 3, 9)
    made[:, :-1, 4:] = x[:, 1:, :5]
    made[:, -1, 1:4] = x[:, 0, 2:5]
    made[1:, 0] = float("inf")
    return made.view(2, 2, 27) + 1


def _spread(x: Any) -> Any:
    """A result of its own that has gaps: the copy lies as the slice that it replaces."""
    return torch.ops.aten.copy.default(x[:, ::2], x[:, 1::2] * 2)


GAPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "written bands": (_bands, (torch.randn(4, 3, 6),)),
    "a result": (_spread, (torch.randn(4, 6),)),
    "a view of it": (lambda x: _spread(x).t()[1:], (torch.randn(4, 6),)),
    "read by PyTorch": (
        lambda x: torch.special.airy_ai(_spread(x)) + _spread(x + 1),
        (torch.randn(4, 6),),
    ),
    "read by another part": (
        lambda x: _spread(x) + torch.special.airy_ai(x)[:, :3],
        (torch.randn(4, 6),),
    ),
    "complex numbers": (_spread, (torch.randn(4, 6, dtype=torch.complex64),)),
}


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_values_with_gaps_in_memory(name: str, dynamic: bool) -> None:
    function, args = GAPS[name]
    agree(function, args, dynamic=dynamic)


@pytest.mark.parametrize("shape", [(1, 2), (0, 6), (1, 6), (4, 2)])
def test_gaps_around_single_elements(shape: tuple[int, ...]) -> None:
    """Strides of axes without a second element mean nothing, so only values are compared."""
    x = torch.randn(shape)
    torch.testing.assert_close(compiled(_spread)(x), _spread(x))


def test_models_that_ask_for_numbers_can_be_one_graph(texts: list[str]) -> None:
    """As DeBERTa's: ``.item()`` breaks graphs unless PyTorch is told to capture numbers."""

    def function(x: Any) -> Any:
        scale = torch.tensor(3.0).sqrt() * x.shape[-1]
        return (x / scale.item()).softmax(-1) + int(torch.tensor(2) * x.shape[0])

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        agree(function, (torch.randn(4, 6),))
    assert len(texts) == 1


def test_writing_to_slices_takes_one_kernel_call_of_a_graph(texts: list[str]) -> None:
    compiled(_bands)(torch.randn(4, 3, 6))
    (text,) = texts
    assert text.count("part") == 1 and "op" not in text, text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_means_what_eager_mode_means(name: str) -> None:
    function, args = FUNCTIONS[name]
    agree(function, args)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_floats(dtype: Any) -> None:
    args = (torch.randn(4, 8).to(dtype), torch.randn(8, 8).to(dtype))
    agree(lambda x, w: (torch.relu(x @ w), x.sum(1)), args, tolerance=2e-2)


def test_results_share_memory_as_in_eager_mode() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y, y.t(), x[0], x.mul_(2)

    x = torch.randn(3, 4)
    y, turned, row, written = compiled(function)(x)
    assert y.data_ptr() == turned.data_ptr()
    assert row.data_ptr() == x.data_ptr()
    assert written is x
    y[0, 1] = 7.0
    assert turned[1, 0] == 7.0


def test_what_is_negated_when_it_is_read() -> None:
    agree(lambda x: x.conj().imag + 1, (torch.complex(torch.randn(3), torch.randn(3)),))


def test_two_inputs_in_one_memory() -> None:
    def function(x: Any, y: Any) -> Any:
        x.mul_(2)
        return y + 1

    theirs, ours = torch.ones(6), torch.ones(6)
    want = function(theirs[:4], theirs[2:])
    got = compiled(function)(ours[:4], ours[2:])
    same((got, ours), (want, theirs))


def test_parameters_are_seen_in_place() -> None:
    model = torch.nn.Linear(4, 3).eval()
    run = compiled(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        same(run(x), model(x))
        model.weight.mul_(3)
        model.bias.add_(1)
        same(run(x), model(x))


def test_statistics_of_the_model_are_updated() -> None:
    model, other = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    run = compiled(other)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(8, 3)
            same(run(x), model(x))
    same(dict(other.named_buffers()), dict(model.named_buffers()))


def test_code_that_breaks_the_graph() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        if y.sum().item() > 0:
            y = y + 1
        torch._dynamo.graph_break()
        return y.relu()

    agree(function, (torch.ones(3),), (-torch.ones(3),))


def test_a_number_that_changes_compiles_twice_at_most() -> None:
    graphs: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return tilewright.torch.backend(graph, inputs)

    torch._dynamo.reset()
    run = torch.compile(lambda x, k: x * k, backend=counting)
    x = torch.randn(3)
    for number in (0.5, 0.75, 1.25, -2.0):
        same(run(x, number), x * number)
    assert len(graphs) <= 2


# ---- symbolic sizes -----------------------------------------------------------------------------


def test_graphs_serve_all_lengths() -> None:
    graphs: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return tilewright.torch.backend(graph, inputs)

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    torch._dynamo.reset()
    run = torch.compile(model, backend=counting, dynamic=True)
    with torch.no_grad():
        for length in (5, 7, 2, 16):
            x = torch.randn(3, length, 4)
            same(run(x), model(x), 1e-5)
    assert len(graphs) <= 2  # PyTorch compiles again when a guard of its own fails


def test_sizes_are_computed_with() -> None:
    def function(x: Any) -> Any:
        rows, columns = x.shape
        return (
            x.reshape(-1, rows * 2) * columns,
            torch.arange(columns) + 1,
            x.new_zeros(rows, 3),
            rows * 2,
            torch.cat([x, x], 1).t(),
        )

    calls = [(torch.randn(shape),) for shape in ((4, 6), (6, 6), (3, 8))]
    agree(function, *calls, dynamic=True)


def test_a_size_that_no_tensor_has() -> None:
    agree(
        lambda x, n: torch.full((n, 2), 3.0) + x,
        (torch.ones(2), 3),
        (torch.ones(2), 5),
        dynamic=True,
    )


# ---- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modus": "rules"}, "'mode'.*the options are mode, work_dir, threads, trials"),
        ({"mode": "fast"}, "one of rules, database, tune"),
        ({"mode": "tune"}, "needs the option 'work_dir'"),
        ({"mode": "database"}, "needs the option 'work_dir'"),
        ({"work_dir": "x"}, "for the modes 'database' and 'tune'"),
        ({"trials": 5}, "for the mode 'tune'"),
        ({"threads": 0}, "positive integer"),
        ({"threads": True}, "positive integer"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        tilewright.torch.compile(len, **options)


def test_modes_of_inductor_are_refused() -> None:
    torch._dynamo.reset()
    run = torch.compile(lambda x: x + 1, backend=tilewright.torch.backend, mode="max-autotune")
    with pytest.raises(Exception, match="one of inductor's"):
        run(torch.ones(3))


def test_tuning_fills_the_database_that_builds_read(tmp_path: Path) -> None:
    args = (torch.randn(8, 16), torch.randn(16, 8))
    agree(lambda x, y: x @ y, args, mode="tune", work_dir=tmp_path, trials=2, threads=1)
    records = (tmp_path / "database_tuning_record.json").read_text()
    assert records
    agree(lambda x, y: x @ y, args, mode="database", work_dir=tmp_path, threads=1)
    assert (tmp_path / "database_tuning_record.json").read_text() == records


def test_sizes_that_data_tell() -> None:
    def function(x: Any, y: Any) -> Any:
        x = x * 2
        found, places = torch.unique(x), torch.nonzero(x > 2)
        x[x > 4] *= 2
        return (found + 1) * 2, places * 3 + 1, (y[:, None] * found).sum(1), x + 1

    run = compiled(function)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for size in (9, 4):
            given = torch.randint(0, 5, (size,)).float(), torch.randn(3)
            same(run(*given), function(*given))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_resized_images_are_one_operator(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch itself would write them as gathers, even those that have a converter."""
    from tilewright.torch import dynamo

    graphs = []

    def noted(graph_module: Any, options: Any) -> Any:
        graphs.append([str(node.target) for node in graph_module.graph.nodes])
        return compile_aten(graph_module, options)

    compile_aten = dynamo.compile_aten
    monkeypatch.setattr(dynamo, "compile_aten", noted)
    agree(lambda x: F.interpolate(x, size=(9, 14), mode=mode) + 1, (torch.randn(1, 2, 5, 7),))
    (names,) = graphs
    assert len(names) == 4 and "upsample" in names[1]
    # Others find PyTorch's rules as they were.
    keys = torch.ops.aten.upsample_bilinear2d.default.py_kernels
    assert torch._C.DispatchKey.Autograd in keys
