"""The paper's claims, as numbers from a study."""

from __future__ import annotations

from typing import Any

import numpy as np

from suffice.reproduce.study import DYNAMIC

REFERENCE = np.array([-1.0462, 1.6253])
REFERENCE_F = 131.0417


def check(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Every claim that the study's runs can speak to, with what was measured and whether it holds."""
    runs = {(one["variant"], one["start"]): one for one in data["runs"]}
    claims: list[dict[str, Any]] = []
    if not runs:
        return claims
    starts = sorted({start for _, start in runs})
    fixed = [variant for variant in dict.fromkeys(variant for variant, _ in runs) if variant != DYNAMIC]
    exact, low = fixed[-1], fixed[0]

    def say(claim: str, target: str, measured: str, passed: bool, note: str = "") -> None:
        claims.append({"claim": claim, "target": target, "measured": measured, "passed": passed, "note": note})

    def theta(variant: str, start: float) -> Any:
        return np.array(runs[variant, start]["theta"])

    off = float(np.max(np.abs(theta(low, 1.0) - theta(DYNAMIC, 1.0))))
    say(f"{low} ends at a clearly different theta", "> 0.2 decades", f"{off:.3f} decades", off > 0.2)
    off = float(np.max(np.abs(theta(exact, 1.0) - theta(DYNAMIC, 1.0))))
    say(f"{exact} and dynamic agree", "<= 0.02 decades", f"{off:.4f} decades", off <= 0.02)

    best = data["best"]["F"]
    work = {variant: work_to(runs[variant, 1.0], best, 1e-3) for variant in (DYNAMIC, *fixed)}
    rival = min((work[variant] for variant in fixed), default=np.inf)
    say(
        "From (1, 1) dynamic reaches 0.1 % with no more work than the best fixed K, chosen in hindsight",
        f"<= {rival:,.0f}" if np.isfinite(rival) else "no fixed K reaches it",
        f"{work[DYNAMIC]:,.0f}",
        bool(work[DYNAMIC] <= rival),
    )
    if len(starts) > 1:
        for variant in (DYNAMIC, *fixed):
            ends = np.array([theta(variant, start) for start in starts])
            spread = float(np.max(np.ptp(ends, axis=0)))
            if variant in (DYNAMIC, exact):
                say(
                    f"Final theta of {variant} over the starts", "spread < 0.05 decades", f"{spread:.4f}", spread < 0.05
                )
        first, last = starts[0], starts[-1]
        shares = [
            work_to(runs[DYNAMIC, start], best, 1e-3) / work_to(runs[exact, start], best, 1e-3)
            for start in (first, last)
        ]
        say(
            f"As the starting l2 grows, dynamic's work to 0.1 % falls relative to that of {exact}",
            "smaller at the largest start",
            f"{shares[0]:.3f} at 10^{first:g}, {shares[1]:.3f} at 10^{last:g}",
            bool(shares[1] < shares[0]),
        )
    if data["validation"]:
        mean = {
            variant: float(np.mean([row["accuracy"] for row in data["validation"] if row["variant"] == variant]))
            for variant in (DYNAMIC, *fixed)
        }
        for better in (DYNAMIC, exact):
            rest = max(mean[variant] for variant in fixed[:-1])
            say(
                f"Validation: {better} at least as accurate as the looser variants, on average",
                f">= {rest:.4f}",
                f"{mean[better]:.4f}",
                mean[better] >= rest,
            )
        seen, unseen = (
            float(
                np.mean(
                    [
                        row["accuracy"]
                        for row in data["validation"]
                        if (row["digit"] in data["preset"]["digits"]) == known
                    ]
                )
            )
            for known in (True, False)
        )
        say("Validation: digits 6..9 are harder than 0..5", f"< {seen:.4f}", f"{unseen:.4f}", unseen < seen)
    if data["preset"]["name"] == "full":
        off = float(np.max(np.abs(theta(DYNAMIC, 1.0) - REFERENCE)))
        say("Final theta on the reference split", "within 0.005", f"{off:.4f}", off <= 0.005)
        relative = abs(runs[DYNAMIC, 1.0]["exact"] / REFERENCE_F - 1.0)
        say("F on the reference split", "within 1e-4 relative", f"{relative:.1e}", relative <= 1e-4)
    return claims


def work_to(one: dict[str, Any], best: float, level: float) -> float:
    """The work after which the incumbent's exact F is within `level` of the best; infinite if never."""
    for record in one["records"]:
        if record["incumbent_exact"] <= best * (1.0 + level):
            return float(record["work"])
    return float("inf")
