"""Where a search has ended, the edges near by and the surroundings are looked at, within the budgets."""

from itertools import product

import numpy as np
import pytest

import suffice
from suffice.result import Status
from suffice.search.edges import FEW, GAIN, edges, search_with_edges
from suffice.search.looks import sides

LOWER, UPPER = np.zeros(2), np.ones(2)


def run(residuals, start, **options):
    """The search of exact residuals on the unit square, continued from the edges; and all thetas looked at there."""
    objective, looks = suffice.exact(residuals), []

    def search(starts, options):
        return suffice.tune(objective, starts[0], bounds=(LOWER, UPPER), options=options)

    def look(theta, within, warm):
        looks.append(theta)
        return objective.evaluate(theta, within=within, warm=warm)

    options = suffice.Options(**{"final_radius": 1e-3, **options})
    result = search_with_edges(search, look, (LOWER, UPPER), [np.asarray(start)], options)
    return result, looks, search([np.asarray(start)], options)


def two_valleys(corner):
    """A valley with F = 1 near a corner, and a narrow one with F = 0.5 in it: nothing but a look there tells."""
    corner = np.asarray(corner, dtype=float)
    middle = 0.7 * corner + 0.3 * (1.0 - corner)

    def residuals(theta):
        shallow = 1.0 + 4.0 * np.sum((theta - middle) ** 2)
        narrow = 0.5 + 40.0 * np.sum((theta - corner) ** 2)
        return np.array([np.sqrt(min(shallow, narrow))])

    return residuals, middle


@pytest.mark.parametrize("corner", list(product((0, 1), repeat=2)))
def test_the_best_point_is_found_in_each_corner(corner):
    residuals, middle = two_valleys(corner)
    result, _, alone = run(residuals, middle)
    assert alone.cost == pytest.approx(1.0, rel=1e-3) and alone.success  # the local search ends beside it
    assert result.theta.tolist() == list(map(float, corner)) and result.cost == pytest.approx(0.5)
    assert result.success and [part.cost < 0.6 for part in result.starts] == [False, True]


def test_where_nothing_is_better_the_result_is_that_of_the_search():
    result, looks, alone = run(lambda theta: theta - 0.25 + 1.0, [0.6, 0.6])
    assert result.theta.tolist() == alone.theta.tolist() and result.starts == ()
    result, looks, alone = run(lambda theta: np.array([1.0, *(theta - 0.2)]), [0.5, 0.5])
    assert looks and result.theta.tolist() == alone.theta.tolist() and result.history == alone.history


def test_a_look_that_is_better_by_little_becomes_the_result_without_another_search():
    def residuals(theta):
        dent = 0.2 * GAIN if theta[0] == 0.0 else 0.0
        return np.array([1.0 - dent, *(theta - [0.2, 0.5])]) if not dent else np.array([1.0 - dent, 0.0, 0.0])

    result, _, alone = run(residuals, [0.3, 0.5])
    assert result.theta[0] == 0.0 < alone.theta[0] and result.cost < alone.cost
    assert result.starts == () and result.evaluations == alone.evaluations


@pytest.mark.parametrize("budget", [1, 5, 12, 14, 15, 18, 25, 30, 100])
def test_looks_and_further_searches_count_towards_the_budget_of_evaluations(budget):
    residuals, middle = two_valleys((0, 1))
    result, looks, alone = run(residuals, middle, max_evaluations=budget)
    made = len(looks) + sum(part.evaluations for part in result.starts or (result,))
    assert made <= budget
    if alone.status is Status.MAX_EVALUATIONS:
        assert not looks and result.status is Status.MAX_EVALUATIONS  # the search itself comes first


def test_work_and_time_are_budgets_as_well():
    residuals, middle = two_valleys((1, 0))
    objective, spent = suffice.exact(residuals), []

    def search(starts, options):
        spent.append(options)
        result = suffice.tune(objective, starts[0], bounds=(LOWER, UPPER), options=options)
        return suffice.Result(**{**vars(result), "work": 70.0})

    def look(theta, within, warm):
        return suffice.Evaluation(theta, residuals(theta), [0.0], work=10.0)

    for limit, searches in ((70.0, 1), (75.0, 1), (80.0, 1), (1e3, 2)):
        spent.clear()
        options = suffice.Options(final_radius=1e-3, max_work=limit)
        search_with_edges(search, look, (LOWER, UPPER), [middle], options)
        assert len(spent) == searches
    assert spent[1].max_work < 1e3 - 70.0 and spent[1].max_evaluations < spent[0].max_evaluations
    spent.clear()
    search_with_edges(search, look, (LOWER, UPPER), [middle], suffice.Options(final_radius=1e-3, max_seconds=1e-9))
    assert len(spent) == 1


