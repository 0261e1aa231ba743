# SPDX-License-Identifier: Apache-2.0
"""Run the simulation: ``python -m tests.sim [--seconds N] [--sample] [--replay CASE]``."""

import argparse
import sys

from tests.sim import runner
from tests.sim.build import COVERAGE, PLAIN


def main() -> int:
    """Run a campaign, or one case. Return: the exit status."""
    parser = argparse.ArgumentParser(prog="tests.sim", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600,
                        help="about how long, without the mutations (default: %(default)s)")
    parser.add_argument("--sample", action="store_true", help="a minute instead")
    parser.add_argument("--coverage", action="store_true",
                        help="count the lines that are executed, see make sim-coverage")
    parser.add_argument("--first-seed", type=int, default=1,
                        help="of the random histories (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=0,
                        help="programs at a time (default: the processors)")
    parser.add_argument("--replay", metavar="CASE",
                        help="run one case again, as a violation names it, and print each step")
    options = parser.parse_args()
    if options.replay:
        return runner.replay(options.replay)
    if options.coverage:
        plan, variant = runner.coverage_plan(options.seconds), COVERAGE
        runner.forget_counts()
    else:
        plan = runner.sample_plan() if options.sample else runner.full_plan(options.seconds)
        variant = PLAIN
    report = runner.campaign(plan, options.first_seed, options.jobs, variant=variant)
    runner.write_report(report)
    missed = [one["name"] for one in report["mutations"] if not one["caught"]]
    print(f"{report['histories']} histories, {report['cuts']} power cuts in "
          f"{report['seconds']:.0f} s: {report['per_hour']} an hour, "
          f"{report['per_processor_hour']} an hour of one processor; "
          f"{report['violations']} violations; report: {runner.REPORT}")
    return 1 if report["violations"] or missed else 0


if __name__ == "__main__":
    sys.exit(main())
