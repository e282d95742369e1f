"""Survival curves of Cox's model against their definitions, and what became of rows by Kaplan and Meier."""

import math

import numpy as np
import pytest
from flint import arb
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import suffice
from suffice.datasets import load_rossi
from suffice.options import Options
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn.measures import concordance
from suffice.sklearn.survival import KaplanMeier, survival_function
from tests.reference_cox import Cox
from tests.reference_exact import Kinked, enclose

FEW = Options(max_evaluations=4)


def rows(n=60, seed=0):
    """X with features, an offset, strata and entries; tied times, negative where censored; weights."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 3)) * [1.0, 5.0, 0.2] + [0.0, 100.0, -3.0]
    time = np.ceil(8.0 * rng.exponential(np.exp(-0.5 * features[:, 0])))
    y = np.where(rng.random(n) < 0.7, time, -time)
    entry = np.where(rng.random(n) < 0.4, np.floor(time * rng.random(n) * 0.9), -1.0)
    X = np.column_stack([features, 0.3 * rng.standard_normal(n), rng.integers(0, 2, n), entry])
    return X, y, rng.integers(1, 4, n).astype(float)


KINDS = {
    "": {},
    "offset": {"offset": 3},
    "strata": {"strata": 4},
    "entry": {"entry": 5},
    "all": {"offset": 3, "strata": 4, "entry": 5},
}


def by_definition(model, X, y, weight, row, until):
    """-log curves(until) of a row: a sum over events of its stratum, each over the rows at risk."""
    names = {name: getattr(model, name) for name in ("offset", "strata", "entry")}
    m = X @ model.coef_ + (0.0 if names["offset"] is None else X[:, names["offset"]])
    strata = np.zeros(len(y)) if names["strata"] is None else X[:, names["strata"]]
    entry = np.full(len(y), -math.inf) if names["entry"] is None else X[:, names["entry"]]
    total = 0.0
    for time in np.unique(y[(y > 0) & (y <= until)]):
        at_risk = (strata == strata[row]) & (np.abs(y) >= time) & (entry < time)
        dead = at_risk & (y == time)
        hazard, tied = float(weight[at_risk] @ np.exp(m[at_risk])), float(weight[dead] @ np.exp(m[dead]))
        for k in range(dead.sum()):
            less = k / dead.sum() if model.ties == "efron" else 0.0
            total += weight[dead].mean() / (hazard - less * tied)
    return total * math.exp(m[row])


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_cumulative_hazards_are_sums_over_events(kind, ties, weighted):
    X, y, weight = rows()
    weight = weight if weighted else np.ones(len(y))
    features = X if kind == "all" else np.column_stack([X[:, :3], X[:, 3:] * 0.0])
    features[:, list(KINDS[kind].values())] = X[:, list(KINDS[kind].values())]
    model = ElasticNetGLM("cox", l1=0.01, l2=0.01, ties=ties, **KINDS[kind]).fit(features, y, weight)
    times = np.array([0.0, 3.0, 7.5, 12.0])
    found = model.predict_cumulative_hazard_function(features[:5], times)
    expected = [[by_definition(model, features, y, weight, row, until) for until in times] for row in range(5)]
    assert found == pytest.approx(np.array(expected), rel=1e-9)
    assert model.predict_survival_function(features[:5], times) == pytest.approx(np.exp(-found), rel=1e-12)


def test_curves_fall_from_one_and_end_with_the_last_row_that_was_watched():
    data = load_rossi()
    model = ElasticNetGLM("cox").fit(data.X, data.y)
    curves = model.predict_survival_function(data.X)
    assert curves.shape == (len(data.y), len(np.unique(model.baseline_times_))) and model.baseline_times_[-1] == 52.0
    assert ((curves > 0.0) & (curves < 1.0)).all() and (np.diff(curves, axis=1) <= 0.0).all()
    early, late = model.predict_survival_function(data.X[:3], [0.0, 52.1]).T
    assert (early == 1.0).all() and np.isnan(late).all()


def test_curves_do_not_depend_on_where_columns_have_their_zero():
    X, y, _ = rows()
    far = X[:, :3] * [1.0, 1.0, 1.0] + [1e4, 0.0, -1e4]
    near, away = (ElasticNetGLM("cox", l1=0.0, l2=1.0).fit(one, y) for one in (X[:, :3], far))
    assert np.abs(away.coef_ @ [1e4, 0.0, -1e4]) > 700.0  # beyond what exp can hold
    times = [1.0, 5.0, 10.0]
    curves = away.predict_survival_function(far, times)
    assert curves == pytest.approx(near.predict_survival_function(X[:, :3], times), abs=1e-6)


def test_a_model_without_coefficients_has_the_curve_of_nelson_and_aalen():
    _, y, _ = rows()
    model = ElasticNetGLM("cox", l1=10.0, l2=1.0, ties="breslow").fit(rows()[0][:, :3], y)
    assert not model.coef_.any()
    times = np.unique(y[y > 0])
    aalen = np.cumsum([(y == time).sum() / (np.abs(y) >= time).sum() for time in times])
    assert model.predict_cumulative_hazard_function(rows()[0][:1, :3], times)[0] == pytest.approx(aalen, rel=1e-12)


def test_a_stratum_without_events_survives_as_long_as_it_was_watched():
    X, y, _ = rows()
    quiet = X[:, 4] == 1
    model = ElasticNetGLM("cox", strata=4).fit(X, np.where(quiet, -np.abs(y), y))
    row = X[quiet][:1]
    assert model.predict_survival_function(row, [1.0, np.abs(y[quiet]).max()]) == pytest.approx(1.0)
    assert np.isnan(model.predict_survival_function(row, np.abs(y[quiet]).max() + 1.0)).all()


def test_pipelines_and_searches_have_curves():
    data = load_rossi()
    pipeline = make_pipeline(StandardScaler(), ElasticNetGLM("cox"))
    search = SufficeSearchCV(pipeline, {"l2": (1e-3, 1.0)}, cv=3, options=FEW).fit(data.X, data.y)
    curves = search.predict_survival_function(data.X[:4], [10.0, 50.0])
    assert curves == pytest.approx(survival_function(search.best_estimator_, data.X[:4], [10.0, 50.0]), rel=0)
    again = clone(pipeline).set_params(**search.best_params_).fit(data.X, data.y)
    assert curves == pytest.approx(survival_function(again, data.X[:4], [10.0, 50.0]), rel=1e-4)
    assert search.predict_cumulative_hazard_function(data.X[:4], [10.0, 50.0]) == pytest.approx(
        -np.log(curves), rel=1e-9
    )


@pytest.mark.parametrize("times", [[-1.0], [math.nan], ["soon"], [], [[1.0]]])
def test_times_that_are_none_are_refused_by_name(times):
    data = load_rossi()
    with pytest.raises(ValueError, match="times must be"):
        ElasticNetGLM("cox").fit(data.X, data.y).predict_survival_function(data.X, times)


def test_what_has_no_curve_says_so():
    X, y, _ = rows()
    assert not hasattr(ElasticNetGLM("gaussian").fit(X, y), "predict_survival_function")
    assert not hasattr(SufficeSearchCV(ElasticNetGLM("gaussian")), "predict_survival_function")
    with pytest.raises(TypeError, match="family='cox'"):
        survival_function(ElasticNetGLM("gaussian").fit(X, y), X)
    strange = X.copy()
    strange[0, 4] = 7.0
    with pytest.raises(ValueError, match="strata of X must be among those of the training rows, 0, 1, got 7"):
        ElasticNetGLM("cox", strata=4).fit(X, y).predict_survival_function(strange)


# Kaplan and Meier, of rows whose curve is known


def test_kaplan_meier_of_freireich_s_leukaemia():
    """6-MP against a placebo: the curve and its standard errors as Collett (2003) and every textbook print them."""
    y = np.array([6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35.0])
    curve = KaplanMeier.of(y)
    assert curve.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert curve.survival == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)
    errors = curve.survival * np.sqrt(curve.variance)
    assert errors == pytest.approx([0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346], abs=5e-5)
    assert curve.at([0.0, 5.9, 6.0, 35.0]) == pytest.approx([1.0, 1.0, 0.857, 0.448], abs=5e-4)
    assert np.isnan(curve.at(35.1))


def test_kaplan_meier_of_weights_is_that_of_rows_so_many_times_and_late_rows_count_from_their_entry_on():
    X, y, weight = rows()
    often, once = KaplanMeier.of(np.repeat(y, weight.astype(int))), KaplanMeier.of(y, weight)
    assert once.survival == pytest.approx(often.survival, rel=1e-12)
    late = KaplanMeier.of(y, entry=X[:, 5])
    time = np.abs(y)
    factors = [1 - (y == t).sum() / ((X[:, 5] < t) & (time >= t)).sum() for t in late.times]
    assert late.survival == pytest.approx(np.cumprod(factors), rel=1e-12)


def test_intervals_of_kaplan_meier_hold_the_truth_nine_times_out_of_ten():
    rng, held = np.random.default_rng(1), []
    for _ in range(400):
        time, end = rng.exponential(1.0, 40), rng.exponential(2.0, 40)
        low, high = KaplanMeier.of(np.where(time <= end, time, -end)).interval(0.5)
        held.append(low <= math.exp(-0.5) <= high)
    assert 0.86 <= np.mean(held) <= 0.95
    low, high = KaplanMeier.of(-np.ones(10)).interval(0.5)
    assert (low, high) == (0.0, 1.0)  # nothing has happened to anybody


# Concordance: of rows that are at risk together


def test_concordance_counts_pairs_of_a_stratum_that_are_at_risk_together():
    y, risk = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 0.0])
    assert concordance(y, risk) == pytest.approx(4 / 6)
    assert concordance(y, risk, strata=[0, 0, 1, 1]) == pytest.approx(1 / 2)
    assert concordance(y, risk, entry=[0.0, 0.0, 1.5, 0.0]) == pytest.approx(4 / 5)
    data = load_rossi()
    model = ElasticNetGLM("cox", strata=2).fit(data.X, data.y)
    apart = concordance(data.y, model.predict(data.X), strata=data.X[:, 2])
    assert model.score(data.X, data.y) == pytest.approx(apart) != concordance(data.y, model.predict(data.X))


def test_held_out_concordance_compares_no_risks_of_different_models():
    """Every fold's model has a zero of its own: columns far from zero shift its risks as a whole."""
    X, y, _ = rows(90, seed=3)
    near, away = (
        SufficeSearchCV(ElasticNetGLM("cox"), {"l2": (1e-2, 1.0)}, cv=3, options=FEW).fit(X[:, :1] + far, y)
        for far in (0.0, 1e3)
    )
    found = near.held_out_.measured()["concordance"]
    assert away.held_out_.measured()["concordance"] == pytest.approx(found, abs=0.02)
    each = [one["concordance"] for one in away.held_out_.by_fold()]
    assert len(each) == 3 and min(each) <= found <= max(each)


