"""The paper's claims hold: computed anew from one start of the quick study, and from the records of the full one."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from suffice_paper.claims import check
from suffice_paper.study import ADAPTIVE, DYNAMIC, PRESETS, make

FULL = Path(__file__).parents[2] / "docs" / "paper" / "study.json.gz"

# What does not hold here because the upper level is better than the paper's, and is said so in the report.
OVERTAKEN = {
    "From (1, 1) dynamic reaches 0.1 % with no more work than the best fixed K, chosen in hindsight",
    "Final theta of K = 20 over the starts",
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    short = replace(PRESETS["quick"], final_radius=2e-3)
    return make(short, {"fig2"}, tmp_path_factory.mktemp("quick"), "test", lambda line: None)


@pytest.mark.slow
def test_the_claims_about_one_start_hold_on_the_quick_preset(quick):
    claims = {claim["claim"]: claim for claim in quick["claims"]}
    assert len(claims) == 4
    for claim in claims.values():
        assert claim["passed"] == (claim["claim"] not in OVERTAKEN), claim
        assert claim["overtaken"] == (not claim["passed"]), claim
        assert claim["passed"] or claim["note"]


@pytest.mark.slow
def test_exact_values_lie_in_the_intervals_that_the_quick_runs_have_proven(quick):
    checked = 0
    for one in quick["runs"]:
        for record in one["records"]:
            if one["variant"] in (DYNAMIC, ADAPTIVE):
                low, high = record["interval"]
                slack = record["exact_error"] + 1e-9 * record["exact"]
                assert low - slack <= record["exact"] <= high + slack
                checked += 1
    assert checked > 30


@pytest.fixture(scope="module")
def full():
    return json.loads(gzip.decompress(FULL.read_bytes()))


def test_every_claim_about_the_full_study_is_computed_from_its_records(full):
    claims = check(full)
    assert claims == full["claims"]
    assert {claim["claim"] for claim in claims if not claim["passed"]} == OVERTAKEN
    assert {claim["claim"] for claim in claims if claim["overtaken"]} == OVERTAKEN
    assert all(claim["note"] for claim in claims if not claim["passed"])


def test_the_full_study_is_complete(full):
    preset = PRESETS["full"]
    assert {(one["variant"], one["start"]) for one in full["runs"]} == {
        *((variant, start) for variant in (DYNAMIC, *preset.fixed) for start in preset.starts),
        (ADAPTIVE, 1.0),
    }
    assert len(full["validation"]) == (4 * 7 + 1) * 10
    for one in full["runs"]:
        for record in one["records"]:
            assert record["exact_error"] <= 1e-6 * record["exact"]
            if record["interval"] is not None:
                low, high = record["interval"]
                slack = record["exact_error"] + 1e-9 * record["exact"]
                assert low - slack <= record["exact"] <= high + slack
