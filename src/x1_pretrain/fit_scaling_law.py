"""`python -m x1_pretrain.fit_scaling_law --input runs.csv --output fit.json --bootstrap 1000`.

The law of a table of runs, with intervals that hold for three rows as well as for three hundred.
Starts without torch, and draws iso-flop.png beside fit.json.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from x1_pretrain.config import Fit
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.scaling.curve_fit import curve_fit
from x1_pretrain.scaling.envelope import envelope, read_curves
from x1_pretrain.scaling.fit import Study, infer
from x1_pretrain.scaling.fit_json import fit_json
from x1_pretrain.scaling.identify import PARAMETERS
from x1_pretrain.scaling.prediction import target_json
from x1_pretrain.scaling.prior import DEFAULT
from x1_pretrain.scaling.runs import read_runs


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; unknown options end the program with a message."""
    parser = argparse.ArgumentParser(prog="python -m x1_pretrain.fit_scaling_law", description=__doc__)
    parser.add_argument(
        "--input",
        type=Path,
        required=True,
        help="CSV with run_id, N, D, val_loss (raw counts, nats)",
    )
    parser.add_argument("--output", type=Path, required=True, help="fit.json to write")
    parser.add_argument("--bootstrap", type=int, default=1000, help="pairs-bootstrap resamples, 0 for none")
    parser.add_argument(
        "--method",
        choices=("posterior", "curve_fit"),
        default="posterior",
        help="whose values the five points are: of the posterior and the point fit, or the lab's curve_fit",
    )
    parser.add_argument("--curves", type=Path, help="folder of training curves, <model>.csv, for approach 1")
    parser.add_argument("--target-params", type=float, default=1e9, help="size to extrapolate to")
    parser.add_argument("--prior", type=Path, default=DEFAULT, help="another prior file")
    parser.add_argument("--walkers", type=int, default=100, help="walkers of the posterior sampler")
    parser.add_argument("--draws", type=int, default=6000, help="steps of each walker")
    parser.add_argument("--no-figure", action="store_true", help="do not draw iso-flop.png")
    return parser.parse_args(arguments)


@exit_on_user_error
def main() -> None:
    options = parse(sys.argv[1:])
    if options.bootstrap < 0:
        raise UserError(f"--bootstrap: {options.bootstrap} is not a number of resamples; give 0 or more")
    if not options.target_params > 0:
        raise UserError(
            f"--target-params: {options.target_params} is not a number of parameters; give one above 0"
        )
    settings = Fit(
        bootstrap=options.bootstrap,
        walkers=options.walkers,
        draws=options.draws,
        target_params=options.target_params,
    )
    runs = read_runs(options.input)
    asked = curve_fit(runs) if options.method == "curve_fit" else None
    if isinstance(asked, str):
        raise UserError(f"--method curve_fit: {asked}; leave the option out")
    steps = envelope(read_curves(options.curves, runs)) if options.curves else None
    study = infer(runs, settings, options.prior)
    content = fit_json(study, settings, steps, asked)
    write_json(options.output, content)
    if not options.no_figure:
        from x1_pretrain.scaling.figure import draw  # matplotlib doubles the start-up time

        draw(study, options.output.with_name("iso-flop.png"))
    print(summary(content, study, settings))


def summary(content: dict[str, Any], study: Study, settings: Fit) -> str:
    """What a person wants to see of fit.json."""
    lines = [f"{'':8}{content['point_is']:>18}{'95% interval':>28}{'prior alone, 95%':>28}"]
    for name in PARAMETERS:
        low, high = content[name]["ci95"]
        prior = content["posterior"]["parameters"][name]["prior_ci95"]
        lines.append(
            f"{name:8}{content[name]['point']:>18.4g}{f'{low:.4g} .. {high:.4g}':>28}"
            f"{f'{prior[0]:.3g} .. {prior[1]:.3g}':>28}"
        )
    best, target = content["n_opt"], target_json(study, settings.target_params)
    lines += [
        f"N_opt at {best['C']:.3g} FLOPs: {best['median']:.3g} "
        f"({best['ci95'][0]:.3g} .. {best['ci95'][1]:.3g}), {best['mark']}",
        f"D_opt at N = {target['N']:.3g}: {target['D_opt']['median']:.3g} tokens "
        f"({target['D_opt']['ci95'][0]:.3g} .. {target['D_opt']['ci95'][1]:.3g}), "
        f"{target['kind']} over {target['decades_in_N']:.1f} decades of N",
        "identified: " + ("yes" if content["identified"] else "no"),
    ]
    lines += [f"  {reason}" for reason in content["identified_why"]]
    if "refused" in content["bootstrap"]:
        lines.append(f"bootstrap refused: {content['bootstrap']['refused']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