# How exactly Cox models were fitted, theirs and ours


@pytest.mark.parametrize("kind", ["", "strata", "entry"])  # the reference has no offsets
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_certificates_hold_the_distance_to_forty_digits(kind, ties):
    X, y, weight = rows(24)
    columns = {name: X[:, place] for name, place in KINDS[kind].items()}
    features = [k for k in range(6) if k not in KINDS[kind].values()]
    model = ElasticNetGLM("cox", l1=0.02, l2=0.05, ties=ties, **KINDS[kind]).fit(X, y, weight)
    exact = enclose(
        Cox(X[:, features], y, 0.05, efron=ties == "efron", weight=weight, **columns), Kinked.l1([0.02] * len(features))
    )
    best = -model.deviance(X, y, weight)
    for step in (0.0, 1e-9, 1e-4, 0.3):
        model.coef_ = model.coef_ + step * (np.arange(6) == features[0])
        report = suffice.certify(model, X, y, weight)
        away = exact.distance(model.coef_[features])
        assert report.told and arb(report.at_least) <= away + arb("1e-20") and away <= arb(report.radius)
        assert report.at_least > 0.5 * step or step < 1e-4
    assert "off, at the least" in report.message
    assert report.scoring == "neg_partial_likelihood" and report.score == pytest.approx(-model.deviance(X, y, weight))
    low, high = report.score_interval  # of the exact model, which this one was
    assert low - 1e-8 <= best <= high + 1e-8 and high - low < 1e-6


