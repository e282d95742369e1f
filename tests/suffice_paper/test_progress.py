"""The time left is estimated from what is known, and only once something is."""

from __future__ import annotations

import json

from suffice_paper.progress import StudyProgress, describe, note

GROUPS = [[("K = 20", 0.0), ("K = 20", 1.0)], [("K = 200", 0.0)]]


def lines(*entries):
    return "\n".join(json.dumps(entry) for entry in entries)


def test_nothing_is_said_before_anything_is_known():
    assert describe("", GROUPS, 80, 2) == ""


def test_before_a_run_has_ended_only_the_limit_of_the_budget_is_told():
    # 70 evaluations of 1 s are left of one run, 80 of the next; K = 200 takes ten times as long: 800 s
    text = lines(["K = 20", 0.0, 10, False, 10.0])
    assert describe(text, GROUPS, 80, 2) == "10 evaluations, 0 of 3 runs ended, at most 13 min left"


def test_runs_are_expected_to_take_as_many_evaluations_as_those_that_ended():
    text = lines(["K = 20", 0.0, 40, True, 40.0], ["K = 20", 1.0, 10, False, 10.0], ["K = 200", 0.0, 39, False, 390.0])
    line = describe(text, GROUPS, 80, 2)
    assert line == "89 evaluations, 1 of 3 runs ended, about 30 s left, at most 7 min"


def test_a_variant_nobody_has_seen_yet_is_not_guessed():
    text = lines(["K = 20", 0.0, 40, True, 40.0])
    assert describe(text, [*GROUPS, [("dynamic", 0.0)]], 80, 2).endswith("time left not known yet")


def test_an_ended_study_has_no_time_left():
    text = lines(*([*key, 40, True, 1.0] for group in GROUPS for key in group))
    assert describe(text, GROUPS, 80, 2) == "120 evaluations, 3 of 3 runs ended"


def test_a_line_that_is_being_written_is_left_out():
    text = lines(["K = 20", 0.0, 10, False, 10.0]) + '\n["K = 20", 0.0, 1'
    assert describe(text, GROUPS, 80, 2).startswith("10 evaluations")


def test_notes_are_shown_at_the_latest_at_the_end(tmp_path):
    shown = []
    with StudyProgress(tmp_path, 80, [("K = 20", [0.0])], 1, shown.append):
        note(tmp_path, "K = 20", 0.0, 3, True, 1.5)
    assert shown == ["3 evaluations, 1 of 1 runs ended"]
