"""The kernels of `suffice.cuda.fused`.

Z, R and Y are padded and stored by columns, `long` entries each: products read both of their factors along what they
sum over, so that no two threads ask the same bank of shared memory at a time. So are margins that are kept, which takes
a column back for a quarter of what it costs by rows."""

# mypy: ignore-errors
import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_wait
except ImportError:  # in older versions, where no kernel is sent out early
    gdc_wait = None


@triton.jit
def _begin(EARLY: tl.constexpr):
    """Programs that are there before the kernel before has ended wait for it."""
    if EARLY:
        gdc_wait()


@triton.jit
def _momentum(old, q_before, q):
    """t' and beta, as in `suffice.solvers.fista.momentum`."""
    a = 1.0 - q_before * old * old
    new = 0.5 * (a + tl.sqrt(a * a + 4.0 * (q_before / q) * old * old))
    void = 1.0 - q < 1e-12
    return new, tl.where(void, 0.0, (old - 1.0) * (1.0 - q * new) / (new * tl.where(void, 1.0, 1.0 - q)))


@triton.jit
def _constant_momentum(t, mu, L, j, n):
    """The same for a constant step length 1/L."""
    q = tl.load(mu + j, mask=j < n, other=1.0) / tl.load(L + j, mask=j < n, other=2.0)
    return _momentum(tl.load(t + j, mask=j < n, other=0.0), q, q)


@triton.jit
def _extrapolate(W, W_before, beta, Z, i, j, d, n, long):
    place, inside = i[:, None] * n + j[None, :], (i < d)[:, None] & (j < n)[None, :]
    w = tl.load(W + place, mask=inside, other=0.0)
    before = tl.load(W_before + place, mask=inside, other=0.0)
    tl.store(Z + j[None, :] * long + i[:, None], w + beta[None, :] * (w - before), mask=inside)


@triton.jit
def extrapolate(
    W,
    W_before,
    t,
    mu,
    L,
    Z,
    t_next,
    d,
    n,
    long,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    EARLY: tl.constexpr,
):
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    new, beta = _constant_momentum(t, mu, L, j, n)
    _extrapolate(W, W_before, beta, Z, i, j, d, n, long)
    if tl.program_id(0) == 0:
        tl.store(t_next + j, new, mask=j < n)


