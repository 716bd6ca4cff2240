"""The demo's page: there while the demo runs, and until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from urllib.request import urlopen

SECONDS_MAX = 120  # on a busy machine; some 2 s when it is free

# A shell that starts tests in the background lets them ignore Ctrl-C, and so would all that they start.
_HEEDING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gossipd.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_demo_shows_its_page_and_runs_on_until_interrupted() -> None:
    command = [sys.executable, "-c", _HEEDING, "demo", "--web", "--hosts", "2", "--racks", "1", "--size", "4MiB"]
    process = subprocess.Popen([*command, "--json"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url, told = "", []
        for line in process.stderr:
            told.append(line)
            if "the page is at" in line:
                url = line.split()[-1]
            if "Ctrl-C ends them" in line:
                break
        assert url and "Ctrl-C ends them" in told[-1], "".join(told)
        with urlopen(f"{url}page/status", timeout=SECONDS_MAX) as answer:
            status = json.load(answer)
        assert status["node"]["name"] == "node-1"
        assert status["deployments"][0]["hosts_complete"] == 2
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0
        assert json.loads(said)["verified"] is True
    finally:
        process.kill()
        process.communicate()
