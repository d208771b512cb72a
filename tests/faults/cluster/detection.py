"""How a fault was found: when, by the ranks' own time stamps, and what the verdict says of it."""

import datetime
import json
import threading
import time


def named_after(attempt, since):
    """Seconds from `since` (time.time()) to the first record in which a rank says what happened.

    None: no rank has said anything.
    """
    said = []
    for path in [*attempt.path.glob("crash/r*.json"), attempt.path / "verdict.json"]:
        try:
            event = json.loads(path.read_text())
        except (OSError, ValueError):  # not there, or not complete
            continue
        said.append(datetime.datetime.fromisoformat(event["ts"]).timestamp() - since)
    # What was said before is about something else: a rank that failed by itself.
    return min(said, default=None)


def wrong_in(verdict, fault, victim, ranks):
    """What is wrong with the verdict after this fault: a list of texts. ranks: all, before it."""
    if verdict is None:
        return ["no verdict"]
    wrong = []
    if verdict["exit"] != fault.exit:
        wrong.append(f"exit {verdict['exit']}, expected {fault.exit}")
    hit = [p for p in ranks if p.node == victim.node] if fault.whole_node else [victim]
    reasons = {fault.reason.format(who=f"rank {p.rank} on {p.node}") for p in hit}
    if not any(reason in verdict["reason"] for reason in reasons):
        wrong.append(f"reason '{verdict['reason']}', expected '{min(reasons)}'")
    suspects = victim.node if fault.blames else ""
    if verdict.get("suspect_hosts", "") != suspects:
        wrong.append(f"suspect_hosts '{verdict.get('suspect_hosts', '')}', expected '{suspects}'")
    if fault.blames and verdict.get("first_host") != victim.node:
        wrong.append(f"first_host {verdict.get('first_host')}, expected {victim.node}")
    return wrong


class Lateness:
    """How late this machine wakes a process that sleeps: the most, in seconds, since it was entered.

    Bounds in seconds are promises for a machine that has time; with a compiler running it may have none.
    """

    PAUSE = 0.02

    def __enter__(self):
        self.most = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.is_set():
            before = time.monotonic()
            time.sleep(self.PAUSE)
            self.most = max(self.most, time.monotonic() - before - self.PAUSE)
