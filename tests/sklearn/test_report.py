"""The report of a search: its data against scikit-learn's own fits, its page against hostile data and in a browser."""

import copy
import json
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import suffice
from suffice.sklearn import ElasticNetGLM, SufficeSearchCV
from suffice.sklearn._page import FORMAT
from suffice.sklearn._report_data import ACCURACY, ROUGH, FittedSearch, _reliability
from suffice.sklearn.report import collect, page
from suffice.sklearn.scores import score_of
from suffice.sklearn.survival import KaplanMeier
from tests.browser import Browser, find_chromium
from tests.conftest import examples

FEW = suffice.Options(max_evaluations=12, final_radius=1e-2)
BOTH = {"l1": (1e-4, 1.0), "l2": (1e-4, 1.0)}
HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)> & \"quotes\" %{x} $\\frac"


def regression():
    X, y = make_regression(80, 5, n_informative=3, noise=10.0, random_state=2)
    return X + 0.5, y / 20.0 + 3.0


def classification(classes=2):
    X, y = make_classification(120, 5, n_informative=4, n_redundant=0, n_classes=classes, random_state=1, flip_y=0.2)
    return pd.DataFrame(X, columns=[f"column {k}" for k in range(4)] + [HOSTILE]), np.array(["no", HOSTILE, "b"])[y]


def logistic(**more):
    return LogisticRegression(l1_ratio=0.5, solver="saga", tol=1e-8, max_iter=100_000, **more)


@pytest.fixture(scope="module")
def ridge():
    X, y = regression()
    search = SufficeSearchCV(Ridge(), {"l2": (1e-4, 1e2)}, cv=4, options=FEW).fit(X, y)
    return search, X, y, collect(search, X, y, about={"title": "Ridge", "rows": np.int64(80), "none": float("nan")})


@pytest.fixture(scope="module")
def hostile():
    """Two penalties, a pipeline, names and labels that attack."""
    X, y = classification()
    estimator = make_pipeline(StandardScaler(), logistic())
    search = SufficeSearchCV(estimator, BOTH, cv=3, options=FEW).fit(X, y)
    return search, X, y, json.loads(json.dumps(collect(search, X, y, about={"title": HOSTILE, HOSTILE: [HOSTILE]})))


# --- data ---


def test_data_are_plain(ridge):
    data = ridge[3]
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["format"] == FORMAT and data["about"] == {"title": "Ridge", "rows": 80, "none": None}


def test_evaluations_are_those_of_the_search(ridge):
    search, _, _, data = ridge
    made, shown = search.cv_results_, data["search"]
    assert len(shown["work"]) == len(data["purposes"]) == len(made["work"])
    assert shown["points"] == [[value] for value in made["penalty_l2"]] and shown["work"] == made["work"].tolist()
    assert shown["low"] == (-made["test_score_high"]).tolist() and shown["high"] == (-made["test_score_low"]).tolist()
    assert shown["asked"] == [value if np.isfinite(value) else None for value in made["asked_error"].tolist()]
    assert shown["best"] == [search.best_penalties_["l2"]]
    best = shown["points"].index(shown["best"])
    assert data["best"]["interval"] == list(search.score_interval_) == [-shown["high"][best], -shown["low"][best]]


def test_held_out_scores_and_predictions_are_those_of_scikit_learn(ridge):
    search, X, y, data = ridge
    tuned = Ridge(alpha=60 * search.best_penalties_["l2"])  # folds train on 60 of 80 rows
    scoring = "neg_mean_squared_error"
    assert [*data["measures"]["scores"]] == [scoring]
    scores = data["measures"]["scores"][scoring]
    assert scores["tuned"] == pytest.approx(cross_val_score(tuned, X, y, cv=4, scoring=scoring), rel=1e-3)
    assert scores["default"] == pytest.approx(cross_val_score(Ridge(), X, y, cv=4, scoring=scoring), rel=1e-3)
    assert data["measures"]["defaults"] == {"alpha": 1.0} and data["measures"]["same_folds"]
    expected = cross_val_predict(tuned, X, y, cv=4)
    assert data["calibration"]["true"] == pytest.approx(y)
    assert data["calibration"]["predicted"] == pytest.approx(expected, abs=5 * ACCURACY * np.abs(expected).max())


