"""Where a run stands."""

from __future__ import annotations

import shlex
import time
from typing import Any

from elbowroom.certificates.lock import held_since, holder
from elbowroom.certificates.store import Run
from elbowroom.runs.origin import origin_lines
from elbowroom.runs.stored import stored_settings


def status_of(run: Run) -> dict[str, Any]:
    """Where a run stands, as a JSON object. Reads no part."""
    finished = run.finished()
    done = sum(len(run.rows(k)) for k in finished)
    data, writer = run.plan.data or {}, holder(run.folder)
    since, written = held_since(run.folder) if writer else None, run.last_written() if finished else None
    now = time.time()
    return {
        "run": str(run.folder),
        "network": repr(run.network),
        "network_hash": run.claim["network_hash"],
        "origin": origin_lines(run.network),
        "data": data.get("name"),
        "inputs": run.plan.inputs,
        "done": done,
        "parts": run.n_parts,
        "parts_done": len(finished),
        "complete": done == run.plan.inputs,
        "writer": writer,
        "running_seconds": None if since is None else max(0.0, now - since),
        "seconds_since_last_part": None if written is None else max(0.0, now - written),
        "resume": how_to_go_on(run.folder) if (stored_settings(run.plan) or {}).get("data") else None,
    }


def how_to_go_on(folder: object) -> str:
    """The command that resumes a run."""
    return f"elbowroom certify --resume --out {shlex.quote(str(folder))}"
