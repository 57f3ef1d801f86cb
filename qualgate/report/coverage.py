"""Coverage numbers as lines of text, and the layers that are covered worst."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qualgate.text.numbers import counted

WORST = 3  # layers named


def coverage_lines(coverage: dict[str, Any]) -> list[str]:
    """Return the lines for the JSON of a `Coverage`, or of a variant that read no calibration data."""
    if coverage["status"] == "not_applicable":
        return [f"coverage: not applicable ({coverage['reason']})"]
    calibration, traffic, strata, leakage = (coverage[key] for key in ("calibration", "traffic", "strata", "leakage"))
    sets = ", ".join(f"{evalset['name']} v{evalset['version']}" for evalset in traffic["evalsets"])
    lines = [
        f"calibration {calibration['name']} v{calibration['version']}: {counted(calibration['cases'], 'case')}, "
        f"{counted(calibration['tokens'], 'token')}; {_sampled(calibration)}",
        f"traffic {sets}: {counted(traffic['cases'], 'case')}, {counted(traffic['tokens'], 'token')}; "
        f"{_sampled(traffic)}",
        f"  range              {_number(coverage['range']['min'])} at the worst layer, "
        f"{_number(coverage['range']['p1_over_channels'])} at the 1st percentile of channels; "
        f"clipped energy {_number(coverage['range']['clipped_energy_max'])}"
        + _worst_layer(coverage, "clipped_energy", max),
        f"  outlier channels   {_number(coverage['outlier_channels']['min'])} covered at the worst layer"
        + _worst_layer(coverage, "outliers", min),
        "  n-grams (1, 2, 3)  "
        + ", ".join(_number(gram["share"]) for gram in coverage["ngrams"].values())
        + " of the traffic's; unseen mass of the calibration "
        + ", ".join(_number(gram["good_turing_unseen"]) for gram in coverage["ngrams"].values()),
        f"  strata             smallest ratio {_number(strata['min_ratio'])} ({strata['least_covered'] or 'none'}), "
        f"Jensen-Shannon {_number(strata['divergence'])} nats, tool schemas known {_number(strata['tools'])}",
        f"  centroid distance  {_number(coverage['centroid_distance']['max'])} spreads at the worst layer"
        + _worst_layer(coverage, "centroid_distance", max),
        f"  leakage            {counted(leakage['grams'], 'run')} of 13 words and "
        f"{counted(leakage['same'], 'whole case')} shared",
    ]
    if leakage["cases"]:
        more = f" and {len(leakage['cases']) - 5} more" if len(leakage["cases"]) > 5 else ""
        lines.append(f"    in {', '.join(leakage['cases'][:5])}{more}")
    worst = sorted(
        (site for site in coverage["sites"] if site["range"] is not None),
        key=lambda site: (site["range"], site["site"]),
    )[:WORST]
    lines += [f"  least covered      {site['site']}: range {_number(site['range'])}" for site in worst]
    for flag in coverage["flags"]:
        word = {True: "ok  ", False: "LOW " if ">=" in flag["bound"] else "HIGH", None: "?   "}[flag["met"]]
        lines.append(f"  {word} {flag['name']} {_number(flag['value'])} (suggested {flag['bound']})")
    return lines


def _sampled(side: dict[str, Any]) -> str:
    cases, tokens = counted(side["activation_cases"], "case"), counted(side["activation_tokens"], "token")
    return f"{cases}, {tokens} run through the model"


def _worst_layer(coverage: dict[str, Any], name: str, worst: Callable[..., dict[str, Any]]) -> str:
    """Return the layer with the worst value of the number `name`, in brackets; "" if none has it. worst: max or min."""
    sites = [site for site in coverage["sites"] if site.get(name) is not None]
    return f" ({worst(sites, key=lambda site: site[name])['site']})" if sites else ""


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