def test_an_offset_is_part_of_what_is_certified():
    X, y, weight = rows()
    model = ElasticNetGLM("cox", l1=0.02, l2=0.05, offset=3).fit(X[:, :4], y, weight)
    report = suffice.certify(model, X[:, :4], y, weight)
    assert report.relative < 1e-6 and report.score == pytest.approx(-model.deviance(X[:, :4], y, weight), rel=1e-12)
    other = X[:, :4] + np.array([0.0, 0.0, 0.0, 1.0]) * X[:, :1]
    assert suffice.certify(model, other, y, weight).at_least > 0.1


@pytest.mark.parametrize(
    ("l2", "positive", "message"), [(0.0, False, "without an l2 penalty"), (0.1, True, "positive")]
)
def test_what_cannot_be_certified_of_survival_is_refused(l2, positive, message):
    data = load_rossi()
    model = ElasticNetGLM("cox", l1=0.01, l2=l2, positive=positive).fit(data.X, data.y)
    report = suffice.certify(model, data.X, data.y)
    assert not report.told and message in report.message


def of_sksurv(name, **known):
    """A fitted model of this class, as if the package were there."""
    arguments = {
        "CoxPHSurvivalAnalysis": "alpha=0, *, ties='breslow', n_iter=100, tol=1e-9, verbose=0",
        "CoxnetSurvivalAnalysis": "*, n_alphas=100, alphas=None, alpha_min_ratio='auto', l1_ratio=0.5, "
        "penalty_factor=None, normalize=False, copy_X=True, tol=1e-7, max_iter=100000, verbose=False, "
        "fit_baseline_model=False",
    }[name]
    space: dict = {}
    exec(f"def __init__(self, {arguments}): vars(self).update(locals())", space)
    fit = lambda self, X, y: self  # noqa: E731
    kind = type(
        name, (BaseEstimator,), {"__init__": space["__init__"], "fit": fit, "__module__": "sksurv.linear_model"}
    )
    made = kind(**{key: value for key, value in known.items() if not key.endswith("_")})
    vars(made).update({key: value for key, value in known.items() if key.endswith("_")})
    return made


