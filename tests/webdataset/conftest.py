"""A real web server that serves ranges, for shards behind a url."""

import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  log_format ranges "$request_method $status $body_bytes_sent"; access_log {folder}/access.log ranges;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/www;
    location /whole/ {{ max_ranges 0; alias {folder}/www/; }}
  }}
}}
"""


@dataclass
class Server:
    url: str
    folder: Path

    def gets(self):
        """Status and bytes of each GET since the last call."""
        log = self.folder / "access.log"
        lines = [line.split() for line in log.read_text().splitlines()]
        log.write_text("")
        return [(int(status), int(size)) for method, status, size in lines if method == "GET"]


def answers(process, port):
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """An nginx of its own that serves the folder www."""
    if NGINX is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "www").mkdir()
    for _ in range(5):  # somebody else may take the port first
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port))
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
        process = subprocess.Popen(command)
        try:
            if answers(process, port):
                yield Server(f"http://127.0.0.1:{port}", folder)
                return
        finally:
            process.terminate()
            process.wait(20)
    pytest.fail((folder / "error.log").read_text())
