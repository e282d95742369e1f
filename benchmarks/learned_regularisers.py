"""Are reconstructions by a published learned regulariser converged? Theirs, certified.

    python benchmarks/learned_regularisers.py --theirs LearnedRegularizers     (needs torch and pillow)

The comparative study arXiv:2510.01755 (github.com/johertrich/LearnedRegularizers) denoises BSD68 at sigma 0.1 by

    E(x) = 1/2 ||x - y||^2 + R(x),

R its convex ridge regulariser with 13,765 parameters, fitted by bilevel training (IFT). It minimises by nonmonotone
accelerated gradient descent in float32, until an iterate moves by 1e-4 of its length, 1,000 times at most. Their
filters, their R and their solver are called here; `deepinv`, of which these need an empty base class, is stood in for.

E is strongly convex with mu = 1, whatever convex R is, so that what they return is no farther from the one minimiser x^
than the norm of E's gradient there, which `suffice.certify` states in float64 with rounding. Their solver stops when it
moves little, which bounds nothing. Run on in float64 to a tolerance of 1e-7, it gives a point with a smaller radius:
the distance between the two less that radius is how far theirs is from x^ at least, and the PSNR of x^ is proven by it.
Their norm of the filters, which they compute anew in every call, is computed once here.

Images are --size pixels wide and high, from their middle: whole ones, of 154,401, take minutes each.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import parser, provenance, table, write_json, write_text
from PIL import Image

import suffice
from suffice import autodiff

SIGMA, STEP, MOST, TOLERANCE = 0.1, 0.1, 1000, 1e-4  # theirs
FINER = 1e-7
GREY = np.array([0.2989, 0.587, 0.114])  # torchvision's


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def regulariser(theirs: Path, weights: str) -> Any:
    """Their R, with its scale and factor."""
    stand_in = types.ModuleType("deepinv.optim")
    stand_in.Prior = torch.nn.Module  # type: ignore[attr-defined]
    sys.modules.update({"deepinv": types.ModuleType("deepinv"), "deepinv.optim": stand_in})
    inner = module(theirs / "priors" / "wcrr.py").WCRR(sigma=0.1, weak_convexity=0.0, device="cpu")
    made = module(theirs / "priors" / "parameter_learning_wrapper.py").ParameterLearningWrapper(inner, device="cpu")
    path = theirs / "weights" / "bilevel_Denoising" / f"CRR_bilevel_{weights}_for_Denoising.pt"
    made.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    for one in made.parameters():
        one.requires_grad_(False)
    return made.eval()


def settled(R: Any) -> Any:
    """With the norm of its filters, which it computes whenever it is called, as a constant."""
    norm = R.regularizer.get_conv_lip()
    R.regularizer.get_conv_lip = lambda: norm
    return R


def squared_norm(weight: torch.Tensor) -> float:
    """No less than ||C||^2 of a convolution with zeros around: ||C^T C|| <= sum over lags ||G_lag||_2, G its weights
    correlated with themselves."""
    K, total = weight.double().numpy(), 0.0
    size = K.shape[-1]
    for i in range(1 - size, size):
        for j in range(1 - size, size):
            one = K[:, :, max(i, 0) : size + min(i, 0), max(j, 0) : size + min(j, 0)]
            other = K[:, :, max(-i, 0) : size + min(-i, 0), max(-j, 0) : size + min(-j, 0)]
            total += float(np.linalg.norm(np.einsum("oaij,obij->ab", one, other), 2))
    return total * (1.0 + 1e-9)


def lipschitz(R: Any) -> float:
    """Of grad E, proven: phi'' <= exp(beta), and filters are divided by the root of what they call their norm."""
    inner = R.regularizer
    bend = math.exp(float(R.alpha) + float(inner.beta)) / float(inner.get_conv_lip())
    return 1.0 + bend * math.prod(squared_norm(one.weight) for one in inner.filters)


def energy(R: Any, y: np.ndarray) -> Any:
    """E in float64, as a problem that can be certified."""
    given = torch.tensor(y)

    def fun(x: Any) -> Any:
        image = x.reshape(1, 1, *given.shape)
        return 0.5 * ((image[0, 0] - given) ** 2).sum() + R.g(image).sum()

    return fun


def psnr(x: np.ndarray, clean: np.ndarray, radius: float = 0.0) -> float:
    """That of a point, or the least of all points within a radius; the greatest with a negative one."""
    off = max(float(np.linalg.norm(x - clean)) + radius, 1e-300)
    return -20.0 * math.log10(off / math.sqrt(x.size))


def one_image(path: Path, single: Any, double: Any, solvers: Any, L: float, args: Any) -> dict[str, Any]:
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) / 255.0 @ GREY
    i, j = ((n - args.size) // 2 for n in pixels.shape)
    clean = torch.tensor(pixels[i : i + args.size, j : j + args.size], dtype=torch.float32)
    noisy = clean + SIGMA * torch.randn_like(clean)
    y = noisy[None, None]

    def run(R: Any, solver: Any, x: Any, y: Any, tolerance: float) -> Any:
        def f(x: Any, y: Any) -> Any:
            return (0.5 * ((x - y) ** 2).sum((1, 2, 3)) + R.g(x)).reshape(-1)

        def slope(x: Any, y: Any) -> Any:
            return x - y + R.grad(x)

        def both(x: Any, y: Any) -> Any:
            return f(x, y), slope(x, y)

        with torch.no_grad():
            return solver(x.clone(), y, f, slope, both, max_iter=MOST, L_init=1.0 / STEP, tol=tolerance)

    began = time.process_time()
    found, _, steps, done = run(single, solvers[0], y, y, TOLERANCE)
    seconds = time.process_time() - began
    x, truth = found[0, 0].double().numpy(), clean.double().numpy()
    lower = autodiff.smooth(energy(double, noisy.double().numpy())).problem(x.size, mu=1.0, L=L).at()
    made = suffice.certify(lower, x.ravel())
    on, _, more, _ = run(double, solvers[1], found.double(), y.double(), FINER)
    near = on[0, 0].numpy()
    close = suffice.certify(lower, near.ravel())
    row = {
        "image": path.stem, "steps": int(steps) + 1, "stopped": bool(done.all()), "seconds": seconds,
        "radius": made.radius, "norm": float(np.linalg.norm(x)), "psnr": psnr(x, truth), "more": int(more) + 1,
        "finer_radius": close.radius, "least": max(float(np.linalg.norm(near - x)) - close.radius, 0.0),
        "exact_psnr": [psnr(near, truth, close.radius * side) for side in (1.0, -1.0)],
    }  # fmt: skip
    print(row, flush=True)
    return row


def text(rows: list[dict[str, Any]], L: float, args: Any, known: dict[str, str]) -> str:
    def spread(values: list[float], digits: str) -> list[str]:
        return [f"{one:{digits}}" for one in (min(values), statistics.median(values), max(values))]

    def shown(name: str, value: Any, digits: str) -> list[str]:
        return [name, *spread([value(row) for row in rows], digits)]

    lines = [
        shown("their steps until they stop", lambda row: row["steps"], ".0f"),
        shown("proven radius of what they return", lambda row: row["radius"], ".2g"),
        shown("the same, over the norm of the image", lambda row: row["radius"] / row["norm"], ".1e"),
        shown("distance to the minimiser, at least", lambda row: row["least"], ".2g"),
        shown("the same, over the norm of the image", lambda row: row["least"] / row["norm"], ".1e"),
        shown("steps more to the finer tolerance", lambda row: row["more"], ".0f"),
        shown("proven radius after these", lambda row: row["finer_radius"], ".1e"),
        shown("PSNR of what they return", lambda row: row["psnr"], ".3f"),
        shown("PSNR of the minimiser less that, at least", lambda row: row["exact_psnr"][0] - row["psnr"], ".4f"),
        shown("PSNR of the minimiser less that, at most", lambda row: row["exact_psnr"][1] - row["psnr"], ".4f"),
    ]
    off = sum(row["least"] > TOLERANCE * row["norm"] for row in rows)
    within = sum(row["radius"] <= TOLERANCE * row["norm"] for row in rows)
    ended = sum(row["stopped"] for row in rows)
    means = [
        statistics.mean(values) for values in zip(*((row["psnr"], *row["exact_psnr"]) for row in rows), strict=True)
    ]
    parts = ["# Published learned regularisers, certified", __doc__ or ""]
    parts += [
        f"{len(rows)} images, {args.size} x {args.size}, weights `{args.weights}`, mu = 1, L <= {L:.3g}. {ended} of "
        f"{len(rows)} ended by their tolerance; {within} are proven to be within {TOLERANCE:g} of their norm, {off} to "
        f"be farther from the minimiser than that. Mean PSNR of what they return {means[0]:.3f} dB, of minimisers "
        f"between {means[1]:.3f} and {means[2]:.3f} dB."
    ]
    parts += [table(["over images", "least", "median", "greatest"], lines)]
    parts += [", ".join(f"{key} {value}" for key, value in known.items())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    args = parser(__doc__)
    args.add_argument("--theirs", type=Path, required=True, help="a copy of LearnedRegularizers")
    args.add_argument("--weights", default="IFT", choices=["IFT", "JFB", "IFT-MAID"])
    args.add_argument("--size", type=int, default=128)
    args.add_argument("--images", type=int, default=68)
    args = args.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    single, double = (
        settled(regulariser(args.theirs, args.weights).to(kind)) for kind in (torch.float32, torch.float64)
    )
    solvers = [module(args.theirs / "evaluation" / "nmAPG.py") for _ in range(2)]
    solvers[1].torch = types.SimpleNamespace(**{**vars(torch), "float32": torch.float64})  # which it names once
    solvers = [one.nmAPG for one in solvers]
    L, rows = lipschitz(double), []
    known = provenance("torch")
    for path in sorted((args.theirs / "dataset" / "BSD68").glob("*.jpg"))[: args.images]:
        rows.append(one_image(path, single, double, solvers, L, args))
        write_json(args.out / "learned_regularisers.json", {"rows": rows, "L": L, "provenance": known})
        write_text(args.out / "learned_regularisers.md", text(rows, L, args, known))


if __name__ == "__main__":
    main()