STRUCTURED = [("event", bool), ("time", float)]


def test_models_of_scikit_survival_are_certified_by_name():
    data = load_rossi()
    n, y = len(data.y), np.array(list(zip(data.y > 0, np.abs(data.y), strict=True)), dtype=STRUCTURED)
    for ties in ("breslow", "efron"):
        coef = ElasticNetGLM("cox", l1=0.0, l2=5.0 / n, ties=ties).fit(data.X, data.y).coef_
        theirs = of_sksurv("CoxPHSurvivalAnalysis", alpha=5.0, ties=ties, coef_=coef)
        assert suffice.certify(theirs, data.X, y).relative < 1e-6
        assert suffice.certify(theirs.set_params(alpha=6.0), data.X, y).at_least > 1e-3
    factors = np.linspace(0.5, 1.5, 7)
    both = {"l1": 0.02 * 0.6, "l2": 0.02 * 0.4, "penalty_factors": factors, "ties": "breslow"}
    coef = ElasticNetGLM("cox", **both).fit(data.X, data.y).coef_
    fitted = {"alphas_": np.array([0.02]), "penalty_factor_": factors, "coef_": coef[:, None]}
    theirs = of_sksurv("CoxnetSurvivalAnalysis", alphas=[0.02], l1_ratio=0.6, fit_baseline_model=True, **fitted)
    assert suffice.certify(theirs, data.X, y).relative < 1e-6
    path = {**fitted, "alphas_": np.array([0.03, 0.02]), "coef_": np.column_stack([coef, coef])}
    assert (
        "fit it with one, alphas=[0.1]"
        in suffice.certify(of_sksurv("CoxnetSurvivalAnalysis", **path), data.X, y).message
    )
    for argument in ({"normalize": True}, {"strange": 1}):
        theirs = of_sksurv("CoxnetSurvivalAnalysis", **fitted)
        vars(theirs).update(argument)
        assert suffice.certify(theirs, data.X, y).told == ("strange" in argument)


def test_scikit_survival_itself():
    linear = pytest.importorskip("sksurv.linear_model")
    data = load_rossi()
    X, y = (
        StandardScaler().fit_transform(data.X),
        np.array(list(zip(data.y > 0, np.abs(data.y), strict=True)), dtype=STRUCTURED),
    )
    tight = {"tol": 1e-12}
    for model in (
        linear.CoxPHSurvivalAnalysis(alpha=5.0, ties="efron", **tight),
        linear.CoxPHSurvivalAnalysis(alpha=np.arange(1.0, 8.0), **tight),
        linear.CoxnetSurvivalAnalysis(alphas=[0.02], l1_ratio=0.9, penalty_factor=np.arange(1.0, 8.0), **tight),
    ):
        assert suffice.certify(model.fit(X, y), X, y).relative < 1e-6
    ridge = linear.CoxPHSurvivalAnalysis(alpha=5.0, **tight).fit(X, y)
    ours = ElasticNetGLM("cox", l1=0.0, l2=5.0 / len(y), ties="breslow").fit(X, data.y)
    times = ridge.unique_times_
    expected = ridge.predict_survival_function(X, return_array=True)
    assert ours.predict_survival_function(X, times) == pytest.approx(expected, rel=1e-7)