def test_a_search_that_was_stopped_is_not_continued():
    objective, looks = suffice.exact(two_valleys((0, 0))[0]), []

    def stop(record):
        raise StopIteration

    def search(starts, options):
        return suffice.tune(objective, starts[0], bounds=(LOWER, UPPER), options=options, callback=stop)

    result = search_with_edges(search, looks.append, (LOWER, UPPER), [np.array([0.3, 0.3])], suffice.Options())
    assert result.status is Status.STOPPED and not looks


@pytest.mark.parametrize("m", [1, 2, 5, 20])
def test_looks_lie_in_the_box_and_on_bounds_that_are_near(m):
    rng = np.random.default_rng(m)
    lower, upper = -rng.uniform(1, 9, m), rng.uniform(1, 9, m)
    for _ in range(20):
        theta = rng.uniform(lower, upper)
        places = edges(theta, lower, upper) + sides(theta, 0.05 * (upper - lower), lower, upper)
        for place in places:
            assert (lower <= place).all() and (place <= upper).all() and not np.array_equal(place, theta)
        for place in edges(theta, lower, upper):
            moved = place != theta
            assert (np.isin(place[moved], [*lower, *upper])).all()
            assert (np.abs(place - theta)[moved] <= (upper - lower)[moved] / 3).all()


@pytest.mark.parametrize("m", [1, 2, 3, 4, 20])
def test_the_number_of_looks_grows_with_the_number_of_parameters_only(m):
    objective, looks = suffice.exact(lambda theta: np.array([1.0, *(theta - 0.2)])), []
    bounds = np.zeros(m), np.ones(m)

    def search(starts, options):
        return suffice.tune(objective, starts[0], bounds=bounds, options=options)

    def look(theta, within, warm):
        looks.append(theta)
        return objective.evaluate(theta, within=within, warm=warm)

    options = suffice.Options(final_radius=1e-2, max_evaluations=1000)
    result = search_with_edges(search, look, bounds, [np.full(m, 0.5)], options)
    assert result.success and 1 <= len(looks) <= m + 1 + (4 * m if m <= FEW else 0)


def test_infinite_bounds_are_never_near_and_an_edge_that_was_reached_is_none():
    inf = np.inf
    assert edges(np.array([1e9, 0.0]), np.array([-inf, 0.0]), np.array([inf, inf])) == []
    assert edges(np.array([0.0]), np.array([0.0]), np.array([1.0])) == []
    assert [place.tolist() for place in edges(np.array([0.9, 0.5]), LOWER, UPPER)] == [[1.0, 0.5]]
    at_a_corner = sides(np.array([0.0, 1.0]), np.array([0.1, 0.1]), LOWER, UPPER)
    np.testing.assert_allclose(at_a_corner, [[0.1, 1.0], [0.0, 0.9]])


@pytest.mark.parametrize(("height", "looked_at"), [(0.5, False), (1e-3, True)])
def test_a_single_parameter_is_not_moved_to_where_first_looks_have_shown_that_f_rises(height, looked_at):
    """Looks on both sides of the valley: where F is far higher there it will not be lower between."""
    objective, looks = suffice.exact(lambda theta: np.array([1.0, theta[0]])), []
    bounds = np.array([-6.0]), np.array([6.0])
    before = [suffice.Evaluation(np.array([x]), [1.0, height], [0.0, 0.0]) for x in (-1.2, 1.2)]

    def search(starts, options):
        return suffice.tune(objective, starts[0], bounds=bounds, options=options)

    def look(theta, within, warm):
        looks.append(theta)
        return objective.evaluate(theta, within=within, warm=warm)

    options = suffice.Options(initial_radius=0.8, enough=1e-4, max_evaluations=100)
    search_with_edges(search, look, bounds, [np.array([0.1])], options, before)
    assert bool(looks) == looked_at
