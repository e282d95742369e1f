"""What a search tells while it runs: its callback, and verbose."""

import pytest
from sklearn.datasets import make_regression
from sklearn.linear_model import ElasticNet, Ridge

import suffice
from suffice.sklearn import SufficeSearchCV

FEW = suffice.Options(max_evaluations=6, final_radius=1e-2)
X, y = make_regression(60, 5, n_informative=3, noise=10.0, random_state=2)


def test_every_record_of_several_starts_has_its_number_and_its_evaluation():
    from sklearn.datasets import load_diabetes

    records = []
    A, b = load_diabetes(return_X_y=True)
    A = A / A.std(axis=0)
    search = SufficeSearchCV(ElasticNet(), {"l1": (1e-6, 1e2), "l2": (1e-6, 1e2)}, cv=5, callback=records.append)
    search.fit(A[:, [0, 1, 2, 3, 8]], b)
    assert [record.number for record in records] == list(range(1, len(search.cv_results_["work"]) + 1))
    for record, score in zip(records, search.cv_results_["mean_test_score"], strict=True):
        assert record.cost == pytest.approx(-score, rel=1e-12)
    assert records[-1].total_work == search.cv_results_["work"].sum()


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_verbose_tells_more_and_more(level, capsys):
    search = SufficeSearchCV(Ridge(), cv=3, options=FEW, verbose=level).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    count = len(search.cv_results_["work"])
    assert len(lines) == [0, 2, 2 + count, 2 + 2 * count][level]
    if level:
        assert lines[0] == "[SufficeSearchCV] l2 by 3 folds"
        assert lines[-1].startswith(f"[SufficeSearchCV] {count} evaluations, score {search.best_score_:.4g}")
