"""The kernels of `suffice.lower.fused`."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def extrapolate(W, W_before, t, mu, L, Z, t_next, d, n, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Momentum as in `suffice.lower.fista`, for a constant step length."""
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    old = tl.load(t + j, mask=j < n, other=0.0)
    q = tl.load(mu + j, mask=j < n, other=1.0) / tl.load(L + j, mask=j < n, other=2.0)
    a = 1.0 - q * old * old
    new = 0.5 * (a + tl.sqrt(a * a + 4.0 * old * old))
    void = 1.0 - q < 1e-12
    beta = tl.where(void, 0.0, (old - 1.0) * (1.0 - q * new) / (new * tl.where(void, 1.0, 1.0 - q)))
    place, inside = i[:, None] * n + j[None, :], (i < d)[:, None] & (j < n)[None, :]
    w = tl.load(W + place, mask=inside, other=0.0)
    before = tl.load(W_before + place, mask=inside, other=0.0)
    tl.store(Z + i[:, None] * stride + j[None, :], w + beta[None, :] * (w - before), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(t_next + j, new, mask=j < n)


@triton.jit
def _write_residuals(m, Y, a, R, i, j, N, n, stride, delta, LOSS: tl.constexpr):
    inside = (i < N)[:, None] & (j < n)[None, :]
    place = i[:, None].to(tl.int64) * stride + j[None, :]
    y = tl.load(Y + place, mask=(i < N)[:, None], other=0.0)
    if LOSS == "squared":
        derivative = m - y
    elif LOSS == "logistic":
        derivative = -y / (1.0 + tl.exp(y * m))
    else:
        limit = tl.load(delta)
        derivative = tl.minimum(tl.maximum(m - y, -limit), limit)
    r = tl.where(inside, a[:, None] * derivative, 0.0).to(R.dtype.element_ty)
    tl.store(R + place, r, mask=(i < N)[:, None])


@triton.jit
def residuals(
    X,
    Z,
    Y,
    weights,
    R,
    N,
    d,
    n,
    row,
    column,
    stride,
    delta,
    LOSS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
):
    dtype = X.dtype.element_ty
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    m1 = tl.zeros((ROWS, P1), dtype=dtype)
    m2 = tl.zeros((ROWS, P2 if P2 > 0 else 1), dtype=dtype)
    for first in range(0, d, DEPTH):
        k = first + tl.arange(0, DEPTH)
        inside = k < d
        x = tl.load(
            X + i[:, None].to(tl.int64) * row + k[None, :].to(tl.int64) * column,
            mask=(i < N)[:, None] & inside[None, :],
            other=0.0,
        )
        z1 = tl.load(Z + k[:, None] * stride + j1[None, :], mask=inside[:, None], other=0.0)
        m1 = tl.dot(x, z1, m1, input_precision="ieee", out_dtype=dtype)
        if P2 > 0:
            z2 = tl.load(Z + k[:, None] * stride + j2[None, :], mask=inside[:, None], other=0.0)
            m2 = tl.dot(x, z2, m2, input_precision="ieee", out_dtype=dtype)
    a = tl.load(weights + i, mask=i < N, other=0.0)
    _write_residuals(m1, Y, a, R, i, j1, N, n, stride, delta, LOSS)
    if P2 > 0:
        _write_residuals(m2, Y, a, R, i, j2, N, n, stride, delta, LOSS)


@triton.jit
def adjoint(
    X,
    R,
    parts,
    N,
    d,
    chunk,
    column,
    stride,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
):
    """The part of X^T R that comes from one chunk of rows."""
    dtype = X.dtype.element_ty
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(2) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    g1 = tl.zeros((ROWS, P1), dtype=dtype)
    g2 = tl.zeros((ROWS, P2 if P2 > 0 else 1), dtype=dtype)
    start = tl.program_id(1) * chunk
    for first in range(0, chunk, DEPTH):
        k = start + first + tl.arange(0, DEPTH)
        inside = k < N
        x = tl.load(
            X + i[:, None].to(tl.int64) * column + k[None, :], mask=(i < d)[:, None] & inside[None, :], other=0.0
        )
        r1 = tl.load(R + k[:, None].to(tl.int64) * stride + j1[None, :], mask=inside[:, None], other=0.0)
        g1 = tl.dot(x, r1, g1, input_precision="ieee", out_dtype=dtype)
        if P2 > 0:
            r2 = tl.load(R + k[:, None].to(tl.int64) * stride + j2[None, :], mask=inside[:, None], other=0.0)
            g2 = tl.dot(x, r2, g2, input_precision="ieee", out_dtype=dtype)
    base = parts + tl.program_id(1).to(tl.int64) * d * stride
    tl.store(base + i[:, None] * stride + j1[None, :], g1, mask=(i < d)[:, None])
    if P2 > 0:
        tl.store(base + i[:, None] * stride + j2[None, :], g2, mask=(i < d)[:, None])


@triton.jit
def descend(parts, Z, l1, l2, L, G, W, d, n, stride, SPLITS: tl.constexpr, COLUMNS: tl.constexpr):
    """One row of G and of the next W."""
    i, j = tl.program_id(0), tl.arange(0, COLUMNS)
    inside = j < n
    z = tl.load(Z + i * stride + j, mask=inside, other=0.0)
    g = tl.load(l2 + j, mask=inside, other=0.0) * z
    for s in range(SPLITS):
        g += tl.load(parts + (s * d + i).to(tl.int64) * stride + j, mask=inside, other=0.0)
    tau = 1.0 / tl.load(L + j, mask=inside, other=1.0)
    threshold = tau * tl.load(l1 + j, mask=inside, other=0.0)
    v = z - tau * g
    tl.store(G + i * n + j, g, mask=inside)
    tl.store(W + i * n + j, v - tl.minimum(tl.maximum(v, -threshold), threshold), mask=inside)
