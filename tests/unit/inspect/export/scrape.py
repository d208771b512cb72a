"""Debian's node_exporter and prometheus over a folder of text files, as on a cluster.

    with scrape.Prometheus(folder, rules="alerts.yml") as prometheus:
        prometheus.query("gaccd_steps_total")
"""

import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

PROGRAMS = ("promtool", "prometheus", "prometheus-node-exporter")


def missing():
    """Which of the programs are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class ServerEnded(Exception):
    pass


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def _wait_for(what, seconds=60):
    """Its first value that is true."""
    end = time.monotonic() + seconds
    while True:
        try:
            if value := what():
                return value
        except OSError:
            pass
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.2)


class Prometheus:
    """Both servers while the block lasts, on free ports of 127.0.0.1."""

    def __init__(self, folder, rules=None):
        self.folder, self.rules, self.servers = folder, rules, []

    def __enter__(self):
        for _ in range(4):
            try:
                return self._begin()
            except ServerEnded:  # another program may have taken a port that was free a moment ago
                pass
        return self._begin()

    def _begin(self):
        self.work = tempfile.TemporaryDirectory()
        nodes, self.port = _free_port(), _free_port()
        config = pathlib.Path(self.work.name) / "prometheus.yml"
        config.write_text("global: {scrape_interval: 2s}\nscrape_configs:\n"
                          f"  - {{job_name: node, static_configs: [{{targets: ['127.0.0.1:{nodes}']}}]}}\n"
                          + (f"rule_files: ['{self.rules}']\n" if self.rules else ""))
        try:
            self._start("prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
                        f"--collector.textfile.directory={self.folder}", f"--web.listen-address=127.0.0.1:{nodes}")
            self._start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.work.name}/data",
                        f"--web.listen-address=127.0.0.1:{self.port}")
            self.scraped = _wait_for(lambda: self._alive() and _get(f"http://127.0.0.1:{nodes}/metrics"))
            _wait_for(lambda: self._alive() and self._rows("node_textfile_scrape_error"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error):
        for server in self.servers:
            server.terminate()
            server.wait(60)
        self.servers = []
        self.work.cleanup()

    def query(self, text):
        """The rows of an instant query, at least one: their labels, and a value as text.

        After a scrape that took too long there are none until the next one.
        """
        return _wait_for(lambda: self._rows(text))

    def _alive(self):
        if any(server.poll() is not None for server in self.servers):
            raise ServerEnded
        return True

    def _rows(self, text):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        return [(row["metric"], row["value"][1]) for row in json.loads(_get(url))["data"]["result"]]

    def _start(self, *command):
        self.servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