def test_the_regularisation_path_is_as_accurate_as_it_says(ridge):
    search, X, y, data = ridge
    found = data["regularisation"]
    assert found["accuracy"] <= ROUGH and found["coefficients"] == 5
    values = np.array([line["values"] for line in found["lines"]])
    largest = np.linalg.norm(values, axis=0).max()
    for k, multiple in enumerate(found["multiples"]):
        exact = Ridge(alpha=80 * search.best_penalties_["l2"] * multiple, tol=1e-14).fit(X, y).coef_
        assert np.linalg.norm(values[:, k] - exact) <= found["accuracy"] * largest + 1e-12
        assert np.linalg.norm(values[:, k] - exact) <= ROUGH * np.linalg.norm(values[:, k]) + 1e-12
        assert found["nonzero"][k] == 5


def test_a_path_of_one_model_is_told_and_not_drawn(ridge):
    data = copy.deepcopy(ridge[3])
    assert "path" in page(data).split('id="regularisation"')[1].split("</section>")[0]
    found = data["regularisation"]
    for name in ("multiples", "nonzero"):
        found[name] = found[name][:1]
    drawn = page(data).split('id="regularisation"')[1].split("</section>")[0]
    assert "<svg" not in drawn and "would have taken longer than the search" in drawn


def test_models_that_are_all_zero_claim_no_more_than_was_proven():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    search = SufficeSearchCV(Lasso(), {"l1": (1.0, 10.0)}, cv=3, options=FEW).fit(X, y)
    task = FittedSearch(search, X, y)
    held = task.held_out()
    assert not any(one.solution.x.any() for one in held)
    radii = [one.solution.certificate.radius for one in held]
    assert collect(search, X, y, about={})["calibration"]["accuracy"] == max(radii) < 1e-6


def test_coefficients_are_those_of_the_final_model(ridge):
    search, _, _, data = ridge
    found = data["coefficients"]
    by_name = dict(zip(found["names"], found["values"][0], strict=True))
    assert by_name == dict(zip([f"x{k}" for k in range(5)], search.best_estimator_.coef_.tolist(), strict=True))
    assert np.all(np.diff(np.abs(found["values"][0])) <= 0.0)
    assert found["intercepts"] == [search.best_estimator_.intercept_]


def test_names_come_through_a_pipeline(hostile):
    assert set(hostile[3]["coefficients"]["names"]) <= set(hostile[1].columns)
    assert HOSTILE in {line["name"] for line in hostile[3]["regularisation"]["lines"]}


def test_reliability_bins_hold_all_rows_and_their_shares():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=1000)
    hit = rng.uniform(size=1000) < p
    curve = _reliability(p, hit, "yes")
    assert sum(curve["count"]) == 1000 and len(curve["count"]) == 10
    assert np.dot(curve["observed"], curve["count"]) == pytest.approx(hit.sum())
    assert np.dot(curve["predicted"], curve["count"]) == pytest.approx(p.sum())
    low, share, high = (np.array(curve[key]) for key in ("low", "observed", "high"))
    assert (low <= share).all() and (share <= high).all() and (high - low < 0.2).all()
    assert np.mean((low <= curve["predicted"]) & (curve["predicted"] <= high)) >= 0.7  # calibrated, at 90 %


@pytest.mark.parametrize(("hits", "low", "high"), [(0, 0.0, 0.5 ** (np.log(20) / np.log(2) / 5)), (5, None, 1.0)])
def test_intervals_of_a_share_at_its_ends(hits, low, high):
    curve = _reliability(np.full(5, 0.5), np.arange(5) < hits, "")
    assert low is None or curve["low"] == [low]
    assert curve["high"] == [1.0] if hits == 5 else curve["high"][0] == pytest.approx(1.0 - 0.05**0.2)


