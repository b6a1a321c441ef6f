"""`python -m elbowroom.proof RUN`: proves a run again with the proof alone, and prints what it found as JSON.

For auditors who want to read, copy and run as little code as can be: nothing of the search, of readers or of commands
is imported. Exit status 0: all proved, and the run is complete; 1: one or more are not proved; 2: something cannot be
read; 3: there is nothing to prove, or the run is incomplete. (`elbowroom check` does the same part by part, compares
with your model, and speaks to people.)
"""

from __future__ import annotations

import argparse
import json
import sys

from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError
from elbowroom.proof.recheck import ARITHMETICS, check


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m elbowroom.proof", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("--arithmetic", choices=ARITHMETICS, default=ARITHMETICS[0])
    told = parser.parse_args()
    try:
        certs = Certificates.load(told.run)
        report = check(certs, arithmetic=told.arithmetic)
    except ElbowroomError as error:
        print(f"elbowroom.proof: {error}", file=sys.stderr)
        return 2
    failures = [{"input": certs.number(k), "message": report.message[k]} for k in report.failures]
    found = {
        "network_hash": certs.settings["network_hash"], "arithmetic": report.arithmetic, "deployed": report.deployed,
        "inputs": len(report), "missing": report.missing, "proved": int(report.passed.sum()), "failures": failures,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    return 1 if failures else 0 if report else 3


if __name__ == "__main__":
    sys.exit(main())