@triton.jit
def ahead(
    W,
    W_before,
    t,
    tau,
    taken,
    k,
    failed,
    mu,
    constants,
    Z,
    t_next,
    tau_next,
    beta_next,
    d,
    n,
    long,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """`extrapolate` for step lengths that grow while they are short enough."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    m = tl.load(mu + j, mask=j < n, other=1.0)
    length, last = tl.load(tau + j, mask=j < n, other=0.5), tl.load(taken + j, mask=j < n, other=0.5)
    grows = (tl.load(k + j, mask=j < n, other=0.0) > 0.0) & (tl.load(failed + j, mask=j < n, other=0) == 0)
    length = tl.minimum(tl.where(grows, tl.load(constants) * length, length), 1.0 / m)
    q = length * m
    new, beta = _momentum(tl.load(t + j, mask=j < n, other=0.0), tl.where(last > 0.0, last * m, q), q)
    _extrapolate(W, W_before, beta, Z, i, j, d, n, long)
    if tl.program_id(0) == 0:
        tl.store(t_next + j, new, mask=j < n)
        tl.store(tau_next + j, length, mask=j < n)
        tl.store(beta_next + j, beta, mask=j < n)


@triton.jit
def _margins_ahead(M, M_before, beta, i, j, N, n, high):
    """Those of Z, from those of W and the W before, whose columns begin `high` entries apart."""
    inside = (i < N)[:, None] & (j < n)[None, :]
    b, place = tl.load(beta + j, mask=j < n, other=0.0), j[None, :].to(tl.int64) * high + i[:, None]
    m, before = tl.load(M + place, mask=inside, other=0.0), tl.load(M_before + place, mask=inside, other=0.0)
    return m + b[None, :] * (m - before)


@triton.jit
def slopes(
    M,
    M_before,
    beta,
    Y,
    weights,
    R,
    N,
    n,
    high,
    long,
    delta,
    LOSS: tl.constexpr,
    ROWS: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    EARLY: tl.constexpr,
):
    """R from margins that are known."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    a = tl.load(weights + i, mask=i < N, other=0.0)
    m1 = _margins_ahead(M, M_before, beta, i, j1, N, n, high)
    _write_residuals(m1, Y, a, R, i, j1, N, n, long, delta, LOSS)
    if P2 > 0:
        m2 = _margins_ahead(M, M_before, beta, i, j2, N, n, high)
        _write_residuals(m2, Y, a, R, i, j2, N, n, long, delta, LOSS)


@triton.jit
def _write_residuals(m, Y, a, R, i, j, N, n, long, delta, LOSS: tl.constexpr):
    inside = (i < N)[:, None] & (j < n)[None, :]
    place = j[None, :].to(tl.int64) * long + i[:, None]
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
def _product(
    A,
    B,
    i,
    j1,
    j2,
    rows,
    start,
    stop,
    row,
    column,
    long,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
):
    """Rows i of A B, in both pieces of the columns, summed from `start` to before `stop`. Numbers of A become those of
    B as they are read, which is exact."""
    dtype = B.dtype.element_ty
    c1 = tl.zeros((ROWS, P1), dtype=dtype)
    c2 = tl.zeros((ROWS, P2 if P2 > 0 else 1), dtype=dtype)
    for first in range(start, stop, DEPTH):
        k = first + tl.arange(0, DEPTH)
        inside = k < stop
        a = tl.load(
            A + i[:, None].to(tl.int64) * row + k[None, :].to(tl.int64) * column,
            mask=(i < rows)[:, None] & inside[None, :],
            other=0.0,
        ).to(dtype)
        b = B + k[:, None]
        c1 = tl.dot(
            a,
            tl.load(b + j1[None, :].to(tl.int64) * long, mask=inside[:, None], other=0.0),
            c1,
            input_precision="ieee",
            out_dtype=dtype,
        )
        if P2 > 0:
            c2 = tl.dot(
                a,
                tl.load(b + j2[None, :].to(tl.int64) * long, mask=inside[:, None], other=0.0),
                c2,
                input_precision="ieee",
                out_dtype=dtype,
            )
    return c1, c2


@triton.jit
def residuals(
    X,
    Z,
    Y,
    weights,
    R,
    N,
    rows,
    d,
    n,
    row,
    column,
    long,
    long_rows,
    delta,
    LOSS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    EARLY: tl.constexpr,
):
    """R of a tile of rows, from X Z."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    m1, m2 = _product(X, Z, i, j1, j2, rows, 0, d, row, column, long, ROWS, DEPTH, P1, P2)
    a = tl.load(weights + i, mask=i < N, other=0.0)
    _write_residuals(m1, Y, a, R, i, j1, N, n, long_rows, delta, LOSS)
    if P2 > 0:
        _write_residuals(m2, Y, a, R, i, j2, N, n, long_rows, delta, LOSS)


@triton.jit
def _write_part(m, parts, i, j, N, n, row, column, size):
    place = parts + tl.program_id(2).to(tl.int64) * size
    place += i[:, None].to(tl.int64) * row + j[None, :].to(tl.int64) * column
    tl.store(place, m, mask=(i < N)[:, None] & (j < n)[None, :])


@triton.jit
def margins(
    X,
    Z,
    out,
    N,
    rows,
    d,
    n,
    chunk,
    x_row,
    x_column,
    long,
    row,
    column,
    size,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The part of X Z that comes from one chunk of columns of X."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    start = tl.program_id(2) * chunk
    stop = tl.minimum(start + chunk, d)
    m1, m2 = _product(X, Z, i, j1, j2, rows, start, stop, x_row, x_column, long, ROWS, DEPTH, P1, P2)
    _write_part(m1, out, i, j1, N, n, row, column, size)
    if P2 > 0:
        _write_part(m2, out, i, j2, N, n, row, column, size)


@triton.jit
def _summed(parts, i, j, N, n, row, column, size, SPLITS: tl.constexpr):
    """Margins from their parts."""
    inside = (i < N)[:, None] & (j < n)[None, :]
    place = parts + i[:, None].to(tl.int64) * row + j[None, :].to(tl.int64) * column
    m = tl.load(place, mask=inside, other=0.0)
    for s in tl.static_range(1, SPLITS):
        m += tl.load(place + s * size, mask=inside, other=0.0)
    return m


@triton.jit
def gathered(
    parts,
    Y,
    weights,
    R,
    N,
    n,
    long,
    size,
    delta,
    LOSS: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """R of some rows and one column, from margins in parts."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) + tl.arange(0, 1)
    m = _summed(parts, i, j, N, n, 1, long, size, SPLITS)
    _write_residuals(m, Y, tl.load(weights + i, mask=i < N, other=0.0), R, i, j, N, n, long, delta, LOSS)


@triton.jit
def _compare(m, M, M_before, beta, Y, a, along, i, j, N, n, high, stride, long, delta, LOSS: tl.constexpr):
    """Every column's part of sum a c (m - m_z)^2, c the largest psi'' between m and m_z."""
    inside = (i < N)[:, None] & (j < n)[None, :]
    z = _margins_ahead(M, M_before, beta, i, j, N, n, high)
    change = m - z
    square = a[:, None] * change * change
    if LOSS == "logistic":
        nearest = tl.where(m * z > 0.0, tl.minimum(tl.abs(m), tl.abs(z)), 0.0)
        p = 1.0 / (1.0 + tl.exp(-nearest))
        square *= p * (1.0 - p)
    elif LOSS == "huber":
        limit = tl.load(delta)
        y = tl.load(Y + j[None, :].to(tl.int64) * long + i[:, None], mask=inside, other=0.0)
        bent = (tl.minimum(m, z) - y <= limit) & (tl.maximum(m, z) - y >= -limit)
        square = tl.where(bent, square, 0.0)
    tl.store(along + tl.program_id(0) * stride + j, tl.sum(tl.where(inside, square, 0.0), axis=0))


@triton.jit
def compare(
    parts,
    M,
    M_before,
    M_next,
    beta,
    Y,
    weights,
    along,
    N,
    n,
    high_parts,
    size,
    high,
    stride,
    long,
    delta,
    LOSS: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    EARLY: tl.constexpr,
):
    """What tells whether the step was short enough; new margins in several parts are summed."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    a = tl.load(weights + i, mask=i < N, other=0.0)
    place = M_next + i[:, None]
    m1 = _summed(parts, i, j1, N, n, 1, high_parts, size, SPLITS)
    if SPLITS > 1:
        tl.store(place + j1[None, :].to(tl.int64) * high, m1, mask=(i < N)[:, None] & (j1 < n)[None, :])
    _compare(m1, M, M_before, beta, Y, a, along, i, j1, N, n, high, stride, long, delta, LOSS)
    if P2 > 0:
        m2 = _summed(parts, i, j2, N, n, 1, high_parts, size, SPLITS)
        if SPLITS > 1:
            tl.store(place + j2[None, :].to(tl.int64) * high, m2, mask=(i < N)[:, None] & (j2 < n)[None, :])
        _compare(m2, M, M_before, beta, Y, a, along, i, j2, N, n, high, stride, long, delta, LOSS)


@triton.jit
def judge(
    along,
    W_next,
    W,
    Z,
    l2,
    L,
    constants,
    t_new,
    tau_new,
    t,
    k,
    taken,
    made,
    failed,
    t_next,
    k_next,
    tau_next,
    taken_next,
    d,
    n,
    stride,
    long,
    tiles,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Of one column: whether its step was short enough, and what it goes on with."""
    _begin(EARLY)
    j, b = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(along + b * stride + j, mask=b < tiles, other=0.0))
    for first in range(BLOCK, tiles, BLOCK):
        total += tl.sum(tl.load(along + (first + b) * stride + j, mask=first + b < tiles, other=0.0))
    moved, new, old, over = 0.0 * total, 0.0 * total, 0.0 * total, 0.0 * total
    for first in range(0, d, BLOCK):
        i = first + b
        w = tl.load(W_next + i * n + j, mask=i < d, other=0.0)
        w_old = tl.load(W + i * n + j, mask=i < d, other=0.0)
        z = tl.load(Z + j * long + i, mask=i < d, other=0.0)
        moved += tl.sum((w - z) * (w - z))
        new += tl.sum(w * w)
        old += tl.sum(w_old * w_old)
        over += tl.sum((z - w_old) * (z - w_old))
    moved, length, most = tl.sqrt(moved), tl.load(tau_new + j), tl.load(L + j)
    sizes = tl.sqrt(new) + 3.0 * tl.sqrt(old) + tl.sqrt(over)
    bound = tl.sqrt(total) * tl.load(constants + 2) + tl.load(constants + 3) * sizes
    known = moved > tl.load(constants + 4)
    ratio = bound / tl.where(known, moved, 1.0)
    majoriser = tl.where(known, tl.minimum(ratio * ratio + tl.load(l2 + j), most), most)
    is_made = length * majoriser <= tl.load(constants + 5)
    shorter = tl.minimum(tl.load(constants + 1) * length, tl.load(constants + 6) / majoriser)
    tl.store(made + j, tl.where(is_made, 1, 0).to(tl.int8))
    tl.store(failed + j, tl.where(is_made, 0, 1).to(tl.int8))
    steps = tl.load(k + j)
    tl.store(k_next + j, tl.where(is_made, steps + 1.0, steps))
    tl.store(t_next + j, tl.where(is_made, tl.load(t_new + j), tl.load(t + j)))
    tl.store(tau_next + j, tl.where(is_made, length, tl.maximum(shorter, 1.0 / most)))
    tl.store(taken_next + j, tl.where(is_made, length, tl.load(taken + j)))