@pytest.mark.parametrize("scoring", ["neg_brier_score", "neg_log_loss"])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_probabilities_are_those_of_scikit_learn(scoring, classes):
    X, _ = classification(classes)
    y = make_classification(120, 5, n_informative=4, n_redundant=0, n_classes=classes, random_state=1, flip_y=0.2)[1]
    estimator = LogisticRegression(C=0.3).fit(X, y)
    weight = np.linspace(0.1, 2.0, 120)
    expected = get_scorer(scoring)(estimator, X, y, sample_weight=weight)
    assert score_of(scoring).scorer(estimator, X, y, sample_weight=weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_calibration_has_a_curve_per_class(classes):
    X, y = classification(classes)
    search = SufficeSearchCV(logistic(), {"l2": (1e-4, 1.0)}, cv=StratifiedKFold(3), options=FEW, refit=False)
    data = collect(search.fit(X, y), X, y, about={})
    curves = data["calibration"]["curves"]
    assert [curve["label"] for curve in curves] == (
        [str(search.classes_[1])] if classes == 2 else list(search.classes_)
    )
    assert all(sum(curve["count"]) == 120 for curve in curves)
    assert data["coefficients"]["source"] == "suffice"
    assert np.shape(data["coefficients"]["values"])[0] == (1 if classes == 2 else 3)


def test_a_model_without_probabilities_shows_its_margins():
    X, y = classification()
    search = SufficeSearchCV(LinearSVC(dual=False, tol=1e-10), {"l2": (1e-4, 1.0)}, cv=3, options=FEW).fit(X, y)
    data = collect(search, X, y, about={})
    (curve,) = data["calibration"]["curves"]
    assert data["calibration"]["kind"] == "margins" and sum(curve["count"]) == 120 and curve["predicted"][0] < 0.0
    assert curve["label"] == str(search.classes_[1]) and curve["observed"][-1] > curve["observed"][0]
    assert [*data["measures"]["scores"]] == ["neg_squared_hinge"] and data["measures"]["same_folds"]


@pytest.fixture(scope="module")
def survival():
    """Times whose risk is known: a search of them, the data, and its report."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 3))
    y = rng.exponential(np.exp(-X[:, 0])) * np.where(rng.random(240) < 0.3, -1.0, 1.0)
    search = SufficeSearchCV(ElasticNetGLM(family="cox"), {"l2": (1e-3, 1.0)}, cv=3, options=FEW).fit(X, y)
    return search, X, y, collect(search, X, y, about={})


def test_a_report_of_survival_tells_its_concordance_and_compares_no_times_with_risks(survival):
    search, X, y, data = survival
    tuned = data["measures"]["tuned"]["concordance"]
    assert tuned == search.held_out_.measured()["concordance"] > 0.6
    assert data["measures"]["folds"]["measure"] == "concordance" and len(data["measures"]["folds"]["tuned"]) == 3
    made = page(data)
    assert f"{tuned:.3f}" in made and "whose event comes first" in made
    assert "squared error" not in made and "too large" not in made and "scikit-learn's default" not in made
    pytest.importorskip("matplotlib")
    assert search.plot_calibration(X, y).get_xlabel().startswith("predicted survival at")


def test_groups_of_predicted_risk_are_told_by_kaplan_and_meier(survival):
    search, _, y, data = survival
    found = data["calibration"]
    assert found["horizon"] == np.median(y[y > 0]) and found["events"] == (y > 0).sum() and found["samples"] == 240
    groups = found["groups"]
    assert [group["rows"] for group in groups] == [80, 80, 80]
    assert sum(group["events"] for group in groups) == found["events"]
    assert [group["at_risk"][0] for group in groups] == [80, 80, 80]
    middle = np.searchsorted(found["times"], found["horizon"])
    low, between, high = (group["observed"][middle] for group in groups)
    assert low > between > high  # the risk is known, and the model has found it
    whole = KaplanMeier.of(search.held_out_.y)
    assert np.mean([low, between, high]) == pytest.approx(float(whole.at(found["times"][middle])), abs=0.05)
    made = page(data)
    assert "Rows at risk" in made and "lowest third of risk (" in made and "Calibration" in made


def test_survival_at_the_horizon_is_held_against_what_was_predicted(survival):
    _, _, _, data = survival
    bins = data["calibration"]["bins"]
    predicted, observed, low, high = (np.array([one[name] for one in bins]) for name in
                                      ("predicted", "observed", "low", "high"))  # fmt: skip
    assert len(bins) >= 5 and sum(one["rows"] for one in bins) == 240 and (np.diff(predicted) < 0.0).all()
    assert (low <= observed).all() and (observed <= high).all()
    assert np.mean((low <= predicted) & (predicted <= high)) >= 0.7  # hazards are proportional here


def test_hazard_ratios_are_told_with_what_is_proven_of_them(survival):
    search, _, _, data = survival
    made = page(data)
    assert "Hazard ratio" in made and "Exact one is" in made
    (row,) = (row for row in made.split("<tr>") if row.startswith("<td>x0</td>"))
    ratio, per_deviation = np.exp([data["table"]["rows"][name][0] for name in ("coef", "coef_standardised")])
    assert data["table"]["rows"]["name"][0] == "x0" and ratio == pytest.approx(np.exp(search.coef_[0])) and ratio > 1.5
    assert f">{ratio:.4g}</td>" in row and f">{per_deviation:.4g}</td>" in row and "positive" in row


def test_other_models_have_no_hazard_ratios(ridge):
    assert "azard ratio" not in page(ridge[3])


def test_intervals_of_survival_are_not_told_of_weights(survival):
    search, X, y, _ = survival
    weight = np.linspace(0.0, 2.0, 240)
    again = clone(search).fit(X, y, sample_weight=weight)
    bins = collect(again, X, y, about={}, sample_weight=weight)["calibration"]["bins"]
    assert all(one["low"] is None for one in bins) and sum(one["rows"] for one in bins) == 239


def test_a_score_that_is_not_smooth_is_compared_as_well():
    X, y = classification()
    search = SufficeSearchCV(logistic(), {"l2": (1e-4, 1.0)}, cv=3, options=FEW, scoring="accuracy")
    with pytest.warns(UserWarning, match="not a smooth score"):
        search.fit(X, y)
    data = collect(search, X, y, about={})
    scores = data["measures"]["scores"]
    assert [*scores] == ["neg_log_loss", "accuracy"]
    assert data["asked_scoring"] == "accuracy"
    assert np.mean(scores["accuracy"]["tuned"]) == pytest.approx(search.best_score_)
    default = clone(search.estimator).set_params(C=1.0, random_state=0)
    assert scores["accuracy"]["default"] == pytest.approx(cross_val_score(default, X, y, cv=3))


def test_weights_count():
    X, y = regression()
    weight = np.linspace(0.1, 2.0, 80)
    search = SufficeSearchCV(Ridge(), {"l2": (1e-4, 1e2)}, cv=4, options=FEW).fit(X, y, sample_weight=weight)
    assert collect(search, X, y, about={}, sample_weight=weight)["measures"]["same_folds"]
    assert not collect(search, X, y, about={})["measures"]["same_folds"]


def test_folds_that_cannot_be_made_again_are_told():
    X, y = regression()
    search = SufficeSearchCV(Ridge(), {"l2": (1e-4, 1e2)}, cv=KFold(8, shuffle=True), options=FEW).fit(X, y)
    task = FittedSearch(search, X, y)
    assert task.splits is task.splits  # tuned and default models see the same ones
    data = collect(search, X, y, about={})
    assert not data["measures"]["same_folds"]
    assert "These folds are not those of the search" in page(data)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda X, y: {"X": X[:, :3]}, ValueError, "5 columns"),
        (lambda X, y: {"y": None}, ValueError, "y must be"),
        (lambda X, y: {"about": {"code": print}}, TypeError, "about"),
        (lambda X, y: {"sample_weight": [1.0]}, ValueError, "sample_weight"),
        (lambda X, y: {"search": SufficeSearchCV(Ridge())}, NotFittedError, "not fitted"),
    ],
)
def test_what_cannot_be_collected_is_refused(ridge, change, error, match):
    search, X, y, _ = ridge
    given = {"search": search, "X": X, "y": y, "about": {}} | change(X, y)
    with pytest.raises(error, match=match):
        collect(given.pop("search"), given.pop("X"), given.pop("y"), **given)


# --- methods of the search ---


def test_a_search_draws_itself(ridge, hostile):
    pytest.importorskip("matplotlib")
    for search, X, y, _ in (ridge, hostile):
        drawn = (
            search.plot_path(),
            search.plot_regularisation_path(X, y),
            search.plot_calibration(X, y),
            search.plot_coefficients(),
        )
        for axes in drawn:
            axes.figure.canvas.draw()
            assert axes.get_xlabel()
    bars = sorted(patch.get_width() for patch in ridge[0].plot_coefficients().patches)
    assert bars == pytest.approx(sorted(ridge[0].best_estimator_.coef_))


def test_the_page_says_what_is_proven_of_coefficients_and_shows_all_of_them():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 20)) * 100.0
    y = X[:, 0] - 0.5 * X[:, 1] + rng.standard_normal(80)
    search = SufficeSearchCV(make_pipeline(StandardScaler(), Lasso()), cv=3, options=FEW).fit(X, y)
    data = collect(search, X, y, about={})
    text, table = page(data), search.coefficients()
    order = np.argsort(-table["coef_standardised"].abs(), kind="stable")
    assert data["table"]["rows"]["name"] == table["name"].iloc[order].tolist() and data["table"]["count"] == 20
    zeros = int((table["proven"] == "zero").sum())
    assert zeros > 0 and f"{zeros} are proven to be zero" in text and "<summary>All 20</summary>" in text
    assert f'<td>x0</td><td class="n">{table["coef"][0]:.4g}</td>' in text
    assert "Standard error" not in text  # there is an l1


def test_standard_errors_are_on_the_page_where_there_are_any(ridge):
    assert "Standard error" in page(ridge[3]) and "pulls towards zero" in page(ridge[3])


def test_a_search_without_a_model_has_no_coefficients_to_draw():
    X, y = regression()
    search = SufficeSearchCV(Ridge(), {"l2": (1e-4, 1e2)}, cv=4, options=FEW, refit=False).fit(X, y)
    with pytest.raises(AttributeError, match="refit=False"):
        search.plot_coefficients()


# --- the page ---


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.handlers, self.words = [], [], [], []
        self.inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.inside = tag
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value for name, value in attributes if name in ("src", "href", "action", "data")]

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside not in ("script", "style"):
            self.words.append(text)


@pytest.fixture(scope="module")
def text(hostile):
    return page(hostile[3])


def test_hostile_names_stay_words(text):
    parsed = Parsed(text)
    assert parsed.tags.count("script") == 1
    assert not parsed.handlers and not parsed.links
    assert HOSTILE in "".join(parsed.words)
    assert "alert('x')</script><img" not in text


def test_a_page_is_small_and_takes_no_library_of_figures(text, tmp_path):
    assert len(text.encode()) < 500_000
    code = "import sys, suffice.sklearn.report; print(*{'plotly', 'matplotlib', 'PIL'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_the_page_says_what_was_found(ridge):
    search, _, _, data = ridge
    words = " ".join("".join(Parsed(page(data)).words).split())
    assert f"alpha = {search.best_params_['alpha']:.4g}" in words
    assert f"{search.best_score_:.5g}" in words
    assert f"{len(data['purposes'])} evaluations" in words and "Ridge" in words


@pytest.mark.parametrize("nonsense", [None, [], 3, "text", {}, {"format": "suffice report 1"}, {"format": FORMAT}])
def test_what_is_no_report_is_refused(nonsense):
    with pytest.raises(ValueError, match=r"collect"):
        page(nonsense)


PLAIN = st.sampled_from([HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}, None, True, -1, 0, 1e305, float("nan"), [], {}, ""])


@settings(examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_change_is_drawn_or_refused_and_never_becomes_markup(ridge, hostile, choices):
    data = copy.deepcopy(choices.draw(st.sampled_from([ridge[3], hostile[3]])))
    place, key = data, choices.draw(st.sampled_from(sorted(data)))
    while isinstance(place[key], list | dict) and len(place[key]) and choices.draw(st.booleans()):
        place = place[key]
        key = choices.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = choices.draw(PLAIN)
    try:
        made = page(data)
    except ValueError as error:
        assert len(str(error)) < 1000
    else:
        parsed = Parsed(made)
        assert parsed.tags.count("script") == 1 and "img" not in parsed.tags and not parsed.handlers


# --- in a browser ---

needs_chromium = pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium")


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path) as opened:
        yield opened


def three(data):
    """The same with a third parameter, which no estimator has yet."""
    data = copy.deepcopy(data)
    shown = data["search"]
    shown["names"], shown["logarithmic"] = [*shown["names"], "l3"], [True] * 3
    for k, point in enumerate([*shown["points"], *shown["paths"][0], shown["best"]]):
        point.append(1.0 + 0.1 * k)
    return data


@needs_chromium
@pytest.mark.parametrize(
    ("width", "parameters"), [(390, 2), *(pytest.param(1280, count, marks=pytest.mark.slow) for count in (1, 3))]
)
def test_every_section_opens_and_nothing_complains(ridge, hostile, browser, tmp_path, width, parameters):
    data = {1: ridge[3], 2: hostile[3], 3: three(hostile[3])}[parameters]
    (tmp_path / "report.html").write_text(page(data), encoding="utf-8")
    browser.resize(width, 900)
    browser.open(tmp_path / "report.html")
    tabs = browser.run("[...document.querySelectorAll('[role=tab]')].map(tab => tab.getAttribute('aria-controls'))")
    assert len(tabs) == 9
    drawn = 0
    for key in tabs:
        browser.run(f"document.getElementById('tab-{key}').click()")
        browser.settle()
        shown = browser.run("[...document.querySelectorAll('section')].filter(s => s.offsetHeight).map(s => s.id)")
        assert shown == [key]
        figures = browser.run(
            f"[...document.querySelectorAll('#{key} svg.chart')].filter(f => f.clientWidth)"
            ".map(f => [f.parentElement.clientWidth, f.clientWidth, f.querySelectorAll('path').length])"
        )
        for room, used, marks in figures:
            assert 300 <= used <= room and marks > 1
        outside = f"""[...document.querySelectorAll('#{key} svg.chart')].filter(f => f.clientWidth).flatMap(f =>
            [...f.querySelectorAll('text')].map(t => [t.getBoundingClientRect(), f.getBoundingClientRect(), t])
            .filter(([t, f]) => t.left < f.left - 1 || t.right > f.right + 1 || t.bottom > f.bottom + 1)
            .map(([t, f, text]) => text.textContent))"""
        assert browser.run(outside) == []
        drawn += len(figures)
    assert drawn == 9
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.problems == []


@needs_chromium
def test_survival_is_drawn_on_a_phone(survival, browser, tmp_path):
    """Kaplan and Meier's curves of three groups, and calibration with its intervals."""
    (tmp_path / "report.html").write_text(page(survival[3]), encoding="utf-8")
    browser.resize(390, 900)
    browser.open(tmp_path / "report.html")
    browser.run("document.getElementById('tab-calibration').click()")
    browser.settle()
    drawn = browser.run(
        "[...document.querySelectorAll('#calibration svg.chart')].filter(f => f.clientWidth)"
        ".map(f => f.querySelectorAll('path').length)"
    )
    assert len(drawn) == 2 and min(drawn) > 2
    assert browser.run("document.documentElement.scrollWidth") <= 390 and browser.problems == []


@needs_chromium
def test_the_chosen_tab_is_in_view_on_a_phone(text, browser, tmp_path):
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    browser.resize(390, 800)
    browser.open(tmp_path / "report.html")
    for key in ("evaluations", "about", "model"):
        browser.run(f"document.getElementById('tab-{key}').click()")
        left, right = browser.run(
            f"(b => [b.left, b.right])(document.getElementById('tab-{key}').getBoundingClientRect())"
        )
        assert 0 <= left < right <= 390
    assert browser.run("getComputedStyle(document.querySelector('.tabs')).overflowY") == "hidden"


@needs_chromium
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_the_page_and_its_figures_are_as_dark_as_the_reader_likes(text, browser, tmp_path, scheme):
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    browser.scheme(scheme)
    browser.open(tmp_path / "report.html")
    browser.run("document.getElementById('tab-coefficients').click()")
    browser.settle()

    def brightness(selector, style):
        colour = browser.run(f"getComputedStyle(document.querySelector('{selector}')).{style}")
        return sum(map(float, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 3

    ink, paper = brightness("section.on h2", "color"), brightness("section.on", "backgroundColor")
    words = brightness("section.on .wide text", "fill")
    assert (ink < 80 < 200 < paper) if scheme == "light" else (paper < 80 < 200 < ink)
    assert abs(words - ink) < 60


def test_the_first_screen_answers_in_the_targets_own_units(ridge):
    data = ridge[3]
    told = {**data, "about": {"target": "speed", "units of coefficients": "per mile", "load and predict": "load()"}}
    made = page(told).split("<body>")[1]
    first = made.split('role="tablist"')[0] + made.split('id="model"')[1].split("<section")[0]
    rmse = data["measures"]["tuned"]["rmse"]
    assert rmse == pytest.approx(
        np.sqrt(-np.mean(data["measures"]["scores"]["neg_mean_squared_error"]["tuned"])), rel=0.05
    )
    for part in (f"{rmse:.4g}", "in units of speed", "always guessing the mean", "scikit-learn", "per mile", "load()"):
        assert part in first
    for part in ("neg_mean_squared_error", "lower-level steps", "trust radius"):
        assert part not in first


def test_a_model_that_is_no_better_than_the_baseline_is_called_so(ridge):
    data = copy.deepcopy(ridge[3])
    assert "no better than the baseline" not in page(data)
    data["measures"] |= {"better_than_baseline": False, "gain": 0.001}
    assert "no better than the baseline" in page(data)


@pytest.mark.parametrize("ends", [[None, 1.0], [None, None]])
def test_a_score_without_a_proof_is_told_as_one(ridge, ends):
    data = copy.deepcopy(ridge[3])
    data["best"]["interval"] = ends
    made = page(data)
    assert "no time to prove anything" in made and "[-inf, " in made and "nan" not in made


@needs_chromium
def test_on_paper_all_sections_are_there_with_their_pictures(text, browser, tmp_path):
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    browser.open(tmp_path / "report.html")
    browser.medium("print")
    browser.settle()
    assert browser.run("[...document.querySelectorAll('section')].every(s => s.offsetHeight > 0)")
    assert browser.run("[...document.querySelectorAll('.wide')].every(f => f.offsetWidth > 300 && f.offsetHeight)")
    assert browser.run("[...document.querySelectorAll('.narrow')].every(f => f.offsetHeight === 0)")
    browser.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


@needs_chromium
@pytest.mark.parametrize(
    "script", ["console.error('x')", "undefined_name()", "fetch('http://127.0.0.1:9/')", "document.body.append(y)"]
)
def test_the_browser_would_tell(browser, tmp_path, script):
    (tmp_path / "page.html").write_text(f"<!doctype html><body><script>{script}</script>")
    browser.open(tmp_path / "page.html")
    browser.settle()
    assert browser.problems