@triton.jit
def settle(
    made,
    W_trial,
    W,
    W_before,
    Z_trial,
    Z,
    G_trial,
    G,
    W_next,
    W_before_next,
    Z_next,
    G_next,
    M_next,
    M,
    M_before,
    N,
    d,
    n,
    long,
    high,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Columns whose step was made go on with it; others stay, and take their margins back. The first programs have some
    rows of W each, the others a block of margins of one column."""
    _begin(EARLY)
    tiles = tl.cdiv(d, ROWS)
    if tl.program_id(0) < tiles:
        i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        goes = tl.load(made + j, mask=j < n, other=1) > 0
        inside, place = (i < d)[:, None] & (j < n)[None, :], i[:, None] * n + j[None, :]
        w = tl.load(W + place, mask=inside, other=0.0)
        new, before = (
            tl.load(W_trial + place, mask=inside, other=0.0),
            tl.load(W_before + place, mask=inside, other=0.0),
        )
        tl.store(W_next + place, tl.where(goes[None, :], new, w), mask=inside)
        tl.store(W_before_next + place, tl.where(goes[None, :], w, before), mask=inside)
        z = tl.load(Z_trial + j[None, :] * long + i[:, None], mask=inside, other=0.0)
        tl.store(Z_next + place, tl.where(goes[None, :], z, tl.load(Z + place, mask=inside, other=0.0)), mask=inside)
        g = tl.load(G_trial + place, mask=inside, other=0.0)
        tl.store(G_next + place, tl.where(goes[None, :], g, tl.load(G + place, mask=inside, other=0.0)), mask=inside)
    else:
        number, blocks = tl.program_id(0) - tiles, tl.cdiv(N, BLOCK)
        column = number // blocks
        if tl.load(made + column) == 0:
            rows = (number % blocks) * BLOCK + tl.arange(0, BLOCK)
            place = column.to(tl.int64) * high + rows
            m, before = tl.load(M + place, mask=rows < N), tl.load(M_before + place, mask=rows < N)
            tl.store(M_next + place, m, mask=rows < N)
            tl.store(M + place, before, mask=rows < N)


@triton.jit
def adjoint(
    X,
    R,
    parts,
    rows,
    d,
    chunk,
    row,
    column,
    long,
    stride,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    EARLY: tl.constexpr,
):
    """The part of X^T R that comes from one chunk of rows."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(2) * (P1 + P2)
    j1, j2 = j + tl.arange(0, P1), j + P1 + tl.arange(0, P2 if P2 > 0 else 1)
    start = tl.program_id(1) * chunk
    stop = tl.minimum(start + chunk, rows)
    g1, g2 = _product(X, R, i, j1, j2, d, start, stop, column, row, long, ROWS, DEPTH, P1, P2)
    base = parts + (tl.program_id(1).to(tl.int64) * d + i[:, None]) * stride
    tl.store(base + j1[None, :], g1, mask=(i < d)[:, None])
    if P2 > 0:
        tl.store(base + j2[None, :], g2, mask=(i < d)[:, None])


@triton.jit
def descend(
    parts,
    Z,
    l1,
    l2,
    tau,
    W_old,
    t,
    mu,
    L,
    G,
    W,
    wide,
    t_next,
    k,
    k_next,
    d,
    n,
    stride,
    long,
    AHEAD: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A few rows of G and of the next W; `wide`, stored as Z is, gets the next W as well or, with AHEAD, the next Z of
    a constant step length, and steps are counted."""
    _begin(EARLY)
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside, place = (i < d)[:, None] & (j < n)[None, :], i[:, None] * n + j[None, :]
    padded = j[None, :] * long + i[:, None]
    z = tl.load(Z + padded, mask=inside, other=0.0)
    g = tl.load(l2 + j, mask=j < n, other=0.0)[None, :] * z
    for s in tl.static_range(SPLITS):
        g += tl.load(parts + (s * d + i[:, None]).to(tl.int64) * stride + j[None, :], mask=inside, other=0.0)
    length = tl.load(tau + j, mask=j < n, other=1.0)
    threshold = (length * tl.load(l1 + j, mask=j < n, other=0.0))[None, :]
    v = z - length[None, :] * g
    w = v - tl.minimum(tl.maximum(v, -threshold), threshold)
    tl.store(G + place, g, mask=inside)
    tl.store(W + place, w, mask=inside)
    if AHEAD:
        new, beta = _constant_momentum(t, mu, L, j, n)
        old = tl.load(W_old + place, mask=inside, other=0.0)
        tl.store(wide + padded, w + beta[None, :] * (w - old), mask=inside)
        if tl.program_id(0) == 0:
            tl.store(t_next + j, new, mask=j < n)
            tl.store(k_next + j, tl.load(k + j, mask=j < n, other=0.0) + 1.0, mask=j < n)
    else:
        tl.store(wide + padded, w, mask=inside)
